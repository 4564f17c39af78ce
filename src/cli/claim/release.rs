//! `tranche claim release`: releases a claim, a share, or everything that a container holds.

use super::PlaceArgs;
use crate::out;
use anyhow::{Result, bail};
use serde::Deserialize;
use serde_json::json;
use std::process::ExitCode;
use tranche_broker::verbs::{self, Caller, Released, UserClaims, WhatToRelease};
use tranche_core::broker::ErrorFields;
use tranche_core::error::Error;
use tranche_protocol::ReleaseRequest;
use tranche_state::held::names::DeviceNames;
use tranche_state::held::{Held, by_broker};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The name of a claim; a device or share (nvidia.com/gpu=0.3, or 0.3); or a container's name or id, or at least
    /// the first four characters of an id, if no other container's id begins with them. The containers of a user's
    /// own engine are named UID.ID
    #[arg(value_name = "CLAIM|DEVICE|CONTAINER", required_unless_present = "user")]
    what: Option<String>,
    /// Release all that this user holds, also under subordinate uids
    #[arg(long, value_name = "NAME|UID", conflicts_with = "what")]
    user: Option<String>,
    /// Release the claim although a running container uses it. The container keeps its access to the device until it
    /// ends
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    at: PlaceArgs,
}

pub(super) fn run(args: &Args) -> Result<ExitCode> {
    let state_dir = &args.at.state.state_dir;
    // Only --user makes the argument optional.
    let what = args.what.as_deref().unwrap_or_default();
    if by_broker::is_needed(state_dir) {
        if args.user.is_some() {
            bail!(
                Error::usage("--user", "only root can release what another user holds").hint("name a claim of yours")
            );
        }
        let request = ReleaseRequest {
            what: what.to_owned(),
            force: args.force,
        };
        let OwnReleased { released, left } = by_broker::ask(state_dir, &request)?;
        show(args, &released)?;
        let left: Vec<Error> = left.into_iter().map(Error::from).collect();
        return Ok(out::complain_all(&left));
    }
    let user = args
        .user
        .as_deref()
        .map(|user| UserClaims::named(user, state_dir))
        .transpose()?;
    let what = user.as_ref().map_or(WhatToRelease::Named(what), WhatToRelease::AllOf);
    let mut unreadable = Vec::new();
    let names = DeviceNames::of_host(state_dir);
    let done = verbs::release(state_dir, Caller::Root, names, what, args.force, &mut unreadable);
    out::complain_all(&unreadable);
    let Released { released, left } = done?;
    show(args, &released)?;
    Ok(out::complain_all(&left))
}

/// Says what was released.
fn show(args: &Args, released: &[Held]) -> Result<()> {
    if args.at.json {
        return out::json(&json!({ "released": released }));
    }
    for held in released {
        let by = held.container.as_ref().map(|_| format!(", held by {}", held.holder()));
        out::note(format_args!("released {}{}", held.cdi, by.unwrap_or_default()));
    }
    Ok(())
}

/// What the broker says that it released.
#[derive(Deserialize)]
struct OwnReleased {
    released: Vec<Held>,
    /// Specifications that it could not remove. A broker of an earlier version has none.
    #[serde(default)]
    left: Vec<ErrorFields>,
}
