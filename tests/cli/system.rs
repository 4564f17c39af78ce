//! `tranche system`: device nodes and the links in `/dev/char`, on a host of files with nodes that tests may make.

use crate::support::{fake_host, skip};
use crate::{Said, tranche};
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt, symlink};
use std::path::{Path, PathBuf};

/// A host with its device nodes; `None` where they cannot be made, which is reported as a test that did not run.
struct Place {
    top: tempfile::TempDir,
}

impl Place {
    fn of(test: &str, host: &str) -> Option<Self> {
        let top = tempfile::tempdir().unwrap();
        let host = fake_host::build(host, &top.path().join("host")).unwrap();
        if let Some(missing) = host.not_made.first() {
            skip::not_run(&format!("system::{test}"), &missing.why);
            return None;
        }
        Some(Self { top })
    }

    fn host(&self, path: &str) -> PathBuf {
        self.top.path().join("host").join(path.trim_start_matches('/'))
    }

    fn run(&self, verb: &str, options: &[&str]) -> Said {
        let root = self.host("").display().to_string();
        let root = root.trim_end_matches('/');
        let place = [
            format!("--driver-root={root}"),
            format!("--dev-root={root}"),
            format!("--proc-root={root}/proc"),
            format!("--sys-root={root}/sys"),
        ];
        let place = place.iter().map(String::as_str);
        let words: Vec<&str> = ["system", verb]
            .into_iter()
            .chain(options.iter().copied())
            .chain(place)
            .collect();
        tranche(&words)
    }

    /// The nodes below `/dev`, with their numbers, mode and owner.
    fn nodes(&self) -> BTreeMap<String, (u64, u32, u32)> {
        let all = walkdir::WalkDir::new(self.host("dev")).into_iter().flatten();
        let nodes = all.filter(|entry| entry.file_type().is_char_device());
        nodes
            .map(|entry| {
                let data = entry.metadata().unwrap();
                let path = entry.path().strip_prefix(self.host("")).unwrap();
                (
                    path.display().to_string(),
                    (data.rdev(), data.mode() & 0o7777, data.gid()),
                )
            })
            .collect()
    }
}

#[test]
fn missing_nodes_are_made_with_the_driver_s_numbers() {
    let Some(place) = Place::of("missing_nodes_are_made_with_the_driver_s_numbers", "dgx-a100-mig") else {
        return;
    };
    let before = place.nodes();
    let gone = [
        "dev/nvidiactl",
        "dev/nvidia3",
        "dev/nvidia-caps/nvidia-cap1",
        "dev/nvidia-caps/nvidia-cap75",
    ];
    gone.iter().for_each(|path| fs::remove_file(place.host(path)).unwrap());

    let said = place.run("create-device-nodes", &["--dry-run"]);
    assert_eq!(said.code, Some(0), "{said:?}");
    assert_eq!(
        said.err.lines().filter(|line| line.starts_with("would make ")).count(),
        4,
        "{said:?}"
    );
    assert_eq!(place.nodes().len(), before.len() - 4, "a dry run makes nothing");

    let said = place.run("create-device-nodes", &["--control-devices"]);
    assert_eq!(said.code, Some(0), "{said:?}");
    assert_eq!(place.nodes().len(), before.len() - 3, "{said:?}");

    let said = place.run("create-device-nodes", &["--json"]);
    assert_eq!(said.code, Some(0), "{said:?}");
    let rows: Vec<serde_json::Value> = serde_json::from_str(&said.out).unwrap();
    assert_eq!(rows.iter().filter(|row| row["made"] == true).count(), 3, "{said:?}");
    let after = place.nodes();
    let numbers = |nodes: &BTreeMap<String, (u64, u32, u32)>| -> Vec<(String, u64)> {
        nodes
            .iter()
            .map(|(path, (number, ..))| (path.clone(), *number))
            .collect()
    };
    assert_eq!(numbers(&after), numbers(&before));
    let mode = |path: &str| after[path].1;
    assert_eq!(
        gone.map(mode),
        [0o666, 0o666, 0o400, 0o444],
        "only root may configure MIG"
    );
}

