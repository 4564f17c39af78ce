//! Tests over small hosts made by hand.

use super::*;
use crate::inventory::{
    Arch, ControlNode, ControlRole, DeviceNode, DriKind, DriNode, Driver, DriverCapability, DriverFile, ElfClass,
    FileKind, Gpu, HostMount, ImexChannel, Link, MigDevice, MigMode, MigState, Platform,
};
use std::collections::BTreeSet;
use tranche_core::call::NvidiaHook;
use tranche_core::ledger::{OutOfService, Outage};
use tranche_core::types::{
    ComputeInstanceId, ContainerPath, GpuIndex, GpuInstanceId, HostPath, ImexChannelId, MigIndex, Minor,
};

fn node(path: &str, major: u32, minor: u32) -> DeviceNode {
    DeviceNode {
        host: HostPath::new(path).unwrap(),
        container: ContainerPath::new(path).unwrap(),
        major,
        minor,
        mode: Some(0o666),
        uid: 0,
        gid: 0,
        present: true,
    }
}

fn file(path: &str, kind: FileKind, capability: DriverCapability, links: &[(&str, &str)]) -> DriverFile {
    DriverFile {
        host: HostPath::new(path).unwrap(),
        container: ContainerPath::new(path).unwrap(),
        kind,
        capability,
        links: links
            .iter()
            .map(|(path, target)| Link {
                path: ContainerPath::new(path).unwrap(),
                target: (*target).into(),
            })
            .collect(),
    }
}

fn library() -> FileKind {
    FileKind::Library {
        soname: None,
        class: ElfClass::Elf64,
        own_version: false,
    }
}

fn gpu(index: u32, minor: u32) -> Gpu {
    Gpu {
        index: GpuIndex(index),
        index_is_known: true,
        minor: Minor(minor),
        uuid: format!("GPU-0000000{index}-aaaa").parse().unwrap(),
        pci: format!("0000:0{index}:00.0").parse().unwrap(),
        name: "NVIDIA Test".into(),
        architecture: None,
        compute_capability: None,
        sms: None,
        memory: None,
        mig: None,
        compute_mode: None,
        persistence: None,
        addressing: None,
        numa_node: None,
        pcie_root: None,
        brand: None,
        virtualization: None,
        node: Some(node(&format!("/dev/nvidia{minor}"), 195, minor)),
        dri: vec![DriNode {
            kind: DriKind::Card,
            node: DeviceNode {
                mode: Some(0o660),
                gid: 44,
                ..node(&format!("/dev/dri/card{index}"), 226, index)
            },
            by_path: Some(format!("pci-0000:0{index}:00.0-card")),
        }],
        mig_devices: Vec::new(),
        uses_system_memory: false,
        unnamed_instances: Vec::new(),
    }
}

fn mig(index: u32, gi: u32, ci: u32, profile: &str) -> MigDevice {
    MigDevice {
        index: MigIndex(index),
        uuid: Some(format!("MIG-{index}{gi}{ci}00000-bbbb").parse().unwrap()),
        gpu_instance: GpuInstanceId(gi),
        compute_instance: ComputeInstanceId(ci),
        profile: Some(profile.parse().unwrap()),
        memory: None,
        gpu_slices: None,
        compute_slices: None,
        sms: None,
        engines: None,
        gpu_instance_cap: Some(node(&format!("/dev/nvidia-caps/nvidia-cap{gi}"), 237, gi)),
        compute_instance_cap: Some(node(&format!("/dev/nvidia-caps/nvidia-cap{gi}{ci}"), 237, gi * 10 + ci)),
    }
}

