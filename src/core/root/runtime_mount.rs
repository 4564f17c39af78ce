//! What a runtime mounts in a container's root.

use std::path::PathBuf;

/// One entry of `mounts` in a container's configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RuntimeMount {
    /// The path at which the container sees it, in normal form apart from `..`.
    pub at: PathBuf,
    /// What is mounted: for a bind mount a path of the host.
    pub source: Option<PathBuf>,
    /// Where its content comes from.
    pub origin: MountOrigin,
    /// Whether mounts below the source are mounted too.
    pub recursive: bool,
}

/// Where the content of a mount comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MountOrigin {
    /// The host: a bind mount, a volume.
    Host,
    /// A tmpfs that the runtime makes for the container, such as /dev.
    NewTmpfs,
    /// Another file system that the runtime makes, such as /proc.
    Other,
}
