//! `tranche turns try`: whether the driver of this machine suspends work on a GPU and resumes it.

use crate::out;
use crate::sharing::MachineArgs;
use crate::table::Table;
use anyhow::Result;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;
use tranche_core::error::Kind;
use tranche_core::ledger::{clock, utc};
use tranche_core::text::shown;
use tranche_measure::turn_try::{Tried, TryOptions, megabytes, try_turns};
use tranche_state::held::root_only;
use tranche_state::stop;

/// The verbs of `tranche turns`.
#[derive(Debug, clap::Subcommand)]
pub(super) enum Verb {
    /// Suspend a program on DEVICE and resume it, to see whether the driver can do that (experimental)
    ///
    /// A program of tranche fills 100 MB and then half of the GPU memory; the driver copies them to the memory of the
    /// machine and back, every byte is compared, and the copies are measured. The device is held meanwhile. What is
    /// found is kept: without a success with this driver on this product, starts on a device of sharing.turns are
    /// refused, unless assumeTested is true. Exit code 4 means that it failed.
    Try(TryArgs),
}

#[derive(Debug, clap::Args)]
pub(super) struct TryArgs {
    /// The device: 0, or GPU-…
    #[arg(value_name = "DEVICE")]
    device: String,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// The program that fills memory, in place of the installed one
    #[arg(long, value_name = "FILE", hide = true)]
    load_program: Option<PathBuf>,
    /// How many seconds a copy may take: the memory of the largest GPU at half a gigabyte in a second
    #[arg(long, value_name = "SECONDS", default_value = "300", hide = true)]
    patience: u64,
    #[command(flatten)]
    at: MachineArgs,
}

pub(super) fn run(verb: &Verb) -> Result<ExitCode> {
    let Verb::Try(args) = verb;
    let at = args.at.options();
    root_only::check(&at.state_dir)?;
    // Before any thread is started. What is suspended is never left to a signal.
    let stop = stop::signals("tranche turns try")?;
    let tried = try_turns(
        &TryOptions {
            at,
            device: args.device.clone(),
            load: args.load_program.clone(),
            patience: Duration::from_secs(args.patience),
            date: utc(clock()).chars().take(10).collect(),
        },
        stop.as_fd(),
        &mut |line| out::note(line),
    )?;
    out::either(args.json, &tried, || text(&tried))?;
    Ok(match tried.failed.is_some() || tried.left.is_some() {
        true => out::code(Kind::Found),
        false => ExitCode::SUCCESS,
    })
}

/// A table, and what follows from it.
fn text(tried: &Tried) -> String {
    let mut text = String::new();
    if !tried.copies.is_empty() {
        let mut table = Table::with_header(&["MEMORY", "TO HOST", "FROM HOST", "CONTENT"]);
        for rate in &tried.copies {
            let (out, back) = (rate.out_gb_s(), rate.back_gb_s());
            let [out, back] = [out, back].map(|rate| format!("{rate:.1} GB/s"));
            table.row([megabytes(rate.bytes), out, back, "as it was".to_owned()]);
        }
        text.push_str(&table.text());
    }
    let of = format!("driver {} on {}", shown(&tried.driver), shown(&tried.product));
    text.push_str(&match &tried.failed {
        None => format!("{of}: turns may be used.\n"),
        Some(why) => format!("{of}: turns may not be used: {}.\n", shown(why)),
    });
    if let Some(left) = &tried.left {
        text.push_str(&format!("{}.\n", shown(left)));
    }
    text
}
