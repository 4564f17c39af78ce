//! `--take-over` and `--hand-back`: which program defines the plain names, where NVIDIA's toolkit is installed too.
//!
//! Taking over masks the units by which NVIDIA's toolkit refreshes its specification, and removes files that define the names
//! of tranche's devices. All of it is recorded before the first change, and the record is removed after the last one is
//! undone: whenever this is killed, both verbs can be repeated, and handing back restores what was there.

mod kept;
mod record;
mod units;

use super::arguments::{RefreshArgs, RefreshPlace};
use super::{PlainNames, Refreshed, refresh};
use crate::cli::out;
use crate::cli::place::HostArgs;
use crate::error::{Context, Error, Kind};
use crate::replace;
use anyhow::{Result, bail};
use kept::Kept;
use record::{Record, Replaced};
use std::path::{Path, PathBuf};

/// What is taken over, and where the record is.
#[derive(Debug, clap::Args)]
pub(in crate::cli) struct TakeOverArgs {
    /// Let tranche define the plain names where another program does: mask NVIDIA's refresh units
    /// (nvidia-cdi-refresh.service and .path) and remove files that define the same names. --hand-back undoes it
    #[arg(long, help_heading = None, conflicts_with_all = ["hand_back", "if_changed", "dry_run"])]
    pub(super) take_over: bool,
    /// Undo --take-over: put the files and units back as they were, and define no plain name that they define
    #[arg(long, help_heading = None, conflicts_with_all = ["if_changed", "dry_run"])]
    pub(super) hand_back: bool,
    /// The directory of units that take precedence over those of packages
    #[arg(long, value_name = "DIR", default_value = units::DIRECTORY, hide = true)]
    unit_dir: PathBuf,
    /// The directory for the record of what was taken over. It outlives a boot, as masks of units do
    #[arg(long, value_name = "DIR", default_value = "/var/lib/tranche", hide = true)]
    record_dir: PathBuf,
}

/// What a refresh does before it writes specifications with plain names: records and removes what other programs have.
pub(super) struct TakeOver<'a> {
    args: &'a TakeOverArgs,
}

impl TakeOver<'_> {
    /// Records `files`, which define names of tranche, and the units that write them; then masks the units. Returns the
    /// files to be removed: these, and those that an earlier take-over recorded and did not come to.
    ///
    /// # Errors
    /// Returns an error if something cannot be recorded or masked. A record that was written is valid.
    pub(super) fn begin(&self, files: &[PathBuf]) -> Result<Vec<PathBuf>> {
        let path = record::path(&self.args.record_dir);
        let mut record = Record::read(&path)?.unwrap_or_default();
        for file in files {
            record.add(file, Kept::at(file)?);
        }
        let masks = units::to_mask(&self.args.unit_dir)?;
        for mask in &masks {
            record.add_unit(mask, Kept::at(mask)?, units::is_active(mask, &self.args.unit_dir));
        }
        record.write(&path)?;
        record.paths().try_for_each(replace::remove_left)?;
        masks.iter().try_for_each(|mask| units::mask(mask))?;
        units::stop(&masks, &self.args.unit_dir);
        if !self.args.unit_dir.is_dir() {
            let dir = self.args.unit_dir.display();
            out::note(format_args!(
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

impl TakeOverArgs {
    /// Refuses to change the units of this machine for the specifications of another one.
    ///
    /// # Errors
    /// Returns an error if `host` names another machine, and no other directory of units was given.
    fn is_for(&self, host: &HostArgs) -> Result<()> {
        if !host.is_here() && self.unit_dir == Path::new(units::DIRECTORY) {
            let option = if self.take_over { "--take-over" } else { "--hand-back" };
            let what = "changes the units of this machine, and --root or --inventory names another one";
            bail!(Error::usage(option, what));
        }
        Ok(())
    }
}

/// Refreshes with all plain names, after other programs' files were recorded and removed.
///
/// # Errors
/// As a refresh, if the host is another machine, and if something cannot be recorded, masked or removed.
pub(super) fn take(take: &TakeOverArgs, args: &RefreshArgs, place: &RefreshPlace) -> Result<Refreshed> {
    take.is_for(&args.at.host)?;
    let refreshed = refresh(args, place, false, &PlainNames::TakeOver(TakeOver { args: take }))?;
    let path = record::path(&take.record_dir);
    out::note(format_args!(
        "{}: has what was taken over; --hand-back puts it back",
        path.display()
    ));
    Ok(refreshed)
}

/// Refreshes without the plain names that a recorded file defines, and then puts the files and units back.
///
/// # Errors
/// Returns an error if the host is another machine, if nothing was taken over ([`Kind::Nothing`]), or if something cannot be put back. An error of the
/// refresh is returned after everything was put back.
pub(super) fn hand_back(take: &TakeOverArgs, args: &RefreshArgs, place: &RefreshPlace) -> Result<Refreshed> {
    take.is_for(&args.at.host)?;
    let path = record::path(&take.record_dir);
    let Some(record) = Record::read(&path)? else {
        bail!(Error::new(
            Kind::Nothing,
            path.display(),
            "does not exist: nothing was taken over"
        ));
    };
    let plain = match record.files.is_empty() {
        true => PlainNames::UnlessDefined,
        false => PlainNames::HandBack,
    };
    let refreshed = refresh(args, place, false, &plain);
    record.files.iter().try_for_each(put_back)?;
    for unit in &record.units {
        match units::is_mask(&unit.replaced.path) {
            // Also after an earlier attempt, which was killed.
            true => unit.replaced.kept.restore(&unit.replaced.path)?,
            false => put_back(&unit.replaced)?,
        }
    }
    record.paths().try_for_each(replace::remove_left)?;
    units::start(&record.active(), &take.unit_dir);
    std::fs::remove_file(&path).about(path.display(), "cannot be removed")?;
    refreshed
}

/// Puts a file back, unless another one is there by now.
fn put_back(replaced: &Replaced) -> Result<()> {
    let Replaced { path, kept } = replaced;
    match Kept::at(path)? {
        Kept::Absent => kept.restore(path),
        now if now.is_same(kept) => Ok(()),
        _ => {
            let path = path.display();
            out::note(format_args!(
                "{path}: kept as it is, because it was written after it was taken over"
            ));
            Ok(())
        }
    }
}

/// Removes files, and reports each.
///
/// # Errors
/// Returns an error if a file cannot be removed.
pub(super) fn remove(files: &[PathBuf]) -> Result<()> {
    for file in files {
        remove_one(file)?;
        out::note(format_args!(
            "{}: removed, because tranche defines its names now",
            file.display()
        ));
    }
    Ok(())
}

fn remove_one(file: &Path) -> Result<()> {
    Ok(std::fs::remove_file(file).about(file.display(), "cannot be removed")?)
}
