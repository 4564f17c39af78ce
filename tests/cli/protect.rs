//! `tranche system protect` and `unprotect`, on the files of another machine, and nodes that are closed when they are
//! made.

use crate::support::{fake_host, skip};
use crate::{Said, tranche};
use std::fs::{self, OpenOptions};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;

const POLICY: &str = "version: v1\nsharing:\n  access: enforce\n  dedicated: {devices: [0]}\n";

const UNIT: &str = "usr/lib/systemd/system/tranche-device-nodes.service";
const OPTION: &str = "etc/modprobe.d/tranche-device-nodes.conf";

struct Place {
    top: tempfile::TempDir,
}

impl Place {
    /// A host with the unit of tranche, and a policy that closes the nodes of GPU 0.
    fn of(test: &str) -> Option<Self> {
        let top = tempfile::tempdir().unwrap();
        let host = fake_host::build("t4x2-old-driver", &top.path().join("host")).unwrap();
        if let Some(missing) = host.not_made.first() {
            skip::not_run(&format!("protect::{test}"), &missing.why);
            return None;
        }
        let place = Self { top };
        place.put(&format!("host/{UNIT}"), "");
        place.put("config.yaml", POLICY);
        place.params("ModifyDeviceFiles: 1\n");
        Some(place)
    }

    fn at(&self, path: &str) -> PathBuf {
        self.top.path().join(path)
    }

