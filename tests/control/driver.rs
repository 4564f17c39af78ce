//! The process of `tranche-driver` that the broker keeps while it asks it.

use crate::bed::{Bed, UNEQUAL};
use crate::support::{programs, until};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tranche_broker::control::MachineControl;
use tranche_core::types::GpuUuid;
use tranche_driver_protocol::{GpuClocks, Slowed};

/// A stand-in that writes down each start, with its number, before it becomes the program.
fn counted(bed: &Bed) -> (PathBuf, PathBuf) {
    let (program, starts) = (bed.at("counted/tranche-driver"), bed.at("starts"));
    let driver = env!("CARGO_BIN_EXE_tranche-driver");
    programs::script(
        &program,
        &format!("echo $$ >> '{}'; exec '{driver}' \"$@\"", starts.display()),
    );
    (program, starts)
}

fn pids(starts: &Path) -> Vec<i32> {
    let text = fs::read_to_string(starts).unwrap_or_default();
    text.lines().map(|line| line.parse().unwrap()).collect()
}

#[test]
fn one_process_answers_all_questions_and_another_one_follows_when_it_is_killed() {
    let mut bed = Bed::new(UNEQUAL);
    let (program, starts) = counted(&bed);
    bed.driver = program;
    let control = bed.control();
    bed.start(&control, "small");
    assert_eq!(
        pids(&starts).len(),
        1,
        "the mode is read, processes are listed, the mode is set"
    );
    kill(Pid::from_raw(pids(&starts)[0]), Signal::SIGKILL).unwrap();
    bed.stop("small");
    assert_eq!(control.tick(), None);
    assert_eq!(pids(&starts).len(), 2, "the mode is put back by another process");
    bed.assert_as_it_was(&control);
    // It ends with the broker.
    let last = pids(&starts)[1];
    drop(control);
    until("it has ended", || !Path::new(&format!("/proc/{last}")).exists());
}

#[test]
fn it_says_how_fast_a_gpu_runs_and_why_not_faster() {
    let bed = Bed::new(UNEQUAL);
    let gpu: GpuUuid = bed.uuid().parse().unwrap();
    let clocks = |value: Value| {
        bed.host.nvml(|config| config["gpus"][0]["clocks"] = value).unwrap();
        bed.control().driver().unwrap().nvml.clocks(&gpu).unwrap()
    };
    assert_eq!(clocks(Value::Null), GpuClocks::default());
    // The numbers of nvmlClocksEventReason: 1 is idle, 2 clocks that somebody has set.
    for (reasons, slowed) in [
        (1, vec![]),
        (2, vec![]),
        (4, vec![Slowed::Power]),
        (8, vec![Slowed::Other]),
        (16, vec![Slowed::Other]),
        (32, vec![Slowed::Heat]),
        (64, vec![Slowed::Heat]),
        (128, vec![Slowed::Power]),
        (4 | 64, vec![Slowed::Power, Slowed::Heat]),
    ] {
        let expected = GpuClocks {
            sm_mhz: Some(1410),
            celsius: Some(61),
            slowed: Some(slowed.into_iter().collect()),
        };
        let said = clocks(json!({"sm_mhz": 1410, "celsius": 61, "slowed": reasons}));
        assert_eq!(said, expected, "{reasons}");
    }
}

#[test]
fn whatever_is_in_its_place_costs_one_line() {
    let mut bed = Bed::new(UNEQUAL);
    let place = bed.at("stand-in");
    for (stand_in, patience, expected) in [
        (None, 60_000, "NVML's process cannot be started: "),
        (
            Some("exit 7"),
            60_000,
            "NVML crashed or gave an invalid answer (exit status: 7)",
        ),
        (
            Some("echo garbage; exec sleep 60"),
            60_000,
            "NVML crashed or gave an invalid answer (",
        ),
        (
            Some("exec yes '\"alive\"'"),
            60_000,
            "NVML gave an endless answer and was ended",
        ),
        (
            Some("exec sleep 60"),
            300,
            "NVML gave no answer for 0.3 s and was ended",
        ),
        (
            Some("echo '{\"hello\":\"0.0.9\"}'; exec sleep 60"),
            60_000,
            "tranche-driver, which is of version 0.0.9, and this is ",
        ),
    ] {
        bed.nvml_patience = Duration::from_millis(patience);
        bed.driver = place.clone();
        let _ = fs::remove_file(&place);
        if let Some(stand_in) = stand_in {
            programs::script(&place, stand_in);
        }
        let control = bed.control();
        let line = bed.refused(&control, "small");
        assert!(line.contains(expected) && line.lines().count() == 1, "{line}");
        control.tick();
        // The machine is as it was, and the next broker, with the right program, serves.
        bed.driver = env!("CARGO_BIN_EXE_tranche-driver").into();
        bed.nvml_patience = Duration::from_secs(60);
        let control = bed.control();
        bed.start(&control, "small");
        bed.stop("small");
        assert_eq!(control.tick(), None);
        bed.assert_as_it_was(&control);
    }
}
