//! Directories of specifications, as an engine sees them.
//!
//! Only `*.json` and `*.yaml` directly in a directory count. A later directory wins over an earlier one. A device that
//! two files of one directory define is a conflict, and then is nobody's, even where a later directory defines it too
//! (the reference library's pkg/cdi/cache.go).

use super::encode;
use super::parse::{self, Place};
use super::validate::{Fault, validate};
use super::{Device, Spec, locate, open, references};
use crate::text::{shown, some};
use crate::types::{CdiKind, QualifiedName};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// A good file.
#[derive(Debug, Clone)]
pub struct Loaded {
    /// Where it is.
    pub path: PathBuf,
    /// The rank of its directory: higher wins.
    pub rank: usize,
    /// What it says.
    pub spec: Spec,
    /// Its comment lines at the head, without their mark.
    pub comments: Vec<String>,
    /// Its text, to find the place of something in it.
    text: Vec<u8>,
}

/// Something that an engine will refuse, or do otherwise than its author meant.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Problem {
    /// The file or directory.
    pub path: PathBuf,
    /// Where in the file.
    pub at: Option<Place>,
    /// What is wrong.
    pub what: String,
    /// The devices that no engine finds because of it; `None` where the file does not even tell its devices.
    pub lost: Option<Vec<String>>,
}

impl std::fmt::Display for Problem {
    /// `FILE:LINE:COLUMN: what; lost: devices`. Names in it come from elsewhere, so what a terminal acts on is escaped.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut line = self.path.display().to_string();
        if let Some(at) = self.at {
            line.push_str(&format!(":{}:{}", at.line, at.column));
        }
        line.push_str(&format!(": {}", self.what));
        match &self.lost {
            None => line.push_str("; lost: every device in it"),
            Some(lost) if lost.is_empty() => {}
            Some(lost) => line.push_str(&format!("; lost: {}", some(lost))),
        }
        f.write_str(&shown(&line))
    }
}

/// A device and the file that defines it.
#[derive(Debug, Clone, Copy)]
pub struct Found<'a> {
    /// The file.
    pub file: &'a Loaded,
    /// The device.
    pub device: &'a Device,
}

/// What some directories hold.
#[derive(Debug, Clone, Default)]
pub struct Registry {
    files: Vec<Loaded>,
    /// Device name to file and place in it.
    devices: BTreeMap<String, (usize, usize)>,
    /// What is wrong.
    pub problems: Vec<Problem>,
}

impl Registry {
    /// Reads `dirs`, the later the stronger. A directory that is not there is none.
    pub fn read(dirs: &[PathBuf]) -> Self {
        let mut registry = Self::default();
        for (rank, dir) in dirs.iter().enumerate() {
            for path in registry.candidates(dir) {
                match open::read(&path) {
                    Ok(text) => registry.add(path, rank, &text),
                    Err(e) => registry.problem(&path, None, format!("cannot be read: {e}"), None),
                }
            }
        }
        registry.resolve();
        registry.sort_problems();
        registry
    }

    /// Reads one file by itself, whatever its name.
    pub fn read_file(path: &Path) -> Self {
        let mut registry = Self::default();
        match open::read(path) {
            Ok(text) => registry.add(path.to_owned(), 0, &text),
            Err(e) => registry.problem(path, None, format!("cannot be read: {e}"), None),
        }
        registry.resolve();
        registry
    }

    /// Adds a problem for everything that a good file points at and that this host does not have, once for each file: an
    /// engine finds such a device, and refuses the container.
    pub fn check_references(&mut self) {
        for file in &self.files {
            let faults = references::broken(&file.spec);
            let mut places: BTreeMap<&str, usize> = BTreeMap::new();
            for fault in &faults {
                *places.entry(&fault.what).or_default() += 1;
            }
            for fault in &faults {
                // Many devices need the same file: the first place speaks for the others.
                let Some(count) = places.remove(fault.what.as_str()) else {
                    continue;
                };
                let others = match count {
                    1 => String::new(),
                    2 => " (also in 1 other place)".to_owned(),
                    n => format!(" (also in {} other places)", n.saturating_sub(1)),
                };
                self.problems.push(Problem {
                    path: file.path.clone(),
                    at: place_of(&file.text, fault),
                    what: format!("{fault}{others}"),
                    lost: Some(Vec::new()),
                });
            }
        }
        self.sort_problems();
    }

    /// The good files.
    pub fn files(&self) -> &[Loaded] {
        &self.files
    }

    /// Every device that an engine would find, by name.
    pub fn devices(&self) -> impl Iterator<Item = (&str, Found<'_>)> {
        self.devices
            .keys()
            .filter_map(|name| Some((name.as_str(), self.find(name)?)))
    }

