//! Device nodes and bind mounts in `config.json` (runtime-spec, config.md "Mounts" and config-linux.md "Devices").

use crate::error::{Context, Result};
use serde::Deserialize;
use std::path::{Component, Path, PathBuf};

/// A character device that a container gets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceEntry {
    /// Its path in the container, without `.`, `..` and double slashes.
    pub path: PathBuf,
    /// Major and minor number.
    pub number: (u32, u32),
}

/// Something of the host that is bound into a container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bind {
    /// Where the container sees it.
    pub destination: PathBuf,
    /// What it is on the host.
    pub source: PathBuf,
    /// Whether mounts below the source come along.
    pub recursive: bool,
}

/// By which ways a container may get device nodes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Nodes {
    /// `linux.devices`: the character devices.
    pub devices: Vec<DeviceEntry>,
    /// The bind mounts in `mounts`.
    pub binds: Vec<Bind>,
}

impl Nodes {
    /// Parses a `config.json`. Keys that are not named here may hold anything, and those that are may be missing or
    /// null.
    ///
    /// # Errors
    /// If it is not JSON, or a list in it is not a list.
    pub fn parse(bytes: &[u8]) -> Result<Nodes> {
        let raw: Raw = serde_json::from_slice(bytes).about("config.json", "does not parse")?;
        let devices = raw.linux.unwrap_or_default().devices.unwrap_or_default();
        let devices = devices.into_iter().filter_map(|device| {
            // `u` is the other name of `c` (mknod(1)).
            matches!(device.kind.as_deref(), Some("c" | "u")).then(|| DeviceEntry {
                path: plain(&device.path),
                number: (device.major.unwrap_or(0), device.minor.unwrap_or(0)),
            })
        });
        let binds = raw.mounts.unwrap_or_default().into_iter().filter_map(RawMount::bind);
        Ok(Nodes {
            devices: devices.collect(),
            binds: binds.collect(),
        })
    }
}

/// A path without `.`, `..` and double slashes. What lies behind links is not considered.
fn plain(path: &Path) -> PathBuf {
    let mut plain = PathBuf::from("/");
    for component in path.components() {
        match component {
            Component::Normal(name) => plain.push(name),
            Component::ParentDir => {
                plain.pop();
            }
            Component::RootDir | Component::CurDir | Component::Prefix(_) => {}
        }
    }
    plain
}

#[derive(Deserialize)]
struct Raw {
    mounts: Option<Vec<RawMount>>,
    linux: Option<RawLinux>,
}

#[derive(Default, Deserialize)]
struct RawLinux {
    devices: Option<Vec<RawDevice>>,
}

#[derive(Deserialize)]
struct RawDevice {
    path: PathBuf,
    #[serde(rename = "type")]
    kind: Option<String>,
    major: Option<u32>,
    minor: Option<u32>,
}

#[derive(Deserialize)]
struct RawMount {
    destination: PathBuf,
    source: Option<PathBuf>,
    #[serde(rename = "type")]
    kind: Option<String>,
    options: Option<Vec<String>>,
}

impl RawMount {
    /// It as a bind mount: a runtime takes the type or either option as the mark of one, and engines write each of
    /// them.
    fn bind(self) -> Option<Bind> {
        let options = self.options.unwrap_or_default();
        let has = |option: &str| options.iter().any(|o| o == option);
        if !(self.kind.as_deref() == Some("bind") || has("bind") || has("rbind")) {
            return None;
        }
        Some(Bind {
            destination: plain(&self.destination),
            source: self.source?,
            recursive: has("rbind"),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_and_binds() {
        let nodes = Nodes::parse(
            br#"{"mounts":[{"destination":"/dev","type":"tmpfs","source":"tmpfs","options":["nosuid"]},
                           {"destination":"//mnt/./x","type":"bind","source":"/dev/nvidia1","options":["rbind"]},
                           {"destination":"/host","source":"/","options":["bind","ro"]}],
                 "linux":{"devices":[{"path":"/dev//a/../nvidia1","type":"c","major":195,"minor":1,"uid":0},
                                     {"path":"/dev/sda","type":"b","major":8,"minor":0}]},"x":1}"#,
        )
        .unwrap();
        assert_eq!(
            nodes.devices,
            [DeviceEntry {
                path: "/dev/nvidia1".into(),
                number: (195, 1)
            }]
        );
        let binds: Vec<_> = nodes
            .binds
            .iter()
            .map(|b| (b.destination.to_str().unwrap(), b.source.to_str().unwrap(), b.recursive))
            .collect();
        assert_eq!(binds, [("/mnt/x", "/dev/nvidia1", true), ("/host", "/", false)]);
        assert_eq!(
            Nodes::parse(br#"{"mounts":null,"linux":null}"#).unwrap(),
            Nodes::default()
        );
        assert!(Nodes::parse(b"[").is_err());
    }
}
