//! `tranche reserve`: a device or a share for later.

mod when;

use crate::out;
use crate::place::StateArgs;
use crate::sharing::SharingArgs;
use anyhow::Result;
use std::path::Path;
use std::process::ExitCode;
use tranche_broker::verbs::{self, CalendarPlace, Caller};
use tranche_core::error::{Error, Result as CoreResult};
use tranche_core::ledger::ReservedTime;
use tranche_plan::policy::LongTime;
use tranche_protocol::{CancelTimeRequest, ReserveTimeRequest};
use tranche_state::calendar;
use tranche_state::held::{by_broker, root_only};
use tranche_state::planning;

/// The word for every reservation.
const ALL: &str = "all";

/// Reserve a device or a share for later, and give a reservation back
#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub(super) struct Args {
    /// What: a device that is given whole (0, 0:1, GPU-…, MIG-…), any free one of these (any), or a share (0.big,
    /// 0.any)
    #[arg(value_name = "DEVICE.SHARE", required = true)]
    what: Option<String>,
    /// From when on, in your time zone: 14:00, "tomorrow 14:00", "2026-12-01 14:00", now, or with a zone
    /// 2026-12-01T14:00:00+01:00
    #[arg(long, value_name = "TIME", required = true)]
    from: Option<String>,
    /// For how long: 30m, 2h, 1d
    #[arg(long = "for", value_name = "DURATION", required = true)]
    length: Option<LongTime>,
    /// Why, in one line; everybody who looks at the calendar sees it
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
    /// Print JSON; docs/reference/calendar.md describes the fields
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    at: SharingArgs,
    #[command(subcommand)]
    verb: Option<Verb>,
}

#[derive(Debug, clap::Subcommand)]
enum Verb {
    /// Give reservations back; who holds something keeps it
    Cancel(CancelArgs),
}

#[derive(Debug, clap::Args)]
struct CancelArgs {
    /// The numbers of the reservations, as tranche calendar shows them. all: root empties the calendar, also one that
    /// cannot be read
    #[arg(value_name = "ID", required = true)]
    ids: Vec<String>,
    #[command(flatten)]
    state: StateArgs,
}

pub(super) fn run(args: &Args) -> Result<ExitCode> {
    if let Some(Verb::Cancel(args)) = &args.verb {
        return cancel(args);
    }
    let state_dir = &args.at.state.state_dir;
    let request = args.request()?;
    let reserved: ReservedTime = match by_broker::is_needed(state_dir) {
        true => by_broker::ask(state_dir, &request)?,
        false => {
            let options = args.at.options();
            let with = |policy: &_| planning::required(&options.with_policy(policy));
            let ((inventory, sharing), wrong) = planning::in_force(&options.policy, state_dir, with)?;
            wrong.iter().for_each(out::note);
            let place = CalendarPlace {
                state_dir,
                inventory: &inventory,
                plan: &sharing.plan,
            };
            verbs::reserve_time(place, Caller::Root, request)?
        }
    };
    out::either(args.json, &reserved, || format!("{}: {reserved}\n", reserved.label))?;
    Ok(ExitCode::SUCCESS)
}

impl Args {
    fn request(&self) -> CoreResult<ReserveTimeRequest> {
        let (from, length) = (self.from.as_deref().unwrap_or_default(), self.length);
        let length = length.map_or(0, |length| length.get().as_secs());
        let when::Moments {
            from,
            until,
            zone,
            offsets,
        } = when::period(from, length)?;
        Ok(ReserveTimeRequest {
            what: self.what.clone().unwrap_or_default(),
            from,
            until,
            reason: self.reason.clone(),
            zone,
            offsets,
        })
    }
}

fn cancel(args: &CancelArgs) -> Result<ExitCode> {
    let state_dir = &args.state.state_dir;
    if args.ids == [ALL] {
        root_only::check(state_dir)
            .map_err(|_| Error::failed("reserve", "only root empties the calendar").hint("name your reservations"))?;
        let ended = calendar::empty(state_dir)?;
        out::note(format!(
            "the calendar is empty; it had {}",
            tranche_core::text::counted(ended, "reservation")
        ));
        return Ok(ExitCode::SUCCESS);
    }
    let parsed = args.ids.iter().map(|id| number(id)).collect::<CoreResult<Vec<u32>>>()?;
    for id in parsed {
        let ended = cancel_one(state_dir, id)?;
        out::result(&format!("{}: cancelled; it was {ended}\n", ended.label))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn number(id: &str) -> CoreResult<u32> {
    id.parse().map_err(|_| {
        Error::usage(format!("reservation {id}"), "is not a number").hint("tranche calendar shows the numbers")
    })
}

fn cancel_one(state_dir: &Path, id: u32) -> CoreResult<ReservedTime> {
    match by_broker::is_needed(state_dir) {
        true => by_broker::ask(state_dir, &CancelTimeRequest { id }),
        false => verbs::cancel_time(state_dir, Caller::Root, id),
    }
}