    fn put(&self, path: &str, text: &str) {
        let path = self.at(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn params(&self, more: &str) {
        self.put(
            "host/proc/driver/nvidia/params",
            &format!("DeviceFileMode: 438\n{more}"),
        );
    }

    /// A verb on the files of the host, as those of another machine.
    fn run(&self, words: &[&str]) -> Said {
        self.with(words, &[format!("--root={}", self.at("host").display())])
    }

    /// A verb on the nodes of the host, as those of this machine.
    fn here(&self, words: &[&str]) -> Said {
        let host = self.at("host").display().to_string();
        let places = [
            format!("--driver-root={host}"),
            format!("--dev-root={host}"),
            format!("--proc-root={host}/proc"),
            format!("--sys-root={host}/sys"),
        ];
        self.with(words, &places)
    }

    fn with(&self, words: &[&str], places: &[String]) -> Said {
        let own = [
            format!("--config={}", self.at("config.yaml").display()),
            format!("--state-dir={}", self.at("state").display()),
        ];
        let all = words
            .iter()
            .copied()
            .chain(own.iter().chain(places).map(String::as_str));
        tranche(&all.collect::<Vec<_>>())
    }

    fn is_installed(&self) -> bool {
        self.at("host").join(OPTION).exists()
    }

    /// What `tranche doctor` finds about access: each finding with its result.
    fn doctor(&self) -> Vec<(String, String)> {
        let said = self.run(&["doctor", "--json"]);
        let report: serde_json::Value = serde_json::from_str(&said.out).unwrap();
        let checks = report["checks"].as_array().unwrap().iter();
        let of_access = checks.filter(|check| check["check"] == "access to device nodes");
        let word = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
        of_access
            .map(|check| (word(&check["result"]), word(&check["finding"])))
            .collect()
    }

    fn mode(&self, node: &str) -> u32 {
        self.at("host/dev").join(node).metadata().unwrap().mode() & 0o7777
    }
}

/// A refusal is one line with these words, and changes nothing.
fn refused(place: &Place, words: &[&str]) {
    let said = place.run(&["system", "protect"]);
    assert_ne!(said.code, Some(0), "{said:?}");
    assert_eq!(said.err.lines().count(), 1, "{said:?}");
    for word in words {
        assert!(said.err.contains(word), "{word}: {said:?}");
    }
    assert!(!place.is_installed());
}

#[test]
fn protection_is_one_file_and_in_force_when_the_driver_says_so() {
    let Some(place) = Place::of("protection_is_one_file_and_in_force_when_the_driver_says_so") else {
        return;
    };
    let wrong = |finding: &str| ("wrong".to_owned(), finding.to_owned());
    assert_eq!(place.doctor(), [wrong("access-not-in-force")]);
    let said = place.run(&["system", "protect", "--dry-run"]);
    assert_eq!(said.code, Some(0), "{said:?}");
    assert!(
        said.err.contains("would be written") && !place.is_installed(),
        "{said:?}"
    );
    // The second administrator finds it done.
    for _ in 0..2 {
        let said = place.run(&["system", "protect"]);
        assert_eq!(said.code, Some(0), "{said:?}");
        assert!(
            said.err.contains("not in force") && said.err.contains("initramfs"),
            "{said:?}"
        );
        assert!(place.is_installed());
    }
    assert_eq!(place.doctor(), [wrong("access-not-in-force")]);
    place.params("ModifyDeviceFiles: 0\n");
    let said = place.run(&["system", "protect"]);
    assert!(said.err.contains("\nin force"), "{said:?}");
    assert_eq!(place.doctor(), [wrong("nodes-open")], "nobody has closed them yet");
    // The policy decides: nothing is opened that it closes again.
    let said = place.run(&["system", "unprotect"]);
    assert_eq!((said.code, said.err.lines().count()), (Some(2), 1), "{said:?}");
    assert!(said.err.contains("access: enforce") && place.is_installed(), "{said:?}");
    place.put("config.yaml", &POLICY.replace("enforce", "open"));
    let said = place.run(&["system", "unprotect", "--dry-run"]);
    assert!(
        said.err.contains("would be removed") && place.is_installed(),
        "{said:?}"
    );
    for word in ["removed", "does not exist"] {
        let said = place.run(&["system", "unprotect"]);
        assert_eq!(said.code, Some(0), "{said:?}");
        assert!(said.err.contains(word) && !place.is_installed(), "{said:?}");
    }
}

/// Each finds the file absent or whole, and the last one decides.
#[test]
fn administrators_at_once_leave_one_whole_file() {
    let Some(place) = Place::of("administrators_at_once_leave_one_whole_file") else {
        return;
    };
    let at_once = |verb: &'static str| {
        std::thread::scope(|threads| {
            let threads: Vec<_> = (0..6).map(|_| threads.spawn(|| place.run(&["system", verb]))).collect();
            threads.into_iter().for_each(|thread| {
                let said = thread.join().unwrap();
                assert_eq!(said.code, Some(0), "{said:?}");
            });
        });
    };
    let files = || fs::read_dir(place.at("host/etc/modprobe.d")).map_or(0, Iterator::count);
    at_once("protect");
    assert_eq!(files(), 1);
    let text = fs::read_to_string(place.at("host").join(OPTION)).unwrap();
    assert!(
        text.ends_with("options nvidia-current NVreg_ModifyDeviceFiles=0\n"),
        "{text}"
    );
    place.put("config.yaml", &POLICY.replace("enforce", "open"));
    at_once("unprotect");
    assert_eq!(files(), 0);
}

/// A `protect` and an `unprotect` that are killed before each call that changes a file.
#[test]
fn a_protection_that_is_killed_is_there_or_it_is_not() {
    let test = "a_protection_that_is_killed_is_there_or_it_is_not";
    let Some(place) = Place::of(test) else { return };
    let strace = Command::new("strace")
        .args(["-f", "-qq", "-o", "/dev/null", "true"])
        .status();
    if !strace.is_ok_and(|status| status.success()) {
        return skip::not_run(
            &format!("protect::{test}"),
            "strace is missing, or may not trace a process",
        );
    }
    for (verb, policy) in [
        ("protect", POLICY.to_owned()),
        ("unprotect", POLICY.replace("enforce", "open")),
    ] {
        place.put("config.yaml", &policy);
        let call = |options: &[&str]| {
            let mut command = Command::new("strace");
            command
                .args(["-f", "-qq"])
                .args(options)
                .arg(env!("CARGO_BIN_EXE_tranche"))
                .args(["system", verb]);
            command.arg(format!("--root={}", place.at("host").display()));
            command.arg(format!("--config={}", place.at("config.yaml").display()));
            command.arg(format!("--state-dir={}", place.at("state").display()));
            command.env_clear().output().unwrap()
        };
        let reset = || {
            let _ = fs::remove_file(place.at("host").join(OPTION));
            if verb == "unprotect" {
                place.put(&format!("host/{OPTION}"), "options nvidia NVreg_ModifyDeviceFiles=0\n");
            }
        };
        reset();
        let trace = place.at("trace").display().to_string();
        let set = "trace=?rename,?renameat,?renameat2,?unlink,?unlinkat,?fsync,?fchmod,write";
        assert!(call(&["-o", &trace, "-e", set]).status.success());
        let text = fs::read_to_string(&trace).unwrap();
        let mut killed = 0;
        for name in [
            "rename",
            "renameat",
            "renameat2",
            "unlink",
            "unlinkat",
            "fsync",
            "fchmod",
            "write",
        ] {
            let count = text.lines().filter(|line| line.contains(&format!(" {name}("))).count();
            for when in 1..=count {
                reset();
                let before = fs::read_to_string(place.at("host").join(OPTION)).ok();
                let inject = format!("inject={name}:signal=KILL:when={when}");
                let said = call(&["-o", "/dev/null", "-e", &format!("trace={name}"), "-e", &inject]);
                killed += usize::from(said.status.code().is_none());
                let at = format!("{verb}, killed before {name} {when}");
                match (verb, fs::read_to_string(place.at("host").join(OPTION)).ok()) {
                    (_, now) if now == before => {}
                    ("protect", Some(now)) => {
                        assert!(
                            now.ends_with("options nvidia-current NVreg_ModifyDeviceFiles=0\n"),
                            "{at}: {now}"
                        );
                    }
                    (_, now) => assert_eq!(now, None, "{at}"),
                }
                let again = place.run(&["system", verb]);
                assert_eq!(again.code, Some(0), "{at}: {again:?}");
                assert_eq!(place.is_installed(), verb == "protect", "{at}");
            }
        }
        assert!(killed >= 2, "{verb}: killed {killed} times");
    }
}

/// A service that runs as a user of its own, and a program whose user has no claim.
#[test]
fn who_has_a_node_open_without_a_claim_is_named() {
    let test = "who_has_a_node_open_without_a_claim_is_named";
    let Some(place) = Place::of(test) else { return };
    let node = place.at("host/dev/nvidia0");
    for (pid, comm, uid, cgroup) in [
        (
            4711,
            "nvidia-persiste",
            997,
            "0::/system.slice/nvidia-persistenced.service",
        ),
        (4712, "python", 1000, "0::/user.slice/user-1000.slice/session-3.scope"),
        (4713, "Xorg", 0, "0::/system.slice/gdm.service"),
    ] {
        let process = format!("host/proc/{pid}");
        place.put(&format!("{process}/comm"), &format!("{comm}\n"));
        place.put(&format!("{process}/cgroup"), &format!("{cgroup}\n"));
        let status = format!(
            "Name:\t{comm}\nUid:\t{uid}\t{uid}\t{uid}\t{uid}\nGid:\t{uid}\t{uid}\t{uid}\t{uid}\nGroups:\t44 \n"
        );
        place.put(&format!("{process}/status"), &status);
        fs::create_dir(place.at(&format!("{process}/fd"))).unwrap();
        std::os::unix::fs::symlink(&node, place.at(&format!("{process}/fd/3"))).unwrap();
    }
    place.put("host/etc/group", "docker:x:101:ann\nsudo:x:27:bob,carol\n");
    let said = place.run(&["system", "protect", "--dry-run"]);
    let noted = "nvidia-persiste (pid 4711, nvidia-persistenced.service) has /dev/nvidia0 open";
    assert!(
        said.err.contains(noted) && said.err.contains("{users: [997]}"),
        "{said:?}"
    );
    assert!(!said.err.contains("python") && !said.err.contains("Xorg"), "{said:?}");
    place.params("ModifyDeviceFiles: 0\n");
    let found = |place: &Place| {
        let found: Vec<String> = place.doctor().into_iter().map(|(_, finding)| finding).collect();
        found
            .into_iter()
            .filter(|finding| !finding.is_empty())
            .collect::<Vec<_>>()
    };
    let expected = [
        "nodes-open",
        "access-of-service",
        "access-without-claim",
        "access-by-docker",
    ];
    assert_eq!(found(&place), expected);
    // Those who may watch, by their number or by a group.
    place.put(
        "config.yaml",
        &format!("{POLICY}  monitors: {{users: [997], groups: [44]}}\n"),
    );
    assert_eq!(found(&place), ["nodes-open", "access-by-docker"]);
    let said = place.run(&["system", "protect", "--dry-run"]);
    assert!(!said.err.contains("persiste"), "{said:?}");
    let text = place.run(&["doctor", "--all"]).out;
    assert!(text.contains("sudo makes them root: bob, carol"), "{text}");
}

#[test]
fn what_would_not_hold_is_refused() {
    let Some(place) = Place::of("what_would_not_hold_is_refused") else {
        return;
    };
    place.put("config.yaml", &POLICY.replace("enforce", "open"));
    refused(&place, &["config.yaml", "sharing.access: enforce"]);
    for (key, name) in [("users", "no-such-user"), ("groups", "no-such-group")] {
        place.put("config.yaml", &format!("{POLICY}  monitors: {{{key}: [{name}]}}\n"));
        refused(&place, &["sharing.monitors", name, "not found"]);
    }
    place.put("config.yaml", POLICY);
    let tag = "host/run/udev/static_node-tags/uaccess/nvidia0";
    place.put(tag, "");
    refused(&place, &["uaccess of udev (nvidia0)", "logind", "rule of udev"]);
    fs::remove_file(place.at(tag)).unwrap();
    let other = "host/etc/modprobe.d/nvidia.conf";
    place.put(other, "options nvidia NVreg_ModifyDeviceFiles=1\n");
    refused(&place, &["nvidia.conf:1", "remove it there"]);
    fs::remove_file(place.at(other)).unwrap();
    fs::remove_file(place.at("host").join(UNIT)).unwrap();
    refused(&place, &["tranche-device-nodes.service", "--without-unit"]);
    let said = place.run(&["system", "protect", "--without-unit"]);
    assert_eq!(said.code, Some(0), "{said:?}");
}

#[test]
fn nodes_are_made_closed_and_opened_with_the_removal_of_tranche() {
    let test = "nodes_are_made_closed_and_opened_with_the_removal_of_tranche";
    let Some(place) = Place::of(test) else { return };
    if !nix::unistd::geteuid().is_root() {
        skip::not_run(&format!("protect::{test}"), "not root");
        return;
    }
    let nodes = ["nvidia0", "nvidia1", "nvidiactl"];
    place.params("ModifyDeviceFiles: 0\n");
    nodes
        .iter()
        .for_each(|node| fs::remove_file(place.at("host/dev").join(node)).unwrap());
    let said = place.here(&["system", "create-device-nodes"]);
    assert_eq!(said.code, Some(0), "{said:?}");
    assert_eq!(
        nodes.map(|node| place.mode(node)),
        [0o660, 0o666, 0o666],
        "GPU 1 is not shared"
    );
    assert!(
        OpenOptions::new()
            .read(true)
            .open(Path::new(&place.at("state/nodes-closed")))
            .is_ok()
    );
    // A node that somebody has opened by hand is closed by the next refresh.
    let node = place.at("host/dev/nvidia0");
    fs::set_permissions(&node, fs::Permissions::from_mode(0o666)).unwrap();
    let said = place.here(&["cdi", "refresh", &format!("--output-dir={}", place.at("cdi").display())]);
    assert_eq!(said.code, Some(0), "{said:?}");
    assert_eq!(place.mode("nvidia0"), 0o660);
    let spec = fs::read_dir(place.at("cdi"))
        .unwrap()
        .map(|file| fs::read_to_string(file.unwrap().path()).unwrap());
    let spec: String = spec.collect();
    assert!(
        spec.contains("\"fileMode\": 438") || spec.contains("fileMode: 438"),
        "engines copy the mode of the host: {spec}"
    );
    let said = place.here(&[
        "system",
        "prepare-removal",
        &format!("--spec-dir={}", place.at("cdi").display()),
    ]);
    assert_eq!(said.code, Some(0), "{said:?}");
    assert_eq!(nodes.map(|node| place.mode(node)), [0o666; 3]);
}
