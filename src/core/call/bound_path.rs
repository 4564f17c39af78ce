//! A file that is on the host and in the container.

use crate::types::{ContainerPath, HostPath};
use std::fmt;

/// A device node or a socket, which a container may have at another path than the host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BoundPath {
    /// In the container.
    pub container: ContainerPath,
    /// On the host.
    pub host: HostPath,
}

impl BoundPath {
    /// Reads `CONTAINER`, or `CONTAINER:HOST` where the two differ.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let (container, host) = text.split_once(':').unwrap_or((text, text));
        Some(Self {
            container: ContainerPath::new(container).ok()?,
            host: HostPath::new(host).ok()?,
        })
    }
}

impl fmt::Display for BoundPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { container, host } = self;
        match container.as_str() == host.as_str() {
            true => write!(f, "{container}"),
            false => write!(f, "{container}:{host}"),
        }
    }
}
