//! What the machine may have or lack: each case gives one line, and nothing stays changed.

use crate::bed::{Bed, Client, UNEQUAL, planned};
use crate::faults::tick_until;
use crate::support::own_mounts::with_own_mounts;
use crate::support::rights;
use nix::mount::{MsFlags, mount};
use serde_json::json;
use std::fs;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tranche_broker::control::{Control, MachineControl};
use tranche_state::controlled::DaemonState;

/// Why the share is refused, and that nothing was changed for it.
#[track_caller]
fn refused(bed: &Bed, control: &Control) -> String {
    let line = bed.refused(control, "small");
    assert!(!line.contains('\n'), "{line}");
    assert!(
        !bed.fake.lines().iter().any(|line| line.starts_with("start")),
        "{:?}",
        bed.fake.lines()
    );
    control.tick();
    assert_eq!(control.devices(), []);
    assert!(matches!(bed.mode(), None | Some(0)));
    line
}

#[test]
fn a_daemon_of_another_program_is_named_and_left_alone() {
    let bed = Bed::new(UNEQUAL);
    let control = bed.control();
    fs::create_dir_all(bed.pipe()).unwrap();
    let mut command = Command::new(bed.fake.program("nvidia-cuda-mps-control"));
    command
        .arg("-d")
        .env_clear()
        .env("PATH", "/usr/bin:/bin")
        .env("CUDA_MPS_PIPE_DIRECTORY", bed.pipe());
    assert!(command.stdin(Stdio::null()).status().unwrap().success());
    let pid = fs::read_to_string(bed.pipe().join("nvidia-cuda-mps-control.pid")).unwrap();
    bed.fake.forget();
    let line = refused(&bed, &control);
    let expected = format!("gpu 0: another MPS daemon (process {pid} (nvidia-cuda-mps)");
    assert!(line.starts_with(&expected), "{line}");
    assert!(
        line.ends_with("end that daemon, or set sharing.mps.daemon: external"),
        "{line}"
    );
    assert_eq!(bed.fake.lines(), Vec::<String>::new(), "it got no command");
    assert_eq!(bed.daemons(), [pid.parse::<u32>().unwrap()]);
}

#[test]
fn what_an_earlier_daemon_left_is_replaced() {
    let bed = Bed::new(UNEQUAL);
    let control = bed.control();
    let pipe = bed.pipe();
    fs::create_dir_all(pipe.join("log")).unwrap();
    fs::write(pipe.join("log/x"), "").unwrap();
    // A socket on which nobody listens any more, and a file in the place of the other one.
    drop(UnixListener::bind(pipe.join("control")).unwrap());
    fs::write(pipe.join("control_privileged"), "").unwrap();
    bed.start(&control, "small");
    assert!(Client::attach(&bed).limits.contains("percentage 20.0"));
    bed.stop("small");
    assert_eq!(control.tick(), None);
    bed.assert_as_it_was(&control);
}

#[test]
fn a_path_that_is_too_long_for_a_socket_is_refused() {
    let mut bed = Bed::new(UNEQUAL);
    bed.state = "s".repeat(90);
    let line = refused(&bed, &bed.control());
    assert!(
        line.contains("control_privileged: is too long for a socket: "),
        "{line}"
    );
    assert!(
        line.ends_with("bytes, at most 106; choose a shorter state directory"),
        "{line}"
    );
}

#[test]
fn a_host_without_the_programs_or_the_library_is_told_what_it_lacks() {
    let bed = Bed::new(UNEQUAL);
    for (lacks, says) in [
        (
            "nvidia-cuda-mps-control",
            "nvidia-cuda-mps-control was not found among the driver's programs",
        ),
        (
            "libnvidia-ml.so",
            "its compute mode cannot be set: libnvidia-ml.so.1 was not found",
        ),
    ] {
        let before = bed.files();
        bed.change(|facts| {
            let driver = facts.inventory.driver.as_mut().unwrap();
            driver.files.retain(|file| !file.host.as_str().contains(lacks));
        });
        let line = refused(&bed, &bed.control());
        assert!(line.starts_with("gpu 0: ") && line.contains(says), "{line}");
        bed.change(|facts| facts.inventory.driver.as_mut().unwrap().files = before);
    }
}

