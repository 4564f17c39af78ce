//! `tranche status`: who holds what, what is free, and the messages of hooks.

use super::containers::Names;
use super::held::{self, Held, View, or_dash};
use super::out;
use super::place::{SpecDirArgs, StateArgs};
use super::root_only;
use super::specs::{Offered, Specs};
use super::table::Table;
use crate::claims::Claims;
use crate::error::line;
use crate::ledger::{Books, Claim, HeldPart, HeldShare, utc};
use crate::messages::{Kept, Message, Messages, Severity};
use crate::text::{shown, some};
use crate::types::DeviceKey;
use anyhow::Result;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Show who holds which share, what is free, and recent messages of hooks
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    state: StateArgs,
    #[command(flatten)]
    specs: SpecDirArgs,
    /// Print JSON; docs/sharing.md describes the fields
    #[arg(long)]
    json: bool,
}

/// The result, as `--json` prints it. docs/sharing.md documents the fields.
#[derive(Debug, Serialize)]
struct Status<'m> {
    devices: Vec<DeviceStatus>,
    claims: Vec<Held>,
    messages: Vec<Said<'m>>,
    /// What could not be read, and so is missing above.
    problems: Vec<String>,
}

/// A device that is handed out with a claim.
#[derive(Debug, Serialize)]
struct DeviceStatus {
    /// `nvidia.com/gpu=0`.
    device: String,
    key: DeviceKey,
    /// The shares that it has under the policy of now.
    shares: Vec<String>,
    /// Those of them that are held.
    held: Vec<String>,
    /// Shares that are held and that the policy of now does not have.
    held_of_earlier_policy: Vec<String>,
    /// Whether one claim holds all of it.
    held_whole: bool,
    /// Whether the device's book in the ledger could be read. If not, it is unknown what is held or free.
    readable: bool,
    /// The shares that a container can have now; empty while the whole device is held.
    free: Vec<String>,
}

/// A message of a hook.
#[derive(Debug, Serialize)]
struct Said<'m> {
    #[serde(flatten)]
    message: &'m Message,
    /// The name that the container's engine shows; `null` where the container is gone or no file has its name.
    name: Option<String>,
}

pub(super) fn run(args: &Args) -> Result<ExitCode> {
    // A user sees what the hooks of his own engine said; the ledger is root's.
    let unseen = root_only::check(&args.state.state_dir).err();
    let sees_ledger = unseen.is_none();
    let (books, mut view) = match sees_ledger {
        true => read(&args.state, &args.specs)?,
        false => Default::default(),
    };
    let kept = messages(&args.state)?;
    let claims: Vec<&Claim> = books.claims().collect();
    let problems = || books.errors().chain(&unseen).chain(&kept.damaged);
    let status = Status {
        devices: devices(&view.specs, &books),
        claims: claims.iter().map(|claim| view.held(claim)).collect(),
        messages: said(&kept.messages, &claims, &mut view.names),
        problems: problems().map(|error| line(error)).collect(),
    };
    out::either(args.json, &status, || text(&status, sees_ledger))?;
    // What could be read is shown all the same.
    Ok(out::complain_all(problems()))
}

/// What is held, and how it is shown.
///
/// # Errors
/// Returns an error if this user cannot use the ledger, or if it cannot be listed.
pub(super) fn read(state: &StateArgs, specs: &SpecDirArgs) -> Result<(Books, View)> {
    let (books, uptime) = books(state)?;
    Ok((books, View::new(Specs::read(specs, &state.state_dir), uptime)))
}

/// What is held, and the seconds since boot by which a claim's time to live is counted.
///
/// # Errors
/// As [`read`].
pub(super) fn books(state: &StateArgs) -> Result<(Books, u64)> {
    root_only::check(&state.state_dir)?;
    Ok(match Claims::existing(&state.state_dir)? {
        Some(claims) => (claims.books()?, claims.uptime()),
        None => Default::default(),
    })
}

