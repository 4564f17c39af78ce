//! The engines that are installed, and their versions.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;
use tranche_core::types::EngineVersion;
use tranche_host::program;
use tranche_plan::engines::{Engine, FoundEngine};

/// Where distributions install them; the last one is NixOS. PATH is not searched: the programs run as root.
const DIRECTORIES: &[&str] = &[
    "/usr/bin",
    "/usr/sbin",
    "/usr/local/bin",
    "/usr/local/sbin",
    "/bin",
    "/sbin",
    "/run/current-system/sw/bin",
];

/// How long a program may take to print its version.
const PATIENCE: Duration = Duration::from_secs(3);

/// Where engines are looked for.
#[derive(Debug, Clone, Default)]
pub struct EngineDirs {
    /// Directories with the programs of engines, which are asked for their version; if empty, the usual ones.
    pub engine_dirs: Vec<PathBuf>,
}

impl EngineDirs {
    fn dirs(&self) -> Vec<PathBuf> {
        match self.engine_dirs.is_empty() {
            true => DIRECTORIES.iter().map(PathBuf::from).collect(),
            false => self.engine_dirs.clone(),
        }
    }

    /// Every path where the program of an engine may be. An update of an engine replaces one of them.
    pub fn candidates(&self) -> Vec<PathBuf> {
        let engines = Engine::ALL.iter();
        engines.flat_map(|engine| self.paths(engine.facts().program)).collect()
    }

    /// Whether directories were named. Then engines are asked for their versions, also if the host is another machine.
    pub fn are_given(&self) -> bool {
        !self.engine_dirs.is_empty()
    }

    /// Every path where podman may be.
    pub fn podman(&self) -> Vec<PathBuf> {
        self.paths(Engine::Podman.facts().program)
    }

    fn paths(&self, file: &str) -> Vec<PathBuf> {
        self.dirs().iter().map(|dir| dir.join(file)).collect()
    }

    /// The engines that are installed. A program that is installed in two directories is listed twice; two names of one
    /// file are listed once.
    pub fn installed(&self) -> Vec<FoundEngine> {
        self.installed_of(Engine::ALL)
    }

    /// Each podman that is installed.
    pub fn installed_podman(&self) -> Vec<FoundEngine> {
        self.installed_of(&[Engine::Podman])
    }

    fn installed_of(&self, engines: &[Engine]) -> Vec<FoundEngine> {
        let programs = engines.iter().map(|engine| (*engine, engine.facts().program));
        let found = self.versions(programs).into_iter();
        found.map(|(engine, version)| FoundEngine { engine, version }).collect()
    }

    /// Those of `names` that are installed, with their versions. A name that leads to tranche, as those of NVIDIA's
    /// programs do where tranche takes their place, is left out.
    pub fn programs(&self, names: &[&'static str]) -> Vec<(&'static str, Option<EngineVersion>)> {
        self.versions(names.iter().map(|name| (*name, *name)))
    }

    /// The versions of programs that are installed, which run at the same time.
    fn versions<'a, T: Copy>(&self, programs: impl Iterator<Item = (T, &'a str)>) -> Vec<(T, Option<EngineVersion>)> {
        let mut asked = Vec::new();
        for (of, file) in programs {
            let mut seen = BTreeSet::new();
            for path in self.paths(file).into_iter().filter(|path| path.is_file()) {
                let is_own = |file: &Path| file.file_name().is_some_and(|name| name == "tranche");
                let is_new = path
                    .canonicalize()
                    .is_ok_and(|file| !is_own(&file) && seen.insert(file));
                if is_new {
                    asked.push((of, thread::spawn(move || version_of(&path))));
                }
            }
        }
        // All are started before the first is waited for.
        let versions = asked.into_iter();
        versions
            .map(|(of, version)| (of, version.join().ok().flatten()))
            .collect()
    }
}

fn version_of(path: &Path) -> Option<EngineVersion> {
    let text = program::text_of(path, &["--version"], &[], "", PATIENCE).ok()?;
    parse(&text)
}

/// The first word of `text` that begins with a version: `podman version 4.3.1`, `containerd github.com/… v2.0.1 …`,
/// `Docker version 28.2.0, build …`.
fn parse(text: &str) -> Option<EngineVersion> {
    text.split_whitespace().find_map(|word| {
        let word = word.trim_start_matches('v');
        let end = word
            .find(|c: char| !c.is_ascii_digit() && c != '.')
            .unwrap_or(word.len());
        let numbers = word.get(..end)?.trim_end_matches('.');
        numbers
            .parse()
            .ok()
            .filter(|version: &EngineVersion| version.numbers().len() >= 2)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_as_programs_print_them() {
        for (text, version) in [
            ("podman version 4.3.1\n", "4.3.1"),
            ("Docker version 28.2.0, build abc\n", "28.2.0"),
            ("Docker version 20.10.24+dfsg1, build 297e128\n", "20.10.24"),
            ("containerd github.com/containerd/containerd v2.0.1 88aa2f5\n", "2.0.1"),
            (
                "containerd github.com/containerd/containerd 1.6.20~ds1 1.6.20~ds1-1+deb12u1\n",
                "1.6.20",
            ),
            ("crio version 1.33.4\n", "1.33.4"),
            ("crun version 1.8.1\ncommit: f8a096be0\nrundir: /run/crun\n", "1.8.1"),
            ("runc version 1.1.5+ds1\ncommit: 1.1.5+ds1-1\n", "1.1.5"),
        ] {
            assert_eq!(parse(text), version.parse().ok(), "{text}");
        }
        assert_eq!(parse("usage: x"), None);
    }
}