#[test]
fn nodes_belong_to_whom_the_driver_s_parameters_say() {
    let Some(place) = Place::of("nodes_belong_to_whom_the_driver_s_parameters_say", "t4x2-old-driver") else {
        return;
    };
    fs::remove_file(place.host("dev/nvidia1")).unwrap();
    let params = "DeviceFileUID: 0\nDeviceFileGID: 44\nDeviceFileMode: 432\nModifyDeviceFiles: 1\n";
    fs::write(place.host("proc/driver/nvidia/params"), params).unwrap();
    let said = place.run("create-device-nodes", &[]);
    assert_eq!(said.code, Some(0), "{said:?}");
    let (_, mode, gid) = place.nodes()["dev/nvidia1"];
    assert_eq!((mode, gid), (0o660, 44));
}

/// NVIDIA's library fails without its control node. It is asked again when that has been made, and then it names the
/// MIG devices, whose nodes follow.
#[test]
fn a_host_without_any_node_gets_all_of_them_at_once() {
    let Some(place) = Place::of("a_host_without_any_node_gets_all_of_them_at_once", "dgx-a100-mig") else {
        return;
    };
    let facts = place.host("fake-nvml.json");
    let mut nvml: serde_json::Value = serde_json::from_str(&fs::read_to_string(&facts).unwrap()).unwrap();
    nvml["faults"]["node"] = place.host("dev/nvidiactl").to_str().unwrap().into();
    fs::write(&facts, nvml.to_string()).unwrap();
    let wanted = || -> serde_json::Value {
        let said = place.run("create-device-nodes", &["--json", "--dry-run"]);
        serde_json::from_str(&said.out).unwrap()
    };
    let before = wanted();
    for path in place.nodes().keys() {
        fs::remove_file(place.host(path)).unwrap();
    }
    let said = place.run("create-device-nodes", &[]);
    assert_eq!(said.code, Some(0), "{said:?}");
    assert_eq!(wanted(), before);
}

#[test]
fn what_is_not_the_driver_s_node_is_reported_and_kept() {
    let Some(place) = Place::of("what_is_not_the_driver_s_node_is_reported_and_kept", "t4x2-old-driver") else {
        return;
    };
    let wrong = place.host("dev/nvidia0");
    fs::remove_file(&wrong).unwrap();
    fs::write(&wrong, "precious").unwrap();
    let zero = place.host("dev/nvidia-uvm");
    fs::remove_file(&zero).unwrap();
    let null = nix::sys::stat::makedev(1, 3);
    let kind = nix::sys::stat::SFlag::S_IFCHR;
    nix::sys::stat::mknod(&zero, kind, nix::sys::stat::Mode::from_bits_truncate(0o666), null).unwrap();
    let said = place.run("create-device-nodes", &[]);
    assert_eq!(said.code, Some(1), "{said:?}");
    assert!(said.err.contains("dev/nvidia0: is a regular file"), "{said:?}");
    assert!(said.err.contains("dev/nvidia-uvm: is 1:3, expected"), "{said:?}");
    assert_eq!(fs::read_to_string(&wrong).unwrap(), "precious");
    assert_eq!(fs::symlink_metadata(&zero).unwrap().rdev(), null);
}

