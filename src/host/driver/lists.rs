//! The names of the driver's files, and what each file is needed for.
//!
//! The capabilities are those that NVIDIA's container library assigns for `NVIDIA_DRIVER_CAPABILITIES`, else those that
//! the driver's README suggests ("Installed Components"). A library that is not in these lists is taken too if its name
//! ends in the driver's version, so a new driver works with an old list.
//!
//! After a change here, `make bless` updates the built-in inventories.

use tranche_plan::inventory::DriverCapability::{self, Compat32, Compute, Display, Graphics, Ngx, Utility, Video};
use tranche_plan::inventory::{DriverFile, ElfClass, FileKind};

/// A library `STEM.so.VERSION`, or `STEM.so.N` under its SONAME.
pub(super) struct ListedLibrary {
    /// The file name before `.so`.
    pub stem: &'static str,
    /// What it is for.
    pub capability: DriverCapability,
    /// Whether it has a version of its own, not the driver's.
    pub own_version: bool,
}

const fn driver(stem: &'static str, capability: DriverCapability) -> ListedLibrary {
    ListedLibrary {
        stem,
        capability,
        own_version: false,
    }
}

const fn own(stem: &'static str, capability: DriverCapability) -> ListedLibrary {
    ListedLibrary {
        stem,
        capability,
        own_version: true,
    }
}

/// The known libraries. A host has some of them.
pub(super) const LIBRARIES: &[ListedLibrary] = &[
    driver("libnvidia-ml", Utility),
    driver("libnvidia-cfg", Utility),
    driver("libnvidia-nscq", Utility),
    driver("libnvidia-sandboxutils", Utility),
    driver("libcuda", Compute),
    driver("libcudadebugger", Compute),
    driver("libnvidia-allocator", Compute),
    driver("libnvidia-compiler", Compute),
    driver("libnvidia-fatbinaryloader", Compute),
    driver("libnvidia-gpucomp", Compute),
    driver("libnvidia-nvvm", Compute),
    own("libnvidia-nvvm70", Compute),
    driver("libnvidia-opencl", Compute),
    driver("libnvidia-pkcs11", Compute),
    driver("libnvidia-pkcs11-openssl3", Compute),
    driver("libnvidia-ptxjitcompiler", Compute),
    driver("libnvidia-tileiras", Compute),
    driver("libnvcuvid", Video),
    driver("libnvidia-encode", Video),
    driver("libnvidia-opticalflow", Video),
    driver("libvdpau_nvidia", Video),
    driver("libEGL_nvidia", Graphics),
    driver("libGLESv1_CM_nvidia", Graphics),
    driver("libGLESv2_nvidia", Graphics),
    driver("libGLX_nvidia", Graphics),
    own("libnvidia-api", Graphics),
    driver("libnvidia-cbl", Graphics),
    driver("libnvidia-eglcore", Graphics),
    own("libnvidia-egl-gbm", Graphics),
    own("libnvidia-egl-wayland", Graphics),
    own("libnvidia-egl-wayland2", Graphics),
    own("libnvidia-egl-xcb", Graphics),
    own("libnvidia-egl-xlib", Graphics),
    driver("libnvidia-fbc", Graphics),
    driver("libnvidia-glcore", Graphics),
    driver("libnvidia-glsi", Graphics),
    driver("libnvidia-glvkspirv", Graphics),
    driver("libnvidia-ifr", Graphics),
    driver("libnvidia-present", Graphics),
    driver("libnvidia-rtcore", Graphics),
    driver("libnvidia-tls", Graphics),
    driver("libnvidia-vksc-core", Graphics),
    driver("libnvidia-vulkan-producer", Graphics),
    driver("libnvidia-wayland-client", Graphics),
    driver("libnvoptix", Graphics),
    driver("libnvidia-gtk2", Display),
    driver("libnvidia-gtk3", Display),
    driver("libnvidia-ngx", Ngx),
];

