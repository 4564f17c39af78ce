//! Several refreshes at once.

use super::*;
use rustix::fs::{FlockOperation, flock};
use std::fs::File;
use std::process::Stdio;

#[test]
fn refreshes_at_the_same_time_give_the_files_of_one_of_them() {
    let bed = Bed::new();
    bed.share(RENAMED);
    let simulations = ["sim:t4x2", "sim:hgx-h200"];
    let wanted = simulations.map(|simulation| {
        bed.refreshed(simulation);
        bed.files()
    });
    let start = |n: usize| {
        let mut command = bed.command(simulations[n % 2], &[]);
        command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap()
    };
    let running: Vec<_> = (0..12).map(start).collect();
    for refresh in running {
        let said = said(&refresh.wait_with_output().unwrap());
        assert_eq!((said.code, said.err.lines().count()), (Some(0), 1), "{said:?}");
    }
    let gpus = bed.host_file().inventory.gpus.len();
    let wanted = &wanted[usize::from(gpus == 8)];
    let now = bed.files();
    assert_eq!(now.len(), 3, "{:?}", now.keys());
    for name in ["tranche.yaml", "tranche-gpu.shared.yaml"] {
        assert_eq!(now[name], wanted[name], "{name}");
    }
}

#[test]
fn a_refresh_waits_for_another_one_no_longer_than_it_may() {
    let bed = Bed::new();
    bed.refreshed("sim:t4x2");
    let before = bed.files();
    let lock = File::options()
        .write(true)
        .open(bed.state().join("refresh.lock"))
        .unwrap();
    flock(&lock, FlockOperation::LockExclusive).unwrap();
    let said = bed.refresh("sim:hgx-h200", &["--lock-timeout=0.1"]);
    assert_eq!((said.code, said.err.lines().count()), (Some(1), 1), "{said:?}");
    let me = format!(
        "refresh.lock: has been held for 0 s by process {} (",
        std::process::id()
    );
    assert!(said.err.contains(&me), "{said:?}");
    assert_eq!(bed.files(), before);
    // A dry run changes nothing, so it need not wait.
    assert_eq!(
        bed.refresh("sim:hgx-h200", &["--lock-timeout=0.1", "--dry-run"]).code,
        Some(0)
    );
    drop(lock);
    bed.refreshed("sim:hgx-h200");
}
