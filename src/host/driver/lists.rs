//! What belongs to a driver, by name, and what each thing is needed for.
//!
//! Compute, utility, video, graphics and ngx are told apart as NVIDIA's container library does for
//! `NVIDIA_DRIVER_CAPABILITIES`; where that has no opinion, by the table of contents in the driver's README ("Installed
//! Components"). What is not in these lists and carries the driver's version is taken all the same: a new driver must
//! not wait for a new list.

use crate::inventory::DriverCapability::{self, Compute, Display, Graphics, Ngx, Utility, Video};

/// A library `STEM.so.VERSION`.
pub(super) struct Library {
    /// The file name before `.so`.
    pub stem: &'static str,
    /// What it is for.
    pub capability: DriverCapability,
    /// Whether its version is its own and not the driver's.
    pub own_version: bool,
}

const fn driver(stem: &'static str, capability: DriverCapability) -> Library {
    Library {
        stem,
        capability,
        own_version: false,
    }
}

const fn own(stem: &'static str, capability: DriverCapability) -> Library {
    Library {
        stem,
        capability,
        own_version: true,
    }
}

/// Libraries that we know. A host has some of them.
pub(super) const LIBRARIES: &[Library] = &[
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

/// Libraries that a driver's installer brings and that are not the driver's: GLVND, OpenCL's loader, and others of NVIDIA
/// with versions of their own. Images bring them, so a container gets them only where somebody asks with the feature flag
/// `enable-explicit-driver-libraries` of NVIDIA's generator, which names these.
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

/// For a library of this driver that we do not know: every container that computes gets it, as with a driver that
/// knows no capabilities.
pub(super) const UNKNOWN: DriverCapability = Compute;

/// Directories with libraries, the 64-bit ones of every distribution that we know. `{arch}` is the processor's name.
///
/// Debian puts each driver into a directory of its own and links to the chosen one; NixOS links the driver of the
/// running system from a fixed place.
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

/// Directories with 32-bit libraries only.
pub(super) const LIBRARY_DIRS_32: &[&str] = &[
    "/usr/lib/i386-linux-gnu",
    "/usr/lib/i386-linux-gnu/nvidia/current",
    "/usr/lib/i386-linux-gnu/nvidia",
    "/lib/i386-linux-gnu",
    "/usr/lib32",
    "/run/opengl-driver-32/lib",
];

/// Links that a program expects whether the host has them or not: a library's stem, the link, what it says. Paths are
/// relative to the library's directory; `{version}` is the driver's.
///
/// `libcuda.so` and `libnvidia-opticalflow.so` are opened by that name; `libGLX_indirect.so.0` is GLVND's answer to a
/// program without a vendor; GBM and Vulkan look for their back ends by a fixed name.
pub(super) const LINKS: &[(&str, &str, &str)] = &[
    ("libcuda", "libcuda.so", "libcuda.so.1"),
    (
        "libnvidia-opticalflow",
        "libnvidia-opticalflow.so",
        "libnvidia-opticalflow.so.1",
    ),
    ("libGLX_nvidia", "libGLX_indirect.so.0", "libGLX_nvidia.so.{version}"),
    (
        "libnvidia-allocator",
        "gbm/nvidia-drm_gbm.so",
        "../libnvidia-allocator.so.1",
    ),
    (
        "libnvidia-vulkan-producer",
        "libnvidia-vulkan-producer.so",
        "libnvidia-vulkan-producer.so.{version}",
    ),
    (
        "libglxserver_nvidia",
        "libglxserver_nvidia.so",
        "libglxserver_nvidia.so.{version}",
    ),
];

/// Modules of the X server, in the first directory of [`XORG_DIRS`] that has them.
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

/// Where X servers were installed over the years.
pub(super) const XORG_BASES: &[&str] = &["/usr/lib", "/usr/lib64", "/usr/X11R6/lib", "/usr/X11R6/lib64"];

/// Programs.
pub(super) const BINARIES: &[(&str, DriverCapability)] = &[
    ("nvidia-smi", Utility),
    ("nvidia-debugdump", Utility),
    ("nvidia-persistenced", Utility),
    ("nvidia-cuda-mps-control", Compute),
    ("nvidia-cuda-mps-server", Compute),
    ("nvidia-imex", Compute),
    ("nvidia-imex-ctl", Compute),
    ("nvidia-xconfig", Display),
];

/// Where programs are. The caller's `PATH` comes after these, so that one host looks the same to everybody as long as the
/// programs are where packages put them.
pub(super) const BINARY_DIRS: &[&str] = &[
    "/usr/local/sbin",
    "/usr/local/bin",
    "/usr/sbin",
    "/usr/bin",
    "/sbin",
    "/bin",
];

/// Where NixOS has programs; a container finds nothing there, so they go to `/usr/bin`.
pub(super) const BINARY_DIRS_MOVED: &[&str] = &["/run/current-system/sw/bin"];

/// A configuration file: the name below a directory of [`CONFIG_DIRS`], the directory that it has in a container (the
/// one in which the loaders of EGL, Vulkan and so on look everywhere), and what it is for.
pub(super) const CONFIGS: &[(&str, &str, DriverCapability)] = &[
    ("glvnd/egl_vendor.d/10_nvidia.json", "/usr/share", Graphics),
    ("egl/egl_external_platform.d/15_nvidia_gbm.json", "/usr/share", Graphics),
    (
        "egl/egl_external_platform.d/10_nvidia_wayland.json",
        "/usr/share",
        Graphics,
    ),
    (
        "egl/egl_external_platform.d/09_nvidia_wayland2.json",
        "/usr/share",
        Graphics,
    ),
    ("egl/egl_external_platform.d/20_nvidia_xcb.json", "/usr/share", Graphics),
    (
        "egl/egl_external_platform.d/20_nvidia_xlib.json",
        "/usr/share",
        Graphics,
    ),
    ("nvidia/nvoptix.bin", "/usr/share", Graphics),
    ("X11/xorg.conf.d/10-nvidia.conf", "/usr/share", Display),
    ("X11/xorg.conf.d/nvidia-drm-outputclass.conf", "/usr/share", Display),
    ("OpenCL/vendors/nvidia.icd", "/etc", Compute),
    ("vulkan/icd.d/nvidia_icd.json", "/etc", Graphics),
    ("vulkan/icd.d/nvidia_icd.x86_64.json", "/etc", Graphics),
    ("vulkan/icd.d/nvidia_icd.aarch64.json", "/etc", Graphics),
    ("vulkan/icd.d/nvidia_layers.json", "/etc", Graphics),
    ("vulkan/implicit_layer.d/nvidia_layers.json", "/etc", Graphics),
];

/// Where configuration files are. `/` for Google's container OS, which has `vulkan` directly below the driver's root;
/// the last two are NixOS. The caller's `XDG_DATA_DIRS` comes after these.
pub(super) const CONFIG_DIRS: &[&str] = &[
    "/etc",
    "/usr/local/share",
    "/usr/share",
    "/",
    "/run/opengl-driver/share",
    "/run/opengl-driver/etc",
];

/// Where the kernel looks for firmware (`drivers/base/firmware_loader`), after the directory in its parameter. The
/// driver's lies in `nvidia/VERSION` below.
pub(super) const FIRMWARE_DIRS: &[&str] = &[
    "/lib/firmware/updates/{kernel}",
    "/lib/firmware/updates",
    "/lib/firmware/{kernel}",
    "/lib/firmware",
];

/// Sockets of the driver's daemons, below the first of `/run` and `/var/run` that has them. `/tmp/nvidia-mps`, which is
/// a directory and not a socket, is left out: who may talk to which MPS daemon is decided by a share.
pub(super) const SOCKETS: &[(&str, DriverCapability)] = &[
    ("nvidia-persistenced/socket", Utility),
    ("nvidia-fabricmanager/socket", Compute),
];

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

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
