//! The file systems that directories are on: where they are mounted, what they forbid, and what room they have.

use crate::doctor::{Lack, NoRoom};
use rustix::fs::{Mode, OFlags, StatVfsMountFlags, fstatvfs, open};
use std::path::{Path, PathBuf};
use tranche_core::root::MountTable;

/// The least room for what tranche writes: host.json and the specifications of the largest host take less.
const LEAST_BYTES: u64 = 1 << 20;

/// A file system that is mounted.
pub(super) struct FileSystem {
    /// Where it is mounted.
    pub(super) at: PathBuf,
    flags: StatVfsMountFlags,
    free_bytes: u64,
    /// `None` for one that makes them as they are needed.
    free_files: Option<u64>,
}

impl FileSystem {
    /// The one that `path` is on, or would be on; `None` if this user may not see it.
    pub(super) fn of(path: &Path) -> Option<Self> {
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        let mut existing = path.ancestors();
        let handle = existing.find_map(|path| open(path, flags, Mode::empty()).ok())?;
        let status = fstatvfs(&handle).ok()?;
        let mounts = MountTable::read().ok()?;
        Some(Self {
            at: mounts.of(&handle)?.at.clone(),
            flags: status.f_flag,
            free_bytes: status.f_bavail.saturating_mul(status.f_frsize),
            free_files: (status.f_files > 0).then_some(status.f_favail),
        })
    }

    /// Whether no program on it is executed (mount(8), noexec).
    pub(super) fn forbids_programs(&self) -> bool {
        self.flags.contains(StatVfsMountFlags::NOEXEC)
    }

    /// Whether programs on it run with the rights of their caller, whatever their mode says (mount(8), nosuid).
    pub(super) fn ignores_setuid(&self) -> bool {
        self.flags.contains(StatVfsMountFlags::NOSUID)
    }

    fn lack(&self) -> Option<Lack> {
        match self {
            _ if self.flags.contains(StatVfsMountFlags::RDONLY) => Some(Lack::ReadOnly),
            _ if self.free_bytes < LEAST_BYTES => Some(Lack::Bytes(self.free_bytes)),
            _ if self.free_files == Some(0) => Some(Lack::Files),
            _ => None,
        }
    }
}

/// What keeps tranche from writing to each of `directories`.
pub(super) fn without_room(directories: impl IntoIterator<Item = PathBuf>) -> Vec<NoRoom> {
    let found = directories.into_iter().filter_map(|directory| {
        let file_system = FileSystem::of(&directory)?;
        let lack = file_system.lack()?;
        let at = file_system.at;
        Some(NoRoom { directory, at, lack })
    });
    found.collect()
}
