//! `tranche claim list` and `tranche claim show`.

use super::PlaceArgs;
use super::listed::ListedClaims;
use crate::cli::held::{self, Held};
use crate::cli::out;
use crate::cli::table::Table;
use crate::error::Error;
use crate::text::some;
use crate::types::MemorySize;
use anyhow::{Result, bail};
use std::process::ExitCode;

#[derive(Debug, clap::Args)]
pub(super) struct ListArgs {
    #[command(flatten)]
    at: PlaceArgs,
}

#[derive(Debug, clap::Args)]
pub(super) struct ShowArgs {
    /// The claim's name
    #[arg(value_name = "NAME")]
    name: String,
    #[command(flatten)]
    at: PlaceArgs,
}

pub(super) fn list(args: &ListArgs) -> Result<ExitCode> {
    let mut claims = ListedClaims::read(&args.at)?;
    let held = claims.shown(|claim| claim.name.is_some());
    if args.at.json {
        out::json(&held)?;
    } else if held.is_empty() && claims.damaged.is_empty() {
        out::note("there are no claims; tranche claim create makes one, and tranche status shows what containers hold");
    } else if !held.is_empty() {
        out::result(&table(&held))?;
    }
    Ok(out::complain_all(&claims.damaged))
}

fn table(held: &[Held]) -> String {
    let mut table = Table::with_header(&["CLAIM", "SHARES", "MEMORY", "COMPUTE", "STATE", "HOLDER", "LEFT"]);
    for claim in held {
        table.row([
            claim.name.clone().unwrap_or_default(),
            claim.shares(),
            claim
                .memory_mib
                .map_or_else(|| "-".to_owned(), |m| MemorySize::from_mib(m).to_string()),
            claim
                .compute_percent
                .map_or_else(|| "-".to_owned(), |c| format!("{c}%")),
            held::state(claim.state).to_owned(),
            claim.holder(),
            claim.seconds_left.map_or_else(|| "-".to_owned(), held::span),
        ]);
    }
    table.text()
}

pub(super) fn show(args: &ShowArgs) -> Result<ExitCode> {
    let mut claims = ListedClaims::read(&args.at)?;
    let name = args.name.strip_prefix("nvidia.com/claim=").unwrap_or(&args.name);
    let found = claims.shown(|claim| claim.name.as_deref() == Some(name));
    let Some(held) = found.first() else {
        bail!(not_found(&claims, name));
    };
    if args.at.json {
        out::json(held)?;
        return Ok(ExitCode::SUCCESS);
    }
    let or_none = |value: Option<String>| value.unwrap_or_else(|| "-".to_owned());
    let left = match (held.seconds_left, held.ttl) {
        (Some(left), _) => held::span(left),
        (None, Some(ttl)) => format!("{} after its container has ended", held::span(ttl)),
        (None, None) => "until it is released".to_owned(),
    };
    let text = Table::of_values([
        ("claim", name.to_owned()),
        ("CDI name", held.cdi.clone()),
        ("device", format!("{} ({})", held.device, held.key)),
        ("shares", held.shares()),
        ("strategy", held.strategy.to_string()),
        (
            "memory",
            or_none(held.memory_mib.map(|m| MemorySize::from_mib(m).to_string())),
        ),
        ("compute", or_none(held.compute_percent.map(|c| format!("{c}%")))),
        ("state", held::state(held.state).to_owned()),
        ("holder", held.holder()),
        ("time left", left),
        (
            "when its container ends",
            if held.once {
                "released"
            } else {
                "kept for the next container"
            }
            .to_owned(),
        ),
        ("user", held.uid.to_string()),
        ("created", crate::ledger::utc(held.since)),
        ("specification", or_none(held.spec_file.clone())),
    ]);
    out::result(&text)?;
    Ok(ExitCode::SUCCESS)
}

/// Says that there is no claim `name`, and which there are.
fn not_found(claims: &ListedClaims, name: &str) -> Error {
    // It may be in a book that cannot be read.
    out::complain_all(&claims.damaged);
    let known: Vec<&str> = claims.claims.iter().filter_map(|c| c.name.as_deref()).collect();
    let hint = match &known[..] {
        [] => "there are no claims; tranche claim create makes one".to_owned(),
        known => format!("there are {}", some(known)),
    };
    let error = if claims.damaged.is_empty() {
        Error::usage(format!("claim {name}"), "not found")
    } else {
        Error::failed(
            format!("claim {name}"),
            "not found in the part of the ledger that can be read",
        )
    };
    error.hint(hint)
}
