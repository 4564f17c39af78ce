//! `tranche system prepare-removal`: what was changed is put back, and what cannot be is named.

use crate::bed::{Bed, UNEQUAL};
use std::fs;
use std::process::{Command, Output};

/// The verb for the state of `bed`; specifications are in `cdi`, the file for systemd-tmpfiles in `tmpfiles`.
fn prepare_removal(bed: &Bed, options: &[&str]) -> (i32, String) {
    let Output { status, stderr, .. } = Command::new(env!("CARGO_BIN_EXE_tranche"))
        .args(["system", "prepare-removal"])
        .args(options)
        .env_clear()
        .env("PATH", "/usr/bin:/bin")
        .arg("--state-dir")
        .arg(bed.state())
        .arg("--root")
        .arg(&bed.host.root)
        .arg("--spec-dir")
        .arg(bed.at("cdi"))
        .arg("--tmpfiles-dir")
        .arg(bed.at("tmpfiles"))
        .output()
        .unwrap();
    (status.code().unwrap(), String::from_utf8(stderr).unwrap())
}

fn write(bed: &Bed, path: &str, text: &str) {
    let path = bed.at(path);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

const HOOK: &str = "cdiVersion: 0.5.0\nkind: example.com/device\ndevices:\n- name: a\n  containerEdits:\n    hooks:\n    - \
                    {hookName: poststop, path: /usr/bin/tranche-oci}\n";

#[test]
fn files_of_tranche_are_removed_and_others_are_kept() {
    let bed = Bed::new(UNEQUAL);
    write(&bed, "cdi/tranche.yaml", &format!("# Made by tranche 0.1.0\n{HOOK}"));
    write(&bed, "cdi/other.yaml", &HOOK.replace("tranche-oci", "other"));
    write(&bed, "state/host.json", "{}");
    write(&bed, "tmpfiles/tranche-mps.conf", "# Made by tranche: directories\n");
    let own = ["cdi/tranche.yaml", "state/host.json"];

    let (code, text) = prepare_removal(&bed, &["--dry-run"]);
    assert_eq!(code, 0, "{text}");
    for file in own {
        assert!(text.contains(&format!("{file}: would be removed\n")), "{text}");
        assert!(bed.at(file).exists(), "--dry-run removed {file}");
    }
    let (code, text) = prepare_removal(&bed, &[]);
    assert_eq!(code, 0, "{text}");
    for file in own {
        assert!(text.contains(&format!("{file}: removed\n")), "{text}");
        assert!(!bed.at(file).exists(), "{file} is left");
    }
    assert!(bed.at("cdi/other.yaml").exists());
    // Its header is not quite that of tranche.
    assert!(bed.at("tmpfiles/tranche-mps.conf").exists());
    assert_eq!(prepare_removal(&bed, &[]), (0, String::new()), "the second time");

    write(&bed, "cdi/hand.yaml", HOOK);
    let (code, text) = prepare_removal(&bed, &[]);
    assert_eq!(code, 4, "{text}");
    assert!(text.contains("cdi/hand.yaml: names a hook of tranche"), "{text}");
    assert!(bed.at("cdi/hand.yaml").exists());
}

#[test]
fn a_device_that_no_container_uses_is_put_back_without_a_broker() {
    let bed = Bed::new(UNEQUAL);
    let control = bed.control();
    bed.start(&control, "small");
    // The broker was killed, and left its daemon and its journal.
    drop(control);
    assert_ne!(bed.daemons(), Vec::<u32>::new());

    let (code, text) = prepare_removal(&bed, &[]);
    assert_eq!(code, 4, "{text}");
    assert!(
        text.contains("nvidia.com/gpu=0: is still changed for shares: "),
        "{text}"
    );
    assert!(text.contains("containers: still run: "), "{text}");
    assert_ne!(
        bed.daemons(),
        Vec::<u32>::new(),
        "the daemon of a running container was ended"
    );

    bed.stop("small");
    let (code, text) = prepare_removal(&bed, &[]);
    assert_eq!((code, text.as_str()), (0, "nvidia.com/gpu=0: put back as it was\n"));
    bed.assert_as_it_was(&bed.control());
}