/// Libraries of [`LIBRARIES`] that nobody uses without libcuda. A machine that only draws has none of them.
const OF_CUDA: &[&str] = &[
    "libcudadebugger",
    "libnvcuvid",
    "libnvidia-compiler",
    "libnvidia-encode",
    "libnvidia-fatbinaryloader",
    "libnvidia-opencl",
    "libnvidia-ptxjitcompiler",
];

/// Whether `file` is a library that needs libcuda.
pub(crate) fn needs_libcuda(file: &DriverFile) -> bool {
    let is_library = matches!(file.kind, FileKind::Library { .. });
    let stem = file.container.file_name().split(".so.").next();
    is_library && stem.is_some_and(|stem| OF_CUDA.contains(&stem))
}

/// Libraries that a driver's installer brings although they are not part of the driver: GLVND, OpenCL's loader, and
/// NVIDIA's libraries with versions of their own. Images bring them, so a container gets them only with the feature
/// flag `enable-explicit-driver-libraries` of NVIDIA's generator, which has this list.
pub(super) const EXPLICIT: &[(&str, DriverCapability)] = &[
    ("libEGL", Graphics),
    ("libGL", Graphics),
    ("libGLESv1_CM", Graphics),
    ("libGLESv2", Graphics),
    ("libGLX", Graphics),
    ("libGLdispatch", Graphics),
    ("libOpenCL", Compute),
    ("libOpenGL", Graphics),
    ("libnvidia-api", Graphics),
    ("libnvidia-egl-xcb", Graphics),
    ("libnvidia-egl-xlib", Graphics),
];

/// The capability of a library that is not in the list: every container that computes gets it.
pub(super) const UNKNOWN: DriverCapability = Compute;

/// Directories with 64-bit libraries, of all known distributions. `{arch}` is the processor's name.
///
/// Debian has a directory for each driver and a link to the chosen one. NixOS has a fixed link to the driver of the
/// running system.
pub(super) const LIBRARY_DIRS: &[&str] = &[
    "/usr/lib64",
    "/usr/lib64/nvidia",
    "/usr/lib/{arch}-linux-gnu",
    "/usr/lib/{arch}-linux-gnu/nvidia/current",
    "/lib64",
    "/lib/{arch}-linux-gnu",
    "/lib/{arch}-linux-gnu/nvidia/current",
    "/usr/lib",
    "/usr/lib/nvidia/current",
    "/lib",
    "/run/opengl-driver/lib",
];

/// The end of a directory that Debian has for the libraries of one driver. Loaders search the directory above it, where
/// programs look for what they open by a fixed name.
pub(super) const ONE_DRIVER: &str = "/nvidia/current";

/// The way into that directory from the one above.
pub(super) const FROM_ABOVE: &str = "nvidia/current/";

/// Directories with 32-bit libraries only: those of 64 bits, as a 32-bit system would have them. `/usr/lib` and `/lib`,
/// which may have either, are in [`LIBRARY_DIRS`].
pub(super) const LIBRARY_DIRS_32: &[&str] = &[
    "/usr/lib/i386-linux-gnu",
    "/usr/lib/i386-linux-gnu/nvidia/current",
    "/usr/lib/i386-linux-gnu/nvidia",
    "/lib/i386-linux-gnu",
    "/lib/i386-linux-gnu/nvidia/current",
    "/usr/lib32",
    "/usr/lib32/nvidia",
    "/usr/lib/nvidia",
    "/run/opengl-driver-32/lib",
];

/// Links that programs expect even if the host lacks them: the library's stem, the link, its target. Paths are relative
/// to the library's directory; `{file}` is the library's file name.
///
/// Programs open `libcuda.so` and `libnvidia-opticalflow.so` by these names, GLVND uses `libGLX_indirect.so.0` for
/// programs without a vendor, and GBM and Vulkan look for their back ends by fixed names.
#[rustfmt::skip]
pub(super) const LINKS: &[(&str, &str, &str)] = &[
    ("libcuda", "libcuda.so", "libcuda.so.1"),
    ("libnvidia-opticalflow", "libnvidia-opticalflow.so", "libnvidia-opticalflow.so.1"),
    ("libGLX_nvidia", "libGLX_indirect.so.0", "{file}"),
    ("libnvidia-allocator", "gbm/nvidia-drm_gbm.so", "../libnvidia-allocator.so.1"),
    ("libnvidia-vulkan-producer", "libnvidia-vulkan-producer.so", "{file}"),
    ("libglxserver_nvidia", "libglxserver_nvidia.so", "{file}"),
];