#[test]
fn nvml_that_refuses_hangs_crashes_or_lost_the_gpu_costs_one_line() {
    let mut bed = Bed::new(UNEQUAL);
    let mut slowest = Duration::ZERO;
    let keep = "; with sharing.mps.computeMode: keep, tranche leaves the mode unchanged, and limits are advisory";
    for (call, error, says) in [
        (
            "nvmlDeviceSetComputeMode",
            "NO_PERMISSION",
            "its compute mode cannot be set: NVML refuses it to a user who is not root",
        ),
        (
            "nvmlDeviceSetComputeMode",
            "NOT_SUPPORTED",
            "its compute mode cannot be set: the GPU does not support it",
        ),
        (
            "nvmlDeviceSetComputeMode",
            "GPU_IS_LOST",
            "its compute mode cannot be set: the GPU is gone",
        ),
        (
            "nvmlDeviceGetComputeMode",
            "HANG",
            "its compute mode cannot be read: NVML gave no answer for ",
        ),
        (
            "nvmlDeviceGetComputeMode",
            "TIMEOUT",
            "its compute mode cannot be read: NVML says: ",
        ),
    ] {
        bed.host
            .nvml(|config| config["gpus"][0]["errors"] = json!({call: error}))
            .unwrap();
        let hangs = error == "HANG";
        // A library that answers takes less, since all its calls together took less.
        bed.nvml_patience = if hangs { slowest * 10 } else { Duration::from_secs(60) };
        let control = bed.control();
        let start = Instant::now();
        let line = bed.refused(&control, "small");
        if !hangs {
            slowest = slowest.max(start.elapsed());
        }
        assert!(
            line.starts_with(&format!("gpu 0: {says}")) && line.ends_with(keep),
            "{line}"
        );
        bed.host.nvml(|config| config["gpus"][0]["errors"] = json!({})).unwrap();
        assert_eq!(control.tick(), None, "{line}");
        bed.assert_as_it_was(&control);
    }
    bed.host
        .nvml(|config| config["faults"]["init"] = "crash".into())
        .unwrap();
    let line = refused(&bed, &bed.control());
    assert!(
        line.contains("NVML crashed or gave an invalid answer (signal: 11"),
        "{line}"
    );
}

#[test]
fn a_mode_that_another_program_set_is_not_changed() {
    let bed = Bed::new(UNEQUAL);
    let control = bed.control();
    bed.host
        .nvml(|config| config["gpus"][0]["compute_mode"] = 3.into())
        .unwrap();
    bed.start(&control, "small");
    let device = bed.device(&control);
    assert_eq!(device.compute_mode_before, None);
    assert_eq!(
        device.problems,
        ["is in the compute mode EXCLUSIVE_PROCESS, which tranche did not set and does not change"]
    );
    bed.stop("small");
    assert_eq!(control.tick(), None);
    bed.assert_as_it_was(&control);
    assert_eq!(bed.mode(), None, "it was never set");
    bed.fake.forget();
    bed.host
        .nvml(|config| config["gpus"][0]["compute_mode"] = 2.into())
        .unwrap();
    let line = refused(&bed, &control);
    assert!(line.contains("another program has set its compute mode"), "{line}");
}

#[test]
fn a_mode_that_another_program_sets_later_ends_grants_and_stays() {
    let bed = Bed::new(UNEQUAL);
    let control = bed.control();
    bed.start(&control, "small");
    for (mode, name) in [(0, "DEFAULT"), (2, "PROHIBITED")] {
        bed.set_mode(mode);
        let line = bed.refused(&control, "big");
        let says =
            format!("its compute mode is {name}, which another program set; shares by MPS need EXCLUSIVE_PROCESS");
        assert!(
            line.contains(&says) && line.contains("nvidia-smi -c EXCLUSIVE_PROCESS"),
            "{line}"
        );
    }
    bed.set_mode(3);
    bed.start(&control, "big");
    bed.stop("big");
    bed.set_mode(2);
    bed.stop("small");
    assert_eq!((control.tick(), bed.mode()), (None, Some(2)), "it is not put back");
    assert_eq!((control.devices(), bed.journal()), (Vec::new(), None));
    bed.set_mode(0);
    bed.start(&control, "small");
    assert_eq!(bed.mode(), Some(3));
    bed.stop("small");
    assert_eq!(control.tick(), None);
    bed.assert_as_it_was(&control);
}

