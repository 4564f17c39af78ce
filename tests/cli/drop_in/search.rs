//! Where the driver's files are looked for.

use super::*;

#[test]
fn search_paths_are_paths_of_the_host_also_with_a_driver_root() {
    let Some((directory, host)) = host("search_paths", "workstation-rtx4090") else {
        return;
    };
    // Below the driver root: the container gets the path without it.
    let inside = format!("{}{LIBDIR}", host.root.display());
    let spec = with_driver_root(&host, &[], &["--library-search-path", &inside]).spec();
    let library = format!("{LIBDIR}/libcuda.so.550.163.01");
    assert_eq!(
        source(&spec, &library),
        Some(format!("{}{library}", host.root.display()).as_str())
    );
    assert!(
        !mounts(&spec)
            .iter()
            .any(|m| m.contains("/xorg/") && m.contains("libcuda"))
    );
    // The same path means nothing below the driver root, where NVIDIA's tool does not look either.
    let below = with_driver_root(&host, &[], &["--library-search-path", LIBDIR]);
    assert!(!below.out.contains("libcuda.so"), "{}", below.out);

    // Elsewhere on the host: as it is there.
    let elsewhere = directory.path().join("elsewhere");
    fs::create_dir_all(elsewhere.join("etc/OpenCL/vendors")).unwrap();
    fs::copy(host.path(&library), elsewhere.join("libcuda.so.550.163.01")).unwrap();
    fs::write(
        elsewhere.join("etc/OpenCL/vendors/nvidia.icd"),
        "libnvidia-opencl.so.1\n",
    )
    .unwrap();
    let elsewhere = elsewhere.canonicalize().unwrap();
    let (libraries, configs) = (elsewhere.display().to_string(), format!("{}/etc", elsewhere.display()));
    let spec = with_driver_root(
        &host,
        &[],
        &[
            "--library-search-path",
            &libraries,
            "--config-search-path",
            &configs,
            "--degraded",
        ],
    )
    .spec();
    let there = format!("{libraries}/libcuda.so.550.163.01");
    assert_eq!(source(&spec, &there), Some(there.as_str()));
    assert_eq!(
        source(&spec, "/etc/OpenCL/vendors/nvidia.icd"),
        Some(format!("{configs}/OpenCL/vendors/nvidia.icd").as_str())
    );
    assert!(!mounts(&spec).contains(&"/usr/share/glvnd/egl_vendor.d/10_nvidia.json"));

    // A picture of another machine has its own paths: those of the option are in it.
    let root = format!("--root={}", host.root.display());
    let first = [
        "cdi",
        "generate",
        "--format=json",
        &root,
        "--library-search-path",
        LIBDIR,
    ];
    let spec = tranche(&[], &first).spec();
    assert_eq!(source(&spec, &library), Some(library.as_str()));
    assert!(mounts(&spec).contains(&"/usr/bin/nvidia-smi"));

    // Programs, too, are searched in the directories of the option alone.
    let programs = ["--program-search-path", "/opt/none"];
    let ended = tranche(&[], &[&first[..], &programs].concat());
    assert!(
        ended.err.contains("nvidia-smi: was not found, so containers"),
        "{}",
        ended.err
    );
    assert!(!mounts(&ended.spec()).contains(&"/usr/bin/nvidia-smi"));
}

#[test]
fn explicit_driver_libraries_are_added_where_the_flag_asks_for_them() {
    let Some((_directory, host)) = host("explicit", "workstation-rtx4090") else {
        return;
    };
    symlink("libOpenCL.so.1", host.path(&format!("{LIBDIR}/libOpenCL.so"))).unwrap();
    let root = format!("--root={}", host.root.display());
    let command = ["cdi", "generate", "--format=json", &root];
    let added = ["libEGL.so.1", "libGLX.so.0", "libGLdispatch.so.0", "libOpenCL.so.1"];
    let plain = tranche(&[], &command).spec();
    let flag = ["--feature-flag=enable-explicit-driver-libraries"];
    let said = tranche(&[], &[&command, &flag[..]].concat());
    assert!(!said.err.contains("enable-explicit-driver-libraries"), "{}", said.err);
    let flagged = said.spec();
    for name in added {
        let path = format!("{LIBDIR}/{name}");
        assert!(!mounts(&plain).contains(&path.as_str()), "{name}");
        assert!(
            mounts(&flagged).contains(&path.as_str()),
            "{name}: {:#?}",
            mounts(&flagged)
        );
    }
    // With the names by which programs open them; and nothing else of the system.
    let links = hooks(&flagged["containerEdits"]).concat().join(" ");
    assert!(links.contains("libOpenCL.so.1::"), "{links}");
    assert!(!mounts(&flagged).iter().any(|m| m.contains("libc.so")));
    // A saved inventory has the files that it has.
    let said = generate("t4x2", &flag);
    assert!(said.err.contains("enable-explicit-driver-libraries"), "{}", said.err);
}

