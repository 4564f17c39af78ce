//! Directories of specifications, as an engine sees them.
//!
//! Only `*.json` and `*.yaml` directly in a directory count. A later directory wins over an earlier one. A device that
//! two files of one directory define is a conflict: no engine finds it, even if a later directory defines it too (the
//! reference library's pkg/cdi/cache.go).

use super::header::REFRESHED;
use super::problem::ProblemKind;
use super::validate::{Fault, validate};
use super::{Device, Problem, Spec, directory, encode, open, parse, references};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use tranche_core::types::{CdiKind, Place, QualifiedName};

/// A valid file.
#[derive(Debug, Clone)]
pub struct Loaded {
    /// Where it is.
    pub path: PathBuf,
    /// The number of its directory: the higher wins.
    pub rank: usize,
    /// Its content.
    pub spec: Spec,
    /// The comment lines at its beginning, without `#`.
    pub comments: Vec<String>,
    /// Its text, in which the place of a fault is looked up.
    text: Vec<u8>,
}

impl Loaded {
    /// Whether `tranche cdi refresh` wrote it, and may replace or remove it.
    pub fn is_refreshed(&self) -> bool {
        self.comments.iter().any(|line| line == REFRESHED)
    }

    /// The numbers and names of its devices.
    fn names(&self) -> impl Iterator<Item = (usize, QualifiedName)> {
        // A valid specification has a valid kind and valid names.
        let kind: Option<CdiKind> = self.spec.kind.parse().ok();
        let devices = self.spec.devices.iter().enumerate();
        devices.filter_map(move |(i, device)| Some((i, kind.as_ref()?.device(device.name.parse().ok()?))))
    }
}

/// A device and the file that defines it.
#[derive(Debug, Clone, Copy)]
pub struct FoundDevice<'a> {
    /// The file.
    pub file: &'a Loaded,
    /// The device.
    pub device: &'a Device,
}

/// The content of one or more directories.
#[derive(Debug, Clone, Default)]
pub struct Registry {
    files: Vec<Loaded>,
    /// The numbers of the file and of the device in it.
    devices: BTreeMap<QualifiedName, (usize, usize)>,
    /// What is wrong.
    pub problems: Vec<Problem>,
}

/// A device that a later directory defines too.
#[derive(Debug, serde::Serialize)]
pub struct Shadowed {
    /// The device.
    pub name: QualifiedName,
    /// The file that loses.
    pub file: PathBuf,
    /// The file that wins.
    pub by: PathBuf,
}

impl Registry {
    /// Reads `dirs`, of which a later one wins over an earlier one. A directory that does not exist is empty.
    pub fn read(dirs: &[PathBuf]) -> Self {
        Self::read_only(dirs, |_| true)
    }

    /// Reads those files of `dirs` that `wanted` accepts: to parse a file takes most of the time.
    pub fn read_only<D: AsRef<Path>>(dirs: &[D], wanted: impl Fn(&Path) -> bool) -> Self {
        let mut registry = Self::default();
        for (rank, dir) in dirs.iter().enumerate() {
            for path in registry
                .candidates(dir.as_ref())
                .into_iter()
                .filter(|path| wanted(path))
            {
                registry.add(&path, rank);
            }
        }
        registry.resolve();
        registry.sort_problems();
        registry
    }

    /// Reads one file, whatever its name is.
    pub fn read_file(path: &Path) -> Self {
        let mut registry = Self::default();
        registry.add(path, 0);
        registry.resolve();
        registry
    }

    /// Adds a problem for everything that a valid file refers to and that this host does not have, once for each file:
    /// an engine finds such a device, but refuses the container.
    pub fn check_references(&mut self) {
        for file in &self.files {
            let faults = references::broken(&file.spec);
            let mut places: BTreeMap<&str, usize> = BTreeMap::new();
            for (fault, _) in &faults {
                *places.entry(&fault.what).or_default() += 1;
            }
            for (fault, reference) in &faults {
                // Many devices need the same file: only the first place is reported.
                let Some(count) = places.remove(fault.what.as_str()) else {
                    continue;
                };
                let others = match count {
                    1 => String::new(),
                    2 => " (also in 1 other place)".to_owned(),
                    n => format!(" (also in {} other places)", n.saturating_sub(1)),
                };
                let at = place_of(&file.text, fault);
                let problem = Problem::new(&file.path, at, format!("{fault}{others}"));
                self.problems
                    .push(problem.of(ProblemKind::Reference(reference.clone())));
            }
        }
        self.sort_problems();
    }

    /// The valid files.
    pub fn files(&self) -> &[Loaded] {
        &self.files
    }

    /// Every device that an engine finds, by name.
    pub fn devices(&self) -> impl Iterator<Item = (&QualifiedName, FoundDevice<'_>)> {
        self.devices
            .iter()
            .filter_map(|(name, at)| Some((name, self.found(*at)?)))
    }

