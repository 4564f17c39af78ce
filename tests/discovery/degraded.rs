//! What an inventory lacks and its host has is in the inventory, and travels with it.

use super::*;
use tranche_plan::inventory::Degraded;

fn degraded(inventory: &Inventory) -> Vec<String> {
    inventory.degraded.iter().map(ToString::to_string).collect()
}

#[test]
fn a_healthy_host_is_complete() {
    for host in [
        "dgx-a100-mig",
        "minors-reordered",
        "hgx-h200",
        "workstation-rtx4090",
        SMALL,
        "no-driver",
    ] {
        assert_eq!(degraded(&bed(host).look()), [""; 0], "{host}");
    }
}

#[test]
fn each_way_to_lack_something_is_noted() {
    type Break = fn(&Bed);
    let cases: [(&str, &str, Break, &str); 10] = [
        (
            "silent",
            SMALL,
            |b| b.faults(serde_json::json!({"init": "hang"})),
            "NVML gave no answer in nvmlInit",
        ),
        (
            "crashed",
            SMALL,
            |b| b.faults(serde_json::json!({"init": "crash"})),
            "NVML crashed in nvmlInit",
        ),
        (
            "refused",
            SMALL,
            |b| b.faults(serde_json::json!({"init": "9"})),
            "NVML nvmlInit: the driver is not loaded",
        ),
        ("lost", "l4-one-lost", |_| (), "gpu 2 does not answer"),
        (
            "not counted",
            SMALL,
            |b| {
                b.host
                    .nvml(|config| {
                        config["gpus"].as_array_mut().unwrap().pop();
                    })
                    .unwrap();
            },
            "does not answer",
        ),
        (
            "no node",
            SMALL,
            |b| {
                b.remove("/dev/nvidia1");
                fs::write(b.host.path("/proc/devices"), "Character devices:\n  1 mem\n").unwrap();
            },
            "gpu 1 has no device node /dev/nvidia1",
        ),
        (
            "no GPU",
            "driver-no-gpu",
            |_| (),
            "/proc/driver/nvidia/version shows a driver, but no GPU was found",
        ),
        (
            "no libcuda",
            SMALL,
            |b| {
                let before = b.look().driver.unwrap();
                b.remove(before.library("libcuda.so.1").unwrap().host.as_str());
            },
            "libcuda.so.1 was not found among the driver's libraries",
        ),
        (
            "no libraries",
            "driver-container",
            |_| (),
            "/proc/driver/nvidia/version shows a driver, but its libraries were not found",
        ),
        (
            "a module alone",
            "no-driver",
            |b| {
                fs::create_dir_all(b.host.path("/proc")).unwrap();
                fs::write(
                    b.host.path("/proc/modules"),
                    "nvidia 56512512 2 - Live 0x0000000000000000 (POE)\n",
                )
                .unwrap();
            },
            "/proc/modules shows a driver, but its libraries were not found",
        ),
    ];
    for (what, host, break_it, line) in cases {
        let bed = bed(host);
        let impatient = bed.impatient();
        break_it(&bed);
        let inventory = bed.look_with(&impatient);
        let said = degraded(&inventory);
        assert!(said.iter().any(|s| s.contains(line)), "{what}: {said:?}");
        // It is the same after it was saved.
        let saved = serde_json::to_string(&inventory).unwrap();
        assert_eq!(load(what, &saved).unwrap().degraded, inventory.degraded, "{what}");
    }
}

#[test]
fn a_list_that_is_not_complete_is_printed_and_is_no_success() {
    let bed = bed("l4-one-lost");
    let root = bed.host.root.to_str().unwrap();
    let (code, out, err) = tranche(&["list", "--json", "--root", root]);
    assert_eq!(code, Some(1), "{err}");
    assert_eq!(serde_json::from_str::<Vec<serde_json::Value>>(&out).unwrap().len(), 3);
    assert!(err.ends_with("tranche: not complete: gpu 2 does not answer\n"), "{err}");
    // What it lacks is in the inventory itself.
    let (code, saved, _) = tranche(&["inventory", "--root", root]);
    assert_eq!(code, Some(0));
    let inventory = load("saved", &saved).unwrap();
    let expected = Degraded::Device {
        device: "gpu 2".into(),
        why: "does not answer".into(),
    };
    assert_eq!(inventory.degraded, [expected]);
}

#[test]
fn nodes_that_every_program_opens_are_missed_once() {
    if !support::rights::owns_machine("degraded::nodes_that_every_program_opens_are_missed_once") {
        return;
    }
    let bed = bed(SMALL);
    bed.remove("/dev/nvidia-uvm");
    bed.remove("/dev/nvidiactl");
    let told = warnings(&bed.look());
    let starts: Vec<&str> = told.iter().filter_map(|w| w.split_once(';').map(|(w, _)| w)).collect();
    assert_eq!(
        starts,
        [
            "/dev/nvidia-uvm: is missing, and no GPU works without it",
            "/dev/nvidiactl: is missing, and no GPU works without it",
        ]
    );
    assert!(
        told[0].contains("modprobe nvidia-uvm") && told[1].contains("nvidia-modprobe"),
        "{told:?}"
    );
}

#[test]
fn a_warning_about_a_node_is_said_once() {
    let bed = bed("dgx-a100-mig");
    bed.remove("/dev/nvidia1");
    fs::write(bed.host.path("/dev/nvidia1"), "no node").unwrap();
    let root = bed.host.root.to_str().unwrap();
    let (_, _, err) = tranche(&["list", "--root", root]);
    assert_eq!(err.matches("/dev/nvidia1: is a regular file").count(), 1, "{err}");
}

#[test]
fn what_is_not_there_takes_one_line_each_with_v() {
    let bed = bed(SMALL);
    let root = bed.host.root.to_str().unwrap();
    let (_, _, err) = tranche(&["-v", "list", "--root", root]);
    let absent: Vec<&str> = err.lines().filter(|l| l.contains("not found")).collect();
    assert!(absent.len() > 10, "{err}");
    for line in absent {
        assert!(line.len() < 120, "{line}");
    }
    // The directories of libraries are many, and are listed once.
    assert_eq!(err.matches("/usr/lib64/nvidia").count(), 1, "{err}");
}
