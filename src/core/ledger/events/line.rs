//! The form of the event file: a line that names the form and the boot, and then a line of fields between tabs for each
//! event, which ends as a claim's line in a book does.

use crate::ledger::book::record;
use crate::ledger::claim::Claim;
use crate::ledger::holder::{ContainerName, Holder};
use crate::types::{GpuUuid, HeldPart, decimal};
use std::time::UNIX_EPOCH;

crate::types::words! {
    /// What happened.
    pub enum EventKind: "kind of an event" {
        /// A claim was made.
        Began = "began",
        /// A claim has another state or another holder.
        Changed = "changed",
        /// A claim has ended.
        Ended = "ended",
        /// A claim is over its limit of time, and its end was begun.
        Overdue = "overdue",
        /// Somebody waits for a device.
        Waits = "waits",
        /// Somebody has waited in vain for `value` seconds.
        Left = "left",
        /// Somebody has waited for `value` seconds, and was served.
        Served = "served",
        /// A device was taken out of service.
        Drained = "drained",
        /// A device was put back into service.
        Undrained = "undrained",
        /// A claim has worked in `value` of the seconds since the last such line, or since its beginning.
        Busy = "busy",
        /// A claim by turns was suspended, with `value` MiB.
        Suspended = "suspended",
        /// A claim by turns was resumed, after `value` seconds.
        Resumed = "resumed",
        /// A claim by turns could not be resumed, and its processes were ended.
        Lost = "lost",
        /// A claim is held, by a list of all of them.
        Holds = "holds",
        /// The end of a list of all claims, of which there are `value`.
        Checked = "checked",
    }
}

/// What the first line begins with. The number of the form, the id of the boot and the time of the file follow.
const MARK: &str = "tranche-events";

/// The number of the form that this program writes.
const FORMAT: u32 = 1;

/// A text of more characters is cut. Names of people are shorter; ids of containers may be longer.
const MOST_TEXT: usize = 128;

/// Of a larger number of shares these are listed.
const MOST_SHARES: usize = 64;

/// An event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// What happened.
    pub kind: EventKind,
    /// When, in seconds since boot: no clock that jumps moves it.
    pub uptime: u64,
    /// When, in seconds since 1970.
    pub clock: u64,
    /// See [`EventKind`]; else 0.
    pub value: u64,
    /// Whom it is about; without its process, its time to live, its bundle and its specification.
    pub claim: Option<Claim>,
}

/// A line of an event file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EventLine {
    /// An event.
    Event(Box<Event>),
    /// What follows is of this boot.
    Boot(String),
    /// The file was written by a newer version: its lines cannot be understood. The number of its form.
    Newer(u32),
    /// Half a line, of a writer that was killed or had no room, or a kind of event that this version does not know.
    Unknown,
}

/// The first line of a file. Its time tells two files of one boot apart, of which one may have the inode of the other.
pub(super) fn header() -> String {
    let boot = this_boot();
    let made = UNIX_EPOCH.elapsed().unwrap_or_default().as_nanos();
    format!("{MARK} {FORMAT} {boot} {made}\n")
}

/// The id of this boot.
pub fn this_boot() -> String {
    let id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    id.trim().to_owned()
}

/// The boot in the first line of a file, or the number of its form if that is another one; `None` for another line.
fn header_boot(line: &str) -> Option<Result<&str, u32>> {
    let (format, rest) = line.strip_prefix(MARK)?.strip_prefix(' ')?.split_once(' ')?;
    let format: u32 = decimal(format)?;
    let boot = rest.split(' ').next().unwrap_or(rest);
    Some(if format == FORMAT { Ok(boot) } else { Err(format) })
}

/// The line of an event, with its end. The numbers are the time since boot, that of the clock, and the value.
pub(super) fn encode(kind: EventKind, numbers: [u64; 3], claim: Option<&Claim>) -> String {
    let [uptime, clock, value] = numbers;
    let mut text = format!("{}\t{uptime}\t{clock}\t{value}\t", kind.as_str());
    match claim {
        None => text.push('\n'),
        Some(claim) => {
            text.push_str(&claim.device.gpu().to_string());
            text.push('\t');
            text.push_str(&record::line_of(&shortened(claim)));
        }
    }
    text
}

/// `claim` without all that is not of the ledger's own making or bounded.
fn shortened(claim: &Claim) -> Claim {
    let without_bundle = |name: &ContainerName| ContainerName {
        bundle: String::new(),
        id: cut(&name.id),
    };
    let holder = match &claim.holder {
        Holder::Container(name) => Holder::Container(without_bundle(name)),
        Holder::Rootless { user, name } => Holder::Rootless {
            user: *user,
            name: without_bundle(name),
        },
        Holder::Process { program, id } => Holder::Process {
            program: cut(program),
            id: cut(id),
        },
        other => other.clone(),
    };
    let part = match &claim.part {
        HeldPart::Whole => HeldPart::Whole,
        HeldPart::Shares(shares) => HeldPart::Shares(shares.iter().take(MOST_SHARES).cloned().collect()),
    };
    Claim {
        name: claim.name.as_deref().map(cut),
        asked_as: claim.asked_as.as_deref().map(cut),
        part,
        holder,
        process: None,
        spec_file: None,
        ttl: None,
        until: None,
        device: claim.device.clone(),
        ..*claim
    }
}

fn cut(text: &str) -> String {
    text.chars().take(MOST_TEXT).collect()
}

/// What `line` says, which is without its end.
pub fn parse(line: &str) -> EventLine {
    match header_boot(line) {
        Some(Ok(boot)) => return EventLine::Boot(boot.to_owned()),
        Some(Err(format)) => return EventLine::Newer(format),
        None => {}
    }
    event(line).map_or(EventLine::Unknown, |event| EventLine::Event(Box::new(event)))
}

fn event(line: &str) -> Option<Event> {
    let mut fields = line.splitn(6, '\t');
    let word = fields.next()?;
    let kind = *EventKind::ALL.iter().find(|kind| kind.as_str() == word)?;
    let mut number = || decimal(fields.next()?);
    let (uptime, clock, value) = (number()?, number()?, number()?);
    let claim = match (fields.next()?, fields.next()) {
        ("", None) => None,
        (gpu, Some(rest)) => {
            let gpu: GpuUuid = gpu.parse().ok()?;
            Some(record::claim_of(&gpu, rest)?)
        }
        _ => return None,
    };
    // Only the end of a list is about no claim.
    (claim.is_none() == (kind == EventKind::Checked)).then_some(Event {
        kind,
        uptime,
        clock,
        value,
        claim,
    })
}
