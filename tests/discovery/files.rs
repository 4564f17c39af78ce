//! The driver's files: libraries with their links, and what only looks like one.

use super::*;

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

/// Debian has a directory for the libraries of each driver, which no loader searches, and links above it for the names
/// that programs open. Drivers up to 515 have an NVVM library with a version of its own.
#[test]
fn links_of_debian_s_layout_are_where_programs_look() {
    let bed = bed("workstation-rtx4090");
    let version = bed.look().driver.as_ref().unwrap().version.to_string();
    let (above, dir) = ("/usr/lib/x86_64-linux-gnu", "/usr/lib/x86_64-linux-gnu/nvidia/current");
    fs::create_dir_all(bed.host.path(dir)).unwrap();
    let name = |stem: &str| format!("{stem}.so.{version}");
    let move_library = |stem: &str, to: &str| {
        let from = bed.host.path(&format!("{above}/{}", name(stem)));
        fs::rename(from, bed.host.path(&format!("{dir}/{to}"))).unwrap();
    };
    for stem in ["libcuda", "libnvidia-nvvm", "libGLX_nvidia", "libnvidia-allocator"] {
        move_library(stem, &name(stem));
    }
    let nvvm = name("libnvidia-nvvm");
    symlink(format!("{dir}/{nvvm}"), bed.host.path(&format!("{above}/{nvvm}"))).unwrap();
    let links = |inventory: &Inventory, name: &str| -> Vec<(String, String)> {
        let links = &file(inventory, &format!("{dir}/{name}")).links;
        links.iter().map(|l| (l.path.to_string(), l.target.clone())).collect()
    };
    let link = |path: &str, target: &str| (format!("{above}/{path}"), target.replace('V', &version));
    let inventory = bed.look();
    for (stem, path, target) in [
        ("libnvidia-nvvm", nvvm.as_str(), "nvidia/current/libnvidia-nvvm.so.V"),
        ("libcuda", "libcuda.so", "nvidia/current/libcuda.so.1"),
        (
            "libGLX_nvidia",
            "libGLX_indirect.so.0",
            "nvidia/current/libGLX_nvidia.so.V",
        ),
        (
            "libnvidia-allocator",
            "gbm/nvidia-drm_gbm.so",
            "../nvidia/current/libnvidia-allocator.so.1",
        ),
    ] {
        let links = links(&inventory, &name(stem));
        assert!(links.contains(&link(path, target)), "{stem}: {links:?}");
    }
    fs::remove_file(bed.host.path(&format!("{above}/{nvvm}"))).unwrap();
    fs::rename(
        bed.host.path(&format!("{dir}/{nvvm}")),
        bed.host.path(&format!("{dir}/libnvidia-nvvm.so.4.0.0")),
    )
    .unwrap();
    assert!(has_file(&bed.look(), "libnvidia-nvvm.so.4.0.0"));
}

/// Some packages install a library under its SONAME, without a file that has the driver's version in its name
/// (negativo17/nvidia-driver#195).
#[test]
fn a_library_under_its_soname_is_taken() {
    let bed = bed("fedora-workstation");
    let dir = "/usr/lib64";
    let rename = |from: &str, to: &str| {
        bed.remove(&format!("{dir}/{to}"));
        fs::rename(
            bed.host.path(&format!("{dir}/{from}")),
            bed.host.path(&format!("{dir}/{to}")),
        )
        .unwrap();
    };
    rename("libGLX_nvidia.so.565.77", "libGLX_nvidia.so.0");
    rename("vdpau/libvdpau_nvidia.so.565.77", "vdpau/libvdpau_nvidia.so.1");
    let modules = "xorg/modules/extensions/libglxserver_nvidia.so";
    rename(&format!("{modules}.565.77"), modules);
    let inventory = bed.look();
    assert_eq!(warnings(&inventory), [""; 0]);
    let links = |name: &str| -> Vec<(String, String)> {
        let links = &file(&inventory, &format!("{dir}/{name}")).links;
        links.iter().map(|l| (l.path.to_string(), l.target.clone())).collect()
    };
    let indirect = (format!("{dir}/libGLX_indirect.so.0"), "libGLX_nvidia.so.0".to_owned());
    assert_eq!(links("libGLX_nvidia.so.0"), [indirect]);
    assert_eq!(links("vdpau/libvdpau_nvidia.so.1"), []);
    assert_eq!(links(modules), []);
    // libcuda too: the version then is that of the module.
    rename("libcuda.so.565.77", "libcuda.so.1");
    assert!(bed.look().driver.unwrap().library("libcuda.so.1").is_some());
}