#[test]
fn a_full_or_read_only_state_directory_changes_nothing() {
    if !rights::can_mount("control::inputs::a_full_or_read_only_state_directory_changes_nothing") {
        return;
    }
    let ended = with_own_mounts(|| {
        let bed = Bed::new(UNEQUAL);
        fs::create_dir(bed.state()).unwrap();
        let state = bed.state();
        let again = |flags, options: &str| {
            mount(Some("tmpfs"), &state, Some("tmpfs"), flags, Some(options)).unwrap();
        };
        again(MsFlags::empty(), "size=64k,mode=755");
        let control = bed.control();
        bed.claim("small");
        let fill = state.join("fill");
        let _ = fs::write(&fill, vec![0; 1 << 20]);
        let refuse = |why: &str| {
            let line = tranche_core::error::line(&control.prepare(bed.key()).unwrap_err());
            assert!(
                line.contains("control/0.json: cannot be written") && line.contains(why),
                "{line}"
            );
            assert_eq!(
                (control.devices(), bed.mode(), bed.fake.lines().len()),
                (Vec::new(), None, 0)
            );
        };
        refuse("No space left on device");
        fs::remove_file(fill).unwrap();
        again(MsFlags::MS_REMOUNT | MsFlags::MS_RDONLY, "size=64k,mode=755");
        refuse("Read-only file system");
        again(MsFlags::MS_REMOUNT, "size=640k,mode=755");
        control.prepare(bed.key()).unwrap();
        bed.stop("small");
        assert_eq!(control.tick(), None);
        bed.assert_as_it_was(&control);
    });
    ended.unwrap();
}

#[test]
fn a_device_that_disappears_while_it_is_claimed_leaves_nothing() {
    let bed = Bed::new(UNEQUAL);
    let control = bed.control();
    bed.start(&control, "small");
    bed.host.nvml(|config| config["gpus"] = json!([])).unwrap();
    bed.change(|facts| {
        facts.inventory.gpus.clear();
        Arc::make_mut(&mut facts.plan).devices.clear();
    });
    assert!(control.tick().is_some());
    bed.stop("small");
    assert_eq!(control.tick(), None);
    assert_eq!(
        (control.devices(), bed.journal(), bed.daemons()),
        (Vec::new(), None, Vec::new())
    );
    // It has no plan any more, so that there is nothing to prepare.
    control.prepare(bed.key()).unwrap();
    assert_eq!(control.devices(), []);
}

#[test]
fn a_daemon_of_an_older_driver_is_replaced_when_it_has_no_clients() {
    let bed = Bed::new(UNEQUAL);
    let control = bed.control();
    bed.start(&control, "small");
    let before = bed.pid(&control);
    let client = Client::attach(&bed);
    let upgrade = || {
        // The files of the old driver are gone.
        let old = bed
            .host
            .root
            .join("usr/lib/x86_64-linux-gnu/libnvidia-ml.so.550.163.01");
        let new = bed.host.root.join("usr/lib/x86_64-linux-gnu/libnvidia-ml.so.560.35.03");
        fs::rename(old, new).unwrap();
        bed.change(|facts| {
            let driver = facts.inventory.driver.as_mut().unwrap();
            driver.version = "560.35.03".parse().unwrap();
            for file in &mut driver.files {
                let path = file
                    .host
                    .as_str()
                    .replace("libnvidia-ml.so.550.163.01", "libnvidia-ml.so.560.35.03");
                file.host = tranche_core::types::HostPath::new(path).unwrap();
            }
        });
    };
    upgrade();
    assert!(control.tick().is_some());
    let device = bed.device(&control);
    let problem =
        "its MPS daemon is of driver 550.163.01, and the host has 560.35.03; it is replaced when it has no clients";
    assert_eq!(device.problems, [problem]);
    assert_eq!(device.daemon.unwrap().pid, Some(before));
    drop(client);
    let device = tick_until(&bed, &control, |device| device.problems.is_empty());
    let daemon = device.daemon.unwrap();
    assert_eq!((daemon.state, daemon.compute_percent), (DaemonState::Running, Some(20)));
    assert!(daemon.pid != Some(before) && daemon.lost.is_empty(), "{daemon:?}");
    bed.stop("small");
    assert_eq!(control.tick(), None);
    bed.assert_as_it_was(&control);
}

