//! The directory in which `tranche bench` has a ledger, a policy and a broker of its own. So each process that is
//! measured gets its share by the same code as any other, and the machine's own ledger has one line of all this: that
//! the device is held.

use nix::fcntl::{Flock, FlockArg};
use std::fs::{self, File};
use std::path::PathBuf;
use tranche_core::error::{Context, Error, Result};
use tranche_core::root::{HostDirectory, Missing};
use tranche_state::planning::{PlanOptions, PolicyOptions};
use tranche_state::replace;

/// The name of the directory in the state directory.
const NAME: &str = "bench";

/// The file that is locked while somebody uses the directory.
const LOCK: &str = "lock";

/// The directory, which only root may enter.
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

    /// Makes the directory and keeps others out.
    ///
    /// # Errors
    /// Returns an error if another run uses it, or if another user could change it.
    pub(crate) fn occupy(&self) -> Result<Occupied> {
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
