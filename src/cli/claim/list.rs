//! `tranche claim list` and `tranche claim show`.

use super::PlaceArgs;
use crate::out;
use crate::table::Table;
use anyhow::{Result, bail};
use std::process::ExitCode;
use tranche_core::broker::ListRequest;
use tranche_core::error::Error;
use tranche_core::ledger::{Books, Claim, utc};
use tranche_core::text::some;
use tranche_state::held::{self, Held, HeldIdle, by_broker, or_dash};

#[derive(Debug, clap::Args)]
pub(crate) struct ShowArgs {
    /// The claim's name
    #[arg(value_name = "NAME")]
    name: String,
    #[command(flatten)]
    at: PlaceArgs,
}

pub(super) fn list(at: &PlaceArgs) -> Result<ExitCode> {
    if by_broker::is_needed(&at.state.state_dir) {
        let mut held = by_broker::own(&at.state.state_dir, &ListRequest {})?.claims;
        held.retain(|held| held.name.is_some());
        show_all(at, &held)?;
        return Ok(ExitCode::SUCCESS);
    }
    let (books, mut view) = held::read(&at.state.state_dir, &at.specs.dirs())?;
    let named = books.claims().filter(|claim| claim.given_name().is_some());
    let held: Vec<Held> = named.map(|claim| view.held(claim)).collect();
    if at.json || !held.is_empty() || books.damaged.is_empty() {
        show_all(at, &held)?;
    }
    Ok(out::complain_all(books.errors()))
}

fn show_all(at: &PlaceArgs, held: &[Held]) -> Result<()> {
    if at.json {
        out::json(&held)?;
    } else if !held.is_empty() {
        out::result(&table(held))?;
    } else {
        out::note("there are no claims; tranche claim create makes one, and tranche status shows what containers hold");
    }
    Ok(())
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
            left(claim),
        ]);
    }
    table.text()
}

/// How much longer it lasts, or which limit it exceeds.
fn left(claim: &Held) -> String {
    let idle = claim.idle.as_ref().filter(|idle| idle.by_seconds.is_some());
    match (&claim.too_long, idle.and_then(|idle| idle.seconds)) {
        (Some(too_long), _) => format!("over by {}", held::span(too_long.by_seconds)),
        (None, Some(idle)) => format!("idle for {}", held::span(idle)),
        (None, None) => or_dash(claim.seconds_left.map(held::span)),
    }
}

pub(super) fn show(args: &ShowArgs) -> Result<ExitCode> {
    let name = args.name.strip_prefix("nvidia.com/claim=").unwrap_or(&args.name);
    if by_broker::is_needed(&args.at.state.state_dir) {
        return show_own(args, name);
    }
    let (books, mut view) = held::read(&args.at.state.state_dir, &args.at.specs.dirs())?;
    let Some(claim) = books.claims().find(|claim| claim.given_name() == Some(name)) else {
        bail!(not_found(&books, name));
    };
    let held = view.held(claim);
    out::either(args.at.json, &held, || text(name, &held))?;
    Ok(ExitCode::SUCCESS)
}

/// Shows a claim of this user, whose name may be given without the number of the user.
fn show_own(args: &ShowArgs, name: &str) -> Result<ExitCode> {
    let full = format!("{}.{name}", nix::unistd::geteuid());
    let held = by_broker::own(&args.at.state.state_dir, &ListRequest {})?.claims;
    let is_meant = |held: &&Held| held.name.as_deref().is_some_and(|own| own == name || own == full);
    let Some(held) = held.iter().find(is_meant) else {
        let known: Vec<&str> = held.iter().filter_map(|held| held.name.as_deref()).collect();
        bail!(Error::usage(format!("claim {name}"), "not found among yours").hint(there_are(&known)));
    };
    out::either(args.at.json, held, || text(held.name.as_deref().unwrap_or(name), held))?;
    Ok(ExitCode::SUCCESS)
}

fn text(name: &str, held: &Held) -> String {
    let left = match (held.seconds_left, held.ttl) {
        (Some(left), _) => held::span(left),
        (None, Some(ttl)) => format!("{} after its container has ended", held::span(ttl)),
        (None, None) => "until it is released".to_owned(),
    };
    let idle = match &held.idle {
        Some(HeldIdle {
            seconds: Some(idle), ..
        }) => held::span(*idle),
        Some(HeldIdle { unknown: Some(why), .. }) => format!("unknown: {why}"),
        _ => "-".to_owned(),
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
        ("idle for", idle),
        ("cannot be ended", or_dash(held.cannot_be_ended.as_ref())),
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
    let object = format!("claim {name}");
    let error = match books.damaged.is_empty() {
        true => Error::usage(object, "not found"),
        false => Error::failed(object, "not found in the part of the ledger that can be read"),
    };
    error.hint(there_are(&known))
}

fn there_are(known: &[&str]) -> String {
    match known {
        [] => "there are no claims; tranche claim create makes one".to_owned(),
        known => format!("there are {}", some(known)),
    }
}
