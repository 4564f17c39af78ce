//! Images that have one directory for libraries of both word sizes, where files of one cover those of the other.

use super::*;
use crate::ldcache::line;
use crate::support::stub_elf::{self, Machine};
use std::ffi::OsStr;
use tranche_core::ldcache::{AbiFlags, CacheEntry, Sorted};

/// i386 in a cache, as ldconfig writes it.
const I386: AbiFlags = AbiFlags(0x0003);

/// An image with a loader, and the libraries of 64 bits in `/usr/lib`, to which the other directories lead.
fn arch() -> Scene {
    let scene = Scene::new();
    scene.image_directory("/usr/lib");
    scene.image_directory("/etc");
    for (target, link) in [("usr/lib", "/lib"), ("usr/lib", "/lib64"), ("lib", "/usr/lib64")] {
        scene.image_link(target, link);
    }
    fs::write(scene.image("/usr/lib/ld-linux-x86-64.so.2"), "loader").unwrap();
    scene
}

/// The library `name` of the driver in a directory of the image, as an engine has mounted it.
fn mounted(scene: &Scene, name: &str, machine: Machine) {
    let soname = format!("{}.so.1", name.split_once(".so").unwrap().0);
    let bytes = stub_elf::library(&soname, machine).unwrap();
    fs::write(scene.image(&format!("/usr/lib/{name}")), bytes).unwrap();
}

fn mount(at: &str) -> Value {
    json!({"destination": at, "source": format!("/host{at}"), "type": "bind", "options": ["bind", "ro"]})
}

/// What the cache says of `name`.
fn found(scene: &Scene, name: &str) -> Vec<String> {
    let bytes = fs::read(scene.image("/etc/ld.so.cache")).unwrap();
    let cache = tranche_core::ldcache::read(&bytes).unwrap();
    let named = cache.entries.iter().filter(|entry| entry.soname == name);
    named.map(line).collect()
}

/// A Fedora host mounts 64-bit libraries in `/usr/lib64` and 32-bit ones in `/usr/lib` (89luca89/distrobox#2126).
#[test]
fn a_library_that_another_one_covers_is_not_in_the_cache() {
    let scene = arch();
    // What was mounted last: the 64-bit one of the first, and the 32-bit one that has no other.
    mounted(&scene, "libcuda.so.580.95", Machine::X86_64);
    mounted(&scene, "libnvidia-old.so.580.95", Machine::I386);
    let at = [
        "/usr/lib/libcuda.so.580.95",
        "/usr/lib/libnvidia-old.so.580.95",
        "/usr/lib64/libcuda.so.580.95",
    ];
    scene.configure(json!({"root": {"path": "rootfs"}, "mounts": at.map(mount)}));
    let ended = scene.prepare(&[
        "--ldcache-dir=/usr/lib",
        "--ldcache-dir=/usr/lib64",
        "--library=32::/usr/lib/libcuda.so.580.95::libcuda.so.1",
        "--library=32::/usr/lib/libnvidia-old.so.580.95::libnvidia-old.so.1",
        "--library=64::/usr/lib64/libcuda.so.580.95::libcuda.so.1",
        "--link=libcuda.so.580.95::/usr/lib/libcuda.so.1",
        "--link=libcuda.so.580.95::/usr/lib64/libcuda.so.1",
        "--link=libnvidia-old.so.580.95::/usr/lib/libnvidia-old.so.1",
    ]);
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    assert_eq!(
        found(&scene, "libcuda.so.1"),
        ["libcuda.so.1 (libc6,x86-64) => /usr/lib/libcuda.so.1"]
    );
    let old = "libnvidia-old.so.1 (libc6) => /usr/lib/libnvidia-old.so.1";
    assert_eq!(found(&scene, "libnvidia-old.so.1"), [old]);
    assert_eq!(
        ended.stderr,
        "tranche-oci: hook prepare: /usr/lib: 1 of the driver's 32-bit libraries left out, because the image has one \
         directory for both word sizes, and 64-bit ones cover them\n"
    );
}

/// The image had a 32-bit library under a name that now is the driver's 64-bit one.
#[test]
fn what_the_image_s_cache_has_of_another_word_size_is_left_out() {
    let scene = arch();
    mounted(&scene, "libcuda.so.580.95", Machine::X86_64);
    let entry = |name, path, flags| CacheEntry::new(OsStr::new(name), Path::new(path), flags);
    let entries = [
        entry("libcuda.so.1", "/usr/lib/libcuda.so.1", I386),
        entry("libc.so.6", "/usr/lib/libc.so.6", AbiFlags::X86_64),
        entry("libm.so.6", "/usr/lib32/libm.so.6", I386),
    ];
    let bytes = tranche_core::ldcache::write(&Sorted::new(&entries), object::endian::Endianness::Little).unwrap();
    fs::write(scene.image("/etc/ld.so.cache"), bytes).unwrap();
    let mounts = [mount("/usr/lib/libcuda.so.580.95")];
    scene.configure(json!({"root": {"path": "rootfs"}, "mounts": mounts}));
    let arguments = [
        "--ldcache-dir=/usr/lib",
        "--library=64::/usr/lib/libcuda.so.580.95::libcuda.so.1",
        "--link=libcuda.so.580.95::/usr/lib/libcuda.so.1",
    ];
    let ended = scene.prepare(&arguments);
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    assert_eq!(
        found(&scene, "libcuda.so.1"),
        ["libcuda.so.1 (libc6,x86-64) => /usr/lib/libcuda.so.1"]
    );
    assert_eq!(found(&scene, "libc.so.6").len() + found(&scene, "libm.so.6").len(), 2);
    assert_eq!(
        ended.stderr,
        "tranche-oci: hook prepare: /etc/ld.so.cache: 1 of its entries left out, because libraries of the driver with \
         another word size are at these paths: /usr/lib/libcuda.so.1\n"
    );
    // The next start of the same root finds nothing to say.
    scene.prepare(&arguments).silent();
}
