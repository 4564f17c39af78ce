//! `tranche claim list` and `tranche claim show`.

use super::PlaceArgs;
use crate::out;
use crate::table::Table;
use anyhow::{Result, bail};
use std::path::Path;
use std::process::ExitCode;
use tranche_broker::verbs::{self, Caller, ListedClaims};
use tranche_core::error::{Error, Kind};
use tranche_core::ledger::utc;
use tranche_core::text::candidates;
use tranche_core::types::CdiKind;
use tranche_plan::host_file::HostFile;
use tranche_protocol::ListRequest;
use tranche_state::accounts::{AccountSources, Accounts};
use tranche_state::held::names::DeviceNames;
use tranche_state::held::{self, Held, HeldIdle, HeldTurn, by_broker, or_dash};

#[derive(Debug, clap::Args)]
pub(crate) struct ShowArgs {
    /// The claim's name
    #[arg(value_name = "NAME")]
    name: String,
    #[command(flatten)]
    at: PlaceArgs,
}

pub(super) fn list(at: &PlaceArgs) -> Result<ExitCode> {
    let ListedClaims { mut claims, unreadable } = listed(&at.state.state_dir)?;
    claims.retain(|held| held.name.is_some() || held.process.is_some());
    if at.json || !claims.is_empty() || unreadable.is_empty() {
        show_all(at, &claims)?;
    }
    Ok(out::complain_all(&unreadable))
}

/// The names of the claims that this user made beforehand: all of them, for root.
///
/// # Errors
/// As `claim list`.
pub(crate) fn names(state_dir: &Path) -> Result<Vec<String>> {
    let claims = listed(state_dir)?.claims.into_iter();
    Ok(claims.filter_map(|held| held.name).collect())
}

/// What this user holds: all that is held, for root.
fn listed(state_dir: &Path) -> Result<ListedClaims> {
    if by_broker::is_needed(state_dir) {
        return Ok(ListedClaims {
            claims: by_broker::own(state_dir, &ListRequest {})?.claims,
            unreadable: Vec::new(),
        });
    }
    let host = HostFile::load(state_dir).ok();
    let policy = host.as_ref().map(|host| host.plan.users.clone()).unwrap_or_default();
    let names = host
        .map(|host| DeviceNames::new(host.inventory, host.plan))
        .unwrap_or_default();
    let accounts = Accounts::new(AccountSources::default());
    Ok(verbs::list(state_dir, Caller::Root, names, &policy, &accounts)?)
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
            or_dash(claim.name.as_ref()),
            claim.shares(),
            claim.memory(),
            claim.compute(),
            claim.state_words(),
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
    let name = CdiKind::without_claim(&args.name);
    // The number of the user may be left out of the name of one's own.
    let full = format!("{}.{name}", nix::unistd::geteuid());
    let ListedClaims { claims, unreadable } = listed(&args.at.state.state_dir)?;
    let named = |name: &str| claims.iter().find(|held| held.name.as_deref() == Some(name));
    let Some(held) = named(name).or_else(|| named(&full)) else {
        // It may be in a book that cannot be read.
        out::complain_all(&unreadable);
        let is_of_user = by_broker::is_needed(&args.at.state.state_dir);
        let (kind, what) = match (unreadable.is_empty(), is_of_user) {
            (false, _) => (Kind::Failed, "not found in the part of the ledger that can be read"),
            (true, true) => (Kind::Usage, "not found among yours"),
            (true, false) => (Kind::Usage, "not found"),
        };
        let known: Vec<&str> = claims.iter().filter_map(|held| held.name.as_deref()).collect();
        bail!(Error::new(kind, format!("claim {name}"), what).hint(there_are(name, &known)));
    };
    out::either(args.at.json, held, || text(held))?;
    Ok(ExitCode::SUCCESS)
}

fn text(held: &Held) -> String {
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
        ("claim", held.name.clone().unwrap_or_default()),
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
        ("turn", or_dash(held.turn.as_ref().map(HeldTurn::state))),
        ("cannot be ended", or_dash(held.cannot_be_ended.as_ref())),
        ("when its container ends", afterwards.to_owned()),
        ("user", held.uid.to_string()),
        ("created", utc(held.since)),
        ("specification", or_dash(held.spec_file.as_ref())),
    ])
}

fn there_are(asked: &str, known: &[&str]) -> String {
    match known {
        [] => "there are no claims; tranche claim create makes one".to_owned(),
        known => format!("there are {}", candidates(asked, known)),
    }
}
