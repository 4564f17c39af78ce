//! `tranche bench sweep`: the best split of a device between two workloads.

use super::guard;
use crate::out;
use crate::sharing::MachineArgs;
use anyhow::Result;
use std::ffi::OsString;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;
use tranche_bench::cell::Length;
use tranche_bench::latency::FigureRule;
use tranche_bench::way::Allowed;
use tranche_core::error::{Context, Error};
use tranche_core::own_programs;
use tranche_measure::as_user::Person;
use tranche_measure::guarded::Guarded;
use tranche_measure::search::{Search, SearchOptions};
use tranche_measure::workload::Workload;
use tranche_state::held::root_only;
use tranche_state::stop;

/// Search the split of DEVICE under MPS that keeps the latency of one workload and gives another one the most
///
/// A command of yours prints latency_ms=NUMBER, or rate=NUMBER, in lines of any form. It is started for each run, and
/// gets SIGTERM at its end. If no split keeps the bound, the exit code is 1.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The device: 0, 0:1, GPU-… or MIG-…
    #[arg(value_name = "DEVICE")]
    device: String,
    /// The most latency of the first, in milliseconds: the 99th percentile of a run. Otherwise twice its latency alone
    #[arg(long, value_name = "MS")]
    bound: Option<f64>,
    /// The percentage between two splits: 10 or 5
    #[arg(long, value_name = "PERCENT", default_value = "10")]
    step: u32,
    /// The first workload, whose latency counts: serve, at half of its capacity, or a command for the shell
    #[arg(long, value_name = "COMMAND", default_value = "serve")]
    first: String,
    /// The second, whose work counts: batch, hog-sm, hog-dram, hog-l2, hog-pcie, or a command for the shell
    #[arg(long, value_name = "COMMAND", default_value = "batch")]
    second: String,
    /// The user as whom commands run
    #[arg(long, value_name = "NAME")]
    user: Option<String>,
    /// How a latency is found in a line: a regular expression with one group around the milliseconds
    #[arg(long, value_name = "PATTERN")]
    latency_pattern: Option<String>,
    /// How the work in a second is found in a line: a regular expression with one group around the number
    #[arg(long, value_name = "PATTERN")]
    rate_pattern: Option<String>,
    /// For how many seconds each split is measured each time
    #[arg(long, value_name = "SECONDS", default_value = "10", value_parser = clap::value_parser!(u32).range(1..=600))]
    seconds: u32,
    /// How many seconds a command may take until it prints its first figure
    #[arg(long, value_name = "SECONDS", default_value = "120")]
    start_within: u64,
    /// Set the compute mode for as long as it takes
    #[arg(long)]
    change_modes: bool,
    /// The program that loads the device, in place of the installed one
    #[arg(long, value_name = "FILE", hide = true)]
    load_program: Option<PathBuf>,
    /// The seed of the times at which requests arrive
    #[arg(long, value_name = "NUMBER", default_value = "1", hide = true)]
    seed: u64,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    at: MachineArgs,
}

/// Run a command as a user in a share that root has got for it
#[derive(Debug, clap::Args)]
pub(super) struct AsUserArgs {
    /// The user
    #[arg(value_name = "NAME")]
    user: String,
    /// Run one word by a shell in DIRECTORY, and end all that it leaves, at its end or at that of standard input
    #[arg(long, value_name = "DIRECTORY")]
    shell: Option<String>,
    /// The program and its arguments
    #[arg(value_name = "PROGRAM", required = true, last = true)]
    words: Vec<OsString>,
}

/// The words that run what follows them as this user; with a directory, by a shell.
fn as_user(user: &str, directory: Option<&str>) -> Result<Vec<OsString>> {
    let mut words: Vec<OsString> = vec![own_programs::find("tranche")?.into()];
    words.extend(["bench", "as-user", user].map(OsString::from));
    words.extend(directory.map(|directory| OsString::from(format!("--shell={directory}"))));
    words.push("--".into());
    Ok(words)
}

pub(super) fn run(args: &Args) -> Result<ExitCode> {
    let at = args.at.options();
    root_only::check(&at.state_dir)?;
    // Before any thread is started.
    let stop = stop::signals("tranche bench")?;
    let person = args.user.as_deref().map(Person::find).transpose()?;
    let directory = std::env::current_dir().about("directory", "cannot be found")?;
    let directory = directory.to_string_lossy();
    let name = args.user.as_deref().unwrap_or_default();
    let search = Search::new(SearchOptions {
        at: at.clone(),
        device: args.device.clone(),
        allowed: Allowed {
            modes: args.change_modes,
            layout: false,
        },
        length: Length {
            measure_s: args.seconds,
            warm_up_s: args.seconds / 10,
            ..Length::SHORT
        },
        step: args.step,
        bound_ms: args.bound,
        first: Workload::first(&args.first)?,
        second: Workload::second(&args.second)?,
        as_person: as_user(name, None)?,
        by_shell: as_user(name, Some(&directory))?,
        person,
        latency: FigureRule::latency(args.latency_pattern.as_deref())?,
        rate: FigureRule::rate(args.rate_pattern.as_deref())?,
        patience: Duration::from_secs(args.start_within),
        load: args.load_program.clone(),
        seed: args.seed,
    })?;
    let Some(mut guarded) = Guarded::start(&guard::words(&at, search.device()))? else {
        // The guard has said why.
        return Ok(ExitCode::FAILURE);
    };
    let found = search.run(&guarded, stop.as_fd(), &mut |line| out::note(line));
    let put_back = guarded.end();
    let found = found?;
    out::either(args.json, &found, || found.text())?;
    put_back?;
    Ok(match found.best {
        Some(_) => ExitCode::SUCCESS,
        None => ExitCode::FAILURE,
    })
}

pub(super) fn run_as_user(args: &AsUserArgs) -> Result<ExitCode> {
    let person = Person::find(&args.user)?;
    let Some(directory) = &args.shell else {
        return Err(person.run_instead(&args.words).into());
    };
    let command = match args.words.as_slice() {
        [command] => command.to_str(),
        _ => None,
    };
    let command = command.ok_or_else(|| Error::usage("command", "expected one word of UTF-8 text"))?;
    let status = person.run(command, directory)?;
    let code = status
        .and_then(|status| status.code())
        .and_then(|code| u8::try_from(code).ok());
    Ok(ExitCode::from(code.unwrap_or(1)))
}
