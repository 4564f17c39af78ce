//! The command line of `tranche`: one file per verb, which parses its arguments, calls the library and prints the
//! result. Nothing in the library uses this module.

mod advise;
mod bench;
mod broker;
mod calendar;
mod cdi;
mod claim;
mod complete_names;
mod doctor;
mod drain;
mod effect;
mod export;
mod history;
mod inventory;
mod list;
pub mod look;
mod metrics;
mod mig;
mod mps;
mod nvidia;
pub mod out;
mod pages;
mod past;
pub mod place;
mod plan;
mod policy;
mod progress;
mod report;
mod reserve;
mod run;
mod runtime;
mod sharing;
mod status;
mod system;
mod table;
mod top;
mod turn;
mod turns;
mod usage;
mod verify;
mod window;

pub use mig::run_if_called;
pub use run::run_if_waiting;

use anyhow::Result;
use clap::builder::Resettable;
use clap::{ArgMatches, Command, CommandFactory, FromArgMatches, Parser, Subcommand};
use std::ffi::{OsStr, OsString};
use std::process::ExitCode;
use tracing::level_filters::LevelFilter;

/// Gives a container a GPU, or an exact slice of one, on any engine.
#[derive(Parser)]
#[command(name = "tranche", version = tranche_core::types::PROGRAM_VERSION, max_term_width = 110)]
#[command(
    after_help = "Exit codes: 0 done, 1 failed, 2 usage, 3 nothing to do (no driver, no GPU), 4 a check found a problem."
)]
pub struct Arguments {
    /// Also print what was searched for and not found; given twice, print every step
    #[arg(short, long, action = clap::ArgAction::Count, global = true, display_order = 900)]
    verbose: u8,
    #[command(flatten)]
    of_nvidia: nvidia::GlobalArgs,
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    List(list::Args),
    Inventory(inventory::Args),
    /// Write, check and show CDI specifications for engines (podman, docker, containerd, CRI-O)
    #[command(subcommand)]
    Cdi(cdi::Verb),
    /// Check the policy, which says how devices are shared, and show what another one would change
    #[command(subcommand)]
    Policy(policy::Verb),
    Plan(plan::Args),
    Advise(Box<advise::Args>),
    Bench(Box<bench::Args>),
    /// Reserve shares for a container that starts later; list and release claims
    #[command(subcommand)]
    Claim(claim::Verb),
    Reserve(Box<reserve::Args>),
    Calendar(calendar::Args),
    Suspend(turn::SuspendArgs),
    Resume(turn::ResumeArgs),
    /// Try whether the driver can give a GPU by turns (experimental)
    #[command(subcommand)]
    Turns(turns::Verb),
    Status(status::Args),
    Doctor(doctor::Args),
    Drain(Box<drain::DrainArgs>),
    Undrain(Box<drain::UndrainArgs>),
    Run(Box<run::Args>),
    Verify(Box<verify::Args>),
    Top(top::Args),
    Broker(broker::Args),
    /// Start, stop and show the MPS daemons that tranche manages
    #[command(subcommand)]
    Mps(mps::Verb),
    /// Show and change how GPUs are divided by MIG
    #[command(subcommand)]
    Mig(mig::Verb),
    History(history::Args),
    Report(report::Args),
    Metrics(metrics::Args),
    Export(Box<export::Args>),
    /// Add tranche's runtime to the configuration of an engine (docker, containerd, CRI-O, podman), and remove it
    #[command(subcommand)]
    Runtime(runtime::Verb),
    /// Make the driver's device nodes and the links in /dev/char; prepare the removal of tranche
    #[command(subcommand)]
    System(system::Verb),
    #[command(hide = true)]
    CompleteNames(complete_names::Args),
}

/// Reads the arguments; returns them with the level of the log.
///
/// # Errors
/// Returns the exit code if help was requested and printed, or after a line about invalid arguments.
pub fn parse(arguments: impl IntoIterator<Item = OsString>) -> Result<(Arguments, LevelFilter), ExitCode> {
    let command = with_last_option(without_empty_variables(Arguments::command()), &[]);
    let arguments: Vec<OsString> = arguments.into_iter().collect();
    let parsed = command.try_get_matches_from(&arguments).and_then(|matches| {
        let wants_list = wants_list_of_simulations(&matches);
        Ok((
            Arguments::from_arg_matches(&matches)?,
            wants_list,
            effect::check(&matches),
        ))
    });
    match parsed {
        Ok((_, true, _)) => {
            Err(out::result(&tranche_plan::sim::help()).map_or_else(out::complain, |()| ExitCode::SUCCESS))
        }
        Ok((_, false, Err(error))) => Err(out::complain(error.into())),
        Ok((parsed, false, Ok(()))) => {
            let level = parsed.of_nvidia.level(parsed.verbose);
            Ok((parsed, level))
        }
        Err(error) if error.use_stderr() => Err(out::complain(
            usage::in_one_line(&Arguments::command(), &error, &arguments).into(),
        )),
        Err(help) => {
            // If standard output is closed, nobody is there to read it.
            let _ = help.print();
            Err(ExitCode::SUCCESS)
        }
    }
}

