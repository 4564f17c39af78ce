//! `tranche bench`: measures how processes that share a device fare, beside what the plan promises of each share.

mod compare;
mod guard;
mod sweep;

use super::out;
use super::sharing::MachineArgs;
use anyhow::{Result, bail};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use tranche_bench::cell::{Length, Neighbour};
use tranche_bench::picture::picture;
use tranche_bench::results::Results;
use tranche_bench::terminal::report;
use tranche_bench::way::{Allowed, Way};
use tranche_core::error::Error;
use tranche_core::ledger::{clock, utc};
use tranche_measure::guard::restore;
use tranche_measure::guarded::Guarded;
use tranche_measure::keep::keep;
use tranche_measure::run::{Run, RunOptions};
use tranche_state::held::root_only;
use tranche_state::{replace, stop};

/// Measure how processes that share DEVICE fare: latency, throughput, memory and faults, beside what the plan promises
///
/// The device is held while it is measured, and is then as it was. A short run takes at most five minutes; it may be
/// ended at any time. docs/explanation/measuring.md says what the figures mean.
#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub(super) struct Args {
    #[command(subcommand)]
    verb: Option<Verb>,
    // Options without a heading of their own come first: clap would show them below the heading of those before them.
    /// The device: 0, 0:1, GPU-… or MIG-…
    #[arg(value_name = "DEVICE", required = true)]
    device: Option<String>,
    /// Measure each cell three times for 30 seconds, an hour in all
    #[arg(long)]
    full: bool,
    /// Measure only this way of sharing, beside a process alone: ts2, mps2, mps-50-50, mps-80-20. May be repeated
    #[arg(long = "way", value_name = "WAY")]
    ways: Vec<Way>,
    /// Measure only beside this neighbour: idle, hog-sm, hog-dram, hog-l2, hog-pcie, greedy, batch, fault. May be
    /// repeated
    #[arg(long = "beside", value_name = "NEIGHBOUR")]
    neighbours: Vec<Neighbour>,
    /// Only at half of the load that the device can serve alone, and not at 10 % and 90 %
    #[arg(long)]
    half: bool,
    /// Set compute modes and lengths of turns for as long as it takes
    #[arg(long)]
    change_modes: bool,
    /// Turn MIG on or off and make its instances for as long as it takes. A GPU that cannot do that otherwise is reset
    #[arg(long)]
    change_layout: bool,
    /// Write the results to FILE as well (JSON)
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    output: Option<PathBuf>,
    /// Draw the results to FILE (SVG)
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    svg: Option<PathBuf>,
    /// Words about the machine for the results, such as its model. They have no name of it otherwise
    #[arg(long, value_name = "TEXT", default_value = "")]
    machine: String,
    /// The program that loads the device, in place of the installed one
    #[arg(long, value_name = "FILE", hide = true)]
    load_program: Option<PathBuf>,
    /// The seed of the times at which requests arrive
    #[arg(long, value_name = "NUMBER", default_value = "1", hide = true)]
    seed: u64,
    /// Seconds for which each cell is measured, for tests
    #[arg(long, value_name = "SECONDS", hide = true)]
    seconds: Option<u32>,
    /// Print the results as JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    at: MachineArgs,
}

#[derive(Debug, clap::Subcommand)]
enum Verb {
    Sweep(Box<sweep::Args>),
    Compare(compare::Args),
    /// Put back what a run has left that was killed together with its guard
    Restore(RestoreArgs),
    #[command(hide = true)]
    Guard(guard::Args),
    #[command(hide = true)]
    AsUser(sweep::AsUserArgs),
}

#[derive(Debug, clap::Args)]
struct RestoreArgs {
    #[command(flatten)]
    at: MachineArgs,
}

pub(super) fn run(args: &Args) -> Result<ExitCode> {
    match &args.verb {
        Some(Verb::Sweep(args)) => sweep::run(args),
        Some(Verb::AsUser(args)) => sweep::run_as_user(args),
        Some(Verb::Compare(args)) => compare::run(args),
        Some(Verb::Guard(args)) => guard::run(args),
        Some(Verb::Restore(args)) => {
            let text = match restore(&args.at.options())? {
                true => "put back\n",
                false => "there is nothing to put back\n",
            };
            out::result(text)?;
            Ok(ExitCode::SUCCESS)
        }
        None => measure(args),
    }
}

fn measure(args: &Args) -> Result<ExitCode> {
    let at = args.at.options();
    root_only::check(&at.state_dir)?;
    for file in [&args.output, &args.svg].into_iter().flatten() {
        refuse_directory(file)?;
    }
    // Before any thread is started.
    let stop = stop::signals("tranche bench")?;
    let run = Run::new(RunOptions {
        at: at.clone(),
        device: args.device.clone().unwrap_or_default(),
        allowed: Allowed {
            modes: args.change_modes,
            layout: args.change_layout,
        },
        length: length(args),
        ways: args.ways.clone(),
        neighbours: args.neighbours.clone(),
        loads: if args.half { vec![50] } else { Vec::new() },
        load: args.load_program.clone(),
        machine: args.machine.clone(),
        date: today(),
        seed: args.seed,
    })?;
    let Some(guarded) = Guarded::start(&guard::words(&at, run.device()))? else {
        // The guard has said why.
        return Ok(ExitCode::FAILURE);
    };
    run.text().lines().for_each(out::note);
    let results = run.run(guarded, std::os::fd::AsFd::as_fd(&stop), &mut |line| out::note(line))?;
    let kept = keep(&at.state_dir, run.device(), &results);
    if let Some(file) = &args.output {
        replace::write(file, &results.text()?)?;
    }
    if let Some(file) = &args.svg {
        replace::write(file, &picture(&results))?;
    }
    out::either(args.json, &results, || report(&results))?;
    kept?;
    Ok(match results.leftovers.is_empty() {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    })
}

fn length(args: &Args) -> Length {
    let length = match args.full {
        true => Length::FULL,
        false => Length::SHORT,
    };
    match args.seconds {
        Some(measure_s) => Length {
            measure_s,
            warm_up_s: 0,
            ..length
        },
        None => length,
    }
}

fn refuse_directory(file: &Path) -> Result<()> {
    match file.is_dir() {
        true => bail!(Error::usage(file.display(), "is a directory").hint("name a file in it")),
        false => Ok(()),
    }
}

/// The day, as 2026-11-28.
fn today() -> String {
    utc(clock()).chars().take(10).collect()
}

/// Reads a file of results.
fn read(file: &Path) -> Result<Results> {
    let text = tranche_core::bounded::regular_file(file)
        .and_then(|open| tranche_core::bounded::read(open, tranche_bench::results::MOST_BYTES))
        .map_err(|error| Error::failed(file.display(), "cannot be read").from_source(error))?;
    let text = String::from_utf8(text).map_err(|_| Error::failed(file.display(), "is not UTF-8 text"))?;
    Ok(Results::read(&file.display().to_string(), &text)?)
}
