//! `tranche turns try`: a program whose memory on a GPU is a fake is suspended by the driver's functions of another
//! process, resumed, and compared.

use crate::bed::{Bed, Said};
use crate::support::fake_host::fake_library::CUDA;
use crate::support::fake_turns::{self, GPU_OF_HOST as GPU};
use crate::support::{state_files, until, verify_program};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};
use std::fs;
use std::path::PathBuf;
use std::process::Command;
use tranche_core::claims::{ClaimEntry, Claims};
use tranche_core::ledger::{Holder, start_name};
use tranche_core::types::{Bounds, Subject};

const LIBRARY: &str = "/usr/local/nvidia/lib64/libcuda.so.580.159.04";

const POLICY: &str = "\
version: v1
sharing:
  access: enforce
  turns:
    resources:
    - {name: nvidia.com/gpu, holders: 2, hostMemory: 1Gi}
";

/// A machine with one GPU of 220 MiB.
struct Machine {
    bed: Bed,
}

impl Machine {
    fn new() -> Self {
        let bed = Bed::on("h200-in-vm", 132, &[]);
        let meeting = bed.at("meeting");
        let library = bed.host.path(LIBRARY);
        fake_turns::install(&bed.host, &library, &meeting, 220);
        let file = library.with_file_name("cuda.json");
        let mut config: Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
        config["gpus"][0]["model"] = json!({"state": bed.at("gpu"), "l2_mib": 4, "bandwidth_gb_s": 400});
        fs::write(&file, config.to_string()).unwrap();
        fs::write(bed.at("policy.yaml"), POLICY).unwrap();
        Self { bed }
    }

    fn library(&self) -> PathBuf {
        self.bed.host.path(LIBRARY)
    }

    fn command(&self) -> Command {
        let load = verify_program::load();
        let load = load.to_str().unwrap();
        self.bed
            .command(&["turns", "try", "0", "--load-program", load, "--patience=8"])
    }

    fn tried(&self) -> Said {
        self.command().output().unwrap().into()
    }

    fn fail(&self, faults: &str) {
        fs::write(self.bed.at("meeting/faults"), faults).unwrap();
    }

    /// What `tranche policy check` warns of.
    fn warned(&self) -> String {
        let said = self.bed.tranche(&["policy", "check"]);
        assert_eq!(said.code, Some(0), "{said:?}");
        said.err
    }

    /// The programs that run and have memory on the device.
    fn programs(&self) -> Vec<u32> {
        let blocks = fs::read_dir(self.bed.at("meeting").join(GPU)).into_iter().flatten();
        let names = blocks.map(|block| block.unwrap().file_name().into_string().unwrap());
        let mut pids: Vec<u32> = names
            .map(|name| name.split('-').next().unwrap().parse().unwrap())
            .collect();
        pids.retain(|pid| is_running(*pid));
        pids
    }

    fn nvml(&self, key: &str, value: Value) {
        self.bed.host.nvml(|config| config["gpus"][0][key] = value).unwrap();
    }

    /// No program has memory on the device, the machine does not hang, and nobody holds anything.
    fn assert_as_it_was(&self) {
        assert_eq!(self.programs(), [0; 0]);
        assert!(!self.bed.at("meeting/host-hung").exists());
        let claims = self.bed.tranche(&["claim", "list", "--json"]);
        assert_eq!(claims.out.trim(), "[]", "{claims:?}");
    }
}