/// The last messages of the hooks that this user's engines ran.
fn messages(state: &StateArgs) -> Result<Kept> {
    let runtime_dir = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    let runtime_dir = runtime_dir.filter(|directory| directory.is_absolute());
    match Messages::existing(Path::new(state.dir()?.as_str()), runtime_dir.as_deref())? {
        Some(messages) => Ok(messages.all()?),
        None => Ok(Kept::default()),
    }
}

fn said<'m>(messages: &'m [Message], claims: &[&Claim], names: &mut Names) -> Vec<Said<'m>> {
    let holders = || claims.iter().filter_map(|claim| claim.holder.container());
    // A container may have said much: its name is looked for once.
    let mut known: BTreeMap<&str, Option<String>> = BTreeMap::new();
    let mut name = |id| known.entry(id).or_insert_with(|| names.of_id(id, holders())).clone();
    let said = messages.iter().map(|message| Said {
        name: name(&message.container),
        message,
    });
    said.collect()
}

fn devices(specs: &Specs, books: &Books) -> Vec<DeviceStatus> {
    let unknown = Offered::default();
    let mut keys: BTreeMap<&DeviceKey, &Offered> = specs.devices().collect();
    for claim in books.claims() {
        keys.entry(&claim.device).or_insert(&unknown);
    }
    let devices = keys.into_iter();
    let devices = devices.map(|(key, offered)| DeviceStatus::new(specs.device(key), key, offered, books));
    let mut devices: Vec<DeviceStatus> = devices.collect();
    devices.sort_by(|a, b| (a.device.len(), &a.device).cmp(&(b.device.len(), &b.device)));
    devices
}

fn text(status: &Status<'_>, sees_ledger: bool) -> String {
    let mut text = String::new();
    if !status.devices.is_empty() {
        let mut table = Table::with_header(&["DEVICE", "HELD", "FREE"]);
        for device in &status.devices {
            table.row([device.device.clone(), device.is_held(), device.is_free()]);
        }
        text.push_str(&table.text());
        text.push('\n');
    }
    if !status.claims.is_empty() {
        let mut table = Table::with_header(&["NAME", "SHARES", "HOLDER", "STATE", "UID", "SINCE"]);
        for claim in &status.claims {
            table.row([
                claim.cdi.clone(),
                claim.shares(),
                claim.holder(),
                claim.state.to_string(),
                claim.uid.to_string(),
                utc(claim.since),
            ]);
        }
        text.push_str(&table.text());
    } else if status.problems.is_empty() {
        text.push_str("no share is held\n");
    } else if sees_ledger {
        text.push_str("the ledger could not be read completely; the part that could be read records no claim\n");
    }
    text.push_str(&messages_text(&status.messages));
    text
}

impl DeviceStatus {
    /// The device `key`, which specifications call `device` and of which they offer `offered`.
    fn new(device: String, key: &DeviceKey, offered: &Offered, books: &Books) -> Self {
        let book = books.books.iter().find(|book| book.gpu == *key.gpu());
        let claims = book.into_iter().flat_map(|book| &book.claims);
        let on_it = || claims.clone().filter(|claim| claim.device.overlaps(key));
        let readable = !books.damaged.iter().any(|book| book.may_be_of(key.gpu()));
        // A share of an earlier policy may have the name of one of now, and another size.
        let is_of_now = |share: &&HeldShare| {
            let size = offered.size(share.name.as_str());
            offered.siblings.contains(&share.name.to_string()) && size.is_none_or(|size| size == share.promise)
        };
        let shares = on_it().flat_map(|claim| claim.part.shares());
        let (now, earlier): (Vec<&HeldShare>, Vec<&HeldShare>) = shares.partition(is_of_now);
        let earlier: BTreeSet<String> = earlier.into_iter().map(|share| share.name.to_string()).collect();
        let is_free = |name: &str| {
            let part = |size| Some(HeldPart::share(name.parse().ok()?, size));
            let part = offered.size(name).and_then(part);
            part.is_some_and(|part| book.is_none_or(|book| book.is_free(key, &part, offered.bounds)))
        };
        let siblings = |is_meant: &dyn Fn(&str) -> bool| -> Vec<String> {
            offered.siblings.iter().filter(|name| is_meant(name)).cloned().collect()
        };
        Self {
            device,
            key: key.clone(),
            shares: offered.siblings.clone(),
            held: siblings(&|name| now.iter().any(|share| share.name.as_str() == name)),
            held_of_earlier_policy: earlier.into_iter().collect(),
            // Instances of a GPU exclude it as a whole, and the reverse.
            held_whole: on_it().any(|claim| claim.device != *key || claim.part.shares().is_empty()),
            readable,
            free: siblings(&|name| readable && is_free(name)),
        }
    }

