//! `tranche claim list` and `tranche claim show`.

use super::PlaceArgs;
use crate::cli::held::{self, Held, or_dash};
use crate::cli::table::Table;
use crate::cli::{out, status};
use crate::error::Error;
use crate::ledger::{Books, Claim, utc};
use crate::text::some;
use anyhow::{Result, bail};
use std::process::ExitCode;

#[derive(Debug, clap::Args)]
pub(in crate::cli) struct ShowArgs {
    /// The claim's name
    #[arg(value_name = "NAME")]
    name: String,
    #[command(flatten)]
    at: PlaceArgs,
}

pub(super) fn list(at: &PlaceArgs) -> Result<ExitCode> {
    let (books, mut view) = status::read(&at.state, &at.specs)?;
    let named = books.claims().filter(|claim| claim.given_name().is_some());
    let held: Vec<Held> = named.map(|claim| view.held(claim)).collect();
    if at.json {
        out::json(&held)?;
    } else if !held.is_empty() {
        out::result(&table(&held))?;
    } else if books.damaged.is_empty() {
        out::note("there are no claims; tranche claim create makes one, and tranche status shows what containers hold");
    }
    Ok(out::complain_all(books.errors()))
}

fn table(held: &[Held]) -> String {
    let mut table = Table::with_header(&["CLAIM", "SHARES", "MEMORY", "COMPUTE", "STATE", "HOLDER", "LEFT"]);
    for claim in held {
        table.row([
            claim.name.clone().unwrap_or_default(),
            claim.shares(),
            claim.memory(),
            claim.compute(),
            claim.state.to_string(),
            claim.holder(),
            or_dash(claim.seconds_left.map(held::span)),
        ]);
    }
    table.text()
}

pub(super) fn show(args: &ShowArgs) -> Result<ExitCode> {
    let (books, mut view) = status::read(&args.at.state, &args.at.specs)?;
    let name = args.name.strip_prefix("nvidia.com/claim=").unwrap_or(&args.name);
    let Some(claim) = books.claims().find(|claim| claim.given_name() == Some(name)) else {
        bail!(not_found(&books, name));
    };
    let held = view.held(claim);
    out::either(args.at.json, &held, || text(name, &held))?;
    Ok(ExitCode::SUCCESS)
}

fn text(name: &str, held: &Held) -> String {
    let left = match (held.seconds_left, held.ttl) {
        (Some(left), _) => held::span(left),
        (None, Some(ttl)) => format!("{} after its container has ended", held::span(ttl)),
        (None, None) => "until it is released".to_owned(),
    };
    let afterwards = match held.once {
        true => "released",
        false => "kept for the next container",
    };
    Table::of_values([
        ("claim", name.to_owned()),
        ("CDI name", held.cdi.clone()),
        ("device", format!("{} ({})", held.device, held.key)),
        ("shares", held.shares()),
        ("strategy", held.strategy.to_string()),
        ("memory", held.memory()),
        ("compute", held.compute()),
        ("state", held.state.to_string()),
        ("holder", held.holder()),
        ("time left", left),
        ("when its container ends", afterwards.to_owned()),
        ("user", held.uid.to_string()),
        ("created", utc(held.since)),
        ("specification", or_dash(held.spec_file.as_ref())),
    ])
}

/// The error for a claim `name` that does not exist. Its hint lists those that do.
fn not_found(books: &Books, name: &str) -> Error {
    // It may be in a book that cannot be read.
    out::complain_all(books.errors());
    let known: Vec<&str> = books.claims().filter_map(Claim::given_name).collect();
    let hint = match &known[..] {
        [] => "there are no claims; tranche claim create makes one".to_owned(),
        known => format!("there are {}", some(known)),
    };
    let object = format!("claim {name}");
    let error = match books.damaged.is_empty() {
        true => Error::usage(object, "not found"),
        false => Error::failed(object, "not found in the part of the ledger that can be read"),
    };
    error.hint(hint)
}
