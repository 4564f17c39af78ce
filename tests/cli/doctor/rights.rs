//! Who may write what root's engines trust, who may execute it, and whom the broker lets in.

use super::place::Place;
use crate::support::until::until;
use crate::support::{own_mounts, skip};
use serde_json::Value;
use std::fs;
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::path::Path;
use std::process::Command;

const HOST: &str = "hgx-h200";

/// A user without any rights.
const NOBODY: u32 = 65534;

/// A file or a directory, and how it comes into the hands of others.
type Case<'a> = (&'a Path, &'a dyn Fn(&Path));

fn mode(path: &Path, mode: u32) {
    fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
}

/// The text of the one result about what others can write, and its fix.
fn others_can_write(place: &Place) -> (String, String) {
    let found = place.found("others-can-write");
    let [one] = &found[..] else { panic!("{found:?}") };
    let text = |key: &str| one[key].as_str().unwrap().to_owned();
    (text("found"), text("fix"))
}

#[test]
fn what_root_s_engines_trust_and_others_can_write() {
    let Some(place) = Place::new("what_root_s_engines_trust_and_others_can_write", HOST) else {
        return;
    };
    place.refresh();
    let [directory, spec, policy] = ["cdi", "cdi/tranche.yaml", "config.yaml"].map(|path| place.at(path));
    assert_eq!(place.found("others-can-write"), [] as [Value; 0]);
    let cases: [Case; 6] = [
        (&directory, &|path| mode(path, 0o777)),
        (&directory, &|path| chown(path, Some(NOBODY), None).unwrap()),
        (&spec, &|path| mode(path, 0o666)),
        (&spec, &|path| chown(path, Some(NOBODY), None).unwrap()),
        (&policy, &|path| mode(path, 0o664)),
        (&policy, &|path| chown(path, Some(NOBODY), None).unwrap()),
    ];
    for (path, change) in cases {
        change(path);
        let (found, fix) = others_can_write(&place);
        assert!(found.starts_with(&path.display().to_string()), "{found}");
        place.fix(&fix);
        assert_eq!(place.found("others-can-write"), [] as [Value; 0], "{fix}");
    }
}

#[test]
fn a_policy_that_is_a_link_into_a_home() {
    let Some(place) = Place::new("a_policy_that_is_a_link_into_a_home", HOST) else {
        return;
    };
    place.refresh();
    let (home, policy) = (place.at("home"), place.at("config.yaml"));
    fs::create_dir(&home).unwrap();
    fs::rename(&policy, home.join("mine.yaml")).unwrap();
    chown(&home, Some(1000), None).unwrap();
    symlink(home.join("mine.yaml"), &policy).unwrap();
    let (found, fix) = others_can_write(&place);
    let says = format!(
        "{} belongs to user 1000, who can replace {}",
        home.display(),
        policy.display()
    );
    assert_eq!(found, says);
    let command = fix.split_once(": ").unwrap().1;
    place.fix(command);
    assert!(policy.symlink_metadata().unwrap().is_file());
    assert_eq!(place.found("others-can-write"), [] as [Value; 0]);
    // The user keeps the home, and a policy that is named there is no file of root's.
    assert_eq!(fs::read_to_string(home.join("mine.yaml")).unwrap(), "version: v1\n");
}

#[test]
fn a_hook_that_no_engine_can_execute() {
    let Some(place) = Place::new("a_hook_that_no_engine_can_execute", HOST) else {
        return;
    };
    place.refresh();
    let spec = place.at("cdi/tranche.yaml");
    let text = fs::read_to_string(&spec).unwrap();
    let own = text.lines().find_map(|line| {
        line.trim()
            .strip_prefix("path: ")
            .filter(|p| p.ends_with("/tranche-oci"))
    });
    let hook = place.at("bin/copy/tranche-oci");
    crate::support::programs::install(own.unwrap(), &hook);
    fs::write(&spec, text.replace(own.unwrap(), &hook.display().to_string())).unwrap();
    assert_eq!(place.found("program-not-executable"), [] as [Value; 0]);
    mode(&hook, 0o644);
    let fix = place.fix_of("program-not-executable");
    assert_eq!(fix, format!("chmod 0755 {}", hook.display()));
    assert_eq!(
        place.found("spec-hook-missing"),
        [] as [Value; 0],
        "one cause is one result"
    );
    place.fix(&fix);
    assert_eq!(place.found("program-not-executable"), [] as [Value; 0]);
    // The mode is right, and the file system forbids programs.
    let lived = own_mounts::with_own_mounts(|| {
        let directory = hook.parent().unwrap();
        let mount = |words: &[&str]| {
            assert!(
                Command::new("mount")
                    .args(words)
                    .arg(directory)
                    .status()
                    .unwrap()
                    .success()
            )
        };
        mount(&["-t", "tmpfs", "-o", "noexec", "none"]);
        crate::support::programs::install(env!("CARGO_BIN_EXE_tranche-oci"), &hook);
        let found = place.found("program-not-executable");
        let [one] = &found[..] else { panic!("{found:?}") };
        let says = format!(
            "{} is mounted with noexec, and has {}",
            directory.display(),
            hook.display()
        );
        assert_eq!(one["found"], *says);
        let fix = one["fix"].as_str().unwrap();
        let command = fix.split_once("run ").unwrap().1.split(" and ").next().unwrap();
        place.fix(command);
        assert_eq!(place.found("program-not-executable"), [] as [Value; 0], "{fix}");
    });
    lived.unwrap();
}

