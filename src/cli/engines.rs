//! The engines and low-level runtimes that are installed, and their versions.

use crate::engines::FoundEngine;
use crate::program;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

/// The engines and low-level runtimes, each with the program that prints its version.
const PROGRAMS: &[(&str, &str)] = &[
    ("podman", "podman"),
    ("docker", "dockerd"),
    ("containerd", "containerd"),
    ("crio", "crio"),
    ("crun", "crun"),
    ("runc", "runc"),
];

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
#[derive(Debug, Clone, Default, clap::Args)]
pub(super) struct EngineArgs {
    /// A directory with the programs of engines, which are asked for their version; may be repeated [default: the usual
    /// ones]
    #[arg(long = "engine-dir", value_name = "DIR", help_heading = None)]
    pub(super) engine_dirs: Vec<PathBuf>,
}

impl EngineArgs {
    fn dirs(&self) -> Vec<PathBuf> {
        match self.engine_dirs.is_empty() {
            true => DIRECTORIES.iter().map(PathBuf::from).collect(),
            false => self.engine_dirs.clone(),
        }
    }

    /// Every path where the program of an engine may be. An update of an engine replaces one of them.
    pub(super) fn candidates(&self) -> Vec<PathBuf> {
        let engines = PROGRAMS.iter().filter(|(name, _)| !matches!(*name, "crun" | "runc"));
        let dirs = self.dirs();
        let paths = engines.flat_map(|(_, file)| dirs.iter().map(move |dir| dir.join(file)));
        paths.collect()
    }
}

/// The engines and low-level runtimes that are installed. Their programs run at the same time.
pub(super) fn installed(args: &EngineArgs) -> Vec<FoundEngine> {
    let dirs = args.dirs();
    let asked = PROGRAMS.iter().filter_map(|(name, file)| {
        let path = dirs.iter().map(|dir| dir.join(file)).find(|path| path.is_file())?;
        Some((*name, thread::spawn(move || version_of(&path))))
    });
    // All are started before the first is waited for.
    let asked: Vec<_> = asked.collect();
    let found = asked.into_iter().map(|(name, version)| FoundEngine {
        name,
        version: version.join().ok().flatten(),
    });
    found.collect()
}

fn version_of(path: &Path) -> Option<Vec<u32>> {
    let text = program::text_of(path, &["--version"], &[], "", PATIENCE).ok()?;
    parse(&text)
}

/// The first word of `text` that begins with a version: `podman version 4.3.1`, `containerd github.com/… v2.0.1 …`,
/// `Docker version 28.2.0, build …`.
fn parse(text: &str) -> Option<Vec<u32>> {
    text.split_whitespace().find_map(|word| {
        let word = word.trim_start_matches('v');
        let end = word
            .find(|c: char| !c.is_ascii_digit() && c != '.')
            .unwrap_or(word.len());
        let numbers: Option<Vec<u32>> = word
            .get(..end)?
            .trim_end_matches('.')
            .split('.')
            .map(|n| n.parse().ok())
            .collect();
        numbers.filter(|numbers| numbers.len() >= 2)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_as_programs_print_them() {
        for (text, version) in [
            ("podman version 4.3.1\n", &[4, 3, 1][..]),
            ("Docker version 28.2.0, build abc\n", &[28, 2, 0]),
            ("Docker version 20.10.24+dfsg1, build 297e128\n", &[20, 10, 24]),
            (
                "containerd github.com/containerd/containerd v2.0.1 88aa2f5\n",
                &[2, 0, 1],
            ),
            (
                "containerd github.com/containerd/containerd 1.6.20~ds1 1.6.20~ds1-1+deb12u1\n",
                &[1, 6, 20],
            ),
            ("crio version 1.33.4\n", &[1, 33, 4]),
            ("crun version 1.8.1\ncommit: f8a096be0\nrundir: /run/crun\n", &[1, 8, 1]),
            ("runc version 1.1.5+ds1\ncommit: 1.1.5+ds1-1\n", &[1, 1, 5]),
        ] {
            assert_eq!(parse(text).as_deref(), Some(version), "{text}");
        }
        assert_eq!(parse("usage: x"), None);
    }
}
