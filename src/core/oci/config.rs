//! The part of `config.json` that a hook inside a container needs (runtime-spec, config.md and config-linux.md).

use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::Deserialize;

use super::Word;
use crate::error::{Context, Error, Result};
use crate::root::{MountOrigin, RuntimeMount};

/// A device node that a container gets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceEntry {
    /// Its path in the container.
    pub path: PathBuf,
    /// Major and minor number of a character device; `None` for a block device or a FIFO.
    pub character: Option<(u32, u32)>,
}

/// The part of a container's configuration that hooks need.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// `root.path`: the root directory, relative to the bundle or absolute.
    pub root: PathBuf,
    /// `root.readonly`: nothing may be written to the root. Some runtimes (runc) still let a hook write there.
    pub read_only: bool,
    /// `linux.devices`.
    pub devices: Vec<DeviceEntry>,
    /// `mounts`, in their order. The container's root shares them.
    pub mounts: Arc<[RuntimeMount]>,
    /// `process.env`.
    pub environment: Vec<String>,
    /// `process.user.uid`: the user of the container as whom its process runs.
    pub user: u32,
    /// `linux.mountLabel`: the SELinux context of what is mounted for the container, where the host has SELinux.
    pub mount_label: Option<String>,
}

impl Config {
    /// Parses a `config.json`. Other keys than those below are ignored, whatever their values are.
    ///
    /// # Errors
    /// Returns an error if it is not valid JSON, has no `root.path`, or a value below has another type.
    pub fn parse(bytes: &[u8]) -> Result<Config> {
        let raw: ConfigJson = serde_json::from_slice(bytes).about("config.json", "does not parse")?;
        let root = raw.root.unwrap_or_default();
        let path = root.path.filter(|path| !path.as_os_str().is_empty());
        let linux = raw.linux.unwrap_or_default();
        let process = raw.process.unwrap_or_default();
        Ok(Config {
            root: path.ok_or_else(|| Error::failed("config.json", "has no root.path"))?,
            read_only: root.readonly.unwrap_or(false),
            devices: collected(linux.devices),
            mounts: collected(raw.mounts),
            environment: process.env.unwrap_or_default(),
            user: process.user.unwrap_or_default().uid.unwrap_or_default(),
            mount_label: linux.mount_label.filter(|label| !label.is_empty()),
        })
    }

    /// Paths at which the container may get device nodes: devices, and bind mounts, with which rootless engines give
    /// them.
    pub fn nodes(&self) -> impl Iterator<Item = &Path> {
        let bound = self.mounts.iter().filter(|mount| mount.origin == MountOrigin::Host);
        let bound = bound.map(|mount| &mount.at);
        self.devices
            .iter()
            .map(|device| &device.path)
            .chain(bound)
            .map(PathBuf::as_path)
    }

    /// Whether the container gets the device node `path`.
    pub fn has_node(&self, path: &Path) -> bool {
        self.nodes().any(|node| node == path)
    }

    /// Whether the directory `path`, or one above it, is the host's own, bound into the container.
    pub fn is_bound_from_host(&self, path: &Path) -> bool {
        // As bytes, because both are in normal form and there may be a hundred mounts. The last mount that covers a
        // path is the one that is seen.
        let path = path.as_os_str().as_bytes();
        let covers = |mount: &&RuntimeMount| {
            let at = mount.at.as_os_str().as_bytes();
            at == b"/"
                || path
                    .strip_prefix(at)
                    .is_some_and(|rest| rest.is_empty() || rest.starts_with(b"/"))
        };
        let seen = self.mounts.iter().rev().find(covers);
        seen.is_some_and(|mount| mount.origin == MountOrigin::Host)
    }
}

// Go writes an empty list as `null`, so every key may be missing or null.
#[derive(Deserialize)]
struct ConfigJson<'a> {
    root: Option<RootJson>,
    #[serde(borrow)]
    mounts: Option<Vec<MountJson<'a>>>,
    linux: Option<LinuxJson<'a>>,
    process: Option<ProcessJson>,
}

#[derive(Default, Deserialize)]
struct ProcessJson {
    env: Option<Vec<String>>,
    user: Option<UserJson>,
}

#[derive(Default, Deserialize)]
struct UserJson {
    uid: Option<u32>,
}

#[derive(Default, Deserialize)]
struct RootJson {
    path: Option<PathBuf>,
    readonly: Option<bool>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct LinuxJson<'a> {
    #[serde(borrow)]
    devices: Option<Vec<DeviceJson<'a>>>,
    mount_label: Option<String>,
}

#[derive(Deserialize)]
struct DeviceJson<'a> {
    path: PathBuf,
    #[serde(rename = "type", borrow)]
    kind: Option<Word<'a>>,
    major: Option<u32>,
    minor: Option<u32>,
}

#[derive(Deserialize)]
struct MountJson<'a> {
    destination: PathBuf,
    source: Option<PathBuf>,
    #[serde(rename = "type", borrow)]
    kind: Option<Word<'a>>,
    options: Option<Vec<Word<'a>>>,
}

/// The values of a list, which may be missing.
fn collected<R, T: From<R>, L: FromIterator<T>>(list: Option<Vec<R>>) -> L {
    list.unwrap_or_default().into_iter().map(T::from).collect()
}

