//! `tranche list`: the GPUs and MIG devices of a host.

use super::look::{self, LookArgs};
use super::out;
use super::place::{HostArgs, StateArgs};
use super::table::Table;
use anyhow::{Result, bail};
use serde::Serialize;
use std::iter;
use std::process::ExitCode;
use tranche_core::ledger::{OutOfService, WhyOut};
use tranche_core::text::counted;
use tranche_core::types::MemorySize;
use tranche_host::examine;
use tranche_plan::inventory::{
    AddressingMode, ComputeMode, Gpu, HostDevice, Inventory, MigDevice, MigMode, Source, VirtualizationMode,
};

/// List the GPUs and MIG devices of the host. Exit code 1 means that the list is not complete
#[derive(clap::Args)]
pub(super) struct Args {
    // Options without a heading of their own come first: clap would show them below the heading of those before them.
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Also show UUIDs, device nodes and PCI addresses, in lines longer than 80 columns
    #[arg(long, conflicts_with = "json")]
    wide: bool,
    #[command(flatten)]
    state: StateArgs,
    #[command(flatten)]
    at: HostArgs,
    #[command(flatten)]
    how: LookArgs,
}

/// One device, as `--json` shows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
struct Listed<'a> {
    #[serde(skip)]
    device: HostDevice<'a>,
    /// `0`, `0:1`, or the UUID if the index is not known: the name of its CDI device.
    name: String,
    uuid: Option<String>,
    product: String,
    memory_mib: Option<u64>,
    /// The nodes that a container with this device gets, in addition to those that every container gets.
    nodes: Vec<String>,
    pci: String,
    notes: Vec<String>,
}

impl<'a> From<HostDevice<'a>> for Listed<'a> {
    fn from(device: HostDevice<'a>) -> Self {
        let HostDevice { gpu, mig } = device;
        let caps = mig.map(|mig| [&mig.gpu_instance_cap, &mig.compute_instance_cap]);
        let nodes = iter::once(&gpu.node).chain(caps.into_iter().flatten()).flatten();
        Self {
            device,
            name: device.name(),
            uuid: device.uuid(),
            product: mig.map_or_else(|| gpu.name.clone(), MigDevice::product),
            memory_mib: device.memory().map(MemorySize::mib),
            nodes: nodes.map(|node| node.container.to_string()).collect(),
            pci: gpu.pci.to_string(),
            notes: match mig {
                None => notes(gpu),
                Some(mig) => vec![format!("instance {}.{}", mig.gpu_instance, mig.compute_instance)],
            },
        }
    }
}

impl Listed<'_> {
    /// The same device with a note if nothing new is given of it. A damaged file says nothing of this device:
    /// `tranche doctor` reports it.
    fn in_service(mut self, out: &OutOfService) -> Self {
        if let Some(WhyOut::Since(_)) = out.why(&self.device.key()) {
            self.notes.push("out of service".to_owned());
        }
        self
    }
}

/// Lists the devices.
///
/// # Errors
/// Returns [`tranche_core::error::Kind::Nothing`] if the host has no GPU, and the errors of [`examine::inventory`].
pub(super) fn run(args: &Args) -> Result<ExitCode> {
    let inventory = examine::inventory(&args.at.options(&args.how))?;
    if inventory.gpus.is_empty() {
        bail!(examine::no_gpu(&inventory));
    }
    let out_of_service = OutOfService::read(&args.state.state_dir);
    let row = |device| Listed::from(device).in_service(&out_of_service);
    let rows: Vec<Listed<'_>> = inventory.catalogue().all().map(row).collect();
    out::either(args.json, &rows, || text(&inventory, &rows, args.wide))?;
    Ok(look::exit_code(examine::missing(&inventory.degraded).as_deref()))
}

/// What is unusual about `gpu`.
fn notes(gpu: &Gpu) -> Vec<String> {
    let mut notes = Vec::new();
    let mut note = |text: &str| notes.push(text.to_owned());
    if !gpu.unnamed_instances.is_empty() {
        let instances = counted(gpu.unnamed_instances.len(), "instance");
        note(&format!("MIG, {instances} without a name"));
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
        Some(VirtualizationMode::HostVgpu | VirtualizationMode::HostVsga) => note("vGPU host"),
        _ => {}
    }
    if gpu.uses_system_memory {
        note("memory is RAM");
    }
    if gpu.addressing == Some(AddressingMode::Ats) {
        note("coherent");
    }
    match &gpu.node {
        None => note("no device node"),
        Some(node) if !node.present => note("device node not created yet"),
        _ => {}
    }
    notes
}