    /// The device with that name.
    pub fn find(&self, name: &QualifiedName) -> Option<FoundDevice<'_>> {
        self.found(*self.devices.get(name)?)
    }

    fn found(&self, (file, device): (usize, usize)) -> Option<FoundDevice<'_>> {
        let file = self.files.get(file)?;
        let device = file.spec.devices.get(device)?;
        Some(FoundDevice { file, device })
    }

    /// The problem because of which no engine finds the device `name`.
    pub fn loss_of(&self, name: &str) -> Option<&Problem> {
        self.problems.iter().find(|problem| problem.loses(name))
    }

    /// Devices that a later directory defines too.
    pub fn shadowed(&self) -> Vec<Shadowed> {
        let names = self
            .files
            .iter()
            .flat_map(|file| file.names().map(move |(_, name)| (name, file)));
        let shadowed = names.filter_map(|(name, file)| {
            let winner = self.find(&name)?.file;
            (winner.rank > file.rank).then(|| Shadowed {
                name,
                file: file.path.clone(),
                by: winner.path.clone(),
            })
        });
        shadowed.collect()
    }

    fn sort_problems(&mut self) {
        self.problems.sort_by(|a, b| a.order().cmp(&b.order()));
    }

    /// The files in `dir` that engines read.
    fn candidates(&mut self, dir: &Path) -> Vec<PathBuf> {
        let mut paths = Vec::new();
        for entry in directory::entries(dir) {
            let path = match entry {
                Ok(path) => path,
                Err(e) => {
                    self.cannot_read(dir, &e);
                    continue;
                }
            };
            let extension = path.extension().unwrap_or_default();
            if extension.eq_ignore_ascii_case("yml") {
                let what = "engines read .yaml and .json only; rename it";
                let problem = Problem::losing(&path, None, what, None);
                self.problems.push(problem.of(ProblemKind::Name));
            } else if (extension == "yaml" || extension == "json") && !path.is_dir() {
                paths.push(path);
            }
        }
        paths
    }

    fn cannot_read(&mut self, path: &Path, e: &std::io::Error) {
        let what = format!("cannot be read: {e}");
        self.problems.push(Problem::losing(path, None, what, None));
    }

    /// Reads `path` and adds its content, or what is wrong with it.
    fn add(&mut self, path: &Path, rank: usize) {
        let text = match open::read(path) {
            Ok(text) => text,
            Err(e) => return self.cannot_read(path, &e),
        };
        let spec = match parse::spec(&text) {
            Ok(spec) => spec,
            Err(refusal) => {
                let lost = parse::outline(&text).map(|(kind, names)| qualified(&kind, names));
                let problem = Problem::losing(path, refusal.at(), refusal.to_string(), lost);
                return self.problems.push(problem);
            }
        };
        let faults = validate(&spec);
        if faults.is_empty() {
            return self.files.push(Loaded {
                path: path.to_owned(),
                rank,
                comments: encode::comments_of(&text),
                spec,
                text,
            });
        }
        let names: BTreeSet<String> = spec.devices.iter().map(|d| d.name.clone()).collect();
        // The devices are lost once, however many faults the file has.
        let mut lost = qualified(&spec.kind, names);
        for fault in &faults {
            let lost = Some(std::mem::take(&mut lost));
            let problem = Problem::losing(path, place_of(&text, fault), fault.to_string(), lost);
            self.problems.push(problem);
        }
    }

    /// Decides which file defines each device.
    fn resolve(&mut self) {
        let mut conflicts: BTreeMap<QualifiedName, BTreeSet<usize>> = BTreeMap::new();
        for (at, file) in self.files.iter().enumerate() {
            for (i, name) in file.names() {
                let old = self.devices.get(&name).map(|(old, _)| *old);
                let is_same_rank = |old: &usize| self.files.get(*old).is_some_and(|f| f.rank == file.rank);
                match old.filter(is_same_rank) {
                    Some(old) => conflicts.entry(name).or_default().extend([old, at]),
                    None => {
                        self.devices.insert(name, (at, i));
                    }
                }
            }
        }
        let mut by_files: BTreeMap<BTreeSet<usize>, Vec<String>> = BTreeMap::new();
        for (name, files) in conflicts {
            self.devices.remove(&name);
            by_files.entry(files).or_default().push(name.to_string());
        }
        for (files, names) in by_files {
            let files = files.iter().filter_map(|file| self.files.get(*file));
            let paths: Vec<&Path> = files.map(|file| file.path.as_path()).collect();
            let Some((last, others)) = paths.split_last() else {
                continue;
            };
            let others: Vec<String> = others.iter().map(|path| path.display().to_string()).collect();
            let what = format!(
                "defines devices that are also in {}; engines ignore them in every file; remove all files but one",
                others.join(" and ")
            );
            let problem = Problem::losing(last, None, what, Some(names));
            self.problems.push(problem.of(ProblemKind::Conflict));
        }
    }
}

/// Whether the file at `path` may define devices of `kind`. It is not parsed: a file defines none of a kind that its
/// text does not contain. Where an escape or a tag of YAML could spell the kind in another way, the answer is yes.
pub fn may_define(path: &Path, kind: &str) -> bool {
    let is_in_names = |byte: &u8| byte.is_ascii_alphanumeric() || b"_-.".contains(byte);
    open::read(path).is_ok_and(|text| {
        let ends = memchr::memmem::find_iter(&text, kind).map(|at| at + kind.len());
        let mut after = ends.map(|end| text.get(end));
        text.iter().any(|byte| b"\\!".contains(byte)) || after.any(|next| !next.is_some_and(is_in_names))
    })
}

/// Whether the file at `path` has the mark of `tranche cdi refresh`. It is not parsed, and may be invalid.
pub fn has_mark_of_refresh(path: &Path) -> bool {
    open::read(path).is_ok_and(|text| encode::comments_of(&text).iter().any(|line| line == REFRESHED))
}

/// The place in `text` of what `fault` is about.
fn place_of(text: &[u8], fault: &Fault) -> Option<Place> {
    parse::place_of(text, &fault.at)
}

/// The whole names of devices; one that is not valid is quoted.
fn qualified(kind: &str, names: impl IntoIterator<Item = String>) -> Vec<String> {
    let whole = |name: String| {
        let whole = format!("{kind}={name}");
        match whole.parse::<QualifiedName>() {
            Ok(_) => whole,
            Err(_) => format!("\"{whole}\""),
        }
    };
    names.into_iter().map(whole).collect()
}

#[cfg(test)]
mod tests;
