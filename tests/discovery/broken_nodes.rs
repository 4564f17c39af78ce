//! Device nodes that are missing, or none.

use super::*;

#[test]
fn a_node_that_is_missing_has_its_numbers() {
    let bed = bed(SMALL);
    bed.remove("/dev/nvidia0");
    bed.remove("/dev/nvidia-uvm");
    let inventory = bed.look();
    let node = inventory.gpus[0].node.as_ref().unwrap();
    assert_eq!((node.major, node.minor, node.present, node.mode), (195, 0, false, None));
    let control = &inventory.nodes.control;
    let uvm = control.iter().find(|c| c.role == ControlRole::Uvm).unwrap();
    assert_eq!((uvm.node.minor, uvm.node.present), (0, false));
    // Where not even the driver's number is known there is nothing to give.
    fs::write(bed.host.path("/proc/devices"), "Character devices:\n  1 mem\n").unwrap();
    assert!(bed.look().gpus[0].node.is_none());
}

#[test]
fn a_node_that_is_none_is_refused() {
    let bed = bed(SMALL);
    for (what, make) in [
        (
            "a regular file",
            (|p: &Path| fs::write(p, "")) as fn(&Path) -> std::io::Result<()>,
        ),
        ("a symbolic link", |p: &Path| symlink("/dev/zero", p)),
        ("a directory", |p: &Path| fs::create_dir(p)),
    ] {
        bed.remove("/dev/nvidia0");
        make(&bed.host.path("/dev/nvidia0")).unwrap();
        let inventory = bed.look();
        assert!(inventory.gpus[0].node.is_none(), "{what}");
        assert!(inventory.nodes.orphans.is_empty(), "{what}");
        let told = warnings(&inventory);
        assert!(
            told.iter().all(|w| w.starts_with("/dev/nvidia0: ") && w.contains(what)),
            "{told:?}"
        );
        assert!(!told.is_empty());
    }
}

#[test]
fn a_node_of_another_driver_is_refused() {
    let bed = bed(SMALL);
    if !bed.host.not_made.is_empty() {
        skip::not_run("a_node_of_another_driver_is_refused", "device nodes need root");
        return;
    }
    let devices = fs::read_to_string(bed.host.path("/proc/devices")).unwrap();
    fs::write(bed.host.path("/proc/devices"), devices.replace("195 ", "196 ")).unwrap();
    let inventory = bed.look();
    assert!(inventory.gpus.iter().all(|g| g.node.is_none()));
    let told = warnings(&inventory);
    assert!(told.iter().any(|w| w.contains("is 195:0, expected 196:0")), "{told:?}");
}
