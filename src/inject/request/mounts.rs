//! Requests by mounts: `/dev/null` at `/var/run/nvidia-container-devices/0` asks for device 0.
//!
//! Unlike an environment variable, an image cannot have a mount. NVIDIA's device plugin for Kubernetes asks in this way
//! (`deviceListStrategy: volume-mounts`).

use std::path::{Component, Path, PathBuf};

use super::MOUNTS;
use super::view::RequestMount;
use tranche_core::error::{Error, Result};
use tranche_core::types::{CdiKind, QualifiedName};

/// The requests among the mounts of a container.
#[derive(Debug, Default)]
pub(super) struct MountRequests {
    /// Devices, as they are named in other requests.
    pub(super) devices: Vec<String>,
    /// IMEX channels.
    pub(super) channels: Vec<String>,
    /// The destinations of all of them, as in the configuration.
    pub(super) destinations: Vec<String>,
}

impl MountRequests {
    /// Those in `mounts`; `all` of them, or only those that name a claim.
    pub(super) fn of(mounts: &[RequestMount<'_>], all: bool) -> Result<Self> {
        let mut found = Self::default();
        for mount in mounts {
            let (Some(destination), Some(source)) = (&mount.destination, &mount.source) else {
                continue;
            };
            if clean(source.as_str()) != Path::new("/dev/null") {
                continue;
            }
            // By whole components: /var/run/nvidia-container-devices-of-another-tool asks for nothing.
            let at = clean(destination.as_str());
            let Some(name) = at.strip_prefix(MOUNTS).ok().and_then(Path::to_str) else {
                continue;
            };
            if name.is_empty() || !(all || is_claim(name)) {
                continue;
            }
            found.destinations.push(destination.as_str().to_owned());
            if let Some(channel) = name.strip_prefix("imex/") {
                found.channels.push(channel.to_owned());
            } else if let Some(name) = name.strip_prefix("cdi/") {
                found.devices.push(cdi(destination.as_str(), name)?.to_string());
            } else {
                found.devices.push(name.to_owned());
            }
        }
        Ok(found)
    }
}

/// `vendor/class=device` or `vendor/class/device`.
fn cdi(destination: &str, name: &str) -> Result<QualifiedName> {
    let by_path = || {
        let (vendor, rest) = name.split_once('/')?;
        let (class, device) = rest.split_once('/')?;
        format!("{vendor}/{class}={device}").parse().ok()
    };
    name.parse().ok().or_else(by_path).ok_or_else(|| {
        Error::usage(format!("mount {destination}"), "does not name a CDI device")
            .hint(format!("expected {MOUNTS}/cdi/VENDOR/CLASS/DEVICE"))
    })
}

/// Whether a mount at `name`, below the directory of requests, names a claim that was made beforehand.
fn is_claim(name: &str) -> bool {
    let kind = name
        .strip_prefix("cdi/")
        .and_then(|name| name.strip_prefix(CdiKind::claim().to_string().as_str()));
    kind.is_some_and(|name| name.starts_with(['/', '=']))
}

/// The path without `.`, `..` and double slashes, by its text alone: the path is not followed.
fn clean(path: &str) -> PathBuf {
    let mut clean = PathBuf::new();
    for component in Path::new(path).components() {
        match component {
            Component::ParentDir => {
                clean.pop();
            }
            Component::CurDir => {}
            other => clean.push(other),
        }
    }
    clean
}
