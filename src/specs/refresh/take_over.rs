//! `--take-over` and `--hand-back`: which program defines the plain names, where NVIDIA's toolkit is installed too.
//!
//! Taking over masks the units by which NVIDIA's toolkit refreshes its specification, and removes files that define the
//! names of tranche's devices. All of it is recorded before the first change, and the record is removed after the last
//! one is undone: whenever this is killed, both verbs can be repeated, and handing back restores what was there.

mod kept;
mod record;
mod units;

use super::{PlainNames, Refresh, Refreshed};
use kept::Kept;
use record::{Record, Replaced};
use std::fs;
use std::path::{Path, PathBuf};
use tranche_core::error::{Context, Error, Kind, Result};
use tranche_state::replace;

pub use units::DIRECTORY as UNIT_DIR;

/// The usual directory for the record of what was taken over.
pub const RECORD_DIR: &str = tranche_core::types::KEPT_DIR;

/// Where units are masked, and where the record is.
#[derive(Debug, Clone)]
pub struct TakeOverOptions {
    /// The directory of units that take precedence over those of packages.
    pub unit_dir: PathBuf,
    /// The directory for the record of what was taken over. It outlives a boot, as masks of units do.
    pub record_dir: PathBuf,
}

impl Default for TakeOverOptions {
    /// The usual directories of this machine.
    fn default() -> Self {
        Self {
            unit_dir: UNIT_DIR.into(),
            record_dir: RECORD_DIR.into(),
        }
    }
}

/// What a refresh does before it writes specifications with plain names: records and removes what other programs have.
#[derive(Debug)]
pub(super) struct TakeOver<'a> {
    options: &'a TakeOverOptions,
}

impl TakeOver<'_> {
    /// Records `files`, which define names of tranche, and the units that write them; then masks the units. Returns the
    /// files to be removed: these, and those that an earlier take-over recorded and did not come to.
    ///
    /// # Errors
    /// Returns an error if something cannot be recorded or masked. A record that was written is valid.
    pub(super) fn begin(&self, files: &[PathBuf], notes: &mut Vec<String>) -> Result<Vec<PathBuf>> {
        let path = record::path(&self.options.record_dir);
        let mut record = Record::read(&path)?.unwrap_or_default();
        for file in files {
            record.add(file, Kept::at(file)?);
        }
        let masks = units::to_mask(&self.options.unit_dir)?;
        for mask in &masks {
            record.add_unit(mask, Kept::at(mask)?, units::is_active(mask, &self.options.unit_dir));
        }
        record.write(&path)?;
        record.paths().try_for_each(replace::remove_left)?;
        for mask in &masks {
            units::mask(mask)?;
            notes.push(format!("{}: masked", mask.display()));
        }
        notes.extend(units::stop(&masks, &self.options.unit_dir));
        if !self.options.unit_dir.is_dir() {
            let dir = self.options.unit_dir.display();
            notes.push(format!(
                "{dir}: not found, so no unit was masked: there is no systemd here"
            ));
        }
        let mut remaining = Vec::new();
        for Replaced { path, kept } in &record.files {
            let now = Kept::at(path)?;
            if now != Kept::Absent && now.is_same(kept) {
                remaining.push(path.clone());
            }
        }
        Ok(remaining)
    }
}

impl Refresh<'_> {
    /// Refuses to change the units of this machine for the specifications of another one.
    fn check_units(&self, option: &str, take: &TakeOverOptions) -> Result<()> {
        if !self.options.at.host.is_here() && take.unit_dir == Path::new(UNIT_DIR) {
            let what = "changes the units of this machine, and --root or --inventory names another one";
            return Err(Error::usage(option, what));
        }
        Ok(())
    }

    /// Refreshes with all plain names, after other programs' files were recorded and removed.
    ///
    /// # Errors
    /// As a refresh, if the host is another machine, and if something cannot be recorded, masked or removed.
    pub fn take_over(&self, take: &TakeOverOptions, notes: &mut Vec<String>) -> Result<Refreshed> {
        self.check_units("--take-over", take)?;
        let refreshed = self.with(&PlainNames::TakeOver(TakeOver { options: take }), notes)?;
        let path = record::path(&take.record_dir);
        notes.push(format!(
            "{}: has what was taken over; --hand-back puts it back",
            path.display()
        ));
        Ok(refreshed)
    }

    /// Refreshes without the plain names that a recorded file defines, and then puts the files and units back.
    ///
    /// # Errors
    /// Returns an error if the host is another machine, if nothing was taken over ([`Kind::Nothing`]), or if something
    /// cannot be put back. An error of the refresh is returned after everything was put back.
    pub fn hand_back(&self, take: &TakeOverOptions, notes: &mut Vec<String>) -> Result<Refreshed> {
        self.check_units("--hand-back", take)?;
        let path = record::path(&take.record_dir);
        let Some(record) = Record::read(&path)? else {
            return Err(Error::new(
                Kind::Nothing,
                path.display(),
                "does not exist: nothing was taken over",
            ));
        };
        let plain = match record.files.is_empty() {
            true => PlainNames::UnlessDefined,
            false => PlainNames::HandBack,
        };
        let refreshed = self.with(&plain, notes);
        for file in &record.files {
            notes.extend(put_back(file)?);
        }
        for unit in &record.units {
            match units::is_mask(&unit.replaced.path) {
                // Also after an earlier attempt, which was killed.
                true => unit.replaced.kept.restore(&unit.replaced.path)?,
                false => notes.extend(put_back(&unit.replaced)?),
            }
        }
        record.paths().try_for_each(replace::remove_left)?;
        notes.extend(units::start(&record.active(), &take.unit_dir));
        fs::remove_file(&path).about(path.display(), "cannot be removed")?;
        refreshed
    }
}

/// Puts a file back, unless another one is there by now. Then a line about it is returned.
fn put_back(replaced: &Replaced) -> Result<Option<String>> {
    let Replaced { path, kept } = replaced;
    match Kept::at(path)? {
        Kept::Absent => kept.restore(path).map(|()| None),
        now if now.is_same(kept) => Ok(None),
        _ => {
            let path = path.display();
            Ok(Some(format!(
                "{path}: kept as it is, because it was written after it was taken over"
            )))
        }
    }
}

/// Removes files. `notes` gets a line for each.
///
/// # Errors
/// Returns an error if a file cannot be removed.
pub(super) fn remove(files: &[PathBuf], notes: &mut Vec<String>) -> Result<()> {
    for file in files {
        fs::remove_file(file).about(file.display(), "cannot be removed")?;
        notes.push(format!(
            "{}: removed, because tranche defines its names now",
            file.display()
        ));
    }
    Ok(())
}
