//! What a run says of the machine when it is over.

use crate::bed::{Bed, Said};
use crate::support::until;
use serde_json::{Value, json};
use std::fs;
use std::process::Stdio;

/// The control daemon of this machine, by its program. Others of that program only send it commands.
fn mps_daemon(bed: &Bed) -> Option<u32> {
    let program = bed.mps.program("nvidia-cuda-mps-control");
    let is_daemon = |process: &fs::DirEntry| {
        let exe = fs::read_link(process.path().join("exe"));
        let arguments = fs::read(process.path().join("cmdline")).unwrap_or_default();
        exe.is_ok_and(|exe| exe == program) && arguments.windows(4).any(|word| word == b"\0-f\0")
    };
    let mut processes = fs::read_dir("/proc").unwrap().flatten();
    processes.find(is_daemon)?.file_name().to_str()?.parse().ok()
}

#[test]
fn a_change_by_somebody_else_and_the_memory_of_the_mps_server_are_in_the_results() {
    let bed = Bed::new();
    let mut command = bed.bench(2, &["--way=mps-50-50", "--beside=batch", "--half", "--json"]);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // A process that is about to execute something else looks like the daemon that made it.
    let mut seen = None;
    until("the daemon runs", || {
        let before = std::mem::replace(&mut seen, mps_daemon(&bed));
        std::thread::sleep(std::time::Duration::from_millis(200));
        seen.is_some() && seen == before
    });
    let (daemon, me) = (seen.unwrap(), std::process::id());
    bed.host
        .nvml(|config| {
            let gpu = &mut config["gpus"][0];
            gpu["compute_mode"] = 3.into();
            gpu["processes"] = json!([
                {"pid": daemon, "kind": "compute", "memory_mib": 28},
                {"pid": me, "kind": "compute", "memory_mib": 100}
            ]);
        })
        .unwrap();
    let said: Said = child.wait_with_output().unwrap().into();
    assert_eq!(said.code, Some(1), "{said:?}");
    let results: Value = serde_json::from_str(&said.out).unwrap();
    let way = |name: &str| {
        results["ways"]
            .as_array()
            .unwrap()
            .iter()
            .find(|way| way["way"] == name)
            .unwrap()
    };
    assert_eq!(way("solo")["mps_server_mib"], Value::Null);
    assert_eq!(way("mps-50-50")["mps_server_mib"], 28, "{results:#}");
    let left: Vec<&str> = results["leftovers"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(Value::as_str)
        .collect();
    let [mode, process] = left[..] else { panic!("{left:?}") };
    assert_eq!(mode, "compute mode EXCLUSIVE_PROCESS, was DEFAULT");
    assert!(process.ends_with(&format!(" ({me}) uses the device")), "{process}");
}
