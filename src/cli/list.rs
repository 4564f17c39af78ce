//! `tranche list`: the GPUs and MIG devices of a host.

use super::look::{self, LookArgs};
use super::out;
use super::place::HostArgs;
use super::table::Table;
use crate::error::Result;
use crate::inventory::{
    AddressingMode, ComputeMode, DeviceNode, Gpu, Inventory, MigDevice, MigMode, Source, VirtualizationMode,
};
use crate::types::MemorySize;
use serde::Serialize;
use std::process::ExitCode;

/// List the GPUs and MIG devices of the host. Exit code 1 says that the list is not complete
#[derive(clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    at: HostArgs,
    #[command(flatten)]
    how: LookArgs,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Show UUIDs, nodes and PCI addresses too, in as many columns as that takes
    #[arg(long, conflicts_with = "json")]
    wide: bool,
}

/// One device, as `--json` gives it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
struct Row {
    /// `0`, `0:1`, or the UUID where the index is not known: the name of its CDI device.
    name: String,
    uuid: Option<String>,
    product: String,
    memory_mib: Option<u64>,
    /// The nodes that a container with this device gets, besides those that every container gets.
    nodes: Vec<String>,
    pci: String,
    notes: Vec<String>,
}

/// Lists the devices.
///
/// # Errors
/// Kind `Nothing` where there is no GPU; what [`look::inventory`] gives.
pub(super) fn run(args: &Args) -> Result<ExitCode> {
    let inventory = look::inventory(&args.at, &args.how)?;
    if inventory.gpus.is_empty() {
        return Err(look::no_gpu(&inventory));
    }
    let rows = rows(&inventory);
    if args.json {
        out::json(&rows)?;
    } else {
        out::result(&text(&inventory, &rows, args.wide))?;
    }
    Ok(look::exit_code(&inventory))
}

fn rows(inventory: &Inventory) -> Vec<Row> {
    let mut rows = Vec::new();
    for gpu in &inventory.gpus {
        rows.push(of_gpu(gpu));
        rows.extend(gpu.mig_devices.iter().map(|mig| of_mig(gpu, mig)));
    }
    rows
}

fn of_gpu(gpu: &Gpu) -> Row {
    Row {
        name: match gpu.index_is_known {
            true => gpu.index.to_string(),
            false => gpu.uuid.to_string(),
        },
        uuid: Some(gpu.uuid.to_string()),
        product: gpu.name.clone(),
        memory_mib: gpu.memory.map(|m| m.mib()),
        nodes: paths([&gpu.node]),
        pci: gpu.pci.to_string(),
        notes: notes(gpu),
    }
}

fn of_mig(gpu: &Gpu, mig: &MigDevice) -> Row {
    Row {
        name: format!("{}:{}", gpu.index, mig.index),
        uuid: mig.uuid.as_ref().map(ToString::to_string),
        product: mig
            .profile
            .as_ref()
            .map_or_else(|| "MIG".to_owned(), |p| format!("MIG {p}")),
        memory_mib: mig.memory.map(|m| m.mib()),
        nodes: paths([&gpu.node, &mig.gpu_instance_cap, &mig.compute_instance_cap]),
        pci: gpu.pci.to_string(),
        notes: vec![format!("instance {}.{}", mig.gpu_instance, mig.compute_instance)],
    }
}

/// The paths of those nodes that are known, as a container names them.
fn paths<const N: usize>(nodes: [&Option<DeviceNode>; N]) -> Vec<String> {
    let known = nodes.into_iter().flatten();
    known.map(|node| node.container.to_string()).collect()
}