#[test]
fn programs_and_configuration_are_found_where_the_caller_s_environment_says() {
    let Some((_directory, host)) = host("path", "workstation-rtx4090") else {
        return;
    };
    fs::remove_file(host.path("/usr/bin/nvidia-smi")).unwrap();
    program(&host.path("/opt/driver/bin/nvidia-smi"));
    program(&host.path("/opt/driver/bin/nvidia-debugdump"));
    let config = "glvnd/egl_vendor.d/10_nvidia.json";
    fs::remove_file(host.path(&format!("/usr/share/{config}"))).unwrap();
    fs::create_dir_all(host.path("/opt/driver/share/glvnd/egl_vendor.d")).unwrap();
    fs::write(host.path(&format!("/opt/driver/share/{config}")), "{}\n").unwrap();
    let variables = [
        ("PATH", "relative:/opt/driver/bin:/usr/bin"),
        ("XDG_DATA_DIRS", "/opt/driver/share:/usr/share"),
    ];
    let found = "/opt/driver/bin/nvidia-smi";
    let plain = with_driver_root(&host, &[], &[]).spec();
    assert!(
        !mounts(&plain)
            .iter()
            .any(|m| m.ends_with("nvidia-smi") || m.ends_with(config))
    );
    let spec = with_driver_root(&host, &variables, &[]).spec();
    assert_eq!(
        source(&spec, found),
        Some(format!("{}{found}", host.root.display()).as_str())
    );
    assert!(mounts(&spec).contains(&format!("/usr/share/{config}").as_str()));
    // What is at its usual place is taken from there: one host looks alike to everybody.
    assert!(mounts(&spec).contains(&"/usr/bin/nvidia-debugdump"));

    // A picture of another machine has not been looked at with that machine's PATH.
    let root = format!("--root={}", host.root.display());
    let picture = tranche(&variables, &["cdi", "generate", "--format=json", &root]).spec();
    assert!(!mounts(&picture).iter().any(|m| m.starts_with("/opt")));
    assert!(!mounts(&picture).contains(&format!("/usr/share/{config}").as_str()));

    // A directory that another user can write: what lies there would run as root in containers.
    let bin = host.path("/opt/driver/bin");
    fs::set_permissions(&bin, fs::Permissions::from_mode(0o777)).unwrap();
    let spec = with_driver_root(&host, &variables, &[]).spec();
    assert!(!mounts(&spec).contains(&found));
    fs::set_permissions(&bin, fs::Permissions::from_mode(0o755)).unwrap();
    chown(&bin, Some(65534), None).unwrap();
    let spec = with_driver_root(&host, &variables, &[]).spec();
    assert!(!mounts(&spec).contains(&found));
}

#[test]
fn firmware_comes_from_every_place_that_has_it() {
    let Some((_directory, host)) = host("firmware", "dgx-a100-mig") else {
        return;
    };
    let firmware = host.path("/usr/lib/firmware/nvidia");
    let version = fs::read_dir(&firmware).unwrap().next().unwrap().unwrap().file_name();
    let version = version.to_str().unwrap();
    let updated = host.path(&format!("/usr/lib/firmware/updates/nvidia/{version}"));
    fs::create_dir_all(&updated).unwrap();
    fs::write(updated.join("gsp_ga10x.bin"), "newer\n").unwrap();
    let root = format!("--root={}", host.root.display());
    let spec = tranche(&[], &["cdi", "generate", "--format=json", &root]).spec();
    for place in ["/lib/firmware/updates/nvidia", "/lib/firmware/nvidia"] {
        let path = format!("{place}/{version}/gsp_ga10x.bin");
        assert!(mounts(&spec).contains(&path.as_str()), "{path}: {:#?}", mounts(&spec));
    }
}
