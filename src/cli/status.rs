//! `tranche status`: who holds what.

use super::out;
use super::place::StateArgs;
use super::table::Table;
use crate::error::{Error, Result};
use crate::ledger::process::Machine;
use crate::ledger::utc;
use crate::ledger::{Book, Claim, Ledger, State};
use crate::messages::{Kept, Message, Messages, Severity};
use crate::types::DeviceKey;
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Show who holds which share, and what hooks said lately
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    state: StateArgs,
    /// For programs
    #[arg(long)]
    json: bool,
}

/// One claim, as `--json` gives it.
#[derive(Debug, Serialize)]
struct Row<'a> {
    device: &'a DeviceKey,
    claim: &'a Claim,
}

pub(super) fn run(args: &Args) -> Result<ExitCode> {
    let (books, damaged) = books(&args.state)?;
    let kept = messages(&args.state)?;
    if args.json {
        let claims = books.iter().flat_map(|b| {
            b.claims.iter().map(|claim| Row {
                device: &claim.device,
                claim,
            })
        });
        let claims: Vec<Row<'_>> = claims.collect();
        out::json(&serde_json::json!({ "claims": claims, "messages": kept.messages }))?;
    } else {
        out::result(&text(&books, &kept.messages))?;
    }
    // What can be told is told, and the rest is not taken for nothing.
    Ok(damaged
        .iter()
        .chain(&kept.damaged)
        .map(out::complain)
        .next_back()
        .unwrap_or(ExitCode::SUCCESS))
}

/// Every book, with what nobody can hold any more taken out; on disk it stays until somebody claims or collects. Beside
/// them what is wrong with those that cannot be read.
pub(super) fn books(state: &StateArgs) -> Result<(Vec<Book>, Vec<Error>)> {
    let Some(ledger) = Ledger::existing(&state.state_dir)? else {
        return Ok(Default::default());
    };
    let machine = Machine::here()?;
    let all = ledger.books()?;
    Ok((current(all.books, &machine), all.damaged))
}

/// The books without what nobody can hold any more.
pub(super) fn current(mut books: Vec<Book>, machine: &Machine) -> Vec<Book> {
    books.iter_mut().for_each(|book| {
        book.reconcile(machine);
    });
    books.retain(|b| !b.claims.is_empty());
    books
}

/// What the hooks of this user's engines said lately.
fn messages(state: &StateArgs) -> Result<Kept> {
    let runtime_dir = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    let runtime_dir = runtime_dir.filter(|directory| directory.is_absolute());
    match Messages::existing(Path::new(state.dir()?.as_str()), runtime_dir.as_deref())? {
        Some(messages) => messages.all(),
        None => Ok(Kept::default()),
    }
}

fn text(books: &[Book], messages: &[Message]) -> String {
    let mut text = held(books);
    if !messages.is_empty() {
        text.push_str("\nmessages of hooks:\n");
    }
    let mut containers: Vec<&str> = Vec::new();
    for message in messages {
        if !containers.contains(&message.container.as_str()) {
            containers.push(&message.container);
        }
    }
    for container in containers {
        let short: String = container.chars().take(12).collect();
        text.push_str(&format!(
            "container {}\n",
            if short.is_empty() { "unknown" } else { &short }
        ));
        for message in messages.iter().filter(|message| message.container == container) {
            let severity = match message.severity {
                Severity::Failure => "failure",
                Severity::Remark => "remark",
            };
            // A specification may name a hook that does not exist; its text says which.
            let hook = Some(message.hook.as_str())
                .filter(|hook| !hook.is_empty())
                .unwrap_or("hook");
            text.push_str(&format!(
                "  {}  {severity} of {hook}: {}\n",
                utc(message.at),
                message.text
            ));
        }
    }
    text
}

fn held(books: &[Book]) -> String {
    if books.is_empty() {
        return "no share is held\n".to_owned();
    }
    let mut table = Table::with_header(&["DEVICE", "PART", "STATE", "HOLDER", "UID", "SINCE"]);
    for book in books {
        for claim in &book.claims {
            table.row([
                claim.device.to_string(),
                claim.part.to_string(),
                match claim.state {
                    State::Reserved => "reserved",
                    State::Held => "held",
                }
                .to_owned(),
                claim.who(),
                claim.uid.to_string(),
                utc(claim.since),
            ]);
        }
    }
    table.text()
}
