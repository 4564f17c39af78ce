//! The units and udev rules of `packaging/`: systemd reads them, and what they start exists and takes their options.

use crate::support::skip;
use std::collections::BTreeSet;
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

/// The units of all packages.
fn units() -> Vec<PathBuf> {
    [packaging("systemd"), packaging("kubelet/systemd")].concat()
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
    for unit in units() {
        let text = fs::read_to_string(&unit).unwrap();
        let text = text
            .replace("/usr/bin/tranche-kubelet", "/bin/true")
            .replace("/usr/libexec/tranche/tranche-web", "/bin/true")
            .replace("/usr/bin/tranche", "/bin/true")
            .replace("/usr/sbin/modprobe", "/bin/true");
        fs::write(copies.path().join(name(&unit)), text).unwrap();
    }
    for unit in units() {
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

/// The two differ in the pause alone: what one may write, the other may.
#[test]
fn the_unit_that_looks_once_more_does_as_the_refresh_does() {
    let service = |name: &str| {
        let path = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("packaging/systemd")
            .join(name);
        let text = fs::read_to_string(path).unwrap();
        let section = text.split("[Service]").nth(1).unwrap();
        let section = section.split("[Install]").next().unwrap();
        section.trim().to_owned()
    };
    let pause = "ExecStartPre=/bin/sleep 5\n";
    let again = service("tranche-cdi-recheck.service");
    assert!(again.contains(pause));
    assert_eq!(again.replace(pause, ""), service("tranche-cdi-refresh.service"));
}

/// A file that is gone stops every container until the next refresh. Modules of an X server and VDPAU's back ends are
/// the driver's own, which does not lose one alone; firmware has the driver's version in its path.
#[test]
fn the_directory_of_each_file_of_the_test_hosts_is_watched() {
    let unit = packaging("systemd")
        .into_iter()
        .find(|unit| name(unit) == "tranche-cdi-refresh.path");
    let unit = fs::read_to_string(unit.unwrap()).unwrap();
    let watched: BTreeSet<&str> = unit
        .lines()
        .filter_map(|line| line.strip_prefix("PathChanged="))
        .collect();
    let mut directories = BTreeSet::new();
    for host in [
        "arch-linux",
        "dgx-a100-mig",
        "fedora-workstation",
        "gb200",
        "hgx-h200",
        "workstation-rtx4090",
    ] {
        let specification = format!("cdi-specs/{host}.yaml");
        let text = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(specification)).unwrap();
        let (mounts, sockets) = ("  - hostPath: ", "    - /run/");
        let mounted = text.lines().filter_map(|line| line.strip_prefix(mounts));
        let sockets = text
            .lines()
            .filter(|line| line.starts_with(sockets))
            .map(|line| &line[6..]);
        let files = mounted.chain(sockets).filter(|file| !file.starts_with("/dev/"));
        let parents = files.map(|file| file.rsplit_once('/').unwrap().0.to_owned());
        directories.extend(parents);
    }
    let parts = ["/xorg", "/vdpau", "/firmware/", "/run/tranche"];
    directories.retain(|directory| !parts.iter().any(|part| directory.contains(part)));
    assert!(directories.len() >= 10, "{directories:?}");
    let missing: Vec<&String> = directories
        .iter()
        .filter(|one| !watched.contains(one.as_str()))
        .collect();
    assert!(missing.is_empty(), "{missing:?}");
}

/// tranche-kubelet is a crate of its own, which is not built here: its help is in a source.
#[test]
fn the_unit_the_page_and_the_chart_of_the_device_plugin_have_its_options() {
    let read = |path: &str| fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).unwrap();
    let source = read("src/kubelet/args.rs");
    let (_, help) = source.split_once("pub const HELP: &str = \"").unwrap();
    let (help, _) = help.split_once("\";").unwrap();
    let options = |text: &str| -> BTreeSet<String> {
        let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '-');
        let words = words.filter(|word| word.starts_with("--") && word.len() > 2);
        words.map(str::to_owned).collect()
    };
    let of_help = options(help);
    assert!(of_help.len() >= 5, "{of_help:?}");
    let page = read("packaging/kubelet/man/tranche-kubelet.8").replace("\\-", "-");
    assert_eq!(options(&page), of_help);
    let unit = read("packaging/kubelet/systemd/tranche-kubelet.service");
    assert!(unit.contains("ExecStart=/usr/bin/tranche-kubelet device-plugin "));
    // A comment says how the unit is enabled.
    let of_unit = options(&unit.replace("enable --now", ""));
    let chart = read("packaging/helm/tranche/templates/daemonset.yaml");
    let of_chart: BTreeSet<String> = chart
        .lines()
        .filter_map(|line| line.trim().strip_prefix("- --"))
        .flat_map(|option| options(&format!("--{option}")))
        .collect();
    for given in [of_unit, of_chart] {
        assert!(!given.is_empty());
        assert!(given.is_subset(&of_help), "{given:?}");
    }
}

/// The broker answers root of the host alone, and whatever runs a kubelet must not come first.
#[test]
fn the_device_plugin_starts_before_the_kubelet_as_root_without_capabilities() {
    let unit = &packaging("kubelet/systemd")[0];
    let text = fs::read_to_string(unit).unwrap();
    let values = |key: &str| -> Vec<&str> {
        let settings = text.lines().filter_map(|line| line.split_once('='));
        settings
            .filter(|(k, _)| *k == key)
            .flat_map(|(_, v)| v.split(' '))
            .collect()
    };
    for kubelet in ["kubelet.service", "k3s.service", "k3s-agent.service"] {
        assert!(values("Before").contains(&kubelet), "{kubelet}");
        assert!(!values("After").contains(&kubelet), "{kubelet}");
    }
    assert!(values("After").contains(&"tranche-broker.socket"));
    assert_eq!(values("CapabilityBoundingSet"), [""]);
    assert_eq!(values("ProtectSystem"), ["strict"]);
    assert_eq!(values("StateDirectory"), ["kubelet/device-plugins"]);
    for key in [
        "User",
        "DynamicUser",
        "PrivateUsers",
        "ReadWritePaths",
        "AmbientCapabilities",
    ] {
        assert_eq!(values(key), [""; 0], "{key}");
    }
    // A node has the chart or the unit.
    let preset = fs::read_to_string(&packaging("kubelet/preset")[0]).unwrap();
    assert!(preset.lines().any(|line| line == "disable tranche-kubelet.service"));
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
