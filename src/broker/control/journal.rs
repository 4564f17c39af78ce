//! The journals of changed devices: `control/NAME.json` in the state directory, one for each.
//!
//! The directory is root's own (0700), and each file is replaced in one step. So a process that is killed leaves the
//! old journal or the new one. A journal is followed until the device is as it was: a reboot leaves nothing of it to
//! put back, and is not guessed from what `/proc` says of the boot, which a container may show otherwise.

use super::changes::DeviceChanges;
use super::target::ControlTarget;
use serde::{Deserialize, Serialize};
use std::ffi::OsStr;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use tranche_core::error::{Context, Error, Result};
use tranche_core::root::{HostDirectory, Missing, Permissions};
use tranche_core::sealed;

/// The name of the directory in the state directory.
const NAME: &str = "control";

const SUFFIX: &str = ".json";

/// The version of the form. Fields are added without a new version.
const VERSION: u32 = 1;

/// More than a journal has: its longest part are a hundred containers that lost their daemon.
const MOST_BYTES: u64 = 1 << 20;

/// A device, and what was changed on it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Journal {
    version: u32,
    pub(super) target: ControlTarget,
    pub(super) changes: DeviceChanges,
}

/// More than the directory has names.
const MOST_NAMES: usize = 16 << 10;

/// All journals of a state directory.
#[derive(Debug)]
pub(super) struct Journals {
    directory: HostDirectory,
    path: PathBuf,
}

impl Journals {
    /// The journals in `state_dir`, whose directory is created if it does not exist.
    ///
    /// # Errors
    /// Returns an error if it cannot be created, or if another user could replace or write it.
    pub(super) fn open(state_dir: &Path) -> Result<Self> {
        match HostDirectory::in_state_dir(state_dir, NAME, Missing::Make)? {
            Some(directory) => Ok(Self {
                directory,
                path: state_dir.join(NAME),
            }),
            None => Err(Error::failed(state_dir.display(), "was removed while it was created")),
        }
    }

    /// The path of a device's journal.
    pub(super) fn path(&self, instance: &str) -> PathBuf {
        self.path.join(format!("{instance}{SUFFIX}"))
    }

    /// The devices that have a journal.
    ///
    /// # Errors
    /// Returns an error if the directory cannot be listed.
    pub(super) fn instances(&self) -> Result<Vec<String>> {
        let names = self
            .directory
            .names(MOST_NAMES)
            .about(self.path.display(), "cannot be listed")?;
        let instance = |name: &OsStr| Some(name.to_str()?.strip_suffix(SUFFIX)?.to_owned());
        Ok(names.iter().filter_map(|name| instance(name)).collect())
    }

    /// An error for each journal that cannot be read, or for the directory.
    pub(super) fn unreadable(&self) -> Vec<Error> {
        match self.instances() {
            Ok(instances) => instances
                .iter()
                .filter_map(|instance| self.read(instance).err())
                .collect(),
            Err(error) => vec![error],
        }
    }

    /// Removes the files of writers that were killed before a journal had its name. The broker calls this when it
    /// starts: nobody else writes journals then.
    ///
    /// # Errors
    /// Returns an error if the directory cannot be listed, or if a file cannot be removed.
    pub(super) fn remove_left(&self) -> Result<()> {
        let removed = self.directory.remove_left(MOST_NAMES);
        removed.about(
            self.path.display(),
            "files of a process that was killed cannot be removed",
        )
    }

    /// Gives the journals of an earlier version checksums, once. The broker calls this when it starts. One that cannot
    /// be read is left as it is.
    ///
    /// # Errors
    /// Returns an error if the directory cannot be listed, or if one cannot be written.
    pub(super) fn add_checksums(&self) -> Result<()> {
        for instance in self.instances()? {
            let bytes = self.directory.read(format!("{instance}{SUFFIX}").as_ref(), MOST_BYTES);
            let is_without =
                bytes.is_ok_and(|bytes| std::str::from_utf8(&bytes).is_ok_and(|text| !sealed::is_sealed(text)));
            if let (true, Ok(Some(journal))) = (is_without, self.read(&instance)) {
                self.write(&journal.target, Some(&journal.changes))?;
            }
        }
        Ok(())
    }

    /// The journal of a device; `None` if nothing of it is changed.
    ///
    /// # Errors
    /// Returns an error if it cannot be read, or is not one that this version of tranche can read.
    pub(super) fn read(&self, instance: &str) -> Result<Option<Journal>> {
        let (name, path) = (format!("{instance}{SUFFIX}"), self.path(instance));
        let bytes = match self.directory.read(name.as_ref(), MOST_BYTES) {
            Err(e) if e.kind() == ErrorKind::NotFound => return Ok(None),
            read => read.about(path.display(), "cannot be read")?,
        };
        let unreadable = |what: &str| {
            let hint = "it says how to put the device back: read it, stop the device's MPS daemon, set the compute mode to \
                        DEFAULT with nvidia-smi, then remove the file";
            Error::failed(path.display(), what).hint(hint)
        };
        let journal: Journal =
            sealed::parse(&bytes).map_err(|e| unreadable("is not a valid journal").from_source(e))?;
        match journal.version {
            VERSION => Ok(Some(journal)),
            _ => Err(unreadable("was written by another version of tranche")),
        }
    }

    /// Writes the journal of `target`, or removes it if nothing of the device is changed.
    ///
    /// # Errors
    /// Returns an error if the file cannot be written. It is the old one then.
    pub(super) fn write(&self, target: &ControlTarget, changes: Option<&DeviceChanges>) -> Result<()> {
        let instance = target.instance();
        let name = format!("{instance}{SUFFIX}");
        let Some(changes) = changes else {
            return self.remove(&instance);
        };
        let journal = Journal {
            version: VERSION,
            target: target.clone(),
            changes: changes.clone(),
        };
        let text = serde_json::to_string(&journal).about(&name, "cannot be written")?;
        let written = self.directory.replace(
            name.as_ref(),
            sealed::seal(&text).as_bytes(),
            Permissions::new_file(0o600),
        );
        written.about(self.path(&instance).display(), "cannot be written")
    }

    /// Removes the journal of a device.
    ///
    /// # Errors
    /// Returns an error if the file exists and cannot be removed.
    pub(super) fn remove(&self, instance: &str) -> Result<()> {
        let name = format!("{instance}{SUFFIX}");
        let removed = self.directory.remove(name.as_ref());
        removed.about(self.path(instance).display(), "cannot be removed")
    }
}
