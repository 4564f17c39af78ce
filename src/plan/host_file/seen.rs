//! Which devices were removed while somebody planned with them.

use super::{HostFile, HostFileError, HostSource, NAME, SourceKind};
use crate::inventory::{HostDevice, Inventory};
use std::path::{Path, PathBuf};
use tranche_core::types::DeviceKey;

/// `host.json` as it was before somebody examined the host. Who destroys an instance of MIG writes the file before the
/// ledger lets others have the instance, so that a look at the file is enough to know.
#[derive(Debug, Clone)]
pub struct HostFileSeen {
    state_dir: PathBuf,
    file: HostSource,
}

impl HostFileSeen {
    /// The file in `state_dir` as it is now.
    pub fn now(state_dir: &Path) -> Self {
        Self {
            state_dir: state_dir.to_owned(),
            file: HostSource::now(SourceKind::Specification, state_dir.join(NAME)),
        }
    }

    /// The devices of `examined`, an inventory of this host that was made since, that it does not have any more. While
    /// the file stays, none.
    ///
    /// # Errors
    /// Returns an error if the file was written since, and cannot be read.
    pub fn gone(&self, examined: &Inventory) -> Result<Vec<DeviceKey>, HostFileError> {
        if self.file.is_unchanged() {
            return Ok(Vec::new());
        }
        let now = match HostFile::load(&self.state_dir) {
            Err(HostFileError::Missing { .. }) => return Ok(Vec::new()),
            loaded => loaded?.inventory,
        };
        let now: Vec<HostDevice<'_>> = now.catalogue().usable().collect();
        let devices = examined.catalogue();
        let gone = devices.usable().filter(|had| !now.iter().any(|has| is_same(had, has)));
        Ok(gone.map(HostDevice::key).collect())
    }
}

/// Whether both are the same GPU or instance: another instance may get the same numbers.
fn is_same(a: &HostDevice<'_>, b: &HostDevice<'_>) -> bool {
    let uuids = a.uuid().zip(b.uuid());
    a.key() == b.key() && uuids.is_none_or(|(a, b)| a == b)
}