#[test]
fn a_success_is_kept_and_lets_the_policy_give_the_device() {
    let machine = Machine::new();
    let warned = machine.warned();
    let never = "gpu 0: turns: starts are refused: suspended work was never tried with driver 580.159.04 on NVIDIA H200; \
                 run: tranche turns try 0";
    assert!(warned.contains(never), "{warned}");
    let tried = machine.tried();
    assert_eq!(tried.code, Some(0), "{tried:?}");
    let lines: Vec<&str> = tried.out.lines().collect();
    assert!(lines[0].starts_with("MEMORY  TO HOST"), "{tried:?}");
    assert!(
        lines[1].starts_with("100 MB ") && lines[1].ends_with("as it was"),
        "{tried:?}"
    );
    assert!(lines[2].starts_with("115 MB "), "{tried:?}");
    assert_eq!(lines[3..], ["driver 580.159.04 on NVIDIA H200: turns may be used."]);
    machine.assert_as_it_was();
    assert_eq!(machine.warned(), "");
    let plan = machine.bed.tranche(&["plan"]).out;
    let plan = plan.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(plan.contains("GB/s to the memory of the machine and"), "{plan}");
    assert!(!plan.contains("at a rate that was not measured"), "{plan}");
    let kept = machine.bed.at("state/kept/turns-tested.json");
    assert!(state_files::is_sealed(&kept));
    // What was found with another driver says nothing.
    let text = fs::read_to_string(&kept).unwrap();
    fs::write(&kept, unsealed(&text).replace("580.159.04", "580.95.05")).unwrap();
    assert!(machine.warned().contains(never), "{}", machine.warned());
    let json = machine.command().arg("--json").output().unwrap();
    let json: Value = serde_json::from_slice(&json.stdout).unwrap();
    assert_eq!(
        (&json["copies"][1]["bytes"], &json["failed"], &json["left"]),
        (&json!(115_343_360), &json!(null), &json!(null))
    );
    assert!(json["copies"][1]["back_ns"].as_u64().unwrap() > 0, "{json}");
}

fn is_running(pid: u32) -> bool {
    let state = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    !state.is_empty() && !state.contains(") Z ")
}

/// The text of a file without its checksum.
fn unsealed(text: &str) -> String {
    let mut content: Value = serde_json::from_str(text).unwrap();
    content.as_object_mut().unwrap().remove("checksum");
    content.to_string()
}

#[test]
fn each_failure_is_said_and_kept_and_leaves_no_program() {
    let machine = Machine::new();
    for (faults, says) in [
        (
            r#"{"restore": 304}"#,
            "it cannot be resumed: cuCheckpointProcessRestore: 304 OPERATING_SYSTEM; a restore that has failed fails for ever",
        ),
        (
            r#"{"restore": "fail"}"#,
            "it cannot be resumed: cuCheckpointProcessRestore: 999 UNKNOWN; ",
        ),
        (
            r#"{"restore": "damage"}"#,
            "its memory is not what it was: 1 of 12500000 numbers of 8 bytes differ",
        ),
        (
            r#"{"checkpoint": 999}"#,
            "it cannot be suspended: cuCheckpointProcessCheckpoint: 999 UNKNOWN",
        ),
        (
            r#"{"lock": "hang"}"#,
            "it cannot be locked: the process that suspends and resumes work gave no answer for",
        ),
    ] {
        machine.fail(faults);
        let tried = machine.tried();
        assert_eq!(tried.code, Some(4), "{faults}: {tried:?}");
        let line = format!("driver 580.159.04 on NVIDIA H200: turns may not be used: {says}");
        assert!(tried.out.starts_with(&line), "{faults}: {tried:?}");
        assert_eq!(tried.out.lines().count(), 1, "{faults}: {tried:?}");
        let warned = machine.warned();
        assert!(
            warned.contains("and failed: ") && warned.contains(says),
            "{faults}: {warned}"
        );
        machine.fail("{}");
        machine.assert_as_it_was();
    }
    CUDA.install(&machine.library(), &["cuCheckpointProcessRestore"])
        .unwrap();
    let tried = machine.tried();
    assert!(tried.out.contains("lacks cuCheckpointProcessRestore"), "{tried:?}");
    machine.assert_as_it_was();
    CUDA.install(&machine.library(), &[]).unwrap();
    let tried = machine.tried();
    assert_eq!(tried.code, Some(0), "{tried:?}");
    // It has looked at all programs that were there before.
    machine.assert_as_it_was();
    assert_eq!(machine.warned(), "");
}

