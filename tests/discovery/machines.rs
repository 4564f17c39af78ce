//! What each kind of machine has.

use super::*;

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
    let inventory = discover(&Roots::new(&paths).unwrap(), &options());
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
    let of_host = discover(&Roots::new(&paths).unwrap(), &options());
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
    if !support::rights::owns_machine("machines::what_each_kind_of_machine_has") {
        return;
    }
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
    assert_eq!(coherent.platform.arch, tranche_plan::inventory::Arch::Aarch64);

    assert!(!coherent.gpus[0].uses_system_memory);

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

/// NVML does not say how much memory a GB10 has, because it has none of its own.
#[test]
fn a_gpu_without_memory_of_its_own_has_that_of_the_inspected_machine() {
    let bed = bed("dgx-spark");
    let inventory = bed.look();
    let gpu = &inventory.gpus[0];
    // That of the machine which the test runs on is another one.
    assert_eq!(gpu.memory, Some(MemorySize::from_mib(125_513_728 / 1024)));
    assert!(gpu.uses_system_memory && gpu.addressing == Some(AddressingMode::Ats));
    assert_eq!(gpu.sms, Some(48));
    assert_eq!(warnings(&inventory), [""; 0]);
    assert_eq!(inventory.degraded, []);
    // Without it, the memory is unknown, and nothing is invented.
    bed.remove("/proc/meminfo");
    let inventory = bed.look();
    assert_eq!(inventory.gpus[0].memory, None);
    let said = one_warning(&inventory);
    assert!(
        said.starts_with(
            "gpu 0: uses the memory of the machine, whose size is unknown: /proc/meminfo cannot be read: "
        ),
        "{said}"
    );
    fs::write(bed.host.path("/proc/meminfo"), "MemTotal: much\n").unwrap();
    assert!(one_warning(&bed.look()).ends_with("/proc/meminfo has no line MemTotal"));
}
