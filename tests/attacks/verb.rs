//! What can be attacked: each hook, with arguments as a spec has them, and every path that it touches.

/// Where the driver's libraries are.
pub(crate) const LIBDIR: &str = "/usr/lib/x86_64-linux-gnu";
/// The host's driver.
pub(crate) const DRIVER: &str = "580.95.05";

/// A hook.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Verb {
    pub(crate) name: &'static str,
    pub(crate) arguments: &'static [&'static str],
    /// The paths of the image that it reads, writes, mounts on or asks about.
    pub(crate) touches: &'static [&'static str],
}

const LINKS: [&str; 4] = [
    "--link",
    "libcuda.so.580.95.05::/usr/lib/x86_64-linux-gnu/libcuda.so.1",
    "--link",
    "libcuda.so.1::/usr/lib/x86_64-linux-gnu/libcuda.so",
];

const CACHE: &str = "/etc/ld.so.cache";
const CONF: &str = "/etc/ld.so.conf";
const CONF_OF_IMAGE: &str = "/etc/ld.so.conf.d/image.conf";
const CONF_OURS: &str = "/etc/ld.so.conf.d/00-tranche.conf";
const CONF_COMPAT: &str = "/etc/ld.so.conf.d/00-compat-tranche.conf";
const GLIBC: &str = "/lib64/ld-linux-x86-64.so.2";
const MUSL: &str = "/lib/ld-musl-x86_64.so.1";
const MUSL_PATH: &str = "/etc/ld-musl-x86_64.path";
const LIBRARY: &str = "/usr/lib/x86_64-linux-gnu/libcuda.so.580.95.05";
const LINK: &str = "/usr/lib/x86_64-linux-gnu/libcuda.so";
const COMPAT: &str = "/usr/local/cuda/compat/libcuda.so.590.44.01";
const PARAMS: &str = "/proc/driver/nvidia/params";
const PROFILE: &str = "/etc/nvidia/nvidia-application-profiles-rc.d/10-container.conf";
const BY_PATH: &str = "/dev/dri/by-path/pci-0000:41:00.0-card";
const CAPS: &str = "/dev/nvidia-caps";

/// Every hook that does something to an image.
pub(crate) const VERBS: [Verb; 7] = [
    Verb {
        name: "prepare",
        arguments: &[
            LINKS[0],
            LINKS[1],
            LINKS[2],
            LINKS[3],
            "--by-path",
            "pci-0000:41:00.0-card::/dev/dri/card0",
            "--ldcache-dir",
            LIBDIR,
            "--driver-version",
            DRIVER,
        ],
        touches: &[
            LINK,
            LIBRARY,
            CACHE,
            CONF,
            CONF_OF_IMAGE,
            CONF_OURS,
            GLIBC,
            MUSL,
            MUSL_PATH,
            COMPAT,
            PARAMS,
            PROFILE,
            BY_PATH,
        ],
    },
    Verb {
        name: "create-symlinks",
        arguments: &LINKS,
        touches: &[LINK],
    },
    Verb {
        name: "update-ldcache",
        arguments: &["--folder", LIBDIR, "--ldconfig-path", "/sbin/ldconfig"],
        touches: &[
            LIBRARY,
            CACHE,
            CONF,
            CONF_OF_IMAGE,
            CONF_OURS,
            CONF_COMPAT,
            GLIBC,
            MUSL,
            MUSL_PATH,
        ],
    },
    Verb {
        name: "enable-cuda-compat",
        arguments: &["--host-driver-version", DRIVER],
        touches: &[COMPAT, CONF_COMPAT],
    },
    Verb {
        name: "disable-device-node-modification",
        arguments: &[],
        touches: &[PARAMS],
    },
    Verb {
        name: "update-application-profile",
        arguments: &[],
        touches: &[PROFILE],
    },
    Verb {
        name: "chmod",
        arguments: &["--mode", "755", "--path", CAPS],
        touches: &[CAPS],
    },
];

impl Verb {
    /// The verb of this name.
    pub(crate) fn named(name: &str) -> Verb {
        *VERBS.iter().find(|verb| verb.name == name).unwrap()
    }

    /// Each path that it touches and every directory above one, once.
    pub(crate) fn components(&self) -> Vec<&'static str> {
        let mut found = Vec::new();
        for path in self.touches {
            let ends = path.match_indices('/').map(|(at, _)| at).chain([path.len()]);
            for end in ends.filter(|end| *end > 0) {
                if !found.contains(&&path[..end]) {
                    found.push(&path[..end]);
                }
            }
        }
        found
    }
}