#[test]
fn a_program_that_was_resumed_and_cannot_be_suspended_again_is_left_and_named() {
    for (faults, says) in [
        (r#"{"unlock": "fail"}"#, "the driver cannot go on with it"),
        (r#"{"restore": "hang"}"#, "gave no answer for"),
    ] {
        let machine = Machine::new();
        machine.fail(faults);
        let tried = machine.tried();
        assert_eq!(tried.code, Some(4), "{faults}: {tried:?}");
        let left = tried.out.lines().nth(1).unwrap();
        assert!(
            left.contains(says) && left.contains("cuda-checkpoint issue 53"),
            "{left}"
        );
        let pid = left
            .strip_prefix("process ")
            .and_then(|rest| rest.split(' ').next())
            .unwrap();
        assert!(fs::exists(format!("/proc/{pid}/exe")).unwrap(), "{left}");
        assert!(!machine.bed.at("meeting/host-hung").exists());
        kill(Pid::from_raw(pid.parse().unwrap()), Signal::SIGKILL).unwrap();
    }
}

#[test]
fn a_try_that_is_killed_is_no_success_and_the_next_one_ends_its_program() {
    let machine = Machine::new();
    assert_eq!(machine.tried().code, Some(0));
    let mut child = machine.command().spawn().unwrap();
    until("it has memory", || !machine.programs().is_empty());
    let pid = machine.programs()[0];
    // A stranger, because of whom nothing is resumed.
    machine.nvml(
        "processes",
        json!([{"pid": std::process::id(), "kind": "compute", "memory_mib": 3}]),
    );
    until("it is suspended", || machine.programs().is_empty());
    kill(Pid::from_raw(child.id().cast_signed()), Signal::SIGKILL).unwrap();
    child.wait().unwrap();
    machine.nvml("processes", json!([]));
    let warned = machine.warned();
    assert!(warned.contains("was not brought to its end"), "{warned}");
    assert!(is_running(pid), "a suspended program does not end by itself");
    assert_eq!(machine.tried().code, Some(0));
    assert!(!is_running(pid));
    machine.assert_as_it_was();
}

#[test]
fn a_device_in_use_or_unfit_is_not_tried() {
    let machine = Machine::new();
    let claims = Claims::open(&machine.bed.at("state")).unwrap();
    let entry = ClaimEntry {
        device: GPU.parse().unwrap(),
        subject: Subject::WHOLE,
        replicas: 0,
        bounds: Bounds::default(),
        asked_as: None,
        alone: true,
    };
    let holder = Holder::Process {
        program: "training".to_owned(),
        id: start_name().unwrap(),
    };
    claims.enter(&entry, holder.clone(), Some(std::process::id())).unwrap();
    let refused = machine.tried();
    assert_eq!((refused.code, refused.out.as_str()), (Some(1), ""), "{refused:?}");
    assert!(refused.err.contains("training"), "{refused:?}");
    claims.release_failed_start(&holder, &entry.device).unwrap();
    machine.nvml(
        "processes",
        json!([{"pid": std::process::id(), "kind": "compute", "memory_mib": 3}]),
    );
    let refused = machine.tried();
    assert_eq!(refused.code, Some(1), "{refused:?}");
    assert!(refused.err.contains("gpu 0: is used by"), "{refused:?}");
    machine.nvml("processes", json!([]));
    machine.nvml("virtualization", json!("vgpu"));
    let refused = machine.tried();
    assert_eq!(refused.code, Some(1), "{refused:?}");
    assert!(
        refused
            .err
            .contains("gpu 0: NVIDIA documents no suspended work in a vGPU guest"),
        "{refused:?}"
    );
    assert!(!machine.bed.at("state/kept/turns-tested.json").exists());
}