fn host(gpus: Vec<Gpu>) -> Inventory {
    let mut inventory = Inventory::empty(Platform {
        arch: Arch::X86_64,
        kind: PlatformKind::Linux,
        kernel: "6.1.0".into(),
        cgroup_v2: false,
    });
    inventory.gpus = gpus;
    for (role, path, minor) in [
        (ControlRole::Ctl, "/dev/nvidiactl", 255),
        (ControlRole::Modeset, "/dev/nvidia-modeset", 254),
    ] {
        inventory.nodes.control.push(ControlNode {
            role,
            node: node(path, 195, minor),
        });
    }
    inventory.driver = Some(Driver {
        version: "550.54.15".parse().unwrap(),
        cuda: None,
        limits_cgroups: false,
        library_dirs: vec![HostMount {
            host: HostPath::new("/usr/lib64").unwrap(),
            container: ContainerPath::new("/usr/lib64").unwrap(),
        }],
        files: vec![
            file(
                "/usr/lib64/libcuda.so.550.54.15",
                library(),
                DriverCapability::Compute,
                &[
                    ("/usr/lib64/libcuda.so.1", "libcuda.so.550.54.15"),
                    ("/usr/lib64/libcuda.so", "libcuda.so.1"),
                ],
            ),
            file(
                "/usr/lib64/vdpau/libvdpau_nvidia.so.550.54.15",
                library(),
                DriverCapability::Video,
                &[],
            ),
            file(
                "/usr/lib64/libGLX_nvidia.so.550.54.15",
                library(),
                DriverCapability::Graphics,
                &[],
            ),
            file(
                "/etc/vulkan/icd.d/nvidia_icd.json",
                FileKind::Config,
                DriverCapability::Graphics,
                &[],
            ),
            file("/usr/bin/nvidia-smi", FileKind::Binary, DriverCapability::Utility, &[]),
            file(
                "/run/nvidia-persistenced/socket",
                FileKind::Socket,
                DriverCapability::Utility,
                &[],
            ),
        ],
    });
    inventory
}

fn names(derived: &Derived) -> Vec<&str> {
    derived.devices.iter().map(|d| d.name.as_str()).collect()
}

fn nodes<'a>(derived: &'a Derived, name: &str) -> Vec<&'a str> {
    let device = derived.devices.iter().find(|d| d.name.as_str() == name).unwrap();
    device.edits.nodes.keys().map(ContainerPath::as_str).collect()
}

fn error(inventory: &Inventory, options: &Options) -> (u8, String) {
    let e = derive(inventory, options).unwrap_err();
    (e.kind().exit_code(), e.to_string())
}

#[test]
fn a_gpu_is_its_minor_not_its_index() {
    let derived = derive(&host(vec![gpu(1, 0), gpu(0, 1)]), &Options::default()).unwrap();
    assert_eq!(
        names(&derived),
        ["0", "1", "GPU-00000000-aaaa", "GPU-00000001-aaaa", "all", "none"]
    );
    assert_eq!(nodes(&derived, "0"), ["/dev/dri/card0", "/dev/nvidia1"]);
    assert_eq!(
        nodes(&derived, "all"),
        ["/dev/dri/card0", "/dev/dri/card1", "/dev/nvidia0", "/dev/nvidia1"]
    );
    assert_eq!(nodes(&derived, "none"), [""; 0]);
    let edit = derived.devices[0].edits.nodes.values().next().unwrap();
    assert_eq!((edit.gid, edit.numbers), (Some(44), None));
    assert_eq!(derived.devices[0].edits.additional_gids, [44].into());
}

