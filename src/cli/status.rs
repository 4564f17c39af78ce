//! `tranche status`: who holds what, what is free, what is not as expected, and the messages of hooks.

mod messages;
mod text;

use super::held::{Held, View};
use super::observed::{DaemonRow, Deviation, DeviceStatus, DeviceUsage, HostFileRow, ObserveArgs, Observed, WaiterRow};
use super::out;
use super::pages::{self, seconds_of_watch};
use super::place::{SpecDirArgs, StateArgs};
use super::root_only;
use super::specs::Specs;
use crate::claims::Claims;
use crate::error::{Error, line};
use crate::ledger::{Books, Claim};
use anyhow::Result;
use messages::Said;
use serde::Serialize;
use std::process::ExitCode;
use std::time::Duration;

/// Show who holds which share since when, what is free, who waits, what the GPUs do, and messages of hooks
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Show the page again every SECONDS [default: 2]
    #[arg(long, value_name = "SECONDS", num_args = 0..=1, require_equals = true, default_missing_value = "2",
          value_parser = seconds_of_watch)]
    watch: Option<Duration>,
    /// Do not ask NVML, the driver's library, for memory, utilisation and processes
    #[arg(long)]
    no_gpu: bool,
    /// Print JSON; docs/shares.md describes the fields
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    at: ObserveArgs,
}

/// The result, as `--json` prints it. docs/shares.md documents the fields.
#[derive(Debug, Serialize)]
struct Status<'o> {
    devices: &'o [DeviceStatus],
    claims: &'o [Held],
    /// What NVML says; `null` if it was not asked.
    gpus: Option<&'o [DeviceUsage]>,
    waiters: &'o [WaiterRow],
    daemons: &'o [DaemonRow],
    host_file: &'o HostFileRow,
    deviations: &'o [Deviation],
    messages: Vec<Said<'o>>,
    /// What could not be read, and so is missing above.
    problems: Vec<String>,
    /// When the broker wrote what is above, in seconds since 1970; `null` if it was read from the ledger.
    written: Option<u64>,
    #[serde(skip)]
    is_ledger_readable: bool,
}

pub(super) fn run(args: &Args) -> Result<ExitCode> {
    match args.watch {
        None => page(args),
        Some(period) => pages::each(period, !args.json, || page(args)),
    }
}

/// Shows one page. What could not be read is said on stderr.
fn page(args: &Args) -> Result<ExitCode> {
    let mut observed = Observed::look(&args.at, !args.no_gpu)?;
    let kept = messages::kept(&args.at.state)?;
    let mut names = std::mem::take(&mut observed.view.names);
    let claims: Vec<&Claim> = observed.books.claims().collect();
    let problems: Vec<&Error> = observed.problems().chain(&kept.damaged).collect();
    let status = Status {
        devices: &observed.devices,
        claims: &observed.claims,
        gpus: observed.gpus.as_deref(),
        waiters: &observed.waiters,
        daemons: &observed.daemons,
        host_file: &observed.host_file,
        deviations: &observed.deviations,
        messages: messages::said(&kept.messages, &claims, &mut names),
        problems: problems.iter().map(|error| line(*error)).collect(),
        written: observed.written,
        is_ledger_readable: observed.sees_ledger && observed.books.damaged.is_empty(),
    };
    out::either(args.json, &status, || {
        text::of(&status, observed.sees_ledger, observed.now)
    })?;
    // What could be read is shown all the same.
    Ok(out::complain_all(problems))
}

/// What is held, and how it is shown.
///
/// # Errors
/// Returns an error if this user cannot use the ledger, or if it cannot be listed.
pub(super) fn read(state: &StateArgs, specs: &SpecDirArgs) -> Result<(Books, View)> {
    let (books, uptime) = books(state)?;
    Ok((books, View::new(Specs::read(specs, &state.state_dir), uptime)))
}

/// What is held, and the seconds since boot by which a claim's time to live is counted.
///
/// # Errors
/// As [`read`].
pub(super) fn books(state: &StateArgs) -> Result<(Books, u64)> {
    root_only::check(&state.state_dir)?;
    Ok(match Claims::existing(&state.state_dir)? {
        Some(claims) => (claims.books()?, claims.uptime()),
        None => Default::default(),
    })
}
