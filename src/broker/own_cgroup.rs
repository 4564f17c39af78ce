//! A cgroup for one program: of `tranche run`, by which the ledger knows whether any process of it is left, or of a
//! user for whom the broker executes it.
//!
//! It is made below the cgroup of this process, so that the limits of a batch system or a service still apply. Only
//! version 2 of cgroups is used: there a process is in one cgroup, and an empty one below changes nothing for it.

use std::fs::{self, OpenOptions};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// What the names begin with. The number of the process that makes it follows.
const PREFIX: &str = "tranche-run-";

/// The list of a cgroup's processes.
const PROCESSES: &str = "cgroup.procs";

/// A cgroup that was made for a program. It is removed when this is dropped, if it has no process any more.
#[derive(Debug)]
pub(crate) struct OwnCgroup(PathBuf);

impl OwnCgroup {
    /// Makes one; `None` if no cgroup can be made here.
    fn make() -> Option<Self> {
        static MADE: AtomicU32 = AtomicU32::new(0);
        let above = of_this_process()?;
        sweep(&above);
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        let own = above.join(format!("{PREFIX}{}-{number}", std::process::id()));
        match fs::create_dir(&own) {
            Ok(()) => Some(Self(own)),
            Err(error) => {
                tracing::info!("{}: cannot be made: {error}", own.display());
                None
            }
        }
    }

    /// One for a program that is going to be executed, with its `cgroup.procs`, open for writing; `None` if no cgroup
    /// can be made here.
    pub(crate) fn for_program() -> Option<(Self, OwnedFd)> {
        let made = Self::make()?;
        match OpenOptions::new().write(true).open(made.0.join(PROCESSES)) {
            Ok(processes) => Some((made, processes.into())),
            Err(error) => {
                tracing::info!("{}: cannot be opened: {error}", made.0.display());
                None
            }
        }
    }

    /// Moves process `pid` into a cgroup of its own; `None` if no cgroup can be made here, so that its share is held by
    /// one process.
    pub(crate) fn of(pid: u32) -> Option<Self> {
        let made = Self::make()?;
        match fs::write(made.0.join(PROCESSES), pid.to_string()) {
            Ok(()) => Some(made),
            Err(error) => {
                tracing::info!(
                    "{}: takes no process: {error}; the share is held by one process",
                    made.0.display()
                );
                None
            }
        }
    }

    /// Whether a process is in it.
    pub(crate) fn has_processes(&self) -> bool {
        fs::read_to_string(self.0.join(PROCESSES)).is_ok_and(|list| !list.is_empty())
    }
}

impl Drop for OwnCgroup {
    fn drop(&mut self) {
        // One with a process stays: it says that the share is held. The next run removes it.
        let _ = fs::remove_dir(&self.0);
    }
}

/// The cgroup of version 2 that this process is in.
fn of_this_process() -> Option<PathBuf> {
    let text = fs::read_to_string("/proc/self/cgroup").ok()?;
    let path = text.lines().find_map(|line| line.strip_prefix("0::/"))?;
    let mounts = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"];
    let mut directories = mounts.map(|mount| Path::new(mount).join(path)).into_iter();
    // The first file exists in every cgroup but those of version 1.
    directories.find(|directory| directory.join("cgroup.controllers").exists())
}

/// Removes what runs that were killed left behind.
fn sweep(above: &Path) {
    for entry in fs::read_dir(above).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let number = name.to_str().and_then(|name| name.strip_prefix(PREFIX));
        let number = number.map(|number| number.split_once('-').map_or(number, |(process, _)| process));
        if number.is_some_and(|number| !Path::new("/proc").join(number).exists()) {
            // The kernel keeps one that has a process.
            let _ = fs::remove_dir(entry.path());
        }
    }
}
