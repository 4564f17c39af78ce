//! Which loaders an image has: who will look for the driver's libraries, and where.
//!
//! A program names its loader by an absolute path, and that path is part of its architecture's ABI: it is the same in
//! every image. So these paths are looked at, and no directory is searched. An image with another loader (NixOS has
//! its own, by hash) reads neither of the files that we write; one without any holds static programs alone.

use std::ffi::OsStr;
use std::path::Path;

use crate::root::ContainerRoot;

/// glibc's, for every architecture that [`crate::ldcache::AbiFlags`] knows.
const GLIBC: [&str; 9] = [
    "/lib64/ld-linux-x86-64.so.2",
    "/lib/ld-linux-aarch64.so.1",
    "/lib/ld-linux.so.2",
    "/lib/ld-linux-armhf.so.3",
    "/libx32/ld-linux-x32.so.2",
    "/lib64/ld64.so.2",
    "/lib/ld64.so.1",
    "/lib/ld-linux-riscv64-lp64d.so.1",
    "/lib/ld-linux-riscv64-lp64.so.1",
];

/// musl's name of an architecture, which is also in the name of its path file.
const MUSL: [&str; 5] = ["x86_64", "aarch64", "i386", "armhf", "riscv64"];

/// Whether a program of glibc can run in this root. Only the image's own files count: what is in a volume or in /proc
/// must not decide about files of the image.
pub(super) fn has_glibc(root: &ContainerRoot) -> bool {
    let is_own = |path: &&str| {
        root.find(Path::new(path))
            .is_ok_and(|found| root.check_image(found).is_ok())
    };
    GLIBC.iter().any(is_own)
}

/// The architectures for which musl's loader is in this root: as a file, or as a link to it.
pub(super) fn musl(root: &ContainerRoot) -> Vec<&'static str> {
    // One look-up for them all: of most images the answer is that there is none.
    let Ok(directory) = root.own_directory(Path::new("/lib")) else {
        return Vec::new();
    };
    let is_there = |arch: &&str| {
        let name = format!("ld-musl-{arch}.so.1");
        directory.status(OsStr::new(&name)).is_ok_and(|status| status.is_some())
    };
    MUSL.into_iter().filter(is_there).collect()
}
