//! Changes of the MIG mode.

use crate::bed::Bed;
use serde_json::{Value, json};
use std::fs;
use std::process::Command;

#[test]
fn the_mode_of_a_hopper_changes_at_once_when_it_is_asked_for() {
    let bed = Bed::new("hgx-h200");
    let layout = ["--layout", "0:3g.71gb,2g.35gb"];
    let plan = bed.tranche(&[&["mig", "plan"][..], &layout].concat());
    assert_eq!(plan.out.lines().next(), Some("gpu 0: turn MIG mode on"), "{plan:?}");
    let refused = bed.tranche(&[&["mig", "apply", "--yes"][..], &layout].concat());
    assert_eq!(refused.code, Some(1));
    assert!(
        refused
            .err
            .contains("gpu 0: has another MIG mode than the layout; give --mode"),
        "{refused:?}"
    );
    let applied = bed.tranche(&[&["mig", "apply", "--yes", "--mode"][..], &layout].concat());
    assert_eq!(applied.code, Some(0), "{applied:?}");
    assert_eq!(bed.layout(0), "2g.35gb@0,3g.71gb@4");
    assert_eq!(bed.layout(1), "off");
    let off = bed.tranche(&["mig", "apply", "--yes", "--mode", "--layout", "0:off"]);
    assert_eq!((off.code, bed.layout(0).as_str()), (Some(0), "off"), "{off:?}");
    // And back with all instances.
    assert_eq!(bed.tranche(&["mig", "undo", "--yes", "--mode"]).code, Some(0));
    assert_eq!(bed.layout(0), "2g.35gb@0,3g.71gb@4");
}

#[test]
fn the_mode_of_an_ampere_needs_a_reset() {
    let bed = Bed::new("dgx-a100-mig");
    let off = ["mig", "apply", "--yes", "--layout", "0:off"];
    let before = bed.layout(0);
    let plan = bed.tranche(&["mig", "plan", "--layout", "0:off"]);
    assert!(
        plan.out.ends_with("gpu 0: turn MIG mode off, which resets the GPU\n"),
        "{plan:?}"
    );
    let refused = bed.tranche(&[&off[..], &["--mode"]].concat());
    assert!(
        refused
            .err
            .contains("changes its MIG mode with a reset only; give --mode --reset"),
        "{refused:?}"
    );
    assert_eq!(bed.layout(0), before);
    // A driver's program that resets nothing: everything is put back.
    let smi = bed.host.path("/usr/bin/nvidia-smi");
    let printed = "The following GPUs could not be reset:\n  GPU 00000000:07:00.0: In use by another client\n";
    fs::write(&smi, format!("#!/bin/sh\nprintf '{printed}'; exit 255\n")).unwrap();
    let failed = bed.tranche(&[&off[..], &["--mode", "--reset"]].concat());
    let expected = "gpu 0: cannot turn MIG mode off: nvidia-smi --gpu-reset failed: The following GPUs could not be reset: GPU 00000000:07:00.0: In use by \
                    another client (exit code 255)";
    assert!(failed.err.contains(expected), "{failed:?}");
    assert!(!failed.err.contains("nvidia_drm"), "it is not loaded: {failed:?}");
    assert!(failed.err.contains("everything was put back as it was"), "{failed:?}");
    assert_eq!(bed.layout(0), before);
    // One that does: the fake library's state after a reset.
    let state = bed.at("host/fake-nvml.mig.json");
    let script = format!(
        "#!/bin/sh\n/bin/sed -i 's/\"current\":true,\"pending\":false/\"current\":false,\"pending\":false/' {}\n",
        state.display()
    );
    fs::write(&smi, script).unwrap();
    let done = bed.tranche(&[&off[..], &["--mode", "--reset"]].concat());
    assert_eq!((done.code, bed.layout(0).as_str()), (Some(0), "off"), "{done:?}");
}

/// A display is no process that has the node of the GPU open, so only the module that serves it can be named.
#[test]
fn a_reset_that_a_display_prevents_names_its_module() {
    let mut bed = Bed::without_broker("dgx-a100-mig");
    for (path, text) in [
        ("/sys/bus/pci/devices/0000:07:00.0/drm/card1/dev", "226:1\n"),
        (
            "/usr/bin/nvidia-smi",
            "#!/bin/sh\necho In use by another client; exit 255\n",
        ),
    ] {
        let path = bed.host.path(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    let node = bed.host.path("/dev/dri/card1");
    fs::create_dir_all(node.parent().unwrap()).unwrap();
    let made = Command::new("mknod")
        .arg(&node)
        .args(["c", "226", "1"])
        .status()
        .unwrap();
    assert!(made.success());
    bed.start();
    let failed = bed.tranche(&["mig", "apply", "--yes", "--layout", "0:off", "--mode", "--reset"]);
    let expected = "In use by another client (exit code 255); the module nvidia_drm is loaded";
    assert!(failed.err.contains(expected), "{failed:?}");
}

#[test]
fn a_mode_that_does_not_become_active_is_no_success() {
    let mut bed = Bed::without_broker("hgx-h200");
    // A process that NVML lists keeps the mode pending, though the call succeeds.
    bed.host
        .nvml(|config| config["gpus"][0]["processes"] = json!([{"pid": std::process::id(), "kind": "compute"}]))
        .unwrap();
    bed.start();
    let said = bed.tranche(&["mig", "apply", "--yes", "--mode", "--layout", "0:empty"]);
    assert_eq!(said.code, Some(1));
    assert!(said.err.contains(&format!("(pid {})", std::process::id())), "{said:?}");
    let state = fs::read(bed.at("host/fake-nvml.mig.json")).ok();
    let state: Option<Value> = state.and_then(|text| serde_json::from_slice(&text).ok());
    assert!(state.is_none_or(|state| state.to_string().contains("\"pending\":false")));
    assert_eq!(bed.layout(0), "off");
}