/// A library of another driver version is invalid here, whatever its name: it neither replaces a missing library of the
/// installed driver nor is mounted beside an existing one.
#[test]
fn the_library_of_another_driver_is_not_taken() {
    let bed = bed("fedora-workstation");
    let dir = bed.host.path("/usr/lib64");
    let own = bed.look();
    fs::copy(dir.join("libcuda.so.565.77"), dir.join("libcuda.so.440.33")).unwrap();
    fs::rename(dir.join("libGLX_nvidia.so.565.77"), dir.join("libGLX_nvidia.so.440.33")).unwrap();
    fs::remove_file(dir.join("libGLX_nvidia.so.0")).unwrap();
    symlink("libGLX_nvidia.so.440.33", dir.join("libGLX_nvidia.so.0")).unwrap();
    let inventory = bed.look();
    let names = |inventory: &Inventory| -> Vec<String> {
        let files = &inventory.driver.as_ref().unwrap().files;
        files.iter().map(|f| f.container.to_string()).collect()
    };
    let mut rest = names(&own);
    rest.retain(|name| name != "/usr/lib64/libGLX_nvidia.so.565.77");
    assert_eq!(names(&inventory), rest);
}

/// A file of Vulkan or EGL whose library is missing: the loader would say nothing, and a program would see no GPU.
#[test]
fn an_absent_library_that_a_configuration_names_is_a_warning() {
    let bed = bed("workstation-rtx4090");
    let dir = "/usr/lib/x86_64-linux-gnu";
    let version = bed.look().driver.unwrap().version;
    bed.remove(&format!("{dir}/libGLX_nvidia.so.0"));
    bed.remove(&format!("{dir}/libGLX_nvidia.so.{version}"));
    let told = one_warning(&bed.look());
    let start = "/usr/share/vulkan/icd.d/nvidia_icd.json: names libGLX_nvidia.so.0, which is not among";
    assert!(told.starts_with(start), "{told}");
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
    let both = bed.look_with(&DiscoveryOptions {
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
    let elsewhere = DiscoveryOptions {
        library_search_paths: vec![HostPath::new("/opt/driver/lib").unwrap()],
        config_search_paths: vec![HostPath::new("/opt/driver/etc").unwrap()],
        ..options()
    };
    let none = bed.look_with(&elsewhere);
    assert!(!has_file(&none, "libcuda.so.555.58.02"));
    let absent = none
        .absent
        .iter()
        .find(|a| a.what.iter().any(|w| w == "libnvidia-ml.so.1"))
        .unwrap();
    assert_eq!(absent.looked_in, ["/opt/driver/lib"]);
    fs::create_dir_all(bed.host.path("/opt/driver")).unwrap();
    symlink("/usr/lib/x86_64-linux-gnu", bed.host.path("/opt/driver/lib")).unwrap();
    assert!(has_file(&bed.look_with(&elsewhere), "libcuda.so.555.58.02"));
}

#[test]
fn a_cache_that_lies_costs_a_line_and_no_library() {
    let bed = bed(SMALL);
    let whole = bed.look();
    for bytes in [&b"glibc-ld.so.cache1.1"[..], b"", b"not a cache", &[0xff; 4096]] {
        fs::write(bed.host.path("/etc/ld.so.cache"), bytes).unwrap();
        let inventory = bed.look();
        assert!(
            one_warning(&inventory).starts_with("/etc/ld.so.cache: is not valid"),
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
    let broken = format!("{dir}/libnvidia-ptxjitcompiler.so.555.58.02");
    fs::write(bed.host.path(&broken), "#!/bin/sh\n").unwrap();
    symlink("nowhere", bed.host.path(&format!("{dir}/libnvidia-new.so.555.58.02"))).unwrap();
    let inventory = bed.look();
    assert!(!has_file(&inventory, "libnvidia-ptxjitcompiler.so.555.58.02"));
    let told = warnings(&inventory);
    assert_eq!(told.len(), 2, "{told:?}");
    assert!(told.iter().any(|w| w.starts_with(&format!(
        "{dir}/libnvidia-new.so.555.58.02: is a link that leads nowhere"
    ))));
    assert!(
        told.iter()
            .any(|w| w.starts_with(&format!("{broken}: is not a library")))
    );
}

#[test]
fn a_library_of_a_new_driver_needs_no_list() {
    let bed = bed(SMALL);
    let dir = bed.host.path("/usr/lib/x86_64-linux-gnu");
    fs::copy(
        dir.join("libcuda.so.555.58.02"),
        dir.join("libnvidia-tomorrow.so.555.58.02"),
    )
    .unwrap();
    let inventory = bed.look();
    let new = file(&inventory, "/usr/lib/x86_64-linux-gnu/libnvidia-tomorrow.so.555.58.02");
    assert!(matches!(new.kind, FileKind::Library { .. }));
    assert_eq!(new.capability, DriverCapability::Compute);
}
