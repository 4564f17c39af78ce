//! `tranche policy check`: whether a policy can be read, and kept on this host.

use super::look::{self, LookArgs};
use super::out;
use super::place::{ConfigArgs, HostArgs};
use crate::error::{Error, Kind, Result};
use crate::policy::read;
use crate::share;
use std::process::ExitCode;

/// Arguments of `tranche policy`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, clap::Subcommand)]
enum Verb {
    /// Check a policy: read it, and plan it for this host
    Check(Box<CheckArgs>),
}

#[derive(Debug, clap::Args)]
struct CheckArgs {
    #[command(flatten)]
    host: HostArgs,
    #[command(flatten)]
    look: LookArgs,
    #[command(flatten)]
    config: ConfigArgs,
}

pub(super) fn run(args: &Args) -> Result<ExitCode> {
    let Verb::Check(args) = &args.verb;
    let Some(file) = args.config.file() else {
        return Err(Error::new(Kind::Nothing, read::DEFAULT_FILE, "is not there").hint("give --config FILE"));
    };
    match check(args, &file) {
        Ok(Checked::Good) => Ok(ExitCode::SUCCESS),
        Ok(Checked::DevicesAbsent) => Ok(out::code(Kind::Found)),
        // What a check finds is its result.
        Err(error) => {
            out::result(&format!("{error}\n"))?;
            Ok(out::code(Kind::Found))
        }
    }
}

/// What a check of a policy that could be planned found.
enum Checked {
    /// Nothing to complain about.
    Good,
    /// The policy names devices that this host does not have; each was printed.
    DevicesAbsent,
}

fn check(args: &CheckArgs, file: &std::path::Path) -> Result<Checked> {
    let read = read::file(file)?;
    for warning in &read.warnings {
        out::note(warning);
    }
    let inventory = look::inventory(&args.host, &args.look)?;
    if inventory.gpus.is_empty() {
        out::result(&format!(
            "{}: reads well; there is no GPU here to plan it for\n",
            file.display()
        ))?;
        return Ok(Checked::Good);
    }
    let plan = share::plan(&read.policy, &inventory)?;
    for note in &plan.notes {
        out::note(note);
    }
    if !plan.absent.is_empty() {
        let lines: String = plan.absent.iter().map(|absent| format!("{absent}\n")).collect();
        out::result(&lines)?;
        return Ok(Checked::DevicesAbsent);
    }
    let shares: usize = plan.devices.iter().map(|d| d.shares.len()).sum();
    out::result(&format!(
        "{}: {} of {}\n",
        file.display(),
        out::counted(shares, "share"),
        out::counted(plan.devices.len(), "device")
    ))?;
    Ok(Checked::Good)
}
