//! `tranche status`: who holds what, what is free, and what hooks said.

use super::containers::Names;
use super::held::{self, Held};
use super::out;
use super::place::{SpecDirArgs, StateArgs};
use super::root_only;
use super::specs::{Offered, Specs};
use super::table::Table;
use crate::claims::Claims;
use crate::error::{Error, line};
use crate::ledger::{Book, Books, Claim, DamagedBook, HeldPart, HeldShare, utc};
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

/// All of it, as `--json` gives it. docs/sharing.md documents the fields.
#[derive(Debug, Serialize)]
struct Status {
    devices: Vec<DeviceStatus>,
    claims: Vec<Held>,
    messages: Vec<Said>,
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
    /// Whether the device's book in the ledger could be read. Where it could not, nothing is known to be held or free.
    readable: bool,
    /// The shares that a container can have now; empty while the whole device is held.
    free: Vec<String>,
}

/// What a hook said.
#[derive(Debug, Serialize)]
struct Said {
    #[serde(flatten)]
    message: Message,
    /// The name that the container's engine shows; `null` where the container is gone or no file has its name.
    name: Option<String>,
}

pub(super) fn run(args: &Args) -> Result<ExitCode> {
    let state_dir = &args.state.state_dir;
    // A user sees what the hooks of his own engine said; the ledger is root's.
    let (Books { books, damaged }, uptime, unseen) = match root_only::check(state_dir) {
        Ok(()) => {
            let (books, uptime) = books(&args.state)?;
            (books, uptime, None)
        }
        Err(error) => (Books::default(), 0, Some(error)),
    };
    let kept = messages(&args.state)?;
    let sees_ledger = unseen.is_none();
    let specs = match sees_ledger {
        true => Specs::read(&args.specs, state_dir),
        false => Specs::default(),
    };
    let mut names = Names::default();
    let claims: Vec<&Claim> = books.iter().flat_map(|b| &b.claims).collect();
    let devices = devices(&specs, &books, &damaged);
    let problems: Vec<Error> = damaged
        .into_iter()
        .map(|book| book.error)
        .chain(unseen)
        .chain(kept.damaged)
        .collect();
    let status = Status {
        devices,
        claims: claims
            .iter()
            .map(|claim| Held::of(claim, &specs, &mut names, uptime))
            .collect(),
        messages: said(kept.messages, &claims, &mut names),
        problems: problems.iter().map(|error| line(error)).collect(),
    };
    if args.json {
        out::json(&status)?;
    } else {
        out::result(&text(&status, sees_ledger))?;
    }
    // What could be read is shown all the same.
    Ok(out::complain_all(&problems))
}

/// What is held, and the seconds since boot by which a claim's time to live is counted.
///
/// # Errors
/// Returns an error if this user cannot use the ledger, or if it cannot be listed.
pub(super) fn books(state: &StateArgs) -> Result<(Books, u64)> {
    root_only::check(&state.state_dir)?;
    Ok(match Claims::existing(&state.state_dir)? {
        Some(claims) => (claims.books()?, claims.uptime()),
        None => (Books::default(), 0),
    })
}

/// What the hooks of this user's engines said lately.
fn messages(state: &StateArgs) -> Result<Kept> {
    let runtime_dir = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    let runtime_dir = runtime_dir.filter(|directory| directory.is_absolute());
    match Messages::existing(Path::new(state.dir()?.as_str()), runtime_dir.as_deref())? {
        Some(messages) => Ok(messages.all()?),
        None => Ok(Kept::default()),
    }
}

fn said(messages: Vec<Message>, claims: &[&Claim], names: &mut Names) -> Vec<Said> {
    let holders = || claims.iter().filter_map(|c| c.holder.container());
    let mut known: BTreeMap<String, Option<String>> = BTreeMap::new();
    for message in &messages {
        if !known.contains_key(&message.container) {
            let name = names.of_id(&message.container, holders());
            known.insert(message.container.clone(), name);
        }
    }
    let said = messages.into_iter().map(|message| Said {
        name: known.get(&message.container).cloned().flatten(),
        message,
    });
    said.collect()
}

