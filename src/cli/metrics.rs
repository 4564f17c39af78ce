//! `tranche metrics`: the state of the shares as OpenMetrics text. docs/reference/metrics.md documents the names and
//! labels.

mod catalogue;
mod exposition;
mod samples;
mod serve;

use super::look::ObserveArgs;
use super::out;
use anyhow::Result;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use tranche_inspect::observed::Observed;
use tranche_state::replace;

/// Print the state of shares, GPUs and MPS daemons as metrics (OpenMetrics); docs/reference/metrics.md describes them
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Write the metrics to FILE, which is replaced in one step: for node_exporter, a file NAME.prom in the directory
    /// of its textfile collector
    #[arg(long, value_name = "FILE", conflicts_with = "listen")]
    output: Option<PathBuf>,
    /// Serve the metrics over HTTP at /metrics, to processes of this machine
    #[arg(long, value_name = "ADDRESS:PORT")]
    listen: Option<SocketAddr>,
    /// Let --listen use an address that other machines can reach
    #[arg(long, requires = "listen")]
    allow_remote: bool,
    /// Add names and ids of containers and claims, which every reader of the metrics then sees
    #[arg(long)]
    with_containers: bool,
    /// Do not ask NVML, the driver's library, for memory, utilisation and processes
    #[arg(long)]
    no_gpu: bool,
    #[command(flatten)]
    at: ObserveArgs,
}

pub(super) fn run(args: &Args) -> Result<ExitCode> {
    let look = || -> Result<(String, ExitCode)> {
        let observed = Observed::look(&args.at.options(), !args.no_gpu)?;
        let text = samples::of(&observed, args.with_containers).text();
        Ok((text, out::complain_all(observed.problems())))
    };
    if let Some(address) = args.listen {
        serve::check(address, args.allow_remote)?;
        serve::run(address, &|| Ok(look()?.0))?;
        return Ok(ExitCode::SUCCESS);
    }
    let (text, code) = look()?;
    match &args.output {
        Some(file) => replace::write(file, &text)?,
        None => out::document(&text)?,
    }
    // A part that could not be read is missing in the metrics, which say so themselves.
    Ok(code)
}

#[cfg(test)]
mod tests;
