//! An image of another architecture: its own loader reads what the hook wrote, under emulation.

use super::*;
use glibc_image::{aarch64, library_of_aarch64};

#[test]
fn a_program_of_aarch64_finds_the_driver() {
    let test = "prepare::other_machine::a_program_of_aarch64_finds_the_driver";
    let scene = Scene::new();
    let missing = glibc_image::missing().or_else(|| aarch64(&scene.image("/")).err());
    if let Some(reason) = missing {
        return skip::not_run(test, &reason);
    }
    // In a directory that the loader does not search, so that it is the cache by which it is found.
    let directory = "/opt/driver";
    for (name, soname) in [
        (format!("libcuda.so.{DRIVER}"), "libcuda.so.1".to_owned()),
        (format!("libnvidia-ml.so.{DRIVER}"), "libnvidia-ml.so.1".to_owned()),
        (
            format!("libnvidia-eglcore.so.{DRIVER}"),
            format!("libnvidia-eglcore.so.{DRIVER}"),
        ),
    ] {
        library_of_aarch64(&scene.image(directory).join(name), &soname, 580);
    }
    // A library of this machine beside them, as a host with two architectures has, is passed over.
    library(&scene.image(directory).join("libother.so.1"), "libother.so.1", 1);
    let then = format!("/bin/emulate {OPEN} libnvidia-eglcore.so.{DRIVER} libother.so.1");
    let said = said(hook(&scene, "", &arguments(&[directory]), &then));
    assert_eq!(
        said,
        format!("{FOUND}libnvidia-eglcore.so.{DRIVER} 580\nlibother.so.1 none\n")
    );
}