    fn is_held(&self) -> String {
        if !self.readable {
            return "unknown".to_owned();
        }
        if self.held_whole {
            return "whole".to_owned();
        }
        let mut parts = Vec::new();
        if !self.shares.is_empty() {
            parts.push(format!("{} of {}", self.held.len(), self.shares.len()));
        }
        if !self.held_of_earlier_policy.is_empty() {
            parts.push(format!("{} of an earlier policy", self.held_of_earlier_policy.len()));
        }
        or_dash(Some(parts.join(", ")).filter(|parts| !parts.is_empty()))
    }

    fn is_free(&self) -> String {
        match &self.free[..] {
            _ if !self.readable => "unknown".to_owned(),
            [] if self.shares.is_empty() && !self.held_whole && self.held_of_earlier_policy.is_empty() => {
                "whole".to_owned()
            }
            [] => "-".to_owned(),
            free => ranges(free),
        }
    }
}

/// Names as a list, where numbers that follow one another are a range: `0, 3–9`.
fn ranges(names: &[String]) -> String {
    let mut parts: Vec<(String, Option<u64>, Option<u64>)> = Vec::new();
    for name in names {
        // A name like `007` is not the number 7.
        let number = name.parse::<u64>().ok().filter(|n| n.to_string() == *name);
        match parts.last_mut() {
            Some((_, Some(_), last)) if number.is_some() && number == last.and_then(|l| l.checked_add(1)) => {
                *last = number;
            }
            _ => parts.push((name.clone(), number, number)),
        }
    }
    let part = |(name, first, last): (String, Option<u64>, Option<u64>)| match (first, last) {
        (Some(first), Some(last)) if first.checked_add(1) == Some(last) => format!("{first}, {last}"),
        (Some(first), Some(last)) if last > first => format!("{first}–{last}"),
        _ => name,
    };
    some(&parts.into_iter().map(part).collect::<Vec<_>>())
}

/// The messages, grouped by container in the order in which they began.
fn messages_text(said: &[Said<'_>]) -> String {
    let mut text = String::new();
    if !said.is_empty() {
        text.push_str("\nmessages of hooks:\n");
    }
    for (at, first) in said.iter().enumerate() {
        let is_same = |one: &&Said<'_>| one.message.container == first.message.container;
        if said.iter().take(at).any(|one| is_same(&one)) {
            continue;
        }
        let name = held::container_text(&first.message.container, first.name.as_deref());
        text.push_str(&format!("container {}\n", shown(&name)));
        for one in said.iter().filter(is_same) {
            let severity = match one.message.severity {
                Severity::Failure => "failure",
                Severity::Remark => "remark",
            };
            // A specification may name a hook that does not exist; the text says which.
            let hook = match one.message.hook.as_str() {
                "" => "hook",
                hook => hook,
            };
            let line = format!("{severity} of {hook}: {}", one.message.text);
            text.push_str(&format!("  {}  {}\n", utc(one.message.at), shown(&line)));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_that_follow_are_a_range() {
        let of = |names: &[&str]| ranges(&names.iter().map(|n| (*n).to_owned()).collect::<Vec<_>>());
        assert_eq!(of(&["3", "4", "5", "9"]), "3–5, 9");
        assert_eq!(of(&["0", "1", "3"]), "0, 1, 3");
        assert_eq!(of(&["a", "0", "007", "8"]), "a, 0, 007, 8");
        assert_eq!(of(&["18446744073709551615", "0"]), "18446744073709551615, 0");
    }
}
