//! Discovery over the test hosts, through the real code: their library is opened, their files are read, and each way
//! in which a host can be broken costs what is broken and no more.
#![cfg(feature = "cli")]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a test fails by a panic, and says what it does"
)]

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};
use tranche::host::{Options, RootPaths, Roots, discover};
use tranche::inventory::{
    AddressingMode, Architecture, ControlRole, DriverCapability, FileKind, Inventory, MigMode, PlatformKind, Source,
    VirtualizationMode, load,
};
use tranche::types::{HostPath, Minor};

#[path = "support/fake_host.rs"]
mod fake_host;
#[path = "support/skip.rs"]
mod skip;

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

fn options() -> Options {
    Options {
        program: env!("CARGO_BIN_EXE_tranche").into(),
        // These machines may be slow and busy; no test here waits for it but those that say so.
        deadline: Duration::from_secs(60),
        ..Options::default()
    }
}

impl Bed {
    fn paths(&self) -> RootPaths {
        RootPaths {
            root: Some(self.host.root.clone()),
            ..RootPaths::default()
        }
    }

    fn look_with(&self, options: &Options) -> Inventory {
        discover(&Roots::new(&self.paths()).unwrap(), options).unwrap()
    }

    fn look(&self) -> Inventory {
        self.look_with(&options())
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
    lines.sort();
    lines
}

fn one_warning(inventory: &Inventory) -> String {
    let lines = warnings(inventory);
    assert_eq!(lines.len(), 1, "{lines:#?}");
    lines[0].clone()
}

fn file<'a>(inventory: &'a Inventory, container: &str) -> &'a tranche::inventory::DriverFile {
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
    for sim in tranche::sim::ALL {
        let bed = bed(sim.host);
        if !bed.host.not_made.is_empty() {
            skip::not_run(
                "built_in_inventories_are_what_discovery_finds",
                "device nodes need root",
            );
            return;
        }
        let found = serde_json::to_string(&bed.look()).unwrap();
        let built_in = serde_json::to_string(&tranche::sim::open(sim.name).unwrap()).unwrap();
        if std::env::var_os("TRANCHE_UPDATE").is_some() {
            let path = format!("{}/src/sim/{}.json", env!("CARGO_MANIFEST_DIR"), sim.name);
            fs::write(path, format!("{found}\n")).unwrap();
        } else {
            assert!(
                found == built_in,
                "sim:{} is out of date: run this test with TRANCHE_UPDATE=1",
                sim.name
            );
        }
    }
}

#[test]
fn mig_in_every_layout() {
    let inventory = bed("dgx-a100-mig").look();
    assert_eq!(inventory.source, Source::Nvml);
    let counts: Vec<usize> = inventory.gpus.iter().map(|g| g.mig_devices.len()).collect();
    assert_eq!(counts, [7, 3, 5, 0, 1, 0, 3, 0]);
    assert!(inventory.gpus[3].is_in_mig_mode());
    let pending = inventory.gpus[5].mig.unwrap();
    assert_eq!(
        (pending.current, pending.pending),
        (MigMode::Disabled, MigMode::Enabled)
    );
    // Several compute instances share a GPU instance and its node.
    let third = &inventory.gpus[2].mig_devices;
    let names: Vec<String> = third.iter().map(|m| m.profile.as_ref().unwrap().to_string()).collect();
    assert_eq!(
        names,
        ["1c.3g.20gb", "1c.3g.20gb", "1c.3g.20gb", "2c.3g.20gb", "1c.3g.20gb"]
    );
    assert_eq!(third[0].gpu_instance_cap, third[2].gpu_instance_cap);
    assert_ne!(third[0].compute_instance_cap, third[2].compute_instance_cap);
    let cap = third[0].compute_instance_cap.as_ref().unwrap();
    assert_eq!(
        cap.container.as_str(),
        format!("/dev/nvidia-caps/nvidia-cap{}", cap.minor)
    );
    assert_eq!((third[0].gpu_slices, third[0].compute_slices), (Some(3), Some(1)));
    for (gpu, mig) in inventory.mig_devices() {
        assert!(
            mig.uuid.is_some() && mig.memory.is_some(),
            "{}:{}",
            gpu.index,
            mig.index
        );
        assert!(mig.gpu_instance_cap.is_some() && mig.compute_instance_cap.is_some());
    }
}