#[test]
fn mig_devices_have_their_gpu_and_their_keys() {
    let mut split = gpu(0, 3);
    split.mig = Some(MigState {
        current: MigMode::Enabled,
        pending: MigMode::Enabled,
    });
    split.mig_devices = vec![mig(1, 4, 0, "1g.10gb+gfx"), mig(0, 2, 1, "1c.3g.20gb")];
    let mut bare = split.clone();
    bare.index = GpuIndex(1);
    bare.uuid = "GPU-11111111".parse().unwrap();
    bare.mig_devices.clear();
    let inventory = host(vec![split, bare]);
    let derived = derive(&inventory, &Options::default()).unwrap();
    assert_eq!(
        names(&derived),
        ["0:0", "0:1", "MIG-02100000-bbbb", "MIG-14000000-bbbb", "all", "none"]
    );
    assert_eq!(
        nodes(&derived, "0:0"),
        [
            "/dev/nvidia-caps/nvidia-cap2",
            "/dev/nvidia-caps/nvidia-cap21",
            "/dev/nvidia3"
        ]
    );
    assert_eq!(nodes(&derived, "0:1")[0], "/dev/dri/card0", "it can draw");
    assert_eq!(
        derived.warnings.len(),
        1,
        "gpu 1 has no instances: {:?}",
        derived.warnings
    );

    // Named, the parent is given.
    let named = |ids: &[&str]| Options {
        devices: ids.iter().map(|id| id.parse().unwrap()).collect(),
        names: vec![NameStrategy::TypeIndex],
        ..Options::default()
    };
    let derived = derive(&inventory, &named(&["0", "MIG-GPU-00000000-aaaa/4/0"])).unwrap();
    assert_eq!(names(&derived), ["gpu0", "mig0:1", "all"]);
    let derived = derive(&inventory, &named(&["none"])).unwrap();
    assert_eq!(names(&derived), ["none"]);
    let (code, said) = error(&inventory, &named(&["0:7"]));
    assert_eq!(code, 2);
    assert!(said == "device 0:7: not found; this host has 0:0, 0:1, 0, 1", "{said}");
}

#[test]
fn what_cannot_be_a_name_or_has_no_node_is_left_out_with_a_word() {
    let mut old = gpu(0, 0);
    old.mig_devices = vec![MigDevice {
        uuid: Some("MIG-GPU-00000000-aaaa/2/1".parse().unwrap()),
        ..mig(0, 2, 1, "1g.5gb")
    }];
    let mut lost = gpu(1, 1);
    lost.node = None;
    let derived = derive(&host(vec![old, lost]), &Options::default()).unwrap();
    assert_eq!(names(&derived), ["0", "0:0", "GPU-00000000-aaaa", "all", "none"]);
    let said: Vec<&str> = derived.warnings.iter().map(|w| w.object.as_str()).collect();
    assert_eq!(said, ["gpu 1", "gpu 0:0"]);
}

#[test]
fn files_become_mounts_and_one_hook() {
    let derived = derive(&host(vec![gpu(0, 0)]), &Options::default()).unwrap();
    let common = &derived.common;
    assert_eq!(common.env["NVIDIA_CTK_LIBCUDA_DIR"], "/usr/lib64");
    assert_eq!(common.env["NVIDIA_VISIBLE_DEVICES"], "void");
    let socket = ContainerPath::new("/run/nvidia-persistenced/socket").unwrap();
    assert!(!common.mounts.contains_key(&socket));
    let [hook] = common.hooks.as_slice() else {
        panic!("{:?}", common.hooks)
    };
    assert_eq!(
        hook.args.join(" "),
        "tranche-oci hook prepare --link libcuda.so.1::/usr/lib64/libcuda.so \
         --link libcuda.so.550.54.15::/usr/lib64/libcuda.so.1 --socket /run/nvidia-persistenced/socket \
         --by-path pci-0000:00:00.0-card::/dev/dri/card0 \
         --ldcache-dir /usr/lib64 --ldcache-dir /usr/lib64/vdpau \
         --library 64::/usr/lib64/libGLX_nvidia.so.550.54.15 --library 64::/usr/lib64/libcuda.so.550.54.15 \
         --library 64::/usr/lib64/vdpau/libvdpau_nvidia.so.550.54.15 --driver-version 550.54.15"
    );
    assert!(!hook.env.is_empty(), "CVE-2025-23266");
}

