//! `tranche calendar`: what is reserved for later.

mod ics;
mod week;

use crate::out;
use crate::place::StateArgs;
use crate::table::Table;
use anyhow::Result;
use jiff::tz::TimeZone;
use jiff::{Timestamp, Zoned};
use std::fmt::Write;
use std::process::ExitCode;
use tranche_broker::verbs::{self, Caller};
use tranche_core::ledger::utc;
use tranche_core::text::shown;
use tranche_plan::host_file::HostFile;
use tranche_protocol::{CalendarAnswer, CalendarEntry, CalendarRequest, TimeState};
use tranche_state::held::by_broker;

/// Show what is reserved for later, in your time zone
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Show seven days from today, a line for each device
    #[arg(long, conflicts_with_all = ["ics", "json"])]
    week: bool,
    /// Print it for calendar programs (iCalendar)
    #[arg(long, conflicts_with = "json")]
    ics: bool,
    /// Print JSON; docs/reference/calendar.md describes the fields
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    state: StateArgs,
}

pub(super) fn run(args: &Args) -> Result<ExitCode> {
    let state_dir = &args.state.state_dir;
    let answer: CalendarAnswer = match by_broker::is_needed(state_dir) {
        true => by_broker::ask(state_dir, &CalendarRequest {})?,
        false => {
            let plan = HostFile::load(state_dir).map(|file| file.plan).unwrap_or_default();
            verbs::calendar(state_dir, Caller::Root, &plan)?
        }
    };
    if let Some(changed) = answer.changed {
        out::note(format!(
            "the clock is behind the last change of the calendar, at {}; set the clock",
            utc(changed)
        ));
    }
    let now = Zoned::now();
    match (args.json, args.ics, args.week) {
        (true, ..) => out::json(&answer)?,
        (_, true, _) => out::document(&ics::text(&answer.entries))?,
        (.., true) => out::result(&week::text(&answer, &now))?,
        _ => out::result(&table(&answer.entries, now.time_zone()))?,
    }
    Ok(ExitCode::SUCCESS)
}

/// A time in seconds since 1970 by the clock of `zone`.
fn local(seconds: u64, zone: &TimeZone) -> Zoned {
    let moment = i64::try_from(seconds)
        .ok()
        .and_then(|seconds| Timestamp::from_second(seconds).ok());
    moment.unwrap_or(Timestamp::MAX).to_zoned(zone.clone())
}

fn table(entries: &[CalendarEntry], zone: &TimeZone) -> String {
    if entries.is_empty() {
        return "nothing is reserved\n".to_owned();
    }
    let mut table = Table::narrow(&["ID", "WHAT", "FROM", "UNTIL", "WHO", "STATE", "REASON"]);
    for CalendarEntry { reserved, state, .. } in entries {
        let (from, until) = (local(reserved.from, zone), local(reserved.until, zone));
        let until = match from.date() == until.date() && from.offset() == until.offset() {
            true => until.strftime("%H:%M").to_string(),
            false => until.strftime("%d %b %H:%M").to_string(),
        };
        let state = match state {
            TimeState::Later => "",
            TimeState::Near => "soon",
            TimeState::Now => "now",
            TimeState::GivenUp => "given up",
        };
        table.row([
            reserved.id.to_string(),
            reserved.label.clone(),
            from.strftime("%a %d %b %H:%M").to_string(),
            until,
            reserved.who.clone(),
            state.to_owned(),
            reserved.reason.clone().unwrap_or_default(),
        ]);
    }
    let mut text = table.text();
    for CalendarEntry { reserved, held_by, .. } in entries {
        for who in held_by {
            // A line that cannot be written to a String does not exist.
            let _ = writeln!(text, "reservation {}: still held by {}", reserved.id, shown(who));
        }
    }
    text
}

#[cfg(test)]
mod tests;