#[test]
fn minors_are_not_indices() {
    let inventory = bed("minors-reordered").look();
    let minors: Vec<Minor> = inventory.gpus.iter().map(|g| g.minor).collect();
    assert_eq!(minors, [2, 0, 3, 1].map(Minor));
    for gpu in &inventory.gpus {
        let node = gpu.node.as_ref().unwrap();
        assert_eq!(
            (node.container.as_str(), node.minor),
            (&*format!("/dev/nvidia{}", gpu.minor), gpu.minor.0)
        );
    }
    // In mig-minors a GPU goes by its minor.
    assert_eq!(
        inventory.gpus[2].mig_devices[0]
            .gpu_instance_cap
            .as_ref()
            .unwrap()
            .minor,
        417
    );
}

#[test]
fn a_driver_in_a_container_keeps_its_root_on_the_host() {
    let bed = bed("driver-container");
    let mut paths = bed.paths();
    paths.driver_root = Some("/run/nvidia/driver".into());
    let inventory = discover(&Roots::new(&paths).unwrap(), &options()).unwrap();
    assert_eq!(warnings(&inventory), [""; 0]);
    assert_eq!(inventory.source, Source::Nvml);
    let driver = inventory.driver.as_ref().unwrap();
    for file in &driver.files {
        let below = file.host.below("/run/nvidia/driver");
        assert!(below.is_some(), "{}", file.host);
        assert!(file.container.below("/run/nvidia").is_none(), "{}", file.container);
    }
    assert_eq!(driver.library_dirs[0].container.as_str(), "/usr/lib/x86_64-linux-gnu");
    // That container has nodes of its own; the host's are taken on request.
    let host_of = |i: &Inventory| i.gpus[0].node.as_ref().unwrap().host.to_string();
    if bed.host.not_made.is_empty() {
        assert_eq!(host_of(&inventory), "/run/nvidia/driver/dev/nvidia0");
    }
    paths.dev_root = Some("/".into());
    let of_host = discover(&Roots::new(&paths).unwrap(), &options()).unwrap();
    assert_eq!(host_of(&of_host), "/dev/nvidia0");
    assert_eq!(
        of_host.gpus[0].node.as_ref().unwrap().container.as_str(),
        "/dev/nvidia0"
    );
    // Without the root the libraries are not found, and /proc tells the GPUs.
    let without = bed.look();
    assert_eq!(without.source, Source::Proc);
    assert_eq!(without.gpus.len(), inventory.gpus.len());
    assert!(
        warnings(&without).iter().any(|w| w.contains("--driver-root")),
        "{:?}",
        warnings(&without)
    );
}

#[test]
fn what_each_kind_of_machine_has() {
    let desk = bed("workstation-rtx4090").look();
    let gpu = &desk.gpus[0];
    assert_eq!(gpu.architecture, Some(Architecture::Ada));
    // The other card of this machine is not NVIDIA's.
    let dri: Vec<&str> = gpu.dri.iter().map(|d| d.node.container.as_str()).collect();
    assert_eq!(dri, ["/dev/dri/card1", "/dev/dri/renderD129"]);
    assert_eq!(gpu.dri[0].by_path.as_deref(), Some("pci-0000:01:00.0-card"));
    let icd = file(&desk, "/etc/vulkan/icd.d/nvidia_icd.json");
    assert_eq!(icd.host.as_str(), "/usr/share/vulkan/icd.d/nvidia_icd.json");
    assert_eq!(icd.capability, DriverCapability::Graphics);

    let big = bed("hgx-h200").look();
    assert_eq!(big.gpus.len(), 8);
    assert!(!big.nodes.nvswitch.is_empty() && !big.nodes.imex_channels.is_empty());
    assert!(!big.nodes.gds.is_empty() && !big.nodes.gds_mounts.is_empty() && !big.nodes.mofed.is_empty());
    assert!(big.gpus.iter().all(|g| g.numa_node.is_some()));

    let coherent = bed("gb200").look();
    assert_eq!(coherent.gpus[0].addressing, Some(AddressingMode::Ats));
    assert_eq!(coherent.platform.arch, tranche::inventory::Arch::Aarch64);

    let guest = bed("vgpu-guest").look();
    assert_eq!(guest.gpus[0].virtualization, Some(VirtualizationMode::Vgpu));

    let nix = bed("nixos").look();
    let dir = &nix.driver.as_ref().unwrap().library_dirs[0];
    assert!(dir.host.as_str().starts_with("/nix/store/"), "{}", dir.host);
    assert!(has_file(&nix, "libcuda.so.570.153.02"));

    let bare = bed("no-driver").look();
    assert!(bare.driver.is_none() && bare.gpus.is_empty());
    let idle = bed("driver-no-gpu").look();
    assert!(idle.driver.is_some() && idle.gpus.is_empty());
}