fn devices(specs: &Specs, books: &[Book], damaged: &[DamagedBook]) -> Vec<DeviceStatus> {
    let unknown = Offered::default();
    let mut keys: BTreeMap<&DeviceKey, &Offered> = specs.devices().collect();
    for claim in books.iter().flat_map(|book| &book.claims) {
        keys.entry(&claim.device).or_insert(&unknown);
    }
    let device = |(key, offered): (&DeviceKey, &Offered)| {
        let book = books.iter().find(|book| book.gpu == *key.gpu());
        let claims = book.into_iter().flat_map(|book| &book.claims);
        let on_it = || claims.clone().filter(|claim| claim.device.overlaps(key));
        // Instances of a GPU exclude it as a whole, and the reverse.
        let held_whole = on_it().any(|claim| claim.device != *key || claim.part.shares().is_empty());
        let readable = !damaged.iter().any(|book| book.may_be_of(key.gpu()));
        // A share of an earlier policy may have the name of one of now, and another size.
        let shares = on_it().flat_map(|claim| claim.part.shares());
        let (now, earlier): (Vec<&HeldShare>, Vec<&HeldShare>) = shares.partition(|share| {
            offered.siblings.contains(&share.name.to_string())
                && offered
                    .size(share.name.as_str())
                    .is_none_or(|size| size == share.promise)
        });
        let names =
            |shares: Vec<&HeldShare>| -> BTreeSet<String> { shares.iter().map(|s| s.name.to_string()).collect() };
        let held = names(now);
        let is_free = |name: &&String| {
            let part = |size| Some(HeldPart::share(name.parse().ok()?, size));
            let part = offered.size(name).and_then(part);
            part.is_some_and(|part| book.is_none_or(|book| book.is_free(key, &part, offered.bounds)))
        };
        DeviceStatus {
            device: specs.device(key),
            key: key.clone(),
            shares: offered.siblings.clone(),
            held_of_earlier_policy: names(earlier).into_iter().collect(),
            held: offered
                .siblings
                .iter()
                .filter(|name| held.contains(*name))
                .cloned()
                .collect(),
            held_whole,
            readable,
            free: match readable {
                true => offered.siblings.iter().filter(is_free).cloned().collect(),
                false => Vec::new(),
            },
        }
    };
    let mut devices: Vec<DeviceStatus> = keys.into_iter().map(device).collect();
    devices.sort_by(|a, b| (a.device.len(), &a.device).cmp(&(b.device.len(), &b.device)));
    devices
}

fn text(status: &Status, sees_ledger: bool) -> String {
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
                held::state(claim.state).to_owned(),
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
    fn is_held(&self) -> String {
        if !self.readable {
            return "unknown".to_owned();
        }
        if self.held_whole {
            return "whole".to_owned();
        }
        let of_policy = match self.shares.len() {
            0 => None,
            all => Some(format!("{} of {all}", self.held.len())),
        };
        let of_earlier = match self.held_of_earlier_policy.len() {
            0 => None,
            number => Some(format!("{number} of an earlier policy")),
        };
        let parts: Vec<String> = of_policy.into_iter().chain(of_earlier).collect();
        if parts.is_empty() {
            "-".to_owned()
        } else {
            parts.join(", ")
        }
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
fn messages_text(said: &[Said]) -> String {
    let mut text = String::new();
    if !said.is_empty() {
        text.push_str("\nmessages of hooks:\n");
    }
    let mut containers: Vec<&Said> = Vec::new();
    for one in said {
        if !containers.iter().any(|c| c.message.container == one.message.container) {
            containers.push(one);
        }
    }
    for container in containers {
        let short: String = container.message.container.chars().take(12).collect();
        let id = if short.is_empty() { "unknown" } else { &short };
        let name = match &container.name {
            Some(name) => format!("{name} ({id})"),
            None => id.to_owned(),
        };
        text.push_str(&format!("container {}\n", shown(&name)));
        for one in said
            .iter()
            .filter(|s| s.message.container == container.message.container)
        {
            let severity = match one.message.severity {
                Severity::Failure => "failure",
                Severity::Remark => "remark",
            };
            // A specification may name a hook that does not exist; the text says which.
            let hook = Some(one.message.hook.as_str())
                .filter(|hook| !hook.is_empty())
                .unwrap_or("hook");
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
