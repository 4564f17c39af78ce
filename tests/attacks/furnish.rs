//! What is in the image and, in the same places, on the host beside it.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use crate::support::ld_so_cache;
use crate::support::stub_elf::{self, Machine};
use crate::verb::{DRIVER, LIBDIR};

/// A root with a file at every path that a hook touches. `mark` is in each.
pub(crate) fn furnish(top: &Path, mark: &str) {
    let write = |path: &str, bytes: &[u8]| {
        let file = top.join(path.trim_start_matches('/'));
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, bytes).unwrap();
    };
    let library = |name: &str| {
        let mut bytes = stub_elf::library("libcuda.so.1", Machine::X86_64).unwrap();
        bytes.extend_from_slice(name.as_bytes());
        bytes
    };
    write("/etc/ld.so.cache", &cache(mark));
    write(
        "/etc/ld.so.conf",
        format!("include /etc/ld.so.conf.d/*.conf\n# {mark}\n").as_bytes(),
    );
    write("/etc/ld.so.conf.d/image.conf", format!("/opt/{mark}\n").as_bytes());
    write("/etc/ld-musl-x86_64.path", format!("/lib:/opt/{mark}\n").as_bytes());
    for loader in ["/lib64/ld-linux-x86-64.so.2", "/lib/ld-musl-x86_64.so.1"] {
        write(loader, mark.as_bytes());
    }
    write(&format!("{LIBDIR}/libcuda.so.{DRIVER}"), &library(mark));
    write("/usr/local/cuda/compat/libcuda.so.590.44.01", &library(mark));
    write(
        "/proc/driver/nvidia/params",
        format!("ModifyDeviceFiles: 1\nRmMsg: \"{mark}\"\n").as_bytes(),
    );
    write(
        "/etc/nvidia/nvidia-application-profiles-rc.d/10-container.conf",
        mark.as_bytes(),
    );
    write("/dev/dri/card0", mark.as_bytes());
    for directory in ["dev/dri/by-path", "dev/nvidia-caps", "opt/lib"] {
        fs::create_dir_all(top.join(directory)).unwrap();
    }
    fs::set_permissions(top.join("dev/nvidia-caps"), PermissionsExt::from_mode(0o700)).unwrap();
}

/// An ld.so.cache with a library whose name has `mark` in it.
pub(crate) fn cache(mark: &str) -> Vec<u8> {
    let own = format!("lib{mark}.so.1");
    ld_so_cache::write(vec![ld_so_cache::Entry::new(
        &Path::new("/opt/lib").join(&own),
        &own,
        Machine::X86_64,
    )])
}