/// Whether `--inventory sim:help` was given, which every verb with this option takes for a request for help.
fn wants_list_of_simulations(matches: &ArgMatches) -> bool {
    let inventory = matches.try_get_one::<String>("inventory").ok().flatten();
    inventory.is_some_and(|i| i == "sim:help")
        || matches
            .subcommand()
            .is_some_and(|(_, verb)| wants_list_of_simulations(verb))
}

/// Ignores environment variables that are set and empty: unit files and their `EnvironmentFile`s name variables for
/// people to fill in.
fn without_empty_variables(command: Command) -> Command {
    let is_empty = |name: &OsStr| std::env::var_os(name).is_some_and(|value| value.is_empty());
    command
        .mut_args(|arg| match arg.get_env() {
            Some(name) if is_empty(name) => arg.env(Resettable::Reset),
            _ => arg,
        })
        .mut_subcommands(without_empty_variables)
}

/// The commands that NVIDIA's `nvidia-ctk` has as well.
const OF_NVIDIA: [&[&str]; 6] = [
    &["cdi", "generate"],
    &["cdi", "list"],
    &["cdi", "transform", "root"],
    &["runtime", "configure"],
    &["system", "create-device-nodes"],
    &["system", "create-dev-char-symlinks"],
];

/// Makes the last of an option's values count in the commands of [`OF_NVIDIA`], as in NVIDIA's program: scripts append
/// their own options to a command line that they got from elsewhere. In every other command, an option that is given
/// twice is a mistake. `path` leads to `command`.
fn with_last_option(command: Command, path: &[&str]) -> Command {
    let is_one = OF_NVIDIA.contains(&path);
    let is_on_the_way = OF_NVIDIA.iter().any(|known| known.starts_with(path));
    let command = if is_one {
        command.args_override_self(true)
    } else {
        command
    };
    match is_on_the_way {
        true => command.mut_subcommands(|below| {
            let name = below.get_name().to_owned();
            with_last_option(below, &[path, &[name.as_str()]].concat())
        }),
        false => command,
    }
}

/// Runs the command.
///
/// # Errors
/// Returns the error of the verb.
pub fn run(arguments: Arguments) -> Result<ExitCode> {
    arguments.of_nvidia.look_at_config()?;
    match arguments.verb {
        Verb::List(args) => list::run(&args),
        Verb::Inventory(args) => inventory::run(&args),
        Verb::Cdi(verb) => cdi::run(verb),
        Verb::Policy(policy::Verb::Check(args)) => policy::check(&args),
        Verb::Policy(policy::Verb::Diff(args)) => policy::diff(&args),
        Verb::Plan(args) => plan::run(&args),
        Verb::Advise(args) => advise::run(&args),
        Verb::Bench(args) => bench::run(&args),
        Verb::Claim(verb) => claim::run(&verb),
        Verb::Reserve(args) => reserve::run(&args),
        Verb::Calendar(args) => calendar::run(&args),
        Verb::Suspend(args) => turn::suspend(&args),
        Verb::Resume(args) => turn::resume(&args),
        Verb::Turns(verb) => turns::run(&verb),
        Verb::Status(args) => status::run(&args),
        Verb::Drain(args) => drain::drain(&args),
        Verb::Undrain(args) => drain::undrain(&args),
        Verb::Doctor(args) => doctor::run(&args),
        Verb::Run(args) => run::run(&args),
        Verb::Verify(args) => verify::run(&args),
        Verb::Top(args) => top::run(&args),
        Verb::Broker(args) => broker::run(&args),
        Verb::Mps(verb) => mps::run(&verb),
        Verb::Mig(verb) => mig::run(&verb),
        Verb::History(args) => history::run(&args),
        Verb::Report(args) => report::run(&args),
        Verb::Metrics(args) => metrics::run(&args),
        Verb::Export(args) => export::run(&args),
        Verb::Runtime(verb) => runtime::run(&verb),
        Verb::System(verb) => system::run(&verb),
        Verb::CompleteNames(args) => complete_names::run(&args),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The general options that `command` or one of its verbs shows below a heading. clap does that to an option that
    /// follows one with a heading.
    fn misplaced(command: &Command, path: &str) -> Vec<String> {
        const GENERAL: [&str; 6] = ["json", "wide", "config", "config_key", "state_dir", "spec_dirs"];
        let own = command
            .get_arguments()
            .filter(|arg| GENERAL.contains(&arg.get_id().as_str()) && arg.get_help_heading().is_some())
            .map(|arg| format!("{path}: --{}", arg.get_id()));
        let below = command
            .get_subcommands()
            .flat_map(|verb| misplaced(verb, &format!("{path} {}", verb.get_name())));
        own.chain(below).collect()
    }

    #[test]
    fn general_options_are_not_below_the_heading_of_others() {
        assert_eq!(misplaced(&Arguments::command(), "tranche"), [""; 0]);
    }
}