#[test]
fn libraries_have_their_links() {
    let inventory = bed("workstation-rtx4090").look();
    let version = inventory.driver.as_ref().unwrap().version.to_string();
    let dir = "/usr/lib/x86_64-linux-gnu";
    let links = |name: &str| -> Vec<(String, String)> {
        let file = file(&inventory, &format!("{dir}/{name}.so.{version}"));
        file.links
            .iter()
            .map(|l| (l.path.to_string(), l.target.clone()))
            .collect()
    };
    let pair = |path: &str, target: &str| (format!("{dir}/{path}"), target.replace('V', &version));
    assert_eq!(
        links("libcuda"),
        [pair("libcuda.so", "libcuda.so.1"), pair("libcuda.so.1", "libcuda.so.V")]
    );
    assert_eq!(
        links("libnvidia-allocator"),
        [
            pair("gbm/nvidia-drm_gbm.so", "../libnvidia-allocator.so.1"),
            pair("libnvidia-allocator.so.1", "libnvidia-allocator.so.V")
        ]
    );
    // Its SONAME is its file's name.
    assert_eq!(links("libnvidia-glcore"), []);
    assert!(links("libGLX_nvidia").contains(&pair("libGLX_indirect.so.0", "libGLX_nvidia.so.V")));
}

#[test]
fn libraries_of_32_bits_on_request() {
    let bed = bed("fedora-workstation");
    let is_32 = |i: &Inventory| {
        i.driver
            .as_ref()
            .unwrap()
            .files
            .iter()
            .filter(|f| f.capability == DriverCapability::Compat32)
            .count()
    };
    assert_eq!(is_32(&bed.look()), 0);
    let both = bed.look_with(&Options {
        compat32: true,
        ..options()
    });
    assert!(is_32(&both) > 0);
    let dirs: Vec<&str> = both
        .driver
        .as_ref()
        .unwrap()
        .library_dirs
        .iter()
        .map(|d| d.container.as_str())
        .collect();
    assert_eq!(dirs, ["/usr/lib64", "/usr/lib"]);
}

#[test]
fn search_paths_take_the_place_of_the_known_ones() {
    let bed = bed(SMALL);
    let elsewhere = Options {
        library_search_paths: vec![HostPath::new("/opt/driver/lib").unwrap()],
        config_search_paths: vec![HostPath::new("/opt/driver/etc").unwrap()],
        ..options()
    };
    let none = bed.look_with(&elsewhere);
    assert!(!has_file(&none, "libcuda.so.450.248.02"));
    let absent = none.absent.iter().find(|a| a.what == "libnvidia-ml.so.1").unwrap();
    assert_eq!(absent.looked_in, ["/opt/driver/lib"]);
    fs::create_dir_all(bed.host.path("/opt/driver")).unwrap();
    symlink("/usr/lib/x86_64-linux-gnu", bed.host.path("/opt/driver/lib")).unwrap();
    assert!(has_file(&bed.look_with(&elsewhere), "libcuda.so.450.248.02"));
}

#[test]
fn without_nvml_proc_tells_what_it_can() {
    let bed = bed("dgx-a100-mig");
    let with = bed.look();
    let without = bed.look_with(&Options {
        nvml: false,
        ..options()
    });
    assert_eq!(without.source, Source::Proc);
    let names = |i: &Inventory| -> Vec<_> {
        i.gpus
            .iter()
            .map(|g| (g.index, g.minor, g.uuid.clone(), g.pci, g.name.clone(), g.node.clone()))
            .collect()
    };
    assert_eq!(names(&with), names(&without));
    let instances = |i: &Inventory| -> Vec<_> {
        i.mig_devices()
            .map(|(g, m)| {
                (
                    g.index,
                    m.gpu_instance,
                    m.compute_instance,
                    m.compute_instance_cap.clone(),
                )
            })
            .collect()
    };
    assert_eq!(instances(&with), instances(&without));
    assert!(without.mig_devices().all(|(_, m)| m.uuid.is_none()));
    assert_eq!(with.nodes, without.nodes);
}

