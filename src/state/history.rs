//! Whether the writers of the ledger record events: they do if the directory for them exists.

use crate::replace;
use nix::unistd::{Gid, Group, chown};
use std::fs::{self, DirBuilder, Permissions};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::Path;
use std::time::Duration;
use tranche_core::claims::remove;
use tranche_core::error::{Context, Result};
use tranche_core::ledger::events::{DIRECTORY, FILES, KEEP_FILE, NAMES_FILE};
use tranche_plan::policy::PageNames;

/// The group that reads events: that of `tranche-web`, which its package makes.
const GROUP: &str = "tranche-web";

/// The owner may write, and the group may read. Writers give new files to the group of the directory by themselves:
/// units of systemd may not set its set-group-ID bit (systemd.exec(5), RestrictSUIDSGID).
const MODE: u32 = 0o750;

/// Makes the directory of the events in `state_dir`, if there is a program that reads them, or removes it with its
/// events if nothing is to be recorded. `keep` says for how long, and `None`: not at all. `names` is for the page.
///
/// # Errors
/// Returns an error if the directory cannot be made or removed.
pub fn prepare(state_dir: &Path, keep: Option<Duration>, names: PageNames) -> Result<()> {
    let group = Group::from_name(GROUP).about(GROUP, "cannot be looked up")?;
    match (keep, group) {
        (None, _) => stop(state_dir),
        (Some(keep), Some(group)) => record(state_dir, keep, names, group.gid),
        // Without a reader nothing is written. A directory that an administrator has made stays.
        (Some(_), None) => Ok(()),
    }
}

fn record(state_dir: &Path, keep: Duration, names: PageNames, group: Gid) -> Result<()> {
    let directory = state_dir.join(DIRECTORY);
    let about = directory.display();
    match DirBuilder::new().mode(0o700).create(&directory) {
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
        made => made.about(&about, "cannot be made")?,
    }
    chown(&directory, None, Some(group)).about(&about, "cannot be given to its group")?;
    fs::set_permissions(&directory, Permissions::from_mode(MODE)).about(&about, "cannot be opened to its group")?;
    leave(&directory.join(KEEP_FILE), &format!("{}\n", keep.as_secs()))?;
    let file = directory.join(NAMES_FILE);
    match names {
        PageNames::Hidden => remove(&file),
        PageNames::Shown => leave(&file, ""),
    }
}

fn leave(file: &Path, text: &str) -> Result<()> {
    match fs::read_to_string(file).is_ok_and(|known| known == text) {
        true => Ok(()),
        false => replace::write(file, text),
    }
}

fn stop(state_dir: &Path) -> Result<()> {
    let directory = state_dir.join(DIRECTORY);
    for name in FILES.iter().chain([&KEEP_FILE, &NAMES_FILE]) {
        remove(&directory.join(name))?;
    }
    match fs::remove_dir(&directory) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        removed => removed.about(directory.display(), "cannot be removed"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt;

    #[test]
    fn events_are_recorded_while_the_policy_wants_a_history() {
        let top = tempfile::tempdir().unwrap();
        let directory = top.path().join(DIRECTORY);
        let group = nix::unistd::getgid();
        let day = Duration::from_secs(86_400);
        for (keep, names) in [(day, PageNames::Hidden), (2 * day, PageNames::Shown)] {
            record(top.path(), keep, names, group).unwrap();
            assert_eq!(directory.join(NAMES_FILE).exists(), names == PageNames::Shown);
            let status = fs::metadata(&directory).unwrap();
            assert_eq!((status.mode() & 0o7777, status.gid()), (MODE, group.as_raw()));
            let text = fs::read_to_string(directory.join(KEEP_FILE)).unwrap();
            assert_eq!(text.trim(), keep.as_secs().to_string());
        }
        fs::write(directory.join(FILES[0]), "").unwrap();
        record(top.path(), day, PageNames::Hidden, group).unwrap();
        assert!(!directory.join(NAMES_FILE).exists());
        for _ in 0..2 {
            prepare(top.path(), None, PageNames::Shown).unwrap();
            assert!(!directory.exists());
        }
    }
}