#[test]
fn parts_of_a_hook_can_be_left_out() {
    let with = |hook: Option<HookOptions>| {
        let options = Options {
            hook,
            ..Options::default()
        };
        derive(&host(vec![gpu(0, 0)]), &options).unwrap().common
    };
    let mut hook = HookOptions {
        disabled: [NvidiaHook::CreateSymlinks, NvidiaHook::UpdateLdcache].into(),
        ..HookOptions::default()
    };
    assert_eq!(
        with(Some(hook.clone())).hooks[0].args[3..],
        [
            "--socket",
            "/run/nvidia-persistenced/socket",
            "--driver-version",
            "550.54.15"
        ]
    );
    hook.disabled.insert(NvidiaHook::UpdateApplicationProfile);
    assert_eq!(
        with(Some(hook.clone())).hooks[0].args[7..],
        ["--skip", "update-application-profile"]
    );
    hook.disabled.insert(NvidiaHook::EnableCudaCompat);
    let without = with(Some(hook));
    assert_eq!(without.hooks, [], "a hook with nothing to do is left out");

    let bare = with(None);
    assert_eq!(bare.hooks, []);
    for edits in [&without, &bare] {
        let socket = &edits.mounts[&ContainerPath::new("/run/nvidia-persistenced/socket").unwrap()];
        assert!(!socket.options.contains(&"ro".into()) && socket.options.contains(&"noexec".into()));
    }
    let link = &bare.mounts[&ContainerPath::new("/usr/lib64/libcuda.so.1").unwrap()];
    assert_eq!(link.host.as_str(), "/usr/lib64/libcuda.so.550.54.15");

    let nvidia_ctk = HookOptions::at(HostPath::new("/usr/bin/nvidia-ctk").unwrap());
    let options = Options {
        hook: Some(nvidia_ctk.clone()),
        ..Options::default()
    };
    let derived = derive(&host(vec![gpu(0, 0)]), &options).unwrap();
    let device = derived.devices.iter().find(|d| d.name.as_str() == "0").unwrap();
    assert_eq!(
        device.edits.hooks[0].args.join(" "),
        "nvidia-ctk hook create-symlinks --link ../card0::/dev/dri/by-path/pci-0000:00:00.0-card",
        "it makes the links of its arguments, so each device has those of its own nodes"
    );
    let nvidia = with(Some(nvidia_ctk));
    let verbs: Vec<&str> = nvidia.hooks.iter().map(|h| h.args[2].as_str()).collect();
    assert_eq!(
        verbs,
        [
            "create-symlinks",
            "enable-cuda-compat",
            "update-ldcache",
            "disable-device-node-modification",
            "update-application-profile"
        ]
    );
    assert_eq!(nvidia.hooks[0].args[..2], ["nvidia-ctk", "hook"]);
}

#[test]
fn capabilities_choose_files_and_nodes() {
    let options = Options {
        capabilities: capabilities_from_text("compute, utility").unwrap(),
        sockets: false,
        ..Options::default()
    };
    let derived = derive(&host(vec![gpu(0, 0)]), &options).unwrap();
    let mounts: Vec<&str> = derived.common.mounts.keys().map(ContainerPath::as_str).collect();
    assert_eq!(mounts, ["/usr/bin/nvidia-smi", "/usr/lib64/libcuda.so.550.54.15"]);
    assert_eq!(nodes(&derived, "0"), ["/dev/nvidia0"], "nothing is drawn");
    let control: Vec<&str> = derived.common.nodes.keys().map(ContainerPath::as_str).collect();
    assert_eq!(control, ["/dev/nvidiactl"]);
    assert!(capabilities_from_text("cuda").is_err());
}

#[test]
fn a_node_that_is_not_there_is_told_in_full() {
    let mut later = gpu(0, 0);
    later.node = Some(DeviceNode {
        present: false,
        mode: None,
        ..node("/dev/nvidia0", 195, 0)
    });
    let derived = derive(&host(vec![later]), &Options::default()).unwrap();
    let edit = &derived.devices[0].edits.nodes[&ContainerPath::new("/dev/nvidia0").unwrap()];
    assert_eq!((edit.numbers, edit.mode), (Some((195, 0)), Some(0o666)));
}

