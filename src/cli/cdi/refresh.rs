//! `tranche cdi refresh`: brings the specifications of this host and `host.json` up to date.
//!
//! A container runtime runs it beside itself, so its result depends on the host, the policy and its own options, and
//! never on the environment of its caller. Everything is prepared before the first file is replaced, and `host.json`,
//! which records the specifications, is replaced last: after a refresh that was killed, a reader of it finds that it is
//! out of date.

mod arguments;
mod changes;
mod found;
mod others;

pub(super) use arguments::Args;

use super::super::{look, out, sharing};
use super::generate::Outcome;
use crate::derive::Mode;
use crate::error::{Error, Kind};
use crate::host_file::{self, HostFile, HostFileError};
use crate::ledger::{self, LedgerDirectory};
use crate::root::Missing;
use crate::text::some;
use anyhow::{Result, bail};
use changes::Changes;
use found::FoundFiles;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

pub(super) fn run(mut args: Args) -> Result<ExitCode> {
    args.at.look.ignore_environment = true;
    let state_dir = PathBuf::from(args.at.state.dir()?.as_str());
    // The host is examined under the lock: an older result must not replace a newer one.
    let missing = if args.dry_run { Missing::Leave } else { Missing::Make };
    let state = LedgerDirectory::state(&state_dir, missing)?;
    let _lock = match &state {
        Some(state) if !args.dry_run => Some(ledger::lock(state, "refresh.lock", args.lock_timeout)?),
        _ => None,
    };
    let output_dir = std::path::absolute(&args.output_dir)?;
    let examined = found::examine(&args)?;
    let outcome = Outcome::of(&examined.inventory, Mode::Auto, args.degraded);
    let missing = look::missing(&examined.inventory).filter(|_| !outcome.is_complete());
    let found = match FoundFiles::of(examined, &outcome) {
        Ok(found) => found,
        Err(error) if is_nothing(&error) => bail!(nothing(&error, &args, &state_dir, &output_dir)?),
        Err(error) => return Err(error),
    };
    let sharing = found.sharing.clone();
    let changes = Changes::of(found, &args, &state_dir, &output_dir)?;
    if let Some(missing) = missing {
        keep_good(&missing, &HostFile::load(&state_dir), &changes)?;
    }
    if let Some(sharing) = sharing.filter(|_| !args.dry_run && args.at.host.is_here()) {
        sharing::make_pipe_directories(&sharing)?;
    }
    let report = changes.apply(args.dry_run)?;
    match args.json {
        true => out::json(&report)?,
        false => out::note(report.line()),
    }
    Ok(outcome.exit_code())
}

fn is_nothing(error: &anyhow::Error) -> bool {
    error.downcast_ref().map(Error::kind) == Some(Kind::Nothing)
}

/// Refuses to replace what a complete examination of the host gave by what an incomplete one gives.
fn keep_good(missing: &str, old: &Result<HostFile, HostFileError>, changes: &Changes) -> Result<()> {
    let is_good = match old {
        Ok(old) => old.inventory.degraded.is_empty(),
        Err(_) => !changes.existing.is_empty(),
    };
    if !is_good {
        return Ok(());
    }
    let what = format!("not refreshed, because the host was not examined completely: {missing}");
    let hint = "the files of the last refresh are kept; repair that, or give --degraded to write what was found";
    bail!(Error::failed(changes.host_file.display(), what).hint(hint))
}

/// Removes what an earlier refresh wrote, because the host has no device any more, and returns the error that says so:
/// `error` with the files that were removed.
fn nothing(error: &anyhow::Error, args: &Args, state_dir: &Path, output_dir: &Path) -> Result<Error> {
    let mut files = changes::own_files(output_dir);
    let host_file = state_dir.join(host_file::NAME);
    // Last: as long as it exists, its sources show that the specifications changed.
    files.extend(host_file.symlink_metadata().is_ok().then_some(host_file));
    if !args.dry_run {
        changes::remove(&files)?;
    }
    let gone = Error::new(Kind::Nothing, "host", format!("there is no device to offer: {error}"));
    let files: Vec<String> = files.iter().map(|file| file.display().to_string()).collect();
    Ok(match (files.is_empty(), args.dry_run) {
        (true, _) => gone,
        (_, true) => gone.hint(format!("a refresh would remove {}", some(&files))),
        (_, false) => gone.hint(format!("{} was removed, because it is no longer true", some(&files))),
    })
}
