//! The directory in which `tranche bench` has a ledger, a policy and a broker of its own. So each process that is
//! measured gets its share by the same code as any other, and the machine's own ledger has one line of all this: that
//! the device is held.

use nix::fcntl::{Flock, FlockArg};
use std::fs::{self, File, Permissions};
use std::io;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::PathBuf;
use tranche_core::error::{Context, Error, Result};
use tranche_core::root::{HostDirectory, Missing};
use tranche_state::planning::{PlanOptions, PolicyOptions};
use tranche_state::replace;

/// The name of the directory in the state directory.
const NAME: &str = "bench";

/// The file that is locked while somebody uses the directory.
const LOCK: &str = "lock";

/// The file with the layout that the GPU had before the first change.
const LAYOUT: &str = "layout";

/// A policy without any share.
pub(crate) const NO_SHARES: &str = "version: v1\n";

/// The mode of the directory, which only root may enter.
const OWN: u32 = 0o700;

/// The mode while a group may pass through it.
const ADMITTING: u32 = 0o710;

/// The directory, which only root may enter, and a group in a search for a user's programs.
#[derive(Debug, Clone)]
pub struct Room {
    path: PathBuf,
    outside: PlanOptions,
}

/// A room that is used. It is free when this is dropped, or when the process ends.
#[derive(Debug)]
pub(crate) struct Occupied(#[expect(dead_code, reason = "it is held, and never read")] Flock<File>);

impl Room {
    /// The room of the machine with these options.
    pub fn of(outside: &PlanOptions) -> Self {
        Self {
            path: outside.state_dir.join(NAME),
            outside: outside.clone(),
        }
    }

    /// Whether anything is in it: a run goes on, or one was killed.
    pub fn exists(&self) -> bool {
        self.path.exists()
    }

    /// The options of programs that use it: the same host, with another policy and ledger.
    pub fn inside(&self) -> PlanOptions {
        let state_dir = self.path.join("state");
        PlanOptions {
            policy: PolicyOptions::of(Some(self.policy()), None, &state_dir),
            state_dir,
            host: self.outside.host.clone(),
        }
    }

    /// As [`Room::inside`], without any policy.
    pub(crate) fn inside_without_policy(&self) -> PlanOptions {
        let inside = self.inside();
        let policy = PolicyOptions::of(None, None, &inside.state_dir);
        PlanOptions { policy, ..inside }
    }

    /// Where specifications would be written. No engine reads them.
    pub(crate) fn spec_dir(&self) -> PathBuf {
        self.path.join("cdi")
    }

    fn policy(&self) -> PathBuf {
        self.path.join("policy.yaml")
    }

    /// Replaces the policy.
    ///
    /// # Errors
    /// Returns an error if the file cannot be written.
    pub(crate) fn set_policy(&self, text: &str) -> Result<()> {
        replace::write(&self.policy(), text)
    }

    /// The machine outside of it.
    pub(crate) fn outside(&self) -> &PlanOptions {
        &self.outside
    }

    /// Writes down the layout that a GPU has before its first change.
    ///
    /// # Errors
    /// Returns the error of `layout`, or of the file. Nothing may be changed then.
    pub(crate) fn keep_layout(&self, layout: impl FnOnce() -> Result<String>) -> Result<()> {
        match self.kept_layout()? {
            Some(_) => Ok(()),
            None => replace::write(&self.path.join(LAYOUT), &layout()?),
        }
    }

    /// That layout; `None` if nothing was changed.
    ///
    /// # Errors
    /// Returns an error if the file cannot be read.
    pub(crate) fn kept_layout(&self) -> Result<Option<String>> {
        let file = self.path.join(LAYOUT);
        match fs::read_to_string(&file) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            read => read.map(Some).about(file.display(), "cannot be read"),
        }
    }

    /// Forgets it: the GPU has it again.
    ///
    /// # Errors
    /// Returns an error if the file cannot be removed.
    pub(crate) fn forget_layout(&self) -> Result<()> {
        replace::remove(&self.path.join(LAYOUT))
    }

    /// Lets the members of group `gid` through, until the room is removed: a client of MPS reaches its daemon by a path
    /// in it. They can list and change nothing.
    ///
    /// # Errors
    /// Returns the kernel's error.
    pub(crate) fn admit(&self, gid: u32) -> Result<()> {
        let set = chown(&self.path, None, Some(gid)).and_then(|()| self.set_mode(ADMITTING));
        set.about(self.path.display(), "cannot be opened for a group")
    }

    fn set_mode(&self, mode: u32) -> io::Result<()> {
        fs::set_permissions(&self.path, Permissions::from_mode(mode))
    }

    /// Makes the directory and keeps others out.
    ///
    /// # Errors
    /// Returns an error if another run uses it, or if another user could change it.
    pub(crate) fn occupy(&self) -> Result<Occupied> {
        // One that was killed may have left it open for a group. Nobody else may write the state directory.
        HostDirectory::state_dir(&self.outside.state_dir, Missing::Make)?;
        if fs::symlink_metadata(&self.path).is_ok_and(|found| found.is_dir()) {
            self.set_mode(OWN).about(self.path.display(), "cannot be closed")?;
        }
        HostDirectory::in_state_dir(&self.outside.state_dir, NAME, Missing::Make)?;
        let path = self.path.join(LOCK);
        let mut options = File::options();
        let file = options.create(true).truncate(false).write(true).open(&path);
        let file = file.about(path.display(), "cannot be opened")?;
        Flock::lock(file, FlockArg::LockExclusiveNonblock)
            .map(Occupied)
            .map_err(|(_, error)| {
                Error::failed("tranche bench", "is running already")
                    .from_source(error)
                    .hint("wait for it, or end it")
            })
    }

    /// Removes the directory with all that is in it.
    ///
    /// # Errors
    /// Returns the kernel's error.
    pub(crate) fn remove(&self, _occupied: &Occupied) -> Result<()> {
        fs::remove_dir_all(&self.path).about(self.path.display(), "cannot be removed")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::unistd::getegid;

    #[test]
    fn a_room_that_was_left_open_for_a_group_is_closed_and_taken_again() {
        let top = tempfile::tempdir().unwrap();
        let outside = PlanOptions {
            state_dir: top.path().to_owned(),
            ..PlanOptions::default()
        };
        let room = Room::of(&outside);
        let mode = || fs::metadata(&room.path).unwrap().permissions().mode() & 0o7777;
        let occupied = room.occupy().unwrap();
        assert_eq!(mode(), OWN);
        room.admit(getegid().as_raw()).unwrap();
        assert_eq!(mode(), ADMITTING);
        drop(occupied);
        let occupied = room.occupy().unwrap();
        assert_eq!(mode(), OWN);
        room.remove(&occupied).unwrap();
    }
}
