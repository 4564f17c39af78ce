//! The part of `config.json` that a hook inside a container needs (runtime-spec, config.md and config-linux.md).

use std::borrow::Cow;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::Deserialize;

use crate::error::{Context, Error, Result};
use crate::root::{MountOrigin, RuntimeMount};

/// What a container was configured with, as far as we look.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// `root.path`: the root directory, relative to the bundle or absolute.
    pub root: PathBuf,
    /// `root.readonly`: the user wants nothing written to the root. Some runtimes (runc) still let a hook write there.
    pub read_only: bool,
    /// The container paths in `linux.devices`.
    pub devices: Vec<PathBuf>,
    /// `mounts`, in their order. The container's root shares them.
    pub mounts: Arc<[RuntimeMount]>,
    /// `process.env`.
    pub environment: Vec<String>,
    /// `linux.mountLabel`: the SELinux context of what is mounted for the container, where the host has SELinux.
    pub mount_label: Option<String>,
}

impl Config {
    /// Parses a `config.json`; keys and values that we do not look at may be anything.
    ///
    /// # Errors
    /// If it is no JSON, has no `root.path`, or a list that we need is no list.
    pub fn parse(bytes: &[u8]) -> Result<Config> {
        let raw: ConfigJson = serde_json::from_slice(bytes).about("config.json", "does not parse")?;
        let root = raw.root.unwrap_or_default();
        let path = root.path.filter(|path| !path.as_os_str().is_empty());
        let linux = raw.linux.unwrap_or_default();
        Ok(Config {
            root: path.ok_or_else(|| Error::failed("config.json", "has no root.path"))?,
            read_only: root.readonly.unwrap_or(false),
            devices: linux.devices.unwrap_or_default().into_iter().map(|d| d.path).collect(),
            mounts: raw
                .mounts
                .unwrap_or_default()
                .into_iter()
                .map(RuntimeMount::from)
                .collect(),
            environment: raw.process.unwrap_or_default().env.unwrap_or_default(),
            mount_label: linux.mount_label.filter(|label| !label.is_empty()),
        })
    }

    /// Where the container may get device nodes: devices, and, as a rootless engine gives them, bind mounts.
    pub fn nodes(&self) -> impl Iterator<Item = &Path> {
        let bound = self.mounts.iter().filter(|mount| mount.origin == MountOrigin::Host);
        let bound = bound.map(|mount| &mount.at);
        self.devices.iter().chain(bound).map(PathBuf::as_path)
    }

    /// Whether the container gets the device node `path`.
    pub fn has_node(&self, path: &Path) -> bool {
        self.nodes().any(|node| node == path)
    }

    /// Whether the directory `path`, or one above it, is the host's own, bound into the container.
    pub fn is_bound_from_host(&self, path: &Path) -> bool {
        // As bytes, because both are in normal form and there may be a hundred mounts. The last mount that covers a path
        // is the one that is seen.
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
    linux: Option<LinuxJson>,
    process: Option<ProcessJson>,
}

#[derive(Default, Deserialize)]
struct ProcessJson {
    env: Option<Vec<String>>,
}

#[derive(Default, Deserialize)]
struct RootJson {
    path: Option<PathBuf>,
    readonly: Option<bool>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct LinuxJson {
    devices: Option<Vec<DeviceJson>>,
    mount_label: Option<String>,
}

#[derive(Deserialize)]
struct DeviceJson {
    path: PathBuf,
}

#[derive(Deserialize)]
struct MountJson<'a> {
    destination: PathBuf,
    source: Option<PathBuf>,
    #[serde(rename = "type", borrow)]
    kind: Option<Word<'a>>,
    options: Option<Vec<Word<'a>>>,
}

/// A string that is looked at and not kept. It is copied only if it has an escape in it.
#[derive(Deserialize)]
struct Word<'a>(#[serde(borrow)] Cow<'a, str>);

impl From<MountJson<'_>> for RuntimeMount {
    fn from(raw: MountJson<'_>) -> Self {
        // A runtime takes either as the mark of a bind mount; engines write both.
        let is_bind = |option: &Word<'_>| matches!(&*option.0, "bind" | "rbind");
        let kind = raw.kind.as_ref().map(|kind| &*kind.0);
        let bound = kind == Some("bind") || raw.options.is_some_and(|options| options.iter().any(is_bind));
        RuntimeMount {
            at: normal(raw.destination),
            source: raw.source,
            origin: match kind {
                _ if bound => MountOrigin::Host,
                Some("tmpfs") => MountOrigin::NewTmpfs,
                _ => MountOrigin::Other,
            },
        }
    }
}

/// The path without doubled slashes, `.` and a slash at its end. Engines write paths in this form, so they are only copied
/// where a person wrote another.
fn normal(path: PathBuf) -> PathBuf {
    let bytes = path.as_os_str().as_bytes();
    let is_odd = |[slash, next]: &[u8; 2]| *slash == b'/' && matches!(next, b'/' | b'.');
    match bytes.array_windows().any(is_odd) || bytes.ends_with(b"/") {
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
        assert!(!config.has_node(Path::new("/dev")), "a tmpfs is no node");
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
