//! The event file: a line for each change of the ledger, from which a history is made.
//!
//! It is `events/log` in the state directory. Without that directory nothing is recorded: `tranche cdi refresh` makes
//! it for the group that may read it, or removes it, as the policy says. A line is appended while the ledger is
//! locked, after the change is on disk. A process that is killed in between, and a full disk, cost a line and never a
//! claim: a [check](EventKind::Checked) of the broker says later what is really held.
//!
//! A file that has grown becomes `log.1`, and that one `log.2`; the file of that name before is lost. A reader that
//! looks once in [`MOST_BYTES`] misses nothing.

mod line;

pub use line::{Event, EventKind, EventLine, parse, this_boot};

use super::book::Book;
use super::claim::{Claim, ClaimState};
use super::directory::LedgerDirectory;
use super::error::LedgerResult;
use super::holder::Holder;
use super::store::{Books, Ledger, Locked};
use super::utc::clock;
use super::waiter::WaitedFor;
use crate::error::{Context, Result};
use crate::types::{DeviceKey, HeldPart};
use rustix::fs::{Gid, Mode, fchmod, fchown, ftruncate};
use std::fs::File;
use std::io::Write;
use std::os::unix::fs::FileExt;

/// The directory, in the state directory.
pub const DIRECTORY: &str = "events";

/// The files in the directory, the newest first.
pub const FILES: [&str; 3] = ["log", "log.1", "log.2"];

/// The file of the same directory that says for how many seconds a history is kept.
pub const KEEP_FILE: &str = "keep";

/// The file of the same directory that is there if the page of the history names users to everybody.
pub const NAMES_FILE: &str = "names-are-shown";

/// After how many bytes a file is followed by another one: 20,000 lines.
pub const MOST_BYTES: u64 = 4 << 20;

/// Where events of a locked ledger go.
#[derive(Debug)]
pub(super) struct Recorder {
    directory: LedgerDirectory,
    /// Seconds since boot.
    uptime: u64,
}

impl Recorder {
    /// The recorder of `ledger`; `None` if nobody wants a history, or if another user could write it.
    pub(super) fn of(ledger: &Ledger, uptime: u64) -> Option<Self> {
        let directory = ledger.directory().beside(DIRECTORY).ok()??;
        Some(Self { directory, uptime })
    }

    /// Appends what the change from `old` to `new` was.
    pub(super) fn note_change(&self, old: &[Claim], new: &[Claim]) {
        let events = differences(old, new).map(|(kind, claim)| self.event(kind, 0, Some(claim)));
        self.append(&events.collect::<String>());
    }

    fn event(&self, kind: EventKind, value: u64, claim: Option<&Claim>) -> String {
        let (uptime, clock) = (self.uptime, clock());
        line::encode(kind, [uptime, clock, value], claim)
    }

    /// Appends `lines`.
    fn append(&self, lines: &str) {
        if !lines.is_empty() {
            // The change is made: it does not fail because nobody can be told of it.
            let _: Result<()> = self.try_append(lines);
        }
    }

    fn try_append(&self, lines: &str) -> Result<()> {
        let [name, older, oldest] = FILES;
        let about = self.directory.path(name);
        let mut opened = self.directory.open_to_append(name)?;
        if opened.1 >= MOST_BYTES {
            // The first of these fails where there is no such file yet.
            let _: Result<()> = self.directory.rename(older, oldest);
            self.directory.rename(name, older)?;
            opened = self.directory.open_to_append(name)?;
        }
        let (file, size) = opened;
        let mut file = File::from(file);
        let mut text = String::with_capacity(lines.len() + 64);
        if size == 0 {
            // For the group of the directory. A umask may have taken away its right to read.
            let group = Gid::from_raw(self.directory.status()?.st_gid);
            fchown(&file, None, Some(group)).about(about.display(), "cannot be given to its group")?;
            fchmod(&file, Mode::RUSR | Mode::WUSR | Mode::RGRP).about(about.display(), "cannot be made readable")?;
            text.push_str(&line::header());
        } else {
            let mut last = [b'\n'];
            file.read_exact_at(&mut last, size - 1)
                .about(about.display(), "cannot be read")?;
            // After the loss of power, or of a writer, half a line stays a line of its own.
            text.push_str(if last == [b'\n'] { "" } else { "\n" });
        }
        text.push_str(lines);
        let written = file
            .write_all(text.as_bytes())
            .about(about.display(), "cannot be written");
        // A line for which there is no room leaves no half of it.
        written.inspect_err(|_| {
            let _ = ftruncate(&file, size);
        })
    }
}