#[test]
fn a_library_that_hangs_costs_the_deadline() {
    let bed = bed(SMALL);
    bed.faults(serde_json::json!({"init": "hang"}));
    let begin = Instant::now();
    let inventory = bed.look_with(&Options {
        deadline: Duration::from_millis(700),
        ..options()
    });
    assert!(begin.elapsed() >= Duration::from_millis(700));
    assert!(
        one_warning(&inventory).contains("no answer in nvmlInit for 0.7 s"),
        "{:?}",
        warnings(&inventory)
    );
    assert_eq!((inventory.source, inventory.gpus.len()), (Source::Proc, 2));
}

#[test]
fn a_library_that_crashes_costs_a_line() {
    let bed = bed(SMALL);
    bed.faults(serde_json::json!({"init": "crash"}));
    let inventory = bed.look();
    assert!(
        one_warning(&inventory).contains("crashed in nvmlInit (SIGSEGV)"),
        "{:?}",
        warnings(&inventory)
    );
    assert_eq!((inventory.source, inventory.gpus.len()), (Source::Proc, 2));
}

#[test]
fn a_library_that_refuses_says_why() {
    let bed = bed(SMALL);
    bed.faults(serde_json::json!({"init": "18"}));
    let inventory = bed.look();
    assert!(
        one_warning(&inventory).contains("different versions; reboot"),
        "{:?}",
        warnings(&inventory)
    );
    assert_eq!(inventory.gpus.len(), 2);
}

#[test]
fn strings_without_an_end_and_strings_of_nonsense() {
    for strings in ["unterminated", "garbage"] {
        let bed = bed("dgx-a100-mig");
        bed.faults(serde_json::json!({"strings": strings}));
        let inventory = bed.look();
        // Numbers are right, and /proc knows UUIDs, names and addresses; which GPU is which tells the minor alone then.
        assert!(!inventory.warnings.is_empty(), "{strings}");
        for gpu in &inventory.gpus {
            assert!(gpu.name.chars().all(|c| !c.is_control()), "{strings}: {:?}", gpu.name);
        }
        assert_eq!(inventory.gpus.len(), 8, "{strings}: {:#?}", warnings(&inventory));
        assert!(
            inventory
                .mig_devices()
                .all(|(_, m)| m.uuid.is_none() && m.profile.is_none()),
            "{strings}"
        );
        assert!(load("x", &serde_json::to_string(&inventory).unwrap()).is_ok());
    }
}

#[test]
fn functions_that_are_missing_cost_their_answer() {
    let bed = bed("dgx-a100-mig");
    bed.host
        .nvml(|config| {
            config["missing_symbols"] = serde_json::json!([
                "nvmlDeviceGetName",
                "nvmlDeviceGetComputeMode",
                "nvmlDeviceGetMinorNumber"
            ]);
        })
        .unwrap();
    let inventory = bed.look();
    assert_eq!(warnings(&inventory), [""; 0]);
    assert_eq!(inventory.gpus.len(), 8);
    assert!(
        inventory
            .gpus
            .iter()
            .all(|g| g.compute_mode.is_none() && g.memory.is_some())
    );
    // /proc has the name and the minor.
    assert_eq!(inventory.gpus[0].name, "NVIDIA A100-SXM4-40GB");
    let absent: Vec<&str> = inventory
        .absent
        .iter()
        .map(|a| a.what.as_str())
        .filter(|w| w.ends_with("()"))
        .collect();
    assert!(absent.contains(&"nvmlDeviceGetComputeMode()"), "{absent:?}");
}

#[test]
fn a_lost_gpu_leaves_the_others() {
    let inventory = bed("l4-one-lost").look();
    let left: Vec<u32> = inventory.gpus.iter().map(|g| g.index.0).collect();
    assert_eq!(left, [0, 1, 3]);
    assert!(one_warning(&inventory).starts_with("gpu 2: does not answer and is left out"));
    // Its node is there for who looks after the machine.
    if inventory.gpus[0].node.as_ref().unwrap().present {
        let orphans: Vec<u32> = inventory.nodes.orphans.iter().map(|n| n.minor).collect();
        assert_eq!(orphans, [2]);
    }
}

#[test]
fn a_gpu_that_falls_off_halfway() {
    let bed = bed("hgx-h200");
    bed.host
        .nvml(|config| config["gpus"][5]["lost_after"] = 4.into())
        .unwrap();
    let inventory = bed.look();
    let left: Vec<u32> = inventory.gpus.iter().map(|g| g.index.0).collect();
    assert_eq!(left, [0, 1, 2, 3, 4, 6, 7]);
    assert!(
        warnings(&inventory).iter().any(|w| w.starts_with("gpu 5: ")),
        "{:?}",
        warnings(&inventory)
    );
}

