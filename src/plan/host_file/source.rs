//! What `host.json` was made from, in the state that it had then.

use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The most bytes of a source of which the text is compared.
const MOST_TEXT: u64 = 4096;

/// A file whose change means that the host or the owner's decisions may have changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HostSource {
    /// What it says.
    pub kind: SourceKind,
    /// Where it is.
    pub path: PathBuf,
    /// The state in which it was read.
    pub state: SourceState,
}

/// What a source says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SourceKind {
    /// The policy.
    Policy,
    /// The configuration file of NVIDIA's container toolkit.
    NvidiaConfig,
    /// The version of the kernel module of the driver, in sysfs.
    DriverModule,
    /// A library of the driver.
    DriverLibrary,
    /// The directory with the nodes of MIG instances.
    MigNodes,
    /// The program of an engine whose version decides what is accepted from it.
    Engine,
    /// A specification that was written together with `host.json`.
    Specification,
    /// The number of this boot.
    Boot,
}

/// The state of a source.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum SourceState {
    /// It does not exist, or cannot be read.
    Absent,
    /// A file or directory. It was changed if any of this is different.
    Metadata {
        /// Bytes.
        size: u64,
        /// The number of its inode, which is another one after a replacement.
        inode: u64,
        /// The time of its last change, in seconds since 1970: `st_ctime`, which no program can set. For a
        /// specification it is `st_mtime`, which stays when the file is put in its place.
        seconds: i64,
        /// The rest of that time, in nanoseconds.
        nanoseconds: i64,
    },
    /// The text of a file of the kernel, whose times say nothing.
    Text(String),
}

impl HostSource {
    /// The source at `path` in its present state.
    pub fn now(kind: SourceKind, path: impl Into<PathBuf>) -> Self {
        let path = path.into();
        let state = kind.state(&path);
        Self { kind, path, state }
    }

    /// Whether it is still in the state that was recorded.
    pub fn is_unchanged(&self) -> bool {
        self.kind.state(&self.path) == self.state
    }

    /// What has changed, as a clause.
    pub(super) fn change(&self) -> String {
        let path = self.path.display();
        match self.kind {
            SourceKind::Policy => format!("the policy {path} has changed"),
            SourceKind::NvidiaConfig => format!("{path} has changed"),
            SourceKind::DriverModule => format!("the kernel module of the driver is no longer the same ({path})"),
            SourceKind::DriverLibrary => format!("the driver's library {path} has changed"),
            SourceKind::MigNodes => format!("the MIG devices have changed ({path})"),
            SourceKind::Engine => format!("the engine {path} has changed"),
            SourceKind::Specification => format!("the specification {path} has changed"),
            SourceKind::Boot => "the machine was started again".to_owned(),
        }
    }
}

impl SourceKind {
    fn state(self, path: &Path) -> SourceState {
        match self {
            Self::DriverModule | Self::Boot => text(path).map_or(SourceState::Absent, SourceState::Text),
            _ => match path.metadata() {
                Ok(data) => {
                    let (seconds, nanoseconds) = match self {
                        Self::Specification => (data.mtime(), data.mtime_nsec()),
                        _ => (data.ctime(), data.ctime_nsec()),
                    };
                    SourceState::Metadata {
                        size: data.size(),
                        inode: data.ino(),
                        seconds,
                        nanoseconds,
                    }
                }
                Err(_) => SourceState::Absent,
            },
        }
    }
}

fn text(path: &Path) -> Option<String> {
    let mut text = String::new();
    File::open(path).ok()?.take(MOST_TEXT).read_to_string(&mut text).ok()?;
    Some(text.trim_end().to_owned())
}