#[test]
fn gated_modes_have_their_own_kind() {
    let mut inventory = host(vec![gpu(0, 0)]);
    inventory.nodes.gds = vec![node("/dev/nvidia-fs0", 500, 0)];
    inventory.nodes.imex_channels = vec![3, 0]
        .into_iter()
        .map(|id| ImexChannel {
            id: ImexChannelId(id),
            node: node(&format!("/dev/nvidia-caps-imex-channels/channel{id}"), 234, id),
        })
        .collect();
    inventory.nodes.orphans = vec![node("/dev/nvidia7", 195, 7)];
    let mode = |mode| Options {
        mode,
        ..Options::default()
    };
    let gds = derive(&inventory, &mode(Mode::Gds)).unwrap();
    assert_eq!(
        (gds.kind.to_string(), names(&gds)),
        ("nvidia.com/gds".into(), vec!["all"])
    );
    let imex = derive(&inventory, &mode(Mode::Imex)).unwrap();
    assert_eq!(
        (imex.kind.to_string(), names(&imex)),
        ("nvidia.com/imex-channel".into(), vec!["0", "3", "all"])
    );
    let all = derive(&inventory, &mode(Mode::Management)).unwrap();
    assert_eq!(all.kind.to_string(), "management.nvidia.com/gpu");
    assert!(nodes(&all, "all").contains(&"/dev/nvidia7"));
    let mounts: Vec<&str> = all.common.mounts.keys().map(ContainerPath::file_name).collect();
    assert_eq!(mounts.len(), 4, "no configuration of graphics: {mounts:?}");
    // A library of the driver may be installed under its SONAME alone. One of graphics may then be of another package.
    let mut plain = inventory.clone();
    let files = &mut plain.driver.as_mut().unwrap().files;
    for (name, capability) in [
        ("libnvidia-nvvm.so.4", DriverCapability::Compute),
        ("libnvidia-egl-gbm.so.1", DriverCapability::Graphics),
    ] {
        let kind = FileKind::Library {
            soname: Some(name.into()),
            class: ElfClass::Elf64,
            own_version: false,
        };
        files.push(file(&format!("/usr/lib64/{name}"), kind, capability, &[]));
    }
    let all = derive(&plain, &mode(Mode::Management)).unwrap();
    let mounts: Vec<&str> = all.common.mounts.keys().map(ContainerPath::file_name).collect();
    assert!(
        mounts.contains(&"libnvidia-nvvm.so.4") && !mounts.contains(&"libnvidia-egl-gbm.so.1"),
        "{mounts:?}"
    );

    let one = Options {
        devices: vec!["channel3".parse().unwrap()],
        ..mode(Mode::Imex)
    };
    assert_eq!(names(&derive(&inventory, &one).unwrap()), ["3", "all"]);
    let missing = Options {
        devices: vec!["5".parse().unwrap()],
        ..mode(Mode::Imex)
    };
    assert_eq!(
        error(&inventory, &missing),
        (2, "IMEX channel 5: not found; this host has 0, 3".into())
    );
    assert_eq!(error(&inventory, &mode(Mode::Mofed)).0, 3);
    assert_eq!(error(&inventory, &mode(Mode::Wsl)).0, 2);
    let own = Options {
        class: Some("storage".into()),
        ..mode(Mode::Gds)
    };
    assert_eq!(derive(&inventory, &own).unwrap().kind.to_string(), "nvidia.com/storage");
}

#[test]
fn nothing_to_do_is_said() {
    let mut bare = host(Vec::new());
    assert_eq!(
        error(&bare, &Options::default()),
        (3, "host: there is a driver, but no GPU".into())
    );
    bare.driver = None;
    assert_eq!(error(&bare, &Options::default()).0, 3);
}

mod shares {
    use super::*;
    use tranche_core::types::DeviceKey;

    /// GPU 0 split by turns, GPU 1 whole; with this `wholeDevice`.
    fn shared(whole_device: &str) -> Derived {
        without(whole_device, OutOfService::default())
    }