/// Modules of the X server. Each is taken from the first directory of [`XORG_DIRS`] that has it.
pub(super) const XORG_MODULES: &[(&str, DriverCapability)] = &[
    ("nvidia_drv.so", Display),
    ("libglxserver_nvidia.so.{version}", Display),
];

/// Below each library directory and each of [`XORG_BASES`].
pub(super) const XORG_DIRS: &[&str] = &[
    "nvidia/xorg",
    "xorg/modules/drivers",
    "xorg/modules/extensions",
    "xorg/modules/updates/drivers",
    "xorg/modules/updates/extensions",
];

/// Directories where X servers were installed over the years.
pub(super) const XORG_BASES: &[&str] = &["/usr/lib", "/usr/lib64", "/usr/X11R6/lib", "/usr/X11R6/lib64"];

/// Programs.
pub(super) const BINARIES: &[(&str, DriverCapability)] = &[
    (SMI, Utility),
    ("nvidia-debugdump", Utility),
    ("nvidia-persistenced", Utility),
    ("nvidia-cuda-mps-control", Compute),
    ("nvidia-cuda-mps-server", Compute),
    ("nvidia-imex", Compute),
    ("nvidia-imex-ctl", Compute),
    ("nvidia-xconfig", Display),
];

/// Directories of NixOS and Flatcar with programs. A container does not search them, so there the programs go to
/// `/usr/bin`.
pub(super) const BINARY_DIRS_MOVED: &[&str] = &["/run/current-system/sw/bin", "/opt/bin"];

/// The program that nearly everybody calls in a container.
pub(super) const SMI: &str = "nvidia-smi";

/// Configuration files: the name below a directory of [`CONFIG_DIRS`]; the directory in a container, which the loaders
/// of EGL, Vulkan and so on search on every distribution; the capability.
#[rustfmt::skip]
pub(super) const CONFIGS: &[(&str, &str, DriverCapability)] = &[
    ("glvnd/egl_vendor.d/10_nvidia.json", "/usr/share", Graphics),
    ("egl/egl_external_platform.d/15_nvidia_gbm.json", "/usr/share", Graphics),
    ("egl/egl_external_platform.d/10_nvidia_wayland.json", "/usr/share", Graphics),
    ("egl/egl_external_platform.d/09_nvidia_wayland2.json", "/usr/share", Graphics),
    ("egl/egl_external_platform.d/20_nvidia_xcb.json", "/usr/share", Graphics),
    ("egl/egl_external_platform.d/20_nvidia_xlib.json", "/usr/share", Graphics),
    ("nvidia/nvoptix.bin", "/usr/share", Graphics),
    ("X11/xorg.conf.d/10-nvidia.conf", "/usr/share", Display),
    ("X11/xorg.conf.d/nvidia-drm-outputclass.conf", "/usr/share", Display),
    ("OpenCL/vendors/nvidia.icd", "/etc", Compute),
    ("vulkan/icd.d/nvidia_icd.json", "/etc", Graphics),
    ("vulkan/icd.d/nvidia_icd.x86_64.json", "/etc", Graphics),
    ("vulkan/icd.d/nvidia_icd.aarch64.json", "/etc", Graphics),
    ("vulkan/icd.d/nvidia_icd.i686.json", "/etc", Compat32),
    ("vulkan/icd.d/nvidia_layers.json", "/etc", Graphics),
    ("vulkan/implicit_layer.d/nvidia_layers.json", "/etc", Graphics),
];

/// The word size of the programs that read this configuration file; `None`: of any.
pub(super) fn class_of_config(name: &str) -> Option<ElfClass> {
    match name.strip_suffix(".json")?.rsplit('.').next()? {
        "i686" => Some(ElfClass::Elf32),
        "x86_64" | "aarch64" => Some(ElfClass::Elf64),
        _ => None,
    }
}

