//! `tranche metrics`: the state of the shares as OpenMetrics text. docs/reference/metrics.md documents the names and
//! labels.

mod samples;

use super::look::ObserveArgs;
use super::out;
use anyhow::Result;
use std::path::PathBuf;
use std::process::ExitCode;
use tranche_inspect::observed::Observed;
use tranche_state::metrics::{Names, Naming};
use tranche_state::replace;

/// Print the state of shares, GPUs and MPS daemons as metrics (OpenMetrics); docs/reference/metrics.md describes them
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Write the metrics to FILE, which is replaced in one step: for node_exporter, a file NAME.prom in the directory
    /// of its textfile collector
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Add names and ids of containers and claims, which every reader of the metrics then sees
    #[arg(long)]
    with_containers: bool,
    /// Whose names: tranche, otel (OpenTelemetry, hw_gpu_...) or dcgm (dcgm-exporter)
    #[arg(long, value_name = "NAMES", default_value = "tranche")]
    names: Names,
    /// Do not ask NVML, the driver's library, for memory, utilisation and processes
    #[arg(long)]
    no_gpu: bool,
    #[command(flatten)]
    at: ObserveArgs,
}

pub(super) fn run(args: &Args) -> Result<ExitCode> {
    let observed = Observed::look(&args.at.options(), !args.no_gpu)?;
    let naming = Naming::of_host(args.names, &observed.view.devices);
    let mut samples = samples::of(&observed, args.with_containers);
    samples::of_each_by_turns(&mut samples, &observed, &args.at.options().state_dir)?;
    let text = samples.text(&naming);
    // A part that could not be read is missing in the metrics, which say so themselves.
    let code = out::complain_all(observed.problems());
    match &args.output {
        Some(file) => replace::write(file, &text)?,
        None => out::document(&text)?,
    }
    Ok(code)
}
