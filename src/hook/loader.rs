//! Which loaders an image has. They search for the driver's libraries.
//!
//! A program names its loader by an absolute path, which is part of its architecture's ABI and the same in every image.
//! So only these paths are examined, and no directory is searched. An image with another loader (NixOS names its loader
//! by a hash) reads none of the files that the hook writes. An image without a loader has static programs only.

use std::ffi::OsStr;
use std::path::Path;

use tranche_core::root::ContainerRoot;

/// The loaders of glibc, for every architecture that [`tranche_core::ldcache::AbiFlags`] knows.
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

/// Architectures as musl names them, also in the name of its path file.
const MUSL: [&str; 5] = ["x86_64", "aarch64", "i386", "armhf", "riscv64"];

/// Whether this root has glibc's loader. Only the image's own files count: a volume must not decide about files of the
/// image.
pub(super) fn has_glibc(root: &ContainerRoot) -> bool {
    let is_own = |path: &&str| {
        root.find(Path::new(path))
            .is_ok_and(|found| root.check_image(found).is_ok())
    };
    GLIBC.iter().any(is_own)
}

/// The architectures for which musl's loader is in this root: as a file, or as a link to it.
pub(super) fn musl(root: &ContainerRoot) -> Vec<&'static str> {
    // The directory is looked up once, because most images have no loader of musl.
    let Ok(directory) = root.own_directory(Path::new("/lib")) else {
        return Vec::new();
    };
    let is_there = |arch: &&str| {
        let name = format!("ld-musl-{arch}.so.1");
        directory.status(OsStr::new(&name)).is_ok_and(|status| status.is_some())
    };
    MUSL.into_iter().filter(is_there).collect()
}
