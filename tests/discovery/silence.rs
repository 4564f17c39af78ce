//! NVML that is slow, silent or leaves processes behind.

use super::*;
use crate::support::until;
use nix::fcntl::{Flock, FlockArg};
use std::fs::File;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Stdio;

/// Whether the process that the library left behind is gone: it holds a lock on this file while it lives.
fn is_gone(lock: &Path) -> bool {
    let file = File::open(lock).unwrap();
    Flock::lock(file, FlockArg::LockExclusiveNonblock).is_ok()
}

/// A host whose NVML forks in nvmlInit and goes on as `init` says, and the file that the forked process locks.
fn forking(init: Option<&str>) -> (Bed, PathBuf) {
    let bed = bed(SMALL);
    let lock = bed.host.path("/left-behind");
    let faults = serde_json::json!({"fork": lock, "init": init});
    bed.faults(faults);
    (bed, lock)
}

/// Every call of this library takes a seventh of the time that it may be silent, so all of them take many times as
/// long.
#[test]
fn a_slow_library_is_not_a_silent_one() {
    let bed = bed(SMALL);
    let impatient = bed.impatient();
    let delay = u64::try_from(impatient.deadline.as_millis() / 7).unwrap();
    bed.faults(serde_json::json!({"delay_ms": delay}));
    let inventory = bed.look_with(&impatient);
    assert_eq!(warnings(&inventory), [""; 0]);
    assert_eq!((inventory.source, inventory.gpus.len()), (Source::Nvml, 2));
    assert!(inventory.gpus.iter().all(|gpu| gpu.memory.is_some()));
}

#[test]
fn what_the_library_forks_ends_with_it() {
    for init in [None, Some("hang"), Some("crash"), Some("999")] {
        let (bed, lock) = forking(init);
        bed.look_with(&DiscoveryOptions {
            deadline: Duration::from_millis(700),
            ..options()
        });
        assert!(is_gone(&lock), "{init:?}: a process of the library is still there");
    }
}

/// As root, NVIDIA's library makes the nodes that it does not find, by a setuid program.
#[test]
fn a_look_makes_no_device_node() {
    if !support::rights::is_root_of_machine() {
        return skip::not_run("a_look_makes_no_device_node", "needs root to make a node at all");
    }
    let bed = bed(SMALL);
    let node = bed.host.path("/dev/nvidiactl");
    bed.remove("/dev/nvidiactl");
    bed.faults(serde_json::json!({"node": node}));
    let inventory = bed.look();
    assert_eq!(inventory.source, Source::Proc);
    assert!(!node.exists(), "the library made {}", node.display());
    assert!(
        warnings(&inventory)
            .iter()
            .any(|line| line.contains("tranche system create-device-nodes")),
        "{:?}",
        warnings(&inventory)
    );
    // The question about processes is asked in another way: by a process without a namespace of its own.
    let (_, _, said) = tranche(&["top", "--once", "--root", bed.host.root.to_str().unwrap()]);
    assert!(!node.exists(), "the library made {}: {said}", node.display());
}

/// A crash is reported as a crash, and at once, although a process that the library forked keeps the pipe open.
#[test]
fn a_crash_is_told_although_a_forked_process_lives() {
    let (bed, _lock) = forking(Some("crash"));
    let inventory = bed.look();
    let warning = one_warning(&inventory);
    assert!(warning.contains("crashed in nvmlInit (SIGSEGV)"), "{warning}");
}

/// The program where a user without rights finds it.
fn for_all(bed: &Bed) -> PathBuf {
    use std::os::unix::fs::PermissionsExt;
    let program = support::installed::command_line(&bed.host.path("/"));
    let root = bed.host.root.clone();
    for dir in [root.parent().unwrap(), root.as_path()] {
        fs::set_permissions(dir, fs::Permissions::from_mode(0o777)).unwrap();
    }
    program
}

/// Who is not root has no pid namespace.
#[test]
fn what_the_library_forks_ends_for_a_plain_user_too() {
    if !nix::unistd::geteuid().is_root() {
        return skip::not_run(
            "what_the_library_forks_ends_for_a_plain_user_too",
            "needs root to become another",
        );
    }
    let (bed, lock) = forking(None);
    let output = Command::new(for_all(&bed))
        .args(["list", "--root"])
        .arg(&bed.host.root)
        .env_clear()
        .uid(65534)
        .gid(65534)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{said}");
    assert!(
        lock.exists() && is_gone(&lock),
        "a process of the library is still there"
    );
}

#[test]
fn what_the_library_forks_ends_when_tranche_is_killed() {
    if !nix::unistd::geteuid().is_root() {
        return skip::not_run(
            "what_the_library_forks_ends_when_tranche_is_killed",
            "needs a pid namespace",
        );
    }
    let (bed, lock) = forking(Some("hang"));
    let mut child = Command::new(env!("CARGO_BIN_EXE_tranche"))
        .args(["list", "--root"])
        .arg(&bed.host.root)
        .env_clear()
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    until("the library hangs", || {
        assert!(child.try_wait().unwrap().is_none(), "it ended before it was killed");
        lock.exists() && !is_gone(&lock)
    });
    child.kill().unwrap();
    child.wait().unwrap();
    // The kernel ends the processes on its own time.
    let gone = (0..1000).any(|_| {
        std::thread::sleep(Duration::from_millis(10));
        is_gone(&lock)
    });
    assert!(gone, "a process of the library is still there");
}

#[test]
fn waiting_is_told_in_one_line_and_the_answer_comes() {
    if !support::rights::owns_machine("silence::waiting_is_told_in_one_line_and_the_answer_comes") {
        return;
    }
    let bed = bed(SMALL);
    bed.faults(serde_json::json!({"init_ms": 3500}));
    let (code, out, err) = tranche(&["list", "--root", bed.host.root.to_str().unwrap()]);
    assert_eq!(code, Some(0), "{err}");
    assert!(out.contains("Tesla T4"), "{out}");
    assert_eq!(
        err,
        "waiting for NVML to start the GPUs: 2 s (gives up after 60 s of silence)\n"
    );
}
