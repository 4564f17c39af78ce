//! Discovery over the test hosts, through the real code: their library is opened, their files are read, and each way
//! in which a host can be broken costs what is broken and no more.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a test fails by a panic, and prints what it does"
)]

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};
use support::{fake_host, skip};
use tranche_core::types::{HostPath, MemorySize, Minor};
use tranche_host::{DiscoveryOptions, RootPaths, Roots, discover};
use tranche_plan::inventory::{
    AddressingMode, Architecture, ControlRole, DriverCapability, FileKind, Inventory, MigMode, PlatformKind, Source,
    VirtualizationMode, load,
};

mod broken_nodes;
mod broken_nvml;
mod degraded;
mod fake_nvml;
mod files;
mod kinds;
mod machines;
mod silence;
pub(crate) use tranche_test_support as support;
mod test_hosts;
mod usage;
mod without_nvml;

/// A test host in a directory of its own.
struct Bed {
    _dir: tempfile::TempDir,
    host: fake_host::Host,
}

fn bed(name: &str) -> Bed {
    let dir = tempfile::tempdir().unwrap();
    let host = fake_host::build(name, &dir.path().join("root")).unwrap();
    Bed { _dir: dir, host }
}

fn options() -> DiscoveryOptions {
    DiscoveryOptions {
        program: Some(env!("CARGO_BIN_EXE_tranche-driver").into()),
        // These machines may be slow and busy; no test here waits for it but those that say so.
        deadline: Duration::from_secs(60),
        ..DiscoveryOptions::default()
    }
}

impl Bed {
    fn paths(&self) -> RootPaths {
        RootPaths {
            root: Some(self.host.root.clone()),
            ..RootPaths::default()
        }
    }

    fn look_with(&self, options: &DiscoveryOptions) -> Inventory {
        discover(&Roots::new(&self.paths()).unwrap(), options)
    }

    fn look(&self) -> Inventory {
        self.look_with(&options())
    }

    /// The options with the shortest deadline that a library which answers surely keeps: many times what a discovery
    /// takes on this machine at this moment.
    fn impatient(&self) -> DiscoveryOptions {
        let began = Instant::now();
        self.look();
        DiscoveryOptions {
            deadline: (began.elapsed() * 10).max(Duration::from_millis(700)),
            ..options()
        }
    }

    fn remove(&self, path: &str) {
        // Device nodes are not there for a user who may not make them.
        let _ = fs::remove_file(self.host.path(path));
    }

    fn faults(&self, faults: serde_json::Value) {
        self.host.nvml(|config| config["faults"] = faults).unwrap();
    }
}

/// The warnings, a line each.
fn warnings(inventory: &Inventory) -> Vec<String> {
    let mut lines: Vec<String> = inventory
        .warnings
        .iter()
        .map(|w| format!("{}: {}", w.object, w.text))
        .collect();
    if !support::rights::is_root_of_machine() {
        // Nobody else can make the device nodes of a test host.
        lines.retain(|line| !(line.starts_with("/dev/nvidia") && line.contains(": is missing, ")));
    }
    lines.sort();
    lines
}

fn one_warning(inventory: &Inventory) -> String {
    let lines = warnings(inventory);
    assert_eq!(lines.len(), 1, "{lines:#?}");
    lines[0].clone()
}

fn file<'a>(inventory: &'a Inventory, container: &str) -> &'a tranche_plan::inventory::DriverFile {
    let files = &inventory.driver.as_ref().unwrap().files;
    let hit = files.iter().find(|f| f.container.as_str() == container);
    hit.unwrap_or_else(|| panic!("{container} is not among {files:#?}"))
}

fn has_file(inventory: &Inventory, name: &str) -> bool {
    inventory
        .driver
        .as_ref()
        .is_some_and(|d| d.files.iter().any(|f| f.container.file_name() == name))
}

/// Two libraries, and the smallest of all hosts with them.
const SMALL: &str = "t4x2-old-driver";

#[test]
fn every_host_is_described_the_same_way_twice() {
    for name in fake_host::names().unwrap() {
        let bed = bed(&name);
        let inventory = bed.look();
        let text = serde_json::to_string(&inventory).unwrap();
        assert_eq!(text, serde_json::to_string(&bed.look()).unwrap(), "{name}");
        assert_eq!(load(&name, &text).unwrap(), inventory, "{name}");
        assert!(
            !text.contains(bed.host.root.to_str().unwrap()),
            "{name} tells where the picture hangs"
        );
        assert!(inventory.gpus.is_sorted_by_key(|g| g.index), "{name}");
        if let Some(driver) = &inventory.driver {
            assert!(driver.files.is_sorted_by(|a, b| a.container < b.container), "{name}");
        }
        // The driver container is looked at without its root here.
        if !matches!(name.as_str(), "l4-one-lost" | "driver-container") {
            assert_eq!(warnings(&inventory), [""; 0], "{name}");
        }
    }
}

