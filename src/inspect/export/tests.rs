//! The lines of each program for the same edits.

use super::*;
use tranche_core::types::ContainerPath;
use tranche_plan::edits::{MountEdit, NodeEdit};

fn host(path: &str) -> HostPath {
    HostPath::new(path).unwrap()
}

fn inside(path: &str) -> ContainerPath {
    ContainerPath::new(path).unwrap()
}

fn edits() -> Edits {
    let mut edits = Edits::default();
    edits.env.insert("NVIDIA_VISIBLE_DEVICES".into(), "void".into());
    let node = |path: &str| NodeEdit {
        host: host(path),
        numbers: None,
        mode: None,
        gid: None,
    };
    edits.nodes.insert(inside("/dev/nvidia0"), node("/dev/nvidia0"));
    edits.nodes.insert(inside("/dev/nvidiactl"), node("/srv/dev/nvidiactl"));
    let mount = |path: &str, access: &str| MountEdit {
        host: host(path),
        options: vec![access.to_owned(), "rbind".to_owned()],
    };
    edits.mounts.insert(
        inside("/usr/lib/libcuda.so.1"),
        mount("/usr/lib/libcuda.so.580.1", "ro"),
    );
    edits
        .mounts
        .insert(inside("/tmp/nvidia-mps"), mount("/run/tranche/mps/a b", "rw"));
    edits
}

fn look(path: &HostPath) -> Option<HostEntry> {
    match path.as_str() {
        "/dev/nvidia0" => Some(HostEntry::Device(195, 0)),
        "/run/tranche/mps/a b" => Some(HostEntry::Directory),
        _ => None,
    }
}

fn exported(target: ExportTarget) -> Vec<String> {
    lines(target, &edits(), look)
}

#[test]
fn bubblewrap_gets_binds_in_the_words_of_a_shell() {
    assert_eq!(
        exported(ExportTarget::Bwrap),
        [
            "--dev-bind /dev/nvidia0 /dev/nvidia0",
            "--dev-bind /srv/dev/nvidiactl /dev/nvidiactl",
            "--bind '/run/tranche/mps/a b' /tmp/nvidia-mps",
            "--ro-bind /usr/lib/libcuda.so.580.1 /usr/lib/libcuda.so.1",
            "--setenv NVIDIA_VISIBLE_DEVICES void",
            "--setenv LD_LIBRARY_PATH /usr/lib",
        ]
    );
}

#[test]
fn nspawn_is_also_allowed_the_devices() {
    assert_eq!(
        exported(ExportTarget::Nspawn),
        [
            "--bind=/dev/nvidia0",
            "'--property=DeviceAllow=/dev/nvidia0 rw'",
            "--bind=/srv/dev/nvidiactl:/dev/nvidiactl",
            "'--property=DeviceAllow=/srv/dev/nvidiactl rw'",
            "'--bind=/run/tranche/mps/a b:/tmp/nvidia-mps'",
            "--bind-ro=/usr/lib/libcuda.so.580.1:/usr/lib/libcuda.so.1",
            "--setenv=NVIDIA_VISIBLE_DEVICES=void",
            "--setenv=LD_LIBRARY_PATH=/usr/lib",
        ]
    );
}

#[test]
fn apptainer_gets_a_dev_of_its_own_binds_and_variables() {
    assert_eq!(
        exported(ExportTarget::Apptainer),
        [
            "--contain",
            "--bind /dev/nvidia0:/dev/nvidia0",
            "--bind /srv/dev/nvidiactl:/dev/nvidiactl",
            "--bind '/run/tranche/mps/a b:/tmp/nvidia-mps'",
            "--bind /usr/lib/libcuda.so.580.1:/usr/lib/libcuda.so.1:ro",
            "--env NVIDIA_VISIBLE_DEVICES=void",
            "--env LD_LIBRARY_PATH=/usr/lib",
        ]
    );
}

#[test]
fn lxc_gets_the_numbers_of_the_nodes_that_exist() {
    assert_eq!(
        exported(ExportTarget::Lxc),
        [
            "lxc.cgroup2.devices.allow = c 195:0 rw",
            "lxc.mount.entry = /dev/nvidia0 dev/nvidia0 none bind,optional,create=file 0 0",
            "lxc.mount.entry = /srv/dev/nvidiactl dev/nvidiactl none bind,optional,create=file 0 0",
            r"lxc.mount.entry = /run/tranche/mps/a\040b tmp/nvidia-mps none rbind,optional,create=dir 0 0",
            "lxc.mount.entry = /usr/lib/libcuda.so.580.1 usr/lib/libcuda.so.1 none rbind,ro,optional,create=file 0 0",
            "lxc.environment = NVIDIA_VISIBLE_DEVICES=void",
            "lxc.environment = LD_LIBRARY_PATH=/usr/lib",
        ]
    );
}

#[test]
fn a_word_is_what_a_shell_reads() {
    for text in ["a", "a b", "it's", "", "$HOME", "a\\b", "*"] {
        let edits = Edits {
            env: [("NAME".to_owned(), text.to_owned())].into(),
            ..Edits::default()
        };
        let line = lines(ExportTarget::Bwrap, &edits, look).remove(0);
        let word = line.strip_prefix("--setenv NAME ").unwrap();
        let shell = std::process::Command::new("/bin/sh")
            .args(["-c", &format!("printf %s {word}")])
            .output();
        assert_eq!(String::from_utf8(shell.unwrap().stdout).unwrap(), text);
    }
}
