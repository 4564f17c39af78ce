//! `restore`: the author of a checkpoint wrote the whole configuration of its container.

use std::fs;

use serde_json::{Value, json};

use crate::place::{Place, plain};

const RESTORE: [&str; 6] = ["restore", "--bundle", "bundle", "--image-path", "/checkpoint", "ID"];

/// A configuration with a device, a mount of the host and hooks, as a checkpoint has it.
fn restored(number: (u32, u32), hooks: Value) -> Value {
    let mut config = plain();
    let (major, minor) = number;
    config["linux"] = json!({"devices": [{"path": "/dev/any", "type": "c", "major": major, "minor": minor}]});
    config["hooks"] = hooks;
    config
}

#[test]
fn a_restored_container_gets_no_device_that_needs_a_claim() {
    let place = Place::new();
    let plan = place.dedicate_gpu_0();
    let device = format!("--device={}", plan.devices[0].key);
    // No low-level runtime has to run the hooks of a container that it restores.
    let claim = json!({"createRuntime": [{"path": "/usr/bin/tranche-oci",
        "args": ["tranche-oci", "hook", "claim", device, "--whole"]}]});
    for hooks in [json!({}), claim] {
        place.configure(&restored((195, 0), hooks));
        let line = place.refused(&RESTORE);
        assert!(
            line.contains("restore: has /dev/any of gpu 0, which is dedicated by the policy")
                && line.contains("start a new one"),
            "{line}"
        );
    }
    let mut mounted = plain();
    mounted["mounts"] = json!([{"destination": "/x", "type": "bind", "source": "/dev", "options": ["rbind"]}]);
    place.configure(&mounted);
    // This machine has no such node, so the directory brings none.
    if !std::path::Path::new("/dev/nvidia0").exists() {
        place.passes(&RESTORE);
    }
    for config in [restored((195, 1), json!({})), restored((195, 255), json!({})), plain()] {
        place.configure(&config);
        let before = fs::read(place.config()).unwrap();
        place.passes(&RESTORE);
        assert_eq!(fs::read(place.config()).unwrap(), before);
    }
}

#[test]
fn what_a_restored_container_asks_for_has_no_effect_and_without_a_plan_everything_passes() {
    let place = Place::new();
    let mut config = restored((195, 0), json!({}));
    config["annotations"] = json!({"cdi.k8s.io/x": "nvidia.com/gpu=0", "tranche.dev/shares": "1"});
    place.configure(&config);
    let before = fs::read(place.config()).unwrap();
    place.passes(&RESTORE);
    assert_eq!(fs::read(place.config()).unwrap(), before);
    place.dedicate_gpu_0();
    config["linux"] = json!({});
    place.configure(&config);
    let before = fs::read(place.config()).unwrap();
    place.passes(&RESTORE);
    assert_eq!(fs::read(place.config()).unwrap(), before);
}
