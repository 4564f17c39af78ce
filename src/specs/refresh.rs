//! Brings the specifications of this host and `host.json` up to date.
//!
//! A container runtime runs it beside itself, so its result depends on the host, the policy and its own options, and
//! never on the environment of its caller. Everything is prepared before the first file is replaced, and `host.json`,
//! which records the specifications, is replaced last: after a refresh that was killed, a reader of it finds that it is
//! out of date.

mod changes;
mod char_links;
mod found;
mod kept_nodes;
mod last;
mod limit;
mod options;
mod others;
mod signs;
mod watch;

pub use changes::RefreshReport;
pub use options::{OUTPUT_DIR, RefreshOptions};
pub use watch::watch;

use crate::generate::Outcome;
use changes::Changes;
use found::FoundFiles;
use last::LastRefresh;
use options::RefreshPlace;
use signs::Sign;
use std::path::PathBuf;
use tranche_core::error::{Error, Kind, Result, line};
use tranche_core::ledger::{self, LedgerDirectory, StateLock};
use tranche_core::root::Missing;
use tranche_core::text::some;
use tranche_host::examine;
use tranche_plan::derive::Options;
use tranche_plan::host_file::{self, HostFile, HostFileError};
use tranche_plan::inventory::Degraded;
use tranche_plan::policy::{HistoryTime, LongTime, PageNames};
use tranche_state::history;
use tranche_state::out_of_service;
use tranche_state::planning::{LastPolicy, pipe_directories};

/// A refresh. Unless it only says what it would do, it keeps other refreshes waiting while it exists.
///
/// The host is examined under a lock: an older result must not replace a newer one.
#[derive(Debug)]
pub struct Refresh<'a> {
    options: &'a RefreshOptions,
    place: RefreshPlace,
    dry_run: bool,
    _lock: Option<StateLock>,
}

impl<'a> Refresh<'a> {
    /// Waits for other refreshes, unless this one changes nothing (`dry_run`).
    ///
    /// # Errors
    /// Returns an error if a path has no absolute form, if another user could write the state directory, or if another
    /// refresh takes too long.
    pub fn begin(options: &'a RefreshOptions, dry_run: bool) -> Result<Self> {
        let place = options.place()?;
        let lock = match dry_run {
            true => None,
            false => lock(options, &place)?,
        };
        Ok(Self {
            options,
            place,
            dry_run,
            _lock: lock,
        })
    }

    /// Where `host.json` is.
    pub fn host_file(&self) -> PathBuf {
        self.place.state_dir.join(host_file::NAME)
    }

    /// Why a refresh may change something, as a clause; `None` if the last one saw everything as it is now.
    ///
    /// # Errors
    /// Returns an error if another user could write the state directory.
    pub fn change(&self) -> Result<Option<String>> {
        last::change_since(self.options, &self.place)
    }