#[test]
fn a_policy_that_changes_takes_effect_when_nothing_is_claimed() {
    let bed = Bed::new(UNEQUAL);
    let control = bed.control();
    bed.start(&control, "small");
    let pid = bed.pid(&control);
    let keep = UNEQUAL.replace("grace: 0", "grace: 0\n    computeMode: keep");
    bed.change(|facts| facts.plan = planned(&facts.inventory, &keep).into());
    bed.start(&control, "big");
    assert_eq!((bed.pid(&control), bed.mode()), (pid, Some(3)));
    bed.stop("small");
    bed.stop("big");
    assert_eq!(control.tick(), None);
    bed.assert_as_it_was(&control);
    bed.fake.forget();
    bed.start(&control, "small");
    assert!(
        !bed.fake.lines().iter().any(|line| line.starts_with("compute mode")),
        "{:?}",
        bed.fake.lines()
    );
    // The policy does not share the device any more.
    bed.change(|facts| Arc::make_mut(&mut facts.plan).devices.clear());
    assert!(control.tick().is_some());
    assert_eq!(bed.device(&control).daemon.unwrap().state, DaemonState::Running);
    bed.stop("small");
    assert_eq!(control.tick(), None);
    bed.assert_as_it_was(&control);
}

#[test]
fn a_container_that_has_the_whole_device_has_it_without_a_daemon() {
    let bed = Bed::new(&UNEQUAL.replace("grace: 0", "grace: 1000"));
    let control = bed.control();
    bed.start(&control, "small");
    bed.stop("small");
    assert!(control.tick().is_some(), "a share may be claimed again soon");
    bed.claim_whole();
    control.prepare(bed.key()).unwrap();
    bed.assert_as_it_was(&control);
}

#[test]
fn a_mig_device_has_a_daemon_of_its_own_and_no_mode() {
    let policy = "version: v1
sharing:
  mps:
    grace: 0
    resources:
      - name: nvidia.com/mig-1g.5gb
        devices: [\"0:1\"]
        shares:
          - {name: small, memory: 20%, compute: 20%}
";
    let bed = Bed::of("dgx-a100-mig", policy);
    let control = bed.control();
    bed.start(&control, "small");
    let lines = bed.fake.lines();
    assert_eq!(lines[0], "start -f -multiuser-server");
    let mig = "MIG-176d37e1-d678-497e-e2fa-5fbb8409c0f3";
    assert_eq!(lines[2], "command set_default_device_pinned_mem_limit 0 972M");
    let environment = &bed.fake.events()[0]["environment"];
    assert_eq!(environment["CUDA_VISIBLE_DEVICES"], mig);
    assert_eq!(
        Path::new(environment["CUDA_MPS_PIPE_DIRECTORY"].as_str().unwrap()),
        bed.state().join("mps-daemon/0-1")
    );
    assert_eq!(bed.device(&control).device, "nvidia.com/gpu=0:1");
    bed.stop("small");
    assert_eq!(control.tick(), None);
    assert_eq!(control.devices(), []);
    assert_eq!(fs::read_dir(bed.state().join("mps/0-1")).unwrap().count(), 0);
}
