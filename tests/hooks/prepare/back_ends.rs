//! The back ends of GBM and VDPAU, which an image's own library looks for beside itself.

use super::*;
use crate::support::stub_elf::{self, Machine};

const LINK: &str = "gbm/nvidia-drm_gbm.so";

/// Writes the library of GBM into a directory of the image.
fn libgbm(scene: &Scene, directory: &str, machine: Machine) {
    own_library(scene, "libgbm.so.1", directory, machine);
}

fn own_library(scene: &Scene, name: &str, directory: &str, machine: Machine) {
    scene.image_directory(directory);
    let bytes = stub_elf::library(name, machine).unwrap();
    fs::write(scene.image(&format!("{directory}/{name}")), bytes).unwrap();
}

/// What a specification of a Fedora host says, with 32-bit libraries.
const FEDORA: [&str; 4] = [
    "--link=../libnvidia-allocator.so.1::/usr/lib64/gbm/nvidia-drm_gbm.so",
    "--link=../libnvidia-allocator.so.1::/usr/lib/gbm/nvidia-drm_gbm.so",
    "--library=64::/usr/lib64/libnvidia-allocator.so.580.95::libnvidia-allocator.so.1",
    "--library=32::/usr/lib/libnvidia-allocator.so.580.95::libnvidia-allocator.so.1",
];

fn target(scene: &Scene, directory: &str) -> Option<String> {
    let link = fs::read_link(scene.image(&format!("{directory}/{LINK}"))).ok()?;
    Some(link.to_str().unwrap().to_owned())
}

/// Debian's library looks into Debian's directory, and not into that of a Fedora host (toolbox#1831, distrobox#1668).
#[test]
fn an_image_of_another_distribution_finds_the_back_end_beside_its_own_library() {
    let scene = Scene::new();
    let (native, other) = ("/usr/lib/x86_64-linux-gnu", "/usr/lib/i386-linux-gnu");
    libgbm(&scene, native, Machine::X86_64);
    libgbm(&scene, other, Machine::I386);
    for _ in 0..2 {
        scene.prepare(&FEDORA).silent();
        let allocator = |directory: &str| Some(format!("{directory}/libnvidia-allocator.so.1"));
        assert_eq!(target(&scene, native), allocator("/usr/lib64"));
        assert_eq!(target(&scene, other), allocator("/usr/lib"));
        assert_eq!(
            target(&scene, "/usr/lib64"),
            Some("../libnvidia-allocator.so.1".to_owned())
        );
    }
}

/// An image whose directory is the host's gets no second link, by whichever name; one without the library of GBM gets
/// none at all, and a root that cannot be written stays as it is.
#[test]
fn no_link_is_made_where_none_is_needed() {
    let scene = Scene::new();
    scene.image_directory("/usr/lib");
    scene.image_link("lib", "/usr/lib64");
    libgbm(&scene, "/usr/lib", Machine::X86_64);
    scene.prepare(&[FEDORA[0], FEDORA[2]]).silent();
    assert_eq!(
        target(&scene, "/usr/lib"),
        Some("../libnvidia-allocator.so.1".to_owned())
    );

    let scene = Scene::new();
    scene.image_directory(LIBDIR);
    scene.prepare(&FEDORA).silent();
    assert_eq!(target(&scene, LIBDIR), None);

    let scene = Scene::new();
    libgbm(&scene, LIBDIR, Machine::X86_64);
    scene.configure(json!({"root": {"path": "rootfs", "readonly": true}}));
    let ended = scene.prepare(&FEDORA);
    assert_eq!((ended.code, target(&scene, LIBDIR)), (0, None), "{}", ended.stderr);
}

/// A link of this kind that cannot be made does not prevent the start: nothing but a program that draws misses it.
#[test]
fn a_place_that_cannot_be_used_is_a_line() {
    let scene = Scene::new();
    libgbm(&scene, LIBDIR, Machine::X86_64);
    fs::write(scene.image(&format!("{LIBDIR}/gbm")), "no directory").unwrap();
    let ended = scene.prepare(&FEDORA);
    let start = format!("tranche-oci: hook prepare: {LIBDIR}/{LINK}: cannot make the link");
    assert!(ended.code == 0 && ended.stderr.starts_with(&start), "{}", ended.stderr);
    assert_eq!(ended.stderr.lines().count(), 1, "{}", ended.stderr);
}

/// The library of VDPAU does the same, and has no other way to find the driver.
#[test]
fn the_back_end_of_vdpau_is_beside_the_image_s_library_too() {
    let scene = Scene::new();
    own_library(&scene, "libvdpau.so.1", LIBDIR, Machine::X86_64);
    let file = "libvdpau_nvidia.so.580.95";
    let link = format!("--link={file}::/usr/lib64/vdpau/libvdpau_nvidia.so.1");
    let library = format!("--library=64::/usr/lib64/vdpau/{file}::libvdpau_nvidia.so.1");
    scene.prepare(&[&link, &library]).silent();
    let made = fs::read_link(scene.image(&format!("{LIBDIR}/vdpau/libvdpau_nvidia.so.1"))).unwrap();
    assert_eq!(made.to_str().unwrap(), format!("/usr/lib64/vdpau/{file}"));
    assert_eq!(target(&scene, LIBDIR), None);
}
