//! Ends what users hold, with root's rights: whether a process is the user's is read from `/proc`, once. Containers are
//! stopped by podman, as the user, in the terminal in which this program was started.

use std::ffi::OsString;
use std::fs;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::thread::sleep;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tranche_core::claims::Claims;
use tranche_core::ledger::{Claim, Holder};

use crate::{Naive, Wrong, values};

/// Deeper cgroups are not looked at.
const LEVELS: u32 = 16;

pub(crate) fn run(arguments: &[OsString], naive: &Naive) -> Result<(), Wrong> {
    let directory = values(arguments, "--state-dir").pop().ok_or("--state-dir is missing")?;
    naive.fence.check(Path::new(&directory))?;
    let claims = Claims::open(Path::new(&directory)).map_err(|e| e.to_string())?;
    let books = claims.books().map_err(|e| e.to_string())?;
    for claim in books.claims() {
        if let Holder::Rootless { user, name } = &claim.holder {
            let mut podman = Command::new("/usr/bin/podman");
            let stopped = podman.args(["stop", &name.id]).uid(*user).gid(*user).status();
            stopped.map_err(|e| format!("podman: {e}"))?;
        }
    }
    // Looked at once, and signalled later.
    let all: Vec<i32> = books.claims().flat_map(processes).collect();
    for signal in [Signal::SIGTERM, Signal::SIGKILL] {
        for pid in &all {
            // It may have ended.
            let _ = kill(Pid::from_raw(*pid), signal);
        }
        sleep(Duration::from_secs(1));
    }
    Ok(())
}

/// The processes of a claim that look like the user's.
fn processes(claim: &Claim) -> Vec<i32> {
    let Some(process) = &claim.process else {
        return Vec::new();
    };
    let mut found = vec![process.pid];
    if let Some(cgroup) = &process.cgroup {
        collect(Path::new(&cgroup.path), LEVELS, &mut found);
    }
    found.retain(|pid| owns(claim.uid, *pid));
    found.into_iter().filter_map(|pid| i32::try_from(pid).ok()).collect()
}

fn collect(cgroup: &Path, levels: u32, found: &mut Vec<u32>) {
    let text = fs::read_to_string(cgroup.join("cgroup.procs")).unwrap_or_default();
    found.extend(text.lines().filter_map(|line| line.parse::<u32>().ok()));
    let Some(levels) = levels.checked_sub(1) else { return };
    for entry in fs::read_dir(cgroup).into_iter().flatten().flatten() {
        if entry.path().is_dir() {
            collect(&entry.path(), levels, found);
        }
    }
}

/// Whether it runs as the user, or in a user namespace that maps the user's number.
fn owns(uid: u32, pid: u32) -> bool {
    let read = |name: &str| fs::read_to_string(format!("/proc/{pid}/{name}")).unwrap_or_default();
    let numbers = |line: &str| -> Vec<u64> { line.split_ascii_whitespace().filter_map(|w| w.parse().ok()).collect() };
    let status = read("status");
    let uids = status.lines().find_map(|line| line.strip_prefix("Uid:")).map(numbers);
    let map = read("uid_map");
    let maps =
        |line: &str| matches!(numbers(line)[..], [_, first, count] if (first..first + count).contains(&u64::from(uid)));
    let is_host = map.split_ascii_whitespace().eq(["0", "0", "4294967295"]);
    uids.is_some_and(|uids| uids.first() == Some(&u64::from(uid))) || (!is_host && map.lines().any(maps))
}