    fn without(whole_device: &str, out_of_service: OutOfService) -> Derived {
        let inventory = host(vec![gpu(0, 0), gpu(1, 1)]);
        let yaml = format!(
            "sharing:\n  wholeDevice: {whole_device}\n  timeSlicing:\n    resources:\n    - {{name: nvidia.com/gpu, devices: [0], replicas: 2}}\n"
        );
        let policy = crate::policy::read::parse("c.yaml", &yaml).unwrap().policy;
        let options = Options {
            names: vec![NameStrategy::Index],
            sharing: Some(Sharing {
                plan: crate::share::plan(&policy, &inventory).unwrap().into(),
                held: BTreeSet::new(),
                out_of_service,
                state_dir: HostPath::new("/run/tranche").unwrap(),
            }),
            ..Options::default()
        };
        derive(&inventory, &options).unwrap()
    }

    fn claims(derived: &Derived, name: &str) -> Vec<String> {
        let device = derived.devices.iter().find(|d| d.name.as_str() == name).unwrap();
        device.edits.hooks.iter().map(|h| h.args[2..].join(" ")).collect()
    }

    #[test]
    fn the_whole_of_a_split_device_is_claimed_open_or_hidden() {
        let claim = shared("claim");
        assert_eq!(names(&claim), ["0", "0.any", "0.0", "0.1", "1", "all", "none"]);
        let uuid = gpu(0, 0).uuid.to_string();
        assert_eq!(
            claims(&claim, "0"),
            [format!(
                "claim --device={uuid} --label=gpu 0 --whole --as=nvidia.com/gpu=0 --of=2"
            )]
        );
        assert_eq!(
            claims(&claim, "0.1"),
            [format!(
                "claim --device={uuid} --label=gpu 0 --share=1 --size=1/2 --as=nvidia.com/gpu=0.1 --of=2"
            )]
        );
        assert_eq!(
            claims(&claim, "1"),
            [""; 0],
            "what is not split is given without a word"
        );
        assert_eq!(nodes(&claim, "all"), nodes(&claim, "1"), "all leaves it out");

        let open = shared("open");
        assert_eq!(claims(&open, "0"), [""; 0]);
        assert_eq!(claims(&open, "0.1").len(), 1);
        assert_eq!(names(&shared("hide")), ["0.any", "0.0", "0.1", "1", "all", "none"]);
    }

    #[test]
    fn names_without_a_claim_get_a_hook_that_refuses_while_the_device_is_out_of_service() {
        let out = |number: u32, from: u64| OutOfService {
            drained: vec![Outage::new(DeviceKey::whole(gpu(number, number).uuid), from, None)],
            ..OutOfService::default()
        };
        let hook = |number: u32| {
            let uuid = gpu(number, number).uuid;
            [format!("in-service --device={uuid} --label=gpu {number}")]
        };
        let now = without("claim", out(1, 1));
        assert_eq!(claims(&now, "1"), hook(1));
        assert_eq!(
            names(&now),
            ["0", "0.any", "0.0", "0.1", "1", "none"],
            "all has nothing left"
        );
        let later = without("claim", out(1, u64::MAX));
        assert_eq!(claims(&later, "1"), hook(1));
        assert_eq!(claims(&later, "all"), hook(1), "it is refused when its time comes");
        // The ledger refuses what is claimed.
        let split = without("claim", out(0, 1));
        assert!(claims(&split, "0")[0].starts_with("claim ") && claims(&split, "0").len() == 1);
        assert_eq!(claims(&split, "0.1").len(), 1);
        assert_eq!(claims(&split, "1"), [""; 0]);
        assert_eq!(claims(&without("open", out(0, 1)), "0"), hook(0));
    }

    #[test]
    fn what_is_held_is_given_back_by_one_hook_where_anything_can_be_held() {
        let last = |derived: &Derived| derived.common.hooks.last().unwrap().args[1..].join(" ");
        for whole_device in ["claim", "open", "hide"] {
            assert_eq!(last(&shared(whole_device)), "hook release");
        }
        let unsplit = derive(&host(vec![gpu(0, 0)]), &Options::default()).unwrap();
        assert_eq!(
            unsplit.common.hooks.len(),
            1,
            "nothing can be held, and no process is run for it"
        );
    }
}
