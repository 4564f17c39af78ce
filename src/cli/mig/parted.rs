//! `nvidia-mig-parted`: the verbs of NVIDIA's program under its own name, by a link to `tranche`.
//!
//! The options, their environment variables and the exit codes (0, and 1 for everything else) are those of mig-parted
//! 0.15. What is done is what `tranche mig` does.

mod apply;
mod assert;
mod checkpoint;
mod export;
mod node;

pub(super) use export::{LABEL, export};

use super::{ViewArgs, configuration};
use crate::{effect, out, usage, without_empty_variables};
use anyhow::Result;
use clap::builder::BoolishValueParser;
use clap::{Command, CommandFactory, FromArgMatches, Parser};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use tracing::level_filters::LevelFilter;
use tranche_broker::mig::KNOWN_SERVICES;
use tranche_core::error::{Error, Kind};
use tranche_plan::mig::mig_parted::Configuration;
use tranche_state::log;

/// The name of the link.
const NAME: &str = "nvidia-mig-parted";

/// Check and change how the GPUs of this machine are divided by MIG: NVIDIA's command of this name, which tranche runs
#[derive(Debug, Parser)]
#[command(name = NAME, version = tranche_core::types::PROGRAM_VERSION, max_term_width = 110)]
#[command(
    after_help = "Exit codes: 0 done, 1 anything else. docs/how-to/mig.md says what differs from NVIDIA's program."
)]
struct Arguments {
    /// Print every step
    #[arg(short, long, global = true, env = "MIG_PARTED_DEBUG", hide_env = true, value_parser = BoolishValueParser::new())]
    debug: bool,
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, clap::Subcommand)]
enum Verb {
    Assert(Box<assert::Args>),
    Apply(Box<apply::Args>),
    Export(Box<export::Args>),
    Checkpoint(Box<checkpoint::Args>),
    Restore(Box<checkpoint::RestoreArgs>),
    /// Not here: tranche mig profiles shows what each GPU offers
    GenerateConfig(GenerateArgs),
}

/// Not here: tranche mig profiles shows what each GPU offers
#[derive(Debug, clap::Args)]
struct GenerateArgs {
    /// Whatever NVIDIA's program takes
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, hide = true)]
    all: Vec<OsString>,
}

/// Which configuration.
#[derive(Debug, clap::Args)]
struct FileArgs {
    /// A configuration file, or a ConfigMap with one; - for stdin
    #[arg(
        short = 'f',
        long,
        value_name = "FILE",
        env = "MIG_PARTED_CONFIG_FILE",
        hide_env = true
    )]
    config_file: PathBuf,
    /// The configuration of that file, if it has several
    #[arg(
        short = 'c',
        long,
        value_name = "NAME",
        env = "MIG_PARTED_SELECTED_CONFIG",
        hide_env = true
    )]
    selected_config: Option<String>,
    /// Look at the MIG mode, and not at the MIG devices
    #[arg(short, long, env = "MIG_PARTED_MODE_CHANGE_ONLY", hide_env = true, value_parser = BoolishValueParser::new())]
    mode_only: bool,
}

impl FileArgs {
    fn read(&self) -> Result<Configuration> {
        configuration::read(&self.config_file, self.selected_config.as_deref())
    }
}

/// Programs that NVIDIA's command runs before and after a change.
#[derive(Debug, clap::Args)]
struct HooksArgs {
    /// Its programs are not run. Instead, services that are known to do no work for anybody and that keep a GPU open
    /// whose MIG mode changes are stopped, and started again
    #[arg(
        short = 'k',
        long,
        value_name = "FILE",
        env = "MIG_PARTED_HOOKS_FILE",
        hide_env = true
    )]
    hooks_file: Option<PathBuf>,
}

impl HooksArgs {
    /// The services that may be stopped, after a line that says what becomes of the hooks.
    fn services(&self) -> Result<Vec<String>> {
        let Some(file) = &self.hooks_file else {
            return Ok(Vec::new());
        };
        let shown = file.display().to_string();
        std::fs::File::open(file).map_err(|error| Error::usage(&shown, "cannot be read").from_source(error))?;
        out::note(format!(
            "{shown}: its programs are not run; tranche stops monitors and nvidia-persistenced itself where a MIG mode changes"
        ));
        Ok(KNOWN_SERVICES.iter().map(|unit| (*unit).to_owned()).collect())
    }
}

/// The command line, with tranche's own options hidden: NVIDIA's program has none of them.
pub(super) fn command() -> Command {
    const OF_NVIDIA: [&str; 12] = [
        "debug",
        "config_file",
        "selected_config",
        "mode_only",
        "valid_config",
        "skip_reset",
        "hooks_file",
        "output_format",
        "config_label",
        "checkpoint_file",
        "all",
        "help",
    ];
    let hidden = |command: Command| {
        command.mut_args(|arg| match OF_NVIDIA.contains(&arg.get_id().as_str()) {
            true => arg,
            false => arg.hide(true),
        })
    };
    without_empty_variables(Arguments::command()).mut_subcommands(hidden)
}

/// Runs as `nvidia-mig-parted` if the process was called by that name. Returns the exit code: 0 or 1.
pub fn run_if_called(arguments: impl IntoIterator<Item = OsString>) -> Option<ExitCode> {
    let arguments: Vec<OsString> = arguments.into_iter().collect();
    let called = arguments.first().and_then(|name| Path::new(name).file_name());
    if called.is_none_or(|name| name != NAME) {
        return None;
    }
    if arguments.len() == 1 {
        // NVIDIA's program prints its help, and that is a success.
        return Some(done(out::result(&command().render_help().to_string())));
    }
    let parsed = command()
        .try_get_matches_from(&arguments)
        .and_then(|matches| Ok((Arguments::from_arg_matches(&matches)?, effect::check(&matches))));
    Some(match parsed {
        Ok((_, Err(error))) => done(Err(error.into())),
        Ok((parsed, Ok(()))) => {
            log::start(match parsed.debug {
                true => LevelFilter::DEBUG,
                false => LevelFilter::WARN,
            });
            done(run(&parsed.verb))
        }
        Err(error) if error.use_stderr() => done(Err(usage::in_one_line(&command(), &error, &arguments).into())),
        Err(help) => {
            // If standard output is closed, nobody is there to read it.
            let _ = help.print();
            ExitCode::SUCCESS
        }
    })
}

fn done(result: Result<()>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            out::complain(error);
            ExitCode::FAILURE
        }
    }
}

fn run(verb: &Verb) -> Result<()> {
    match verb {
        Verb::Assert(args) => assert::run(args),
        Verb::Apply(args) => apply::run(args),
        Verb::Export(args) => export::run(args),
        Verb::Checkpoint(args) => checkpoint::run(args),
        Verb::Restore(args) => checkpoint::restore(args),
        Verb::GenerateConfig(GenerateArgs { .. }) => {
            let error = Error::new(Kind::Usage, "generate-config", "tranche does not have it");
            Err(error
                .hint("tranche mig profiles shows what each GPU offers, and tranche mig apply --layout needs no file")
                .into())
        }
    }
}