/// Directories with configuration files. Google's container OS has `vulkan` directly below the driver's root, `/`; the
/// last two are for NixOS. The caller's `XDG_DATA_DIRS` comes after these.
pub(super) const CONFIG_DIRS: &[&str] = &[
    "/etc",
    "/usr/local/share",
    "/usr/share",
    "/",
    "/run/opengl-driver/share",
    "/run/opengl-driver/etc",
];

/// Directories with configuration files for 32-bit programs, where they have any of their own: those of NixOS.
pub(super) const CONFIG_DIRS_32: &[&str] = &["/run/opengl-driver-32/share", "/run/opengl-driver-32/etc"];

/// Directories that the kernel searches for firmware (`drivers/base/firmware_loader`), after the directory in its
/// parameter. The driver's firmware is in `nvidia/VERSION` below them.
pub(super) const FIRMWARE_DIRS: &[&str] = &[
    "/lib/firmware/updates/{kernel}",
    "/lib/firmware/updates",
    "/lib/firmware/{kernel}",
    "/lib/firmware",
];

/// Sockets of the driver's daemons, below the first of [`SOCKET_DIRS`] that has them. `/tmp/nvidia-mps` is not in the
/// list: a share decides which containers may use which MPS daemon.
pub(super) const SOCKETS: &[(&str, DriverCapability)] = &[
    ("nvidia-persistenced/socket", Utility),
    ("nvidia-fabricmanager/socket", Compute),
];

/// The directories of [`SOCKETS`], which come with the daemons.
pub(crate) fn daemon_directories() -> impl Iterator<Item = String> {
    let parents = SOCKETS.iter().filter_map(|(socket, _)| socket.split('/').next());
    parents.map(|parent| format!("{}/{parent}", SOCKET_DIRS[0]))
}

/// Directories with sockets.
pub(super) const SOCKET_DIRS: &[&str] = &["/run", "/var/run"];

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    /// What a 64-bit driver has in a place of its own, a 32-bit one has beside it.
    #[test]
    fn each_list_has_both_word_sizes() {
        let is_listed = |dir: &String| LIBRARY_DIRS_32.contains(&dir.as_str()) || LIBRARY_DIRS.contains(&dir.as_str());
        for dir in LIBRARY_DIRS {
            let other = dir
                .replace("{arch}", "i386")
                .replace("lib64", "lib32")
                .replace("driver/", "driver-32/");
            let without_number = other.replace("lib32", "lib");
            assert!(
                is_listed(&other) || is_listed(&without_number),
                "{dir}: neither {other} nor {without_number}"
            );
        }
        for dir in CONFIG_DIRS.iter().filter(|dir| dir.contains("opengl-driver")) {
            assert!(
                CONFIG_DIRS_32.contains(&dir.replace("driver/", "driver-32/").as_str()),
                "{dir}"
            );
        }
        let sizes = |size| {
            CONFIGS
                .iter()
                .filter(|(name, _, _)| class_of_config(name) == Some(size))
                .count()
        };
        assert!(sizes(ElfClass::Elf32) > 0 && sizes(ElfClass::Elf64) > 0);
        for (name, _, capability) in CONFIGS {
            let is_32 = class_of_config(name) == Some(ElfClass::Elf32);
            assert_eq!(*capability == Compat32, is_32, "{name}");
        }
    }

    #[test]
    fn no_name_twice() {
        let stems: BTreeSet<_> = LIBRARIES.iter().map(|l| l.stem).collect();
        assert_eq!(stems.len(), LIBRARIES.len());
        let configs: BTreeSet<_> = CONFIGS.iter().map(|(name, _, _)| name).collect();
        assert_eq!(configs.len(), CONFIGS.len());
    }

    #[test]
    fn links_belong_to_libraries() {
        for (stem, _, _) in LINKS {
            let is_module = XORG_MODULES.iter().any(|(name, _)| name.starts_with(stem));
            assert!(is_module || LIBRARIES.iter().any(|l| l.stem == *stem), "{stem}");
        }
    }
}
