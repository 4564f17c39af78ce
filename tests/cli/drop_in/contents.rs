//! What a specification holds.

use super::*;

#[test]
fn the_variable_for_libcuda_has_the_directory_of_libcuda_alone() {
    let Some((_directory, host)) = host("libcuda_dir", "workstation-rtx4090") else {
        return;
    };
    // The loader knows VDPAU's directory too, as Debian's package tells it.
    let library = format!("{LIBDIR}/vdpau/libvdpau_nvidia.so.550.163.01");
    assert!(host.path(&library).exists());
    let entries = [
        format!("{LIBDIR}/vdpau/libvdpau_nvidia.so.1"),
        format!("{LIBDIR}/libcuda.so.1"),
    ];
    let entries = entries.map(|path| {
        let name = path.rsplit('/').next().unwrap().to_owned();
        fake_host::ld_so_cache::Entry::new(Path::new(&path), &name, fake_host::stub_elf::Machine::default())
    });
    fs::write(
        host.path("/etc/ld.so.cache"),
        fake_host::ld_so_cache::write(entries.to_vec()),
    )
    .unwrap();
    let root = format!("--root={}", host.root.display());
    let spec = tranche(&[], &["cdi", "generate", "--format=json", &root]).spec();
    assert!(mounts(&spec).contains(&library.as_str()));
    let env = spec["containerEdits"]["env"].as_array().unwrap();
    assert!(
        env.contains(&Value::from(format!("NVIDIA_CTK_LIBCUDA_DIR={LIBDIR}"))),
        "{env:?}"
    );
}

#[test]
fn a_gpu_without_an_addressing_mode_is_not_coherent() {
    let dir = tempfile::tempdir().unwrap();
    let write = |name: &str, more: &[&str]| {
        let output = dir.path().join(name).display().to_string();
        let flag = "--feature-flag=enable-coherent-annotations";
        tranche(&[], &[&["cdi", "generate", flag, "--output", &output], more].concat())
    };
    let said = write("t4.json", &["--inventory=sim:t4x2"]);
    assert_eq!(said.code, Some(0), "{}", said.err);
    let text = fs::read(dir.path().join("t4.noncoherent.json")).unwrap();
    let spec: Value = serde_json::from_slice(&text).unwrap();
    assert_eq!(spec["kind"], "nvidia.com/gpu.noncoherent");
    assert_eq!(names(&spec).iter().filter(|n| n.starts_with("GPU-")).count(), 2);
    assert!(!dir.path().join("t4.coherent.json").exists());

    // Without NVML nobody knows: neither file, and a line that says so.
    let Some((_directory, host)) = host("not_coherent", "t4x2-old-driver") else {
        return;
    };
    let root = format!("--root={}", host.root.display());
    let said = write("unknown.json", &[&root, "--no-nvml"]);
    assert!(said.err.contains("coherent"), "{}", said.err);
    assert!(!dir.path().join("unknown.noncoherent.json").exists());
    assert!(!dir.path().join("unknown.coherent.json").exists());
}

#[test]
fn none_is_none_whatever_else_is_named() {
    for ids in [
        &["--device-id=none"][..],
        &["--device-id=0,none"],
        &["--device-id=none", "--device-id=all"],
    ] {
        let spec = generate("t4x2", ids).spec();
        assert_eq!(names(&spec), ["none"], "{ids:?}");
        let edits = &device(&spec, "none")["containerEdits"];
        assert_eq!(edits["env"], serde_json::json!(["NVCT_EMPTY_DEVICE="]), "{ids:?}");
        assert!(edits["deviceNodes"].is_null());
    }
}

#[test]
fn management_has_nothing_of_graphics_that_nvidia_s_has_not() {
    let spec = generate("rtx4090", &["--mode=management"]).spec();
    assert!(mounts(&spec).contains(&format!("{LIBDIR}/libcuda.so.550.163.01").as_str()));
    assert!(
        !mounts(&spec).iter().any(|m| m.contains("/xorg/")),
        "{:#?}",
        mounts(&spec)
    );
    let links = hooks(&spec["containerEdits"]).concat().join(" ");
    assert!(links.contains("libcuda.so.1::"), "{links}");
    for name in [
        "nvidia-drm_gbm.so",
        "libglxserver_nvidia.so",
        "libnvidia-vulkan-producer.so",
    ] {
        assert!(!links.contains(name), "{name}: {links}");
    }
}
