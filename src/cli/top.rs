//! `tranche top`: the processes on the GPUs, by the containers that hold the shares.

use super::look::ObserveArgs;
use super::out;
use super::pages::{self, Page, seconds_of_watch};
use super::table::Table;
use anyhow::{Result, bail};
use std::cmp::Reverse;
use std::process::ExitCode;
use std::time::Duration;
use tranche_core::error::{Error, Kind};
use tranche_inspect::observed::{Observed, ProcessRow};
use tranche_state::held::{container_text, or_dash};

/// Show the processes on the GPUs with memory, utilisation and container, again every two seconds
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Show the page again every SECONDS
    #[arg(long, value_name = "SECONDS", default_value = "2", value_parser = seconds_of_watch)]
    interval: Duration,
    /// Show one page and end
    #[arg(long)]
    once: bool,
    /// Print one page as JSON and end; docs/reference/claims.md describes the fields
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    at: ObserveArgs,
}

pub(super) fn run(args: &Args) -> Result<ExitCode> {
    match args.once || args.json {
        true => page(args)?.show(),
        false => pages::each(args.interval, true, || page(args)),
    }
}

/// One page.
fn page(args: &Args) -> Result<Page> {
    let options = args.at.options();
    let observed = Observed::look(&options, true)?;
    // A description of another machine has GPUs, and says nothing about their processes.
    let nothing = options.host.inventory.is_none() && observed.gpus.as_ref().is_none_or(Vec::is_empty);
    if nothing && observed.problems().next().is_none() {
        bail!(Error::new(
            Kind::Nothing,
            "host",
            "NVML, the driver's library, reports no GPU"
        ));
    }
    let mut rows: Vec<Row<'_>> = observed.processes.iter().map(Row::of).collect();
    rows.extend(without_processes(&observed));
    // Unknown memory sorts last.
    rows.sort_by_key(|row| (Reverse(row.memory_mib), Reverse(row.busy_percent), row.device, row.pid));
    let problems: Vec<&Error> = observed.problems().collect();
    let text = out::page_text(args.json, &rows, 0, || text(&observed, &rows))?;
    Ok(Page::new(text, problems))
}

/// A line: a process, or a holder without one. docs/reference/claims.md documents the fields.
#[derive(Debug, serde::Serialize)]
struct Row<'o> {
    /// `nvidia.com/gpu=0`.
    device: &'o str,
    /// `null` for a holder whose processes do not use the device.
    pid: Option<u32>,
    /// `C`, `G` and `M`, as nvidia-smi writes them.
    kind: Option<&'o str>,
    command: Option<&'o str>,
    memory_mib: Option<u64>,
    busy_percent: Option<u32>,
    /// The name under which its container requested the device; `null` if it has no claim.
    claim: Option<&'o str>,
    container: Option<&'o str>,
    container_name: Option<&'o str>,
    /// Whether it is the server of MPS.
    is_mps_server: bool,
}

impl<'o> Row<'o> {
    fn of(process: &'o ProcessRow) -> Self {
        Self {
            device: &process.device,
            pid: Some(process.pid),
            kind: Some(&process.kind),
            command: process.command.as_deref(),
            memory_mib: process.memory_mib,
            busy_percent: process.busy_percent,
            claim: process.claim.as_deref(),
            container: process.container.as_deref(),
            container_name: process.container_name.as_deref(),
            is_mps_server: process.is_mps_server,
        }
    }

    fn holder(&self) -> String {
        match (self.container, self.is_mps_server) {
            (Some(id), _) => container_text(id, self.container_name),
            (None, true) => "MPS server".to_owned(),
            (None, false) => "-".to_owned(),
        }
    }
}

/// The claims that a container uses and of which no process is listed.
fn without_processes(observed: &Observed) -> impl Iterator<Item = Row<'_>> {
    let has_process = |cdi: &str, container: Option<&str>| {
        let mut processes = observed.processes.iter();
        processes.any(|process| process.claim.as_deref() == Some(cdi) && process.container.as_deref() == container)
    };
    let held = observed.claims.iter().filter(|held| held.is_in_use());
    let rows = held.map(|held| Row {
        device: &held.device,
        pid: None,
        kind: None,
        command: None,
        memory_mib: None,
        busy_percent: None,
        claim: Some(&held.cdi),
        container: held.container.as_ref().map(|container| container.id.as_str()),
        container_name: held.container.as_ref().and_then(|container| container.name.as_deref()),
        is_mps_server: false,
    });
    rows.filter(move |row| !has_process(row.claim.unwrap_or_default(), row.container))
}

fn text(observed: &Observed, rows: &[Row<'_>]) -> String {
    let mut text = String::new();
    for gpu in observed.gpus.iter().flatten() {
        let busy = gpu
            .busy_percent
            .map(|percent| format!(", {percent}% busy"))
            .unwrap_or_default();
        let memory = gpu.memory().unwrap_or_else(|| "memory unknown".to_owned());
        text.push_str(&format!("{}: {memory}{busy}\n", gpu.device));
        if gpu.hides_mps_clients {
            text.push_str("  this driver reports the memory of MPS clients as that of their server\n");
        }
    }
    text.push('\n');
    if rows.is_empty() {
        text.push_str("no process uses a GPU, and no share is held\n");
        return text;
    }
    let mut table = Table::with_header(&["DEVICE", "PID", "TYPE", "MEMORY", "SM", "COMMAND", "CONTAINER", "CLAIM"]);
    for row in rows {
        table.row([
            row.device.to_owned(),
            or_dash(row.pid),
            or_dash(row.kind),
            or_dash(row.memory_mib.map(|mib| format!("{mib} MiB"))),
            or_dash(row.busy_percent.map(|percent| format!("{percent}%"))),
            or_dash(row.command),
            row.holder(),
            or_dash(row.claim),
        ]);
    }
    text.push_str(&table.text());
    text
}