impl Locked<'_> {
    /// Records in the event file the changes that are made while the ledger is locked now. `uptime` are the seconds
    /// since boot, without the offset of any time namespace.
    #[must_use]
    pub fn recording(mut self, uptime: u64) -> Self {
        self.recorder = Recorder::of(self.ledger(), uptime);
        self
    }

    /// Records an event of `claim` that does not change it. `value` is what [`EventKind`] says.
    pub fn note(&self, kind: EventKind, value: u64, claim: &Claim) {
        if let Some(recorder) = &self.recorder {
            recorder.append(&recorder.event(kind, value, Some(claim)));
        }
    }

    /// Records something about `device` that no claim is about. `uid` is the user who did it, or to whom it happened.
    pub fn note_device(&self, kind: EventKind, value: u64, device: &DeviceKey, uid: u32) {
        let claim = Claim {
            name: None,
            device: device.clone(),
            part: HeldPart::Whole,
            asked_as: None,
            spec_file: None,
            state: ClaimState::Reserved,
            holder: Holder::Person,
            process: None,
            joined: false,
            once: false,
            for_root: false,
            uid,
            since: clock(),
            since_boot: None,
            ttl: None,
            until: None,
        };
        self.note(kind, value, &claim);
    }

    /// Records that somebody waits, or no longer does, for `seconds` by now. One who waits for any of several devices
    /// waits for the first of them here, so that each second counts once.
    pub fn note_wait(&self, kind: EventKind, seconds: u64, wants: &[WaitedFor], uid: u32) {
        if let Some(wanted) = wants.first() {
            self.note_device(kind, seconds, &wanted.device, uid);
        }
    }

    /// Records everything that is held. What a reader knows of and is not in it has ended.
    ///
    /// # Errors
    /// Returns an error if the ledger cannot be listed. Nothing is recorded then, nor if a book of it cannot be read.
    pub fn note_all(&self) -> LedgerResult<()> {
        let Some(recorder) = &self.recorder else {
            return Ok(());
        };
        let Books { books, damaged, .. } = self.ledger().books()?;
        if damaged.is_empty() {
            let claims: Vec<&Claim> = books.iter().flat_map(|book| &book.claims).collect();
            let mut lines: String = claims
                .iter()
                .map(|claim| recorder.event(EventKind::Holds, 0, Some(claim)))
                .collect();
            lines.push_str(&recorder.event(EventKind::Checked, claims.len() as u64, None));
            recorder.append(&lines);
        }
        Ok(())
    }
}

/// What happened to which claim, when the claims of a book were `old` and are `new`.
fn differences<'a>(old: &'a [Claim], new: &'a [Claim]) -> impl Iterator<Item = (EventKind, &'a Claim)> {
    let mut unmatched: Vec<Option<&Claim>> = new.iter().map(Some).collect();
    let mut at = 0;
    let mut found = Vec::new();
    for was in old {
        // Claims keep their order, so the next one is usually the same.
        let is_it = |now: &Option<&Claim>| now.is_some_and(|now| now.is_same_hold(was));
        let place = unmatched.iter().skip(at).position(is_it).map(|place| place + at);
        match place.or_else(|| unmatched.iter().take(at).position(is_it)) {
            None => found.push((EventKind::Ended, was)),
            Some(place) => {
                at = place + 1;
                let now = unmatched.get_mut(place).and_then(Option::take);
                let changed = now.filter(|now| now.state != was.state || now.holder != was.holder);
                found.extend(changed.map(|now| (EventKind::Changed, now)));
            }
        }
    }
    let began = unmatched.into_iter().flatten();
    found.into_iter().chain(began.map(|claim| (EventKind::Began, claim)))
}

impl Book {
    /// The claims as they were in the text, without those whose lines are still unread.
    pub(super) fn as_they_were(&self) -> Vec<Claim> {
        let (text, mut from) = (&self.unread.text, 0);
        let starts = self.unread.claims.iter().map(|raw| (raw.line.start, raw.line.end + 1));
        let gaps = starts.chain([(text.len(), text.len())]).map(|(start, end)| {
            let gap = text.get(from..start).unwrap_or_default();
            from = end;
            gap
        });
        // The first and the last line of a book are not those of claims.
        gaps.flat_map(str::lines)
            .filter_map(|line| super::book::record::claim_of(&self.gpu, line))
            .collect()
    }
}

impl Claim {
    /// Whether both are one hold, although its user may be another one.
    fn is_same_hold(&self, other: &Self) -> bool {
        let hold = |claim: &Self| (claim.since_boot, claim.since, claim.uid, claim.joined);
        hold(self) == hold(other)
            && (&self.device, &self.part, &self.name) == (&other.device, &other.part, &other.name)
            && (!self.joined || self.holder == other.holder)
    }
}

#[cfg(test)]
mod tests;
