//! `tranche cdi refresh`: brings the specifications of this host and `host.json` up to date.
//!
//! A container runtime runs it beside itself, so its result depends on the host, the policy and its own options, and
//! never on the environment of its caller. Everything is prepared before the first file is replaced, and `host.json`,
//! which records the specifications, is replaced last: after a refresh that was killed, a reader of it finds that it is
//! out of date.

mod arguments;
mod changes;
mod char_links;
mod found;
mod last;
mod limit;
mod others;
mod signs;
mod take_over;
mod watch;

pub(super) use arguments::Args;
pub(super) use watch::{WatchArgs, run as watch};

use super::super::{look, out, pipe_directories};
use super::generate::Outcome;
use crate::derive::Mode;
use crate::error::{Error, Kind};
use crate::host_file::{self, HostFile, HostFileError};
use crate::inventory::Degraded;
use crate::ledger::{self, LedgerDirectory, StateLock};
use crate::root::Missing;
use crate::text::some;
use anyhow::{Result, bail};
use arguments::{RefreshArgs, RefreshPlace};
use changes::{Changes, RefreshReport};
use found::FoundFiles;
use last::LastRefresh;
use serde::Serialize;
use signs::Sign;
use std::path::Path;
use std::process::ExitCode;
use take_over::TakeOver;

/// How often `--if-changed` looks again, because something changed while it worked.
const MOST_LOOKS: usize = 3;

pub(super) fn run(mut args: Args) -> Result<ExitCode> {
    args.how.at.look.ignore_environment = true;
    let place = args.how.place()?;
    let _lock = match args.dry_run {
        true => None,
        false => lock(&args.how, &place)?,
    };
    if args.take_over.take_over {
        return report(&take_over::take(&args.take_over, &args.how, &place)?, args.json);
    }
    if args.take_over.hand_back {
        return report(&take_over::hand_back(&args.take_over, &args.how, &place)?, args.json);
    }
    let refresh = || refresh(&args.how, &place, args.dry_run, &PlainNames::UnlessDefined);
    if !args.if_changed {
        return report(&refresh()?, args.json);
    }
    let mut code = ExitCode::SUCCESS;
    for look in 0..MOST_LOOKS {
        match last::change_since(&args.how, &place)? {
            None if look == 0 => unchanged(&place, args.json)?,
            None => break,
            Some(why) => {
                tracing::info!("{why}");
                code = report(&refresh()?, args.json)?;
            }
        }
        if args.dry_run {
            break;
        }
    }
    Ok(code)
}

/// What `--if-changed` prints as JSON if there was nothing to do.
#[derive(Serialize)]
struct Unchanged<'a> {
    changed: bool,
    host_file: &'a Path,
}

fn unchanged(place: &RefreshPlace, is_json: bool) -> Result<()> {
    let host_file = place.state_dir.join(host_file::NAME);
    match is_json {
        true => out::json(&Unchanged {
            changed: false,
            host_file: &host_file,
        })?,
        false => out::note(format_args!("{}: nothing has changed", host_file.display())),
    }
    Ok(())
}

/// The lock of all refreshes; `None` where there is no state directory.
///
/// The host is examined under it: an older result must not replace a newer one.
fn lock(args: &RefreshArgs, place: &RefreshPlace) -> Result<Option<StateLock>> {
    let state = LedgerDirectory::state(&place.state_dir, Missing::Make)?;
    let lock = state.map(|state| ledger::lock(&state, "refresh.lock", args.lock_timeout));
    Ok(lock.transpose()?)
}

/// Who defines the plain devices where another program's file does.
enum PlainNames<'a> {
    /// That program.
    UnlessDefined,
    /// tranche, after that program's files were recorded.
    TakeOver(TakeOver<'a>),
    /// That program, whose files are put back after this refresh.
    HandBack,
}

/// What a refresh did.
struct Refreshed {
    report: RefreshReport,
    outcome: Outcome,
    /// What it saw.
    signs: Vec<Sign>,
}

fn report(refreshed: &Refreshed, is_json: bool) -> Result<ExitCode> {
    match is_json {
        true => out::json(&refreshed.report)?,
        false => out::note(refreshed.report.line()),
    }
    Ok(refreshed.outcome.exit_code())
}

/// Examines the host and writes what is new. The caller holds the lock, unless nothing is to be changed.
///
/// # Errors
/// Returns an error if the host has no device ([`Kind::Nothing`]), if it could not be examined completely and there are
/// files of a complete examination, if the policy is invalid, or if a file cannot be written.
fn refresh(args: &RefreshArgs, place: &RefreshPlace, dry_run: bool, names: &PlainNames<'_>) -> Result<Refreshed> {
    let mut examined = found::examine(args, place)?;
    let last = HostFile::load(&place.state_dir);
    if let Ok(last) = &last {
        let files = examined.inventory.lost_since(&last.inventory);
        examined
            .inventory
            .degraded
            .extend((!files.is_empty()).then_some(Degraded::Lost { files }));
    }
    // Nothing is missing from a host whose driver is not loaded, at boot for example: it has no device yet, or no more.
    let accepts_degraded = args.degraded || examined.is_not_loaded;
    let outcome = Outcome::of(&examined.inventory, Mode::Auto, &[], accepts_degraded);
    let missing = look::missing(&examined.inventory.degraded).filter(|_| !outcome.is_complete());
    let signs = examined.signs.clone();
    let found = match FoundFiles::of(examined, &outcome) {
        Ok(found) => found,
        Err(error) if is_nothing(&error) => bail!(nothing(&error, place, dry_run)?),
        Err(error) => return Err(error),
    };
    let sharing = found.sharing.clone();
    let links = args.char_links.as_deref().filter(|_| !dry_run);
    let links = links.map(|dir| (dir, char_links::of(&found.inventory)));
    let changes = Changes::of(found, args, place, names)?;
    if let Some(missing) = missing {
        keep_good(&missing, &last, &changes)?;
    }
    if !dry_run && args.at.host.is_here() {
        pipe_directories::make_for(sharing.as_ref(), &place.output_dir, &args.tmpfiles)?;
    }
    let taken = match names {
        PlainNames::TakeOver(take) => take.begin(&changes.others.files)?,
        PlainNames::UnlessDefined | PlainNames::HandBack => Vec::new(),
    };
    let report = changes.apply(&taken, dry_run)?;
    if let Some((dir, links)) = links {
        char_links::make(dir, &links)?;
    }
    match outcome.is_complete() {
        _ if dry_run => {}
        true => LastRefresh::new(args, signs.clone())?.write(place)?,
        // What is missing may come without a sign.
        false => last::forget(place)?,
    }
    Ok(Refreshed { report, outcome, signs })
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
fn nothing(error: &anyhow::Error, place: &RefreshPlace, dry_run: bool) -> Result<Error> {
    let mut files = changes::own_files(&place.output_dir);
    // host.json is the last: as long as it exists, its sources show that the specifications changed.
    let of_state = [last::NAME, host_file::NAME].map(|name| place.state_dir.join(name));
    files.extend(of_state.into_iter().filter(|file| file.symlink_metadata().is_ok()));
    if !dry_run {
        changes::remove(&files)?;
    }
    let gone = Error::new(
        Kind::Nothing,
        "specifications",
        format!("there is no device to offer: {error}"),
    );
    let files: Vec<String> = files.iter().map(|file| file.display().to_string()).collect();
    Ok(match (files.is_empty(), dry_run) {
        (true, _) => gone,
        (_, true) => gone.hint(format!("a refresh would remove {}", some(&files))),
        (_, false) => gone.hint(format!("{} was removed, because it is no longer true", some(&files))),
    })
}
