//! The units and udev rules of `packaging/`: systemd reads them, and what they start exists and takes their options.

use crate::support::skip;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

fn packaging(directory: &str) -> Vec<PathBuf> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("packaging").join(directory);
    let mut files: Vec<PathBuf> = fs::read_dir(directory)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    files.sort();
    assert!(!files.is_empty());
    files
}

fn name(path: &Path) -> &str {
    path.file_name().unwrap().to_str().unwrap()
}

#[test]
fn systemd_finds_nothing_wrong_with_the_units() {
    if Command::new("systemd-analyze").arg("--version").output().is_err() {
        return skip::not_run(
            "units::systemd_finds_nothing_wrong_with_the_units",
            "no systemd-analyze",
        );
    }
    // It looks for the programs that units start, which need not be installed here.
    let copies = tempfile::tempdir().unwrap();
    for unit in packaging("systemd") {
        let text = fs::read_to_string(&unit).unwrap();
        let text = text
            .replace("/usr/bin/tranche", "/bin/true")
            .replace("/usr/sbin/modprobe", "/bin/true");
        fs::write(copies.path().join(name(&unit)), text).unwrap();
    }
    for unit in packaging("systemd") {
        // A template needs an instance.
        let unit = name(&unit).replace("@.", "@0.");
        let output = Command::new("systemd-analyze")
            .args(["verify", "--man=no", &format!("./{unit}")])
            .current_dir(copies.path())
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        // What it says of other units of this machine is not about these.
        let about: Vec<&str> = said.lines().filter(|line| line.contains("tranche")).collect();
        assert!(output.status.success() && about.is_empty(), "{unit}: {said}");
    }
}

#[test]
fn the_units_give_options_that_tranche_has() {
    let mut commands = 0;
    for unit in packaging("systemd") {
        let text = fs::read_to_string(&unit).unwrap();
        let lines = text.lines().filter_map(|line| line.strip_prefix("ExecStart"));
        for line in lines.filter_map(|line| line.split_once("/usr/bin/tranche ")) {
            let arguments = line.1.replace("%i", "0");
            // With --help at the end, everything before it is read first.
            let output = Command::new(env!("CARGO_BIN_EXE_tranche"))
                .args(arguments.split_whitespace())
                .arg("--help")
                .env_clear()
                .output()
                .unwrap();
            assert!(output.status.success(), "{}: {arguments}: {output:?}", unit.display());
            commands += 1;
        }
    }
    assert!(commands >= 4, "{commands}");
}

/// NSS modules ask daemons over sockets, and are what says whose a subordinate uid is.
#[test]
fn the_broker_reaches_nss_and_sees_its_clients() {
    let units = packaging("systemd");
    let unit = units
        .iter()
        .find(|unit| name(unit) == "tranche-broker.service")
        .unwrap();
    let text = fs::read_to_string(unit).unwrap();
    let settings: Vec<(&str, &str)> = text.lines().filter_map(|line| line.split_once('=')).collect();
    let values = |key: &str| {
        settings
            .iter()
            .filter(|(k, _)| *k == key)
            .map(|(_, v)| *v)
            .collect::<Vec<_>>()
    };
    assert!(
        values("RestrictAddressFamilies")
            .iter()
            .all(|families| families.split(' ').any(|one| one == "AF_UNIX"))
    );
    for key in [
        "PrivateUsers",
        "PrivatePIDs",
        "DynamicUser",
        "User",
        "RootDirectory",
        "RootImage",
        "InaccessiblePaths",
        "TemporaryFileSystem",
        "MountAPIVFS",
        "NoExecPaths",
        "ExecPaths",
        "ProtectProc",
        "SystemCallFilter",
    ] {
        assert_eq!(
            values(key),
            [""; 0],
            "{key} may keep NSS or the processes of clients from the broker"
        );
    }
}

#[test]
fn the_udev_rules_start_units_that_exist() {
    let units: Vec<PathBuf> = packaging("systemd");
    for file in packaging("udev") {
        let text = fs::read_to_string(&file).unwrap();
        let rules: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
        let started = rules.iter().flat_map(|rule| rule.split(['"', ' ']));
        let started: Vec<&str> = started.filter(|word| word.ends_with(".service")).collect();
        assert!(!started.is_empty());
        for unit in started {
            assert!(units.iter().any(|path| name(path) == unit), "{unit}");
        }
        let word = |rule: &str, key: &str| Some(rule.split_once(&format!("{key}=\""))?.1.split_once('"')?.0.to_owned());
        let labels: Vec<String> = rules.iter().filter_map(|rule| word(rule, "LABEL")).collect();
        for goto in rules.iter().filter_map(|rule| word(rule, "GOTO")) {
            assert!(labels.contains(&goto), "{goto}");
        }
        // `udevadm verify` is in systemd 254 and later.
        let verify = || {
            Command::new("udevadm")
                .args(["verify", "--resolve-names=never"])
                .arg(&file)
                .output()
        };
        let knows = Command::new("udevadm").args(["verify", "--help"]).output();
        if knows.is_ok_and(|output| output.status.success()) {
            let output = verify().unwrap();
            assert!(output.status.success(), "{output:?}");
        }
    }
}