    /// Examines the host and writes what is new. `notes` gets lines for the person who uses the result.
    ///
    /// # Errors
    /// Returns an error if the host has no device ([`Kind::Nothing`]), if it could not be examined completely and there
    /// are files of a complete examination, if the policy is invalid, or if a file cannot be written.
    pub fn run(&self, notes: &mut Vec<String>) -> Result<Refreshed> {
        let (options, place, dry_run) = (self.options, &self.place, self.dry_run);
        let mut examined = found::examine(options, place, notes)?;
        let last = HostFile::load(&place.state_dir);
        if let Ok(last) = &last {
            let files = examined.inventory.lost_since(&last.inventory);
            examined
                .inventory
                .degraded
                .extend((!files.is_empty()).then_some(Degraded::Lost { files }));
        }
        // Nothing is missing from a host whose driver is not loaded, at boot for example: it has no device yet, or no
        // more.
        let accepts_degraded = options.degraded || examined.is_not_loaded;
        let outcome = Outcome::of(&examined.inventory, &Options::default(), accepts_degraded);
        let missing = examine::missing(&examined.inventory.degraded).filter(|_| !outcome.is_complete());
        let signs = examined.signs.clone();
        let wrong_policy = examined.wrong_policy.clone();
        let found = match FoundFiles::of(examined, &outcome) {
            Ok(found) => found,
            Err(error) if error.kind() == Kind::Nothing => return Err(nothing(&error, place, dry_run)?),
            Err(error) => return Err(error),
        };
        if !dry_run {
            out_of_service::record_prohibited(&found.inventory, &place.state_dir)?;
        }
        let sharing = found.sharing.clone();
        if !dry_run {
            let plan = sharing.as_ref().map(|sharing| &sharing.plan);
            let keep = plan.map_or_else(HistoryTime::default, |plan| plan.history);
            let names = plan.map_or_else(PageNames::default, |plan| plan.page_names);
            let prepared = history::prepare(&place.state_dir, keep.get().map(LongTime::get), names);
            // Containers start without a history.
            notes.extend(prepared.err().map(|error| format!("history: {}", line(&error))));
        }
        let links = options.char_links.as_deref().filter(|_| !dry_run);
        let links = links.map(|dir| (dir, char_links::of(&found.inventory)));
        let nodes = (!dry_run).then(|| found.inventory.clone());
        let changes = Changes::of(found, options, place)?;
        if let Some(missing) = missing {
            keep_good(&missing, &last, &changes)?;
        }
        if !dry_run && options.at.host.is_here() {
            let note = pipe_directories::make_for(sharing.as_ref(), &place.output_dir, &options.tmpfiles_dir)?;
            notes.extend(note);
        }
        let report = changes.apply(dry_run)?;
        if let Some((dir, links)) = links {
            char_links::make(dir, &links)?;
        }
        if let Some(inventory) = nodes {
            notes.extend(kept_nodes::keep(&inventory, sharing.as_ref(), options, place));
        }
        if !dry_run && wrong_policy.is_none() {
            let kept = LastPolicy::keep(&options.at.policy, &place.state_dir);
            notes.extend(kept.err().map(|error| line(&error)));
        }
        match outcome.is_complete() && wrong_policy.is_none() {
            _ if dry_run => {}
            true => LastRefresh::new(options, signs.clone())?.write(place)?,
            // What is missing may come without a sign.
            false => last::forget(place)?,
        }
        Ok(Refreshed {
            report,
            outcome,
            wrong_policy,
            signs,
        })
    }
}

/// The lock of all refreshes; `None` where there is no state directory.
fn lock(options: &RefreshOptions, place: &RefreshPlace) -> Result<Option<StateLock>> {
    let state = LedgerDirectory::state(&place.state_dir, Missing::Make)?;
    let lock = state.map(|state| ledger::lock(&state, "refresh.lock", options.lock_timeout));
    lock.transpose()
}

/// What a refresh did.
#[derive(Debug)]
pub struct Refreshed {
    /// The files, and what became of them.
    pub report: RefreshReport,
    outcome: Outcome,
    /// What is wrong with the policy that was written since the last refresh, if that one's stays in force.
    wrong_policy: Option<String>,
    /// What it saw.
    signs: Vec<Sign>,
}

impl Refreshed {
    /// Why the specifications do not describe the host completely; `None` if they do, or if the caller accepts it.
    pub fn missing(&self) -> Option<&str> {
        self.outcome.missing()
    }

    /// What is wrong with the policy, if not it but the one of the last refresh was applied; `None` if it was applied.
    pub fn wrong_policy(&self) -> Option<&str> {
        self.wrong_policy.as_deref()
    }
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
    Err(Error::failed(changes.host_file.display(), what).hint(hint))
}

/// Removes what an earlier refresh wrote, because the host has no device any more, and returns the error that says so:
/// `error` with the files that were removed.
fn nothing(error: &Error, place: &RefreshPlace, dry_run: bool) -> Result<Error> {
    let mut files = changes::own_files(&place.output_dir, &[]);
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
