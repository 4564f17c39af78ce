//! A cgroup that is frozen while its processes are ended, so that none of them starts another one, becomes another
//! user's or executes another program meanwhile.
//!
//! What is frozen is written down before, in `frozen.json` in the state directory. If the broker is killed, it does not
//! stay frozen: the next broker and `tranche claim gc` let it run again.

use super::members::{FoundCgroup, is_removed, is_set};
use serde::{Deserialize, Serialize};
use std::io;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};
use tranche_core::error::{Context, Error, Result, line};
use tranche_core::ledger::Cgroup;
use tranche_state::state_file::{self, FileForm};

/// Says what is to be done to a cgroup of version 2 (cgroup-v2.rst, "cgroup.freeze").
const FILE: &str = "cgroup.freeze";

/// For how long it is waited until all processes stand still. One that waits in the kernel does not until it is done;
/// the others do.
const PATIENCE: Duration = Duration::from_millis(300);

const TICK: Duration = Duration::from_millis(2);

const FORM: FileForm = FileForm {
    version: 1,
    invalid: "is not valid",
    hint: "it names a cgroup that is frozen: write 0 to its cgroup.freeze, then remove the file",
};

#[derive(Debug, Serialize, Deserialize)]
struct Journal {
    version: u32,
    path: String,
    inode: u64,
}

/// A cgroup that is frozen until this is dropped.
#[derive(Debug)]
pub(super) struct Frozen<'c> {
    cgroup: &'c FoundCgroup,
    journal: PathBuf,
}

impl<'c> Frozen<'c> {
    /// Freezes `cgroup`, which is that of `record`; `None` if it cannot be frozen (version 1), or if it is frozen
    /// already: then it stays so.
    ///
    /// # Errors
    /// Returns an error if that cannot be written down, or if the kernel does not do it. It is not frozen then.
    pub(super) fn new(cgroup: &'c FoundCgroup, record: &Cgroup, state_dir: &Path) -> Result<Option<Self>> {
        if !cgroup.is_version_2() {
            return Ok(None);
        }
        // What could not be undone before is not forgotten.
        thaw_left(state_dir)?;
        let is_frozen = cgroup.read(FILE).about(&record.path, "cannot be looked at")?;
        if is_frozen.trim_end() == "1" {
            return Ok(None);
        }
        let journal = path(state_dir);
        let content = Journal {
            version: FORM.version,
            path: record.path.clone(),
            inode: record.inode,
        };
        state_file::write_private(&journal, &content)?;
        // From here on, it is undone in any case.
        let frozen = Self { cgroup, journal };
        cgroup.write(FILE, "1").about(&record.path, "cannot be frozen")?;
        let until = Instant::now() + PATIENCE;
        let stands = || cgroup.read("cgroup.events").map(|events| is_set(&events, "frozen"));
        while !stands().about(&record.path, "cannot be looked at")? && Instant::now() < until {
            sleep(TICK);
        }
        Ok(Some(frozen))
    }
}

impl Drop for Frozen<'_> {
    fn drop(&mut self) {
        let thawed = thaw(self.cgroup).about(self.journal.display(), "what it names cannot be thawed");
        if let Err(error) = thawed.and_then(|()| state_file::remove(&self.journal)) {
            tracing::warn!("{}", line(&error));
        }
    }
}

/// Lets run again what a broker that was killed has left frozen.
///
/// # Errors
/// Returns an error if the file that names it cannot be used, or if the kernel does not do it.
pub(in crate::serve) fn thaw_left(state_dir: &Path) -> Result<()> {
    let journal = path(state_dir);
    let Some(content) = FORM.read(&journal, |content: &Journal| content.version)? else {
        return Ok(());
    };
    let record = Cgroup {
        path: content.path,
        inode: content.inode,
        top: None,
    };
    let found = FoundCgroup::open(&record).about(&record.path, "cannot be opened")?;
    if let Some(cgroup) = found {
        thaw(&cgroup).map_err(|error| {
            Error::failed(&record.path, "is frozen and cannot be thawed")
                .from_source(error)
                .hint(FORM.hint)
        })?;
    }
    state_file::remove(&journal)
}

fn thaw(cgroup: &FoundCgroup) -> io::Result<()> {
    match cgroup.write(FILE, "0") {
        Err(error) if !is_removed(&error) => Err(error),
        _ => Ok(()),
    }
}

fn path(state_dir: &Path) -> PathBuf {
    state_dir.join("frozen.json")
}
