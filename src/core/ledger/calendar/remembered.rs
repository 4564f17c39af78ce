//! The calendar as this process read it last: one request of a user reads the book of each GPU, and all of them ask
//! what is reserved.

use super::Calendar;
use crate::error::Result;
use std::fs::{self, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

/// A file that was changed so lately may be changed again within one tick of the file system's clock.
const SETTLED: Duration = Duration::from_secs(1);

static LAST: Mutex<Option<(PathBuf, Identity, Arc<Calendar>)>> = Mutex::new(None);

/// A file and its last change. A calendar is replaced and never written in place, so another one differs in this.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Identity {
    device: u64,
    inode: u64,
    bytes: u64,
    changed: (i64, i64),
}

impl Identity {
    fn of(file: &Metadata) -> Self {
        Self {
            device: file.dev(),
            inode: file.ino(),
            bytes: file.size(),
            changed: (file.ctime(), file.ctime_nsec()),
        }
    }

    /// Whether a later change would be seen in it.
    fn is_settled(&self, now: SystemTime) -> bool {
        let changed = Duration::from_secs(self.changed.0.unsigned_abs()) + SETTLED;
        self.changed.0 >= 0
            && now
                .duration_since(SystemTime::UNIX_EPOCH)
                .is_ok_and(|now| now > changed)
    }
}

/// The calendar of the machine whose ledger is in `state_dir`, which is read only if its file has changed.
///
/// # Errors
/// Returns an error if the file cannot be read, is damaged or was written by a newer tranche.
pub(in crate::ledger) fn current(state_dir: &Path) -> Result<Arc<Calendar>> {
    let path = Calendar::file(state_dir);
    // Without it, or where it cannot be asked, reading says so.
    let identity = fs::symlink_metadata(&path).map(|file| Identity::of(&file)).ok();
    let last = || LAST.lock().unwrap_or_else(PoisonError::into_inner);
    if let (Some(identity), Some((of, then, calendar))) = (identity, &*last())
        && *of == path
        && *then == identity
    {
        return Ok(Arc::clone(calendar));
    }
    let calendar = Arc::new(Calendar::read(state_dir)?);
    if let Some(identity) = identity.filter(|identity| identity.is_settled(SystemTime::now())) {
        *last() = Some((path, identity, Arc::clone(&calendar)));
    }
    Ok(calendar)
}

#[cfg(test)]
mod tests {
    use super::super::tests::time;
    use super::*;

    fn write(state_dir: &Path, count: u64) {
        let mut calendar = Calendar::default();
        for number in 0..count {
            calendar.add(time(2_000_000_000 + number * 7200, None));
        }
        let file = Calendar::file(state_dir);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        let new = file.with_extension("new");
        fs::write(&new, calendar.text(1).unwrap()).unwrap();
        fs::rename(new, file).unwrap();
    }

    #[test]
    fn a_calendar_is_read_once_until_its_file_changes() {
        let state = tempfile::tempdir().unwrap();
        assert_eq!(current(state.path()).unwrap().times.len(), 0);
        write(state.path(), 1);
        // It was changed at this moment: it is read each time.
        assert_eq!(current(state.path()).unwrap().times.len(), 1);
        write(state.path(), 2);
        assert_eq!(current(state.path()).unwrap().times.len(), 2);
        std::thread::sleep(SETTLED + Duration::from_millis(1100));
        let read = current(state.path()).unwrap();
        let again = current(state.path()).unwrap();
        assert!(Arc::ptr_eq(&read, &again) && again.times.len() == 2);
        // Another ledger has another calendar.
        let other = tempfile::tempdir().unwrap();
        write(other.path(), 5);
        assert_eq!(current(other.path()).unwrap().times.len(), 5);
        write(state.path(), 3);
        assert_eq!(current(state.path()).unwrap().times.len(), 3);
        fs::remove_file(Calendar::file(state.path())).unwrap();
        assert_eq!(current(state.path()).unwrap().times.len(), 0);
        fs::write(Calendar::file(state.path()), "x").unwrap();
        assert!(current(state.path()).is_err());
    }
}