#[test]
fn every_node_gets_a_link_from_its_numbers() {
    let Some(place) = Place::of("every_node_gets_a_link_from_its_numbers", "dgx-a100-mig") else {
        return;
    };
    let links = place.top.path().join("char");
    let path = format!("--dev-char-path={}", links.display());
    let said = place.run("create-dev-char-symlinks", &[&path, "--dry-run"]);
    assert_eq!(said.code, Some(0), "{said:?}");
    assert!(said.err.contains("would be linked to ") && !links.exists(), "{said:?}");

    let said = place.run("create-dev-char-symlinks", &[&path]);
    assert_eq!(said.code, Some(0), "{said:?}");
    let found: BTreeMap<String, PathBuf> = fs::read_dir(&links)
        .unwrap()
        .flatten()
        .map(|entry| {
            let name = entry.file_name().into_string().unwrap();
            (name, fs::read_link(entry.path()).unwrap())
        })
        .collect();
    for (path, (number, ..)) in place.nodes() {
        // No container gets the nodes of NVLink's own driver.
        if !path.contains("nvidia") || path.ends_with("nvidia-nvlink") {
            continue;
        }
        let (major, minor) = (nix::sys::stat::major(number), nix::sys::stat::minor(number));
        assert_eq!(
            found.get(&format!("{major}:{minor}")),
            Some(&place.host(&path)),
            "{path}"
        );
    }

    // A second run changes nothing; a link that leads elsewhere is corrected; a file is left alone.
    let said = place.run("create-dev-char-symlinks", &[&path]);
    assert_eq!((said.code, said.err.as_str()), (Some(0), ""));
    let names: Vec<&String> = found.keys().collect();
    fs::remove_file(links.join(names[0])).unwrap();
    symlink("/dev/null", links.join(names[0])).unwrap();
    fs::remove_file(links.join(names[1])).unwrap();
    fs::write(links.join(names[1]), "").unwrap();
    let said = place.run("create-dev-char-symlinks", &[&path]);
    assert_eq!(said.code, Some(1), "{said:?}");
    assert!(said.err.contains("it led to /dev/null"), "{said:?}");
    assert!(said.err.contains("is not a symbolic link"), "{said:?}");
    assert_eq!(fs::read_link(links.join(names[0])).unwrap(), found[names[0]]);
}

#[test]
fn all_links_can_be_made_before_the_nodes() {
    let Some(place) = Place::of("all_links_can_be_made_before_the_nodes", "t4x2-old-driver") else {
        return;
    };
    let links = place.top.path().join("char");
    let path = format!("--dev-char-path={}", links.display());
    let node = place.host("dev/nvidia1");
    fs::remove_file(&node).unwrap();
    assert_eq!(place.run("create-dev-char-symlinks", &[&path]).code, Some(0));
    assert!(!links.join("195:1").is_symlink());
    assert_eq!(
        place.run("create-dev-char-symlinks", &[&path, "--create-all"]).code,
        Some(0)
    );
    assert_eq!(fs::read_link(links.join("195:1")).unwrap(), node);
    assert!(!node.exists());
    let said = place.run(
        "create-dev-char-symlinks",
        &[&path, "--create-all", "--create-device-nodes"],
    );
    assert_eq!(said.code, Some(0), "{said:?}");
    assert!(fs::symlink_metadata(&node).unwrap().file_type().is_char_device());
}

#[test]
fn a_host_without_the_driver_has_nothing_to_link() {
    let Some(place) = Place::of("a_host_without_the_driver_has_nothing_to_link", "no-driver") else {
        return;
    };
    let links = place.top.path().join("char");
    let said = place.run(
        "create-dev-char-symlinks",
        &[&format!("--dev-char-path={}", links.display())],
    );
    assert_eq!((said.code, said.err.lines().count()), (Some(3), 1), "{said:?}");
    let said = place.run("create-device-nodes", &[]);
    assert_eq!(said.code, Some(0), "{said:?}");
    assert!(said.err.contains("the driver's modules are not loaded"), "{said:?}");
}

#[test]
fn another_machine_is_refused() {
    for verb in ["create-device-nodes", "create-dev-char-symlinks"] {
        let said = tranche(&["system", verb, "--inventory", "sim:t4x2"]);
        assert_eq!((said.code, said.err.lines().count()), (Some(2), 1), "{said:?}");
        assert!(!Path::new("/dev/nvidia0").exists(), "this machine has no such node");
    }
}