impl From<DeviceJson<'_>> for DeviceEntry {
    fn from(raw: DeviceJson<'_>) -> Self {
        // `u` is another name of `c` (mknod(1)).
        let is_character = raw.kind.is_some_and(|kind| matches!(kind.as_str(), "c" | "u"));
        let number = (raw.major.unwrap_or(0), raw.minor.unwrap_or(0));
        DeviceEntry {
            path: normal(raw.path),
            character: is_character.then_some(number),
        }
    }
}

impl From<MountJson<'_>> for RuntimeMount {
    fn from(raw: MountJson<'_>) -> Self {
        let options = raw.options.unwrap_or_default();
        let has = |option: &str| options.iter().any(|word| word.as_str() == option);
        let recursive = has("rbind");
        let kind = raw.kind.as_ref().map(Word::as_str);
        // A runtime makes a bind mount if the type or one of the options says so, and engines write all of them.
        let bound = kind == Some("bind") || recursive || has("bind");
        RuntimeMount {
            at: normal(raw.destination),
            source: raw.source,
            recursive,
            origin: match kind {
                _ if bound => MountOrigin::Host,
                Some("tmpfs") => MountOrigin::NewTmpfs,
                _ => MountOrigin::Other,
            },
        }
    }
}

/// The path without double slashes, `.` and a slash at its end. Engines write paths in this form, so a path is rarely
/// copied.
fn normal(path: PathBuf) -> PathBuf {
    let bytes = path.as_os_str().as_bytes();
    let is_odd = |pair: &[u8]| matches!(pair, [b'/', b'/' | b'.']);
    match bytes.windows(2).any(is_odd) || bytes.ends_with(b"/") {
        true => path.components().collect(),
        false => path,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_and_bound_nodes_are_found() {
        let config = Config::parse(
            br#"{"root":{"path":"rootfs","readonly":true},
                 "mounts":[{"destination":"/dev","type":"tmpfs","source":"tmpfs","options":["nosuid"]},
                           {"destination":"/dev/dri/renderD128","type":"bind","source":"/dev/dri/renderD128"}],
                 "linux":{"devices":[{"path":"/dev/dri/card0","type":"c","major":226,"minor":0}],
                 "mountLabel":"system_u:object_r:container_file_t:s0:c1,c2"},"x":1}"#,
        )
        .unwrap();
        assert_eq!((config.root.as_path(), config.read_only), (Path::new("rootfs"), true));
        assert!(config.has_node(Path::new("/dev/dri/card0")));
        assert!(config.has_node(Path::new("/dev/dri/renderD128")));
        assert!(!config.has_node(Path::new("/dev/dri/card1")));
        assert!(!config.has_node(Path::new("/dev")), "a tmpfs is not a node");
        assert!(!config.is_bound_from_host(Path::new("/dev/dri")));
    }

    #[test]
    fn a_directory_of_the_host_is_seen_through_what_is_mounted_on_it() {
        let bound = |mounts: &str| {
            let text = format!(r#"{{"root":{{"path":"r"}},"mounts":[{mounts}]}}"#);
            Config::parse(text.as_bytes())
                .unwrap()
                .is_bound_from_host(Path::new("/dev/dri"))
        };
        assert!(bound(r#"{"destination":"/dev","options":["rbind"]}"#));
        assert!(!bound(
            r#"{"destination":"/dev","options":["rbind"]},{"destination":"/dev/dri","type":"tmpfs"}"#
        ));
        assert!(!bound(r#"{"destination":"/device","options":["rbind"]}"#));
    }

    #[test]
    fn numbers_of_devices_and_bind_mounts_with_what_is_below() {
        let config = Config::parse(
            br#"{"root":{"path":"r"},
                 "mounts":[{"destination":"//mnt/./x","type":"bind","source":"/dev/nvidia1","options":["rbind"]},
                           {"destination":"/host","source":"/","options":["bind","ro"]}],
                 "linux":{"devices":[{"path":"/dev//./nvidia1","type":"c","major":195,"minor":1,"uid":0},
                                     {"path":"/dev/u","type":"u","major":7},
                                     {"path":"/dev/sda","type":"b","major":8,"minor":0}]}}"#,
        )
        .unwrap();
        let device = |path: &str, character| DeviceEntry {
            path: path.into(),
            character,
        };
        let expected = [
            device("/dev/nvidia1", Some((195, 1))),
            device("/dev/u", Some((7, 0))),
            device("/dev/sda", None),
        ];
        assert_eq!(config.devices, expected);
        let bind = |at: &str, source: &str, recursive| RuntimeMount {
            at: at.into(),
            source: Some(source.into()),
            origin: MountOrigin::Host,
            recursive,
        };
        assert_eq!(
            *config.mounts,
            [bind("/mnt/x", "/dev/nvidia1", true), bind("/host", "/", false)]
        );
    }

    #[test]
    fn null_and_missing_lists_are_empty() {
        let config = Config::parse(br#"{"root":{"path":"/r"},"mounts":null,"linux":{"devices":null}}"#).unwrap();
        assert_eq!(
            (config.mounts.len(), config.devices.len(), config.read_only),
            (0, 0, false)
        );
    }

    #[test]
    fn a_config_without_a_root_is_refused() {
        for text in ["{}", r#"{"root":null}"#, r#"{"root":{}}"#, r#"{"root":{"path":""}}"#] {
            assert_eq!(
                Config::parse(text.as_bytes()).unwrap_err().to_string(),
                "config.json: has no root.path"
            );
        }
        assert!(
            Config::parse(b"{\"root\":")
                .unwrap_err()
                .to_string()
                .contains("does not parse")
        );
    }
}