    /// The device of that name.
    pub fn find(&self, name: &str) -> Option<Found<'_>> {
        let (file, device) = *self.devices.get(name)?;
        let file = self.files.get(file)?;
        Some(Found {
            file,
            device: file.spec.devices.get(device)?,
        })
    }

    fn sort_problems(&mut self) {
        self.problems
            .sort_by(|a, b| (&a.path, place(a), &a.what).cmp(&(&b.path, place(b), &b.what)));
    }

    fn candidates(&mut self, dir: &Path) -> Vec<PathBuf> {
        let entries = match std::fs::read_dir(dir) {
            Ok(entries) => entries,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Vec::new(),
            Err(e) => {
                self.problem(dir, None, format!("cannot be read: {e}"), None);
                return Vec::new();
            }
        };
        let mut paths = Vec::new();
        for entry in entries {
            match entry {
                Ok(entry) => paths.push(entry.path()),
                Err(e) => self.problem(dir, None, format!("cannot be read: {e}"), None),
            }
        }
        paths.sort();
        for path in &paths {
            if path.extension().is_some_and(|e| e.eq_ignore_ascii_case("yml")) {
                let what = "engines read .yaml and .json only; rename it".to_owned();
                self.problem(path, None, what, None);
            }
        }
        paths.retain(|p| p.extension().is_some_and(|e| e == "yaml" || e == "json") && !p.is_dir());
        paths
    }

    fn problem(&mut self, path: &Path, at: Option<Place>, what: String, lost: Option<Vec<String>>) {
        self.problems.push(Problem {
            path: path.to_owned(),
            at,
            what,
            lost,
        });
    }

    fn add(&mut self, path: PathBuf, rank: usize, text: &[u8]) {
        let spec = match parse::spec(text) {
            Ok(spec) => spec,
            Err(refusal) => {
                let lost = parse::outline(text).map(|(kind, names)| qualified(&kind, names));
                self.problem(&path, refusal.at, refusal.what, lost);
                return;
            }
        };
        let faults = validate(&spec);
        if faults.is_empty() {
            self.files.push(Loaded {
                path,
                rank,
                comments: encode::comments_of(text),
                spec,
                text: text.to_owned(),
            });
            return;
        }
        let names: BTreeSet<String> = spec.devices.iter().map(|d| d.name.clone()).collect();
        let lost = qualified(&spec.kind, names);
        for (i, fault) in faults.iter().enumerate() {
            let at = place_of(text, fault);
            // The devices are lost once, however many faults the file has.
            let lost = if i == 0 { lost.clone() } else { Vec::new() };
            self.problem(&path, at, fault.to_string(), Some(lost));
        }
    }

    fn resolve(&mut self) {
        let mut conflicts: BTreeMap<String, BTreeSet<usize>> = BTreeMap::new();
        for (at, file) in self.files.iter().enumerate() {
            for (i, device) in file.spec.devices.iter().enumerate() {
                let name = format!("{}={}", file.spec.kind, device.name);
                let old = self.devices.get(&name).copied();
                let old_rank = old.and_then(|(old, _)| self.files.get(old)).map(|f| f.rank);
                if old_rank == Some(file.rank) {
                    let files = conflicts.entry(name).or_default();
                    files.extend(old.map(|(old, _)| old));
                    files.insert(at);
                } else {
                    self.devices.insert(name, (at, i));
                }
            }
        }
        let mut by_files: BTreeMap<BTreeSet<usize>, Vec<String>> = BTreeMap::new();
        for (name, files) in conflicts {
            self.devices.remove(&name);
            by_files.entry(files).or_default().push(name);
        }
        for (files, names) in by_files {
            let paths: Vec<PathBuf> = files
                .iter()
                .filter_map(|f| self.files.get(*f))
                .map(|f| f.path.clone())
                .collect();
            let Some((last, others)) = paths.split_last() else {
                continue;
            };
            let others: Vec<String> = others.iter().map(|p| p.display().to_string()).collect();
            let what = format!(
                "defines devices that are also in {}; engines ignore them in every file; remove all files but one",
                others.join(" and ")
            );
            self.problem(last, None, what, Some(names));
        }
    }

    /// Devices that a stronger directory defines too: `(name, the file that loses, the file that wins)`.
    pub fn shadowed(&self) -> Vec<(String, &Path, &Path)> {
        let mut found = Vec::new();
        for file in &self.files {
            for device in &file.spec.devices {
                let name = format!("{}={}", file.spec.kind, device.name);
                if let Some(winner) = self.find(&name)
                    && winner.file.rank > file.rank
                {
                    found.push((name, file.path.as_path(), winner.file.path.as_path()));
                }
            }
        }
        found
    }

    /// The names that are most like `name`, for who mistyped it: those of its kind.
    pub fn alike(&self, name: &str) -> Vec<&str> {
        let kind = name.split_once('=').map_or(name, |(kind, _)| kind);
        self.devices
            .keys()
            .filter(|n| n.split_once('=').is_some_and(|(k, _)| k == kind))
            .map(String::as_str)
            .collect()
    }
}