#[test]
fn library_and_module_of_different_versions() {
    for (module, what) in [("450.80.02", "older"), ("470.1.1", "newer")] {
        let bed = bed(SMALL);
        let text = format!("NVRM version: NVIDIA UNIX x86_64 Kernel Module  {module}  Wed Sep 23 01:13:39 UTC 2020\n");
        fs::write(bed.host.path("/proc/driver/nvidia/version"), text).unwrap();
        let inventory = bed.look();
        let driver = inventory.driver.as_ref().unwrap();
        assert_eq!(driver.version.as_str(), module);
        assert!(has_file(&inventory, "libcuda.so.450.248.02"), "{what}");
        for line in warnings(&inventory) {
            assert!(
                line.contains(module) && line.contains("450.248.02") && line.contains("reboot"),
                "{what}: {line}"
            );
        }
        assert_eq!(inventory.warnings.len(), 2, "{what}: {:?}", warnings(&inventory));
    }
}

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
    assert!(
        told.iter().any(|w| w.contains("is 195:0 where the driver has 196:0")),
        "{told:?}"
    );
}

#[test]
fn a_cache_that_lies_costs_a_line_and_no_library() {
    let bed = bed(SMALL);
    let whole = bed.look();
    for bytes in [&b"glibc-ld.so.cache1.1"[..], b"", b"not a cache", &[0xff; 4096]] {
        fs::write(bed.host.path("/etc/ld.so.cache"), bytes).unwrap();
        let inventory = bed.look();
        assert!(
            one_warning(&inventory).starts_with("/etc/ld.so.cache: makes no sense"),
            "{:?}",
            warnings(&inventory)
        );
        assert_eq!(inventory.driver, whole.driver);
    }
}

#[test]
fn what_is_no_library_is_left_out() {
    let bed = bed(SMALL);
    let dir = "/usr/lib/x86_64-linux-gnu";
    let broken = format!("{dir}/libnvidia-opencl.so.450.248.02");
    fs::write(bed.host.path(&broken), "#!/bin/sh\n").unwrap();
    symlink("nowhere", bed.host.path(&format!("{dir}/libnvidia-new.so.450.248.02"))).unwrap();
    let inventory = bed.look();
    assert!(!has_file(&inventory, "libnvidia-opencl.so.450.248.02"));
    let told = warnings(&inventory);
    assert_eq!(told.len(), 2, "{told:?}");
    assert!(
        told.iter()
            .any(|w| w.starts_with(&format!("{dir}/libnvidia-new.so.450.248.02: leads nowhere")))
    );
    assert!(told.iter().any(|w| w.starts_with(&format!("{broken}: no library"))));
}

#[test]
fn a_library_of_a_new_driver_needs_no_list() {
    let bed = bed(SMALL);
    let dir = bed.host.path("/usr/lib/x86_64-linux-gnu");
    fs::copy(
        dir.join("libcuda.so.450.248.02"),
        dir.join("libnvidia-tomorrow.so.450.248.02"),
    )
    .unwrap();
    let inventory = bed.look();
    let new = file(&inventory, "/usr/lib/x86_64-linux-gnu/libnvidia-tomorrow.so.450.248.02");
    assert!(matches!(new.kind, FileKind::Library { .. }));
    assert_eq!(new.capability, DriverCapability::Compute);
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
    let bed = bed(SMALL);
    let root = bed.host.root.to_str().unwrap();
    let (code, out, err) = tranche(&["list", "--root", root]);
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
    let (code, again, err) = tranche(&["list", "--inventory", file.to_str().unwrap()]);
    assert_eq!((code, again, err), (Some(0), out, String::new()));
    let (code, json, _) = tranche(&["list", "--json", "--inventory", "sim:dgx-a100-mig"]);
    assert_eq!(code, Some(0));
    assert_eq!(serde_json::from_str::<Vec<serde_json::Value>>(&json).unwrap().len(), 27);
}

#[test]
fn nothing_there_is_an_exit_code_of_its_own() {
    for (name, what) in [
        ("no-driver", "no NVIDIA driver"),
        ("driver-no-gpu", "no GPU that answers"),
    ] {
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