#[test]
fn a_socket_of_the_broker_that_only_root_can_use() {
    let Some(place) = Place::new("a_socket_of_the_broker_that_only_root_can_use", HOST) else {
        return;
    };
    place.policy("version: v1\nsharing:\n  timeSlicing:\n    resources:\n    - {name: nvidia.com/gpu, replicas: 2}\n");
    place.refresh();
    let _broker = place.start(&["broker"]);
    let socket = place.at("state/broker.sock");
    until("the broker listens", || socket.exists());
    until("everybody may use it", || place.found("broker-private").is_empty());
    mode(&socket, 0o600);
    let refused = place.tranche_as_nobody(&["claim", "list"]);
    assert_ne!(refused.code, Some(0), "{refused:?}");
    place.fix(&place.fix_of("broker-private"));
    assert_eq!(place.found("broker-private"), [] as [Value; 0]);
    let listed = place.tranche_as_nobody(&["claim", "list"]);
    assert_eq!(listed.code, Some(0), "{listed:?}");
}

/// The user `nobody` has no ids, whether it asks itself or by sudo; root needs none.
#[test]
fn a_user_without_ids() {
    let Some(place) = Place::new("a_user_without_ids", HOST) else {
        return;
    };
    place.engine("podman", "podman version 5.4.2");
    let engines = format!("--engine-dir={}", place.at("engines").display());
    let words = ["doctor", "--json", &engines];
    let by_sudo = || {
        let mut command = place.command(env!("CARGO_BIN_EXE_tranche"));
        command.args(words).env("SUDO_UID", NOBODY.to_string());
        crate::said(command)
    };
    for said in [place.tranche_as_nobody(&words), by_sudo()] {
        let report: Value = serde_json::from_str(&said.out).unwrap_or_else(|error| panic!("{error}: {said:?}"));
        let mut checks = report["checks"].as_array().unwrap().iter();
        let found = checks.find(|one| one["finding"] == "user-without-ids").unwrap();
        assert!(
            found["found"].as_str().unwrap().contains("user nobody has no ids"),
            "{found}"
        );
        let fix = found["fix"].as_str().unwrap();
        assert!(
            fix.starts_with("usermod --add-subuids ") && fix.ends_with(" nobody"),
            "{fix}"
        );
    }
    assert_eq!(place.found("user-without-ids"), [] as [Value; 0]);
}

/// What an unpacked or copied file system often lacks: the setuid bit of newuidmap.
#[test]
fn a_newuidmap_without_its_right() {
    const PROGRAM: &str = "/usr/bin/newuidmap";
    let Some(place) = Place::new("a_newuidmap_without_its_right", HOST) else {
        return;
    };
    if !Path::new(PROGRAM).exists() || !Path::new("/etc/subuid").exists() {
        skip::not_run(
            "doctor::rights::a_newuidmap_without_its_right",
            "newuidmap is not installed here",
        );
        return;
    }
    place.engine("podman", "podman version 5.4.2");
    let directory = place.at("ids");
    fs::create_dir(&directory).unwrap();
    let lived = own_mounts::with_own_mounts(|| {
        let mount = |words: &[&str]| assert!(Command::new("mount").args(words).status().unwrap().success());
        let at = |name: &str| directory.join(name).display().to_string();
        mount(&["-t", "tmpfs", "none", directory.to_str().unwrap()]);
        crate::support::programs::install(PROGRAM, at("newuidmap"));
        fs::write(at("subuid"), "ann:100000:65536\n").unwrap();
        mount(&["--bind", &at("newuidmap"), PROGRAM]);
        mount(&["--bind", &at("subuid"), "/etc/subuid"]);
        let fix = place.fix_of("id-map-powerless");
        assert_eq!(fix, "chmod u+s /usr/bin/newuidmap");
        place.fix(&fix);
        assert_eq!(place.found("id-map-powerless"), [] as [Value; 0]);
        mount(&["-o", "remount,nosuid", directory.to_str().unwrap()]);
        mount(&["-o", "remount,bind,nosuid", PROGRAM]);
        let fix = place.fix_of("id-map-powerless");
        assert_eq!(fix, "mount -o remount,suid /usr/bin/newuidmap");
    });
    lived.unwrap();
}