/// The node that distinguishes a device from others: the GPU's own, or those of a MIG device's instances.
fn node(row: &Listed<'_>) -> String {
    let HostDevice { gpu, mig } = row.device;
    let own: Vec<String> = match mig {
        None => row.nodes.clone(),
        Some(_) => {
            let caps = row.nodes.iter().skip(usize::from(gpu.node.is_some()));
            caps.map(|cap| cap.rsplit('/').next().unwrap_or(cap).replace("nvidia-cap", "cap"))
                .collect()
        }
    };
    if own.is_empty() { "?".to_owned() } else { own.join(", ") }
}

fn text(inventory: &Inventory, rows: &[Listed<'_>], wide: bool) -> String {
    let mut table = match wide {
        true => Table::with_header(&["GPU", "NAME", "MEMORY", "UUID", "NODE", "PCI", "NOTES"]),
        false => Table::narrow(&["GPU", "NAME", "MEMORY", "NOTES"]),
    };
    let unknown = || "?".to_owned();
    for row in rows {
        let is_mig = row.device.mig.is_some();
        let memory = row.memory_mib.map(|mib| MemorySize::from_mib(mib).to_string());
        let product = format!("{}{}", if is_mig { "  " } else { "" }, row.product);
        let mut cells = vec![row.name.clone(), product, memory.unwrap_or_else(unknown)];
        if wide {
            cells.push(row.uuid.clone().unwrap_or_else(unknown));
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
    use proptest::prelude::*;
    use tranche_core::types::{DeviceSelector, Minor};
    use tranche_plan::sim;

    fn listed(inventory: &Inventory) -> Vec<Listed<'_>> {
        inventory.catalogue().all().map(Listed::from).collect()
    }

    #[test]
    fn a_line_for_each_device() {
        let inventory = tranche_plan::sources::open("sim:dgx-a100-mig").unwrap();
        let rows = listed(&inventory);
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

    /// Machines that differ in what makes names ambiguous: minors in another order than indices, indices that are not
    /// known, MIG devices without a UUID or with one in the form of old drivers.
    fn machines() -> impl Strategy<Value = Inventory> {
        let sim = 0..sim::ALL.len();
        (
            sim,
            Just((0..8).collect::<Vec<u32>>()).prop_shuffle(),
            any::<[bool; 8]>(),
            0..3,
        )
            .prop_map(|(sim, minors, known, uuids)| {
                let mut inventory = sim::open(sim::ALL[sim].name).unwrap();
                for (at, gpu) in inventory.gpus.iter_mut().enumerate() {
                    gpu.minor = Minor(minors[at]);
                    gpu.index_is_known = known[at];
                    if let Some(node) = &mut gpu.node {
                        node.container = format!("/dev/nvidia{}", minors[at]).parse().unwrap();
                    }
                    for mig in &mut gpu.mig_devices {
                        let (gi, ci) = (mig.gpu_instance, mig.compute_instance);
                        match uuids {
                            0 => mig.uuid = None,
                            1 => mig.uuid = Some(format!("MIG-{}/{gi}/{ci}", gpu.uuid).parse().unwrap()),
                            _ => {}
                        }
                    }
                }
                inventory
            })
    }

    proptest! {
        #[test]
        fn every_name_that_is_listed_selects_exactly_that_device(inventory in machines()) {
            let catalogue = inventory.catalogue();
            let rows = listed(&inventory);
            prop_assert_eq!(rows.len(), inventory.gpus.len() + inventory.mig_devices().count());
            for row in rows {
                let mut names = vec![row.name.clone()];
                names.extend(row.uuid.clone());
                if row.device.mig.is_none() {
                    names.push(row.pci.clone());
                    names.push(node(&row));
                }
                for name in names {
                    let selector: DeviceSelector = name.parse().unwrap();
                    prop_assert_eq!(catalogue.find(&selector).map(|d| d.key()), Some(row.device.key()), "{}", name);
                    prop_assert_eq!(selector.to_string(), name);
                }
            }
        }
    }
}