/// What is not as usual.
fn notes(gpu: &Gpu) -> Vec<String> {
    let mut notes = Vec::new();
    let mut note = |text: &str| notes.push(text.to_owned());
    match gpu.unnamed_instances.len() {
        0 => {}
        1 => note("MIG, 1 instance without a name"),
        n => note(&format!("MIG, {n} instances without a name")),
    }
    if let Some(mig) = gpu.mig {
        match (mig.current, mig.pending) {
            (MigMode::Enabled, MigMode::Disabled) => note("MIG, off after the next reset"),
            (MigMode::Disabled, MigMode::Enabled) => note("MIG after the next reset"),
            (MigMode::Enabled, _) if gpu.mig_devices.is_empty() => note("MIG, no instances"),
            (MigMode::Enabled, _) => note("MIG"),
            _ => {}
        }
    }
    match gpu.compute_mode {
        Some(ComputeMode::ExclusiveProcess | ComputeMode::ExclusiveThread) => note("one process at a time"),
        Some(ComputeMode::Prohibited) => note("compute prohibited"),
        _ => {}
    }
    match gpu.virtualization {
        Some(VirtualizationMode::Vgpu) => note("vGPU"),
        Some(VirtualizationMode::HostVgpu | VirtualizationMode::HostVsga) => note("hands out vGPUs"),
        _ => {}
    }
    if gpu.addressing == Some(AddressingMode::Ats) {
        note("coherent");
    }
    match &gpu.node {
        None => note("no device node"),
        Some(node) if !node.present => note("node not made yet"),
        _ => {}
    }
    notes
}

/// The node that tells this device from others: the GPU's own, or the keys to a MIG device's instances.
fn node(row: &Row) -> String {
    let of_mig = |path: &String| path.rsplit_once("nvidia-cap").map(|(_, minor)| format!("cap{minor}"));
    let caps: Vec<String> = row.nodes.iter().filter_map(of_mig).collect();
    match caps.is_empty() {
        true => row.nodes.first().cloned().unwrap_or_else(|| "?".to_owned()),
        false => caps.join(", "),
    }
}

fn text(inventory: &Inventory, rows: &[Row], wide: bool) -> String {
    let mut table = match wide {
        true => Table::with_header(&["GPU", "NAME", "MEMORY", "UUID", "NODE", "PCI", "NOTES"]),
        false => Table::narrow(&["GPU", "NAME", "MEMORY", "NOTES"]),
    };
    for row in rows {
        let is_mig = row.name.contains(':');
        let memory = row
            .memory_mib
            .map_or_else(|| "?".to_owned(), |m| MemorySize::from_mib(m).to_string());
        let product = format!("{}{}", if is_mig { "  " } else { "" }, row.product);
        let mut cells = vec![row.name.clone(), product, memory];
        if wide {
            cells.push(row.uuid.clone().unwrap_or_else(|| "?".to_owned()));
            cells.push(node(row));
            cells.push(if is_mig { String::new() } else { row.pci.clone() });
        }
        cells.push(row.notes.join(", "));
        table.row(cells);
    }
    let mut text = table.text();
    if let Some(driver) = &inventory.driver {
        text.push_str(&format!("\nDriver {}", driver.version));
        if let Some(cuda) = driver.cuda {
            text.push_str(&format!(", CUDA {cuda}"));
        }
        if inventory.source == Source::Proc {
            text.push_str("; memory and modes are unknown, because NVML did not answer or was not asked");
        }
        text.push('\n');
    }
    if !wide {
        text.push_str("UUIDs, nodes and PCI addresses: --wide, or --json\n");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_for_each_device() {
        let inventory = crate::sources::open("sim:dgx-a100-mig").unwrap();
        let rows = rows(&inventory);
        assert_eq!(rows.len(), inventory.gpus.len() + inventory.mig_devices().count());
        let (narrow, wide) = (text(&inventory, &rows, false), text(&inventory, &rows, true));
        for row in &rows {
            assert!(wide.contains(row.uuid.as_deref().unwrap()), "{}", row.name);
            assert!(narrow.contains(&format!("\n{} ", row.name)), "{}: {narrow}", row.name);
        }
        for text in [narrow, wide] {
            assert!(text.contains("MIG, no instances"), "{text}");
            assert!(text.lines().all(|l| l == l.trim_end()), "{text}");
        }
    }
}