/// Where `text` has what `fault` is about.
fn place_of(text: &[u8], fault: &Fault) -> Option<Place> {
    let text = std::str::from_utf8(text).ok()?;
    locate::place(text, &fault.at)
}

fn place(problem: &Problem) -> Option<(u64, u64)> {
    problem.at.map(|p| (p.line, p.column))
}

fn qualified(kind: &str, names: impl IntoIterator<Item = String>) -> Vec<String> {
    let kind_is_good = kind.parse::<CdiKind>().is_ok();
    names
        .into_iter()
        .map(|name| {
            let whole = format!("{kind}={name}");
            if kind_is_good && whole.parse::<QualifiedName>().is_ok() {
                whole
            } else {
                format!("\"{whole}\"")
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn dirs(files: &[(&str, &str)]) -> (tempfile::TempDir, Registry) {
        let dir = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let path = dir.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let registry = Registry::read(&[
            dir.path().join("etc"),
            dir.path().join("run"),
            dir.path().join("missing"),
        ]);
        (dir, registry)
    }

    fn one(devices: &[&str]) -> String {
        let mut text = "cdiVersion: 0.5.0\nkind: v.com/cards\ndevices:\n".to_owned();
        for name in devices {
            text.push_str(&format!("- name: \"{name}\"\n  containerEdits:\n    env: [X=1]\n"));
        }
        text
    }

    fn names(registry: &Registry) -> Vec<&str> {
        registry.devices().map(|(name, _)| name).collect()
    }

    #[test]
    fn the_later_directory_wins_and_others_are_not_read() {
        let (_dir, registry) = dirs(&[
            ("etc/a.yaml", &one(&["0", "1"])),
            ("run/b.json", &one(&["1"])),
            ("etc/c.txt", "x"),
            ("etc/sub/d.yaml", &one(&["2"])),
        ]);
        assert_eq!(names(&registry), ["v.com/cards=0", "v.com/cards=1"]);
        assert!(
            registry
                .find("v.com/cards=1")
                .unwrap()
                .file
                .path
                .ends_with("run/b.json")
        );
        assert_eq!(registry.problems, []);
        assert_eq!(registry.shadowed().len(), 1);
    }

    #[test]
    fn two_in_one_directory_are_nobodys() {
        let (_dir, registry) = dirs(&[
            ("etc/a.yaml", &one(&["0", "1"])),
            ("etc/b.yaml", &one(&["1", "2"])),
            ("run/c.yaml", &one(&["1"])),
        ]);
        assert_eq!(names(&registry), ["v.com/cards=0", "v.com/cards=2"]);
        assert_eq!(registry.problems.len(), 1);
        assert_eq!(registry.problems[0].lost, Some(vec!["v.com/cards=1".to_owned()]));
    }

    #[test]
    fn broken_files_are_named_with_what_is_lost() {
        let (_dir, registry) = dirs(&[
            ("etc/a.yaml", &one(&["0"])),
            ("etc/b.yaml", &format!("{}  typo: 1\n", one(&["7"]))),
            (
                "etc/c.yaml",
                "cdiVersion: 0.3.0\nkind: v.com/cards\ndevices:\n- name: \"8\"\n  containerEdits:\n    env:\n    - oops\n",
            ),
            ("etc/d.json", "{"),
            ("etc/e.yml", &one(&["9"])),
        ]);
        assert_eq!(names(&registry), ["v.com/cards=0"]);
        let said: Vec<String> = registry
            .problems
            .iter()
            .map(|p| p.to_string().rsplit_once("/etc/").unwrap().1.to_owned())
            .collect();
        assert!(
            said[0].starts_with("b.yaml:7:3: ") && said[0].ends_with("; lost: v.com/cards=7"),
            "{said:?}"
        );
        assert!(
            said[1].starts_with("c.yaml:1:13: cdiVersion: 0.3.0 is declared"),
            "{said:?}"
        );
        assert!(said[1].ends_with("; lost: v.com/cards=8"), "{said:?}");
        assert!(
            said[2].starts_with("c.yaml:7:7: devices[0].containerEdits.env[0]: \"oops\""),
            "{said:?}"
        );
        assert!(
            said[3].starts_with("d.json:1:") && said[3].ends_with("; lost: every device in it"),
            "{said:?}"
        );
        assert!(said[4].starts_with("e.yml: engines read"), "{said:?}");
        assert_eq!(said.len(), 5);
    }
}
