//! `tranche status`: who holds what.

use super::out;
use super::place::StateArgs;
use super::table::Table;
use crate::error::{Error, Result};
use crate::ledger::process::Machine;
use crate::ledger::utc;
use crate::ledger::{Book, Claim, Ledger, Refusal, State};
use serde::Serialize;
use std::process::ExitCode;

/// Show who holds which share, and who was refused lately
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
    device: &'a str,
    claim: &'a Claim,
}

pub(super) fn run(args: &Args) -> Result<ExitCode> {
    let (books, damaged) = books(&args.state)?;
    let refused = refusals(&args.state)?;
    if args.json {
        let claims = books.iter().flat_map(|b| {
            b.claims.iter().map(|claim| Row {
                device: b.device.as_str(),
                claim,
            })
        });
        let claims: Vec<Row<'_>> = claims.collect();
        out::json(&serde_json::json!({ "claims": claims, "refused": refused }))?;
    } else {
        out::result(&text(&books, &refused))?;
    }
    // What can be told is told, and the rest is not taken for nothing.
    Ok(damaged
        .iter()
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

/// The starts that were refused lately; a list that cannot be read is none.
fn refusals(state: &StateArgs) -> Result<Vec<Refusal>> {
    let ledger = Ledger::existing(&state.state_dir)?;
    Ok(ledger.map(|l| l.refusals().unwrap_or_default()).unwrap_or_default())
}

fn text(books: &[Book], refused: &[Refusal]) -> String {
    let mut text = held(books);
    if !refused.is_empty() {
        text.push_str("\nrefused lately:\n");
    }
    for refusal in refused {
        let Refusal { at, container, why } = refusal;
        text.push_str(&format!("{}  {container}: {why}\n", utc(*at)));
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
                book.device.to_string(),
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