#[test]
fn built_in_inventories_are_what_discovery_finds() {
    let mut wrong = Vec::new();
    for sim in tranche_plan::sim::ALL {
        let bed = bed(sim.host);
        if !bed.host.not_made.is_empty() {
            skip::not_run(
                "built_in_inventories_are_what_discovery_finds",
                "device nodes need root",
            );
            return;
        }
        let inventory = bed.look();
        let found = serde_json::to_string_pretty(&inventory).unwrap() + "\n";
        let file = format!("{}/src/plan/sim/{}.json", env!("CARGO_MANIFEST_DIR"), sim.name);
        let is_expected = support::bless::is_expected(Path::new(&file), &found);
        // A bless does not change what is built into this program.
        let is_built_in = support::bless::is_on() || tranche_plan::sim::open(sim.name).unwrap() == inventory;
        if !is_expected || !is_built_in {
            wrong.push(sim.name);
        }
    }
    assert_eq!(wrong, [""; 0], "out of date: `make bless` writes them anew");
}

/// The places where something was looked for are listed once, and a name that was not found is one line of the file: a
/// name that is added to the lists of the driver's files adds one line to an inventory.
#[test]
fn an_absent_name_is_one_line_of_an_inventory() {
    let inventory = bed(SMALL).look();
    let text = serde_json::to_string_pretty(&inventory).unwrap();
    let names: Vec<&String> = inventory.absent.iter().flat_map(|a| &a.what).collect();
    assert!(names.len() > 20, "{names:?}");
    for name in names {
        let lines = text
            .lines()
            .filter(|line| line.trim().trim_end_matches(',') == format!("{name:?}"));
        assert!(lines.count() >= 1, "{name} is not a line of its own");
    }
    let mut places: Vec<&Vec<String>> = inventory.absent.iter().map(|a| &a.looked_in).collect();
    let all = places.len();
    places.sort();
    places.dedup();
    assert_eq!(places.len(), all, "the same places are listed twice");
    assert_eq!(text.matches("/usr/lib64/nvidia\"").count(), 1);
}

#[test]
fn other_platforms_are_recognised() {
    let wsl = bed("no-driver");
    fs::create_dir_all(wsl.host.path("/dev")).unwrap();
    fs::write(wsl.host.path("/dev/dxg"), "").unwrap();
    assert_eq!(wsl.look().platform.kind, PlatformKind::Wsl);
    let tegra = bed("no-driver");
    fs::create_dir_all(tegra.host.path("/sys/devices/soc0")).unwrap();
    fs::write(tegra.host.path("/sys/devices/soc0/family"), "Tegra\n").unwrap();
    assert_eq!(tegra.look().platform.kind, PlatformKind::Tegra);
    assert_eq!(bed(SMALL).look().platform.kind, PlatformKind::Linux);
}

fn tranche(args: &[&str]) -> (Option<i32>, String, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_tranche"))
        .args(args)
        .env_clear()
        .output()
        .unwrap();
    let text = |b: Vec<u8>| String::from_utf8(b).unwrap();
    (output.status.code(), text(output.stdout), text(output.stderr))
}

#[test]
fn the_command_line_lists_and_saves() {
    if !support::rights::owns_machine("the_command_line_lists_and_saves") {
        return;
    }
    let bed = bed(SMALL);
    let root = bed.host.root.to_str().unwrap();
    let (code, out, err) = tranche(&["list", "--wide", "--root", root]);
    assert_eq!((code, err.as_str()), (Some(0), ""));
    let first = out.lines().nth(1).unwrap();
    assert!(
        first.starts_with("0 ") && first.contains("Tesla T4") && first.contains("/dev/nvidia0"),
        "{out}"
    );
    let (code, saved, _) = tranche(&["inventory", "--root", root]);
    assert_eq!(code, Some(0));
    let file = bed.host.root.join("saved.json");
    fs::write(&file, &saved).unwrap();
    let (code, again, err) = tranche(&["list", "--wide", "--inventory", file.to_str().unwrap()]);
    assert_eq!((code, again, err), (Some(0), out, String::new()));
    let (code, json, _) = tranche(&["list", "--json", "--inventory", "sim:dgx-a100-mig"]);
    assert_eq!(code, Some(0));
    assert_eq!(serde_json::from_str::<Vec<serde_json::Value>>(&json).unwrap().len(), 27);
}

#[test]
fn nothing_there_is_an_exit_code_of_its_own() {
    for (name, what) in [("no-driver", "no NVIDIA driver"), ("driver-no-gpu", "no GPU answers")] {
        let bed = bed(name);
        let root = bed.host.root.to_str().unwrap();
        let (code, out, err) = tranche(&["list", "--root", root]);
        assert_eq!((code, out.as_str()), (Some(3), ""), "{name}");
        assert!(err.contains(what), "{err}");
        assert_eq!(tranche(&["inventory", "--root", root]).0, Some(0), "{name}");
    }
    assert_eq!(tranche(&["list", "--inventory", "sim:nothing"]).0, Some(2));
    assert_eq!(tranche(&["list", "--root", "/nonexistent"]).0, Some(2));
}
