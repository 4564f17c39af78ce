//! `tranche mig status` and `tranche mig export`.

use super::ViewArgs;
use super::parted;
use super::picture::picture;
use crate::out;
use crate::table::Table;
use anyhow::Result;
use std::process::ExitCode;
use tranche_broker::mig::MigView;
use tranche_core::text::some;
use tranche_core::types::{ComputeInstanceId, GpuInstanceId};
use tranche_plan::inventory::{MigMode, MigState};
use tranche_plan::mig::{ExactGpu, GpuInstance, InstanceHolder, MigGpu, free_places};
use tranche_state::held::or_dash;

/// Show the instances of each GPU, the free places, and who uses what
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    view: ViewArgs,
}

/// Print the layout of each GPU as --layout takes it, or all as a configuration file of NVIDIA's mig-parted
#[derive(Debug, clap::Args)]
pub(crate) struct ExportArgs {
    /// Print a configuration file of mig-parted, in YAML or with --json in JSON. It lacks the places
    #[arg(long)]
    mig_parted: bool,
    /// The name of the configuration in that file
    #[arg(long, value_name = "NAME", default_value = parted::LABEL, requires = "mig_parted")]
    label: String,
    #[command(flatten)]
    view: ViewArgs,
}

pub(super) fn run(args: &Args) -> Result<ExitCode> {
    let view = args.view.look()?;
    let shown: Vec<Shown<'_>> = view.gpus.iter().map(|gpu| Shown::of(gpu, &view)).collect();
    out::either(args.view.json, &shown, || {
        let texts: Vec<String> = view
            .gpus
            .iter()
            .zip(&shown)
            .map(|(gpu, shown)| text(gpu, shown))
            .collect();
        texts.join("\n")
    })?;
    Ok(ExitCode::SUCCESS)
}

pub(super) fn export(args: &ExportArgs) -> Result<ExitCode> {
    if args.mig_parted {
        parted::export(&args.view, &args.label, args.view.json)?;
        return Ok(ExitCode::SUCCESS);
    }
    let view = args.view.look()?;
    let layouts: Vec<String> = view
        .gpus
        .iter()
        .map(|gpu| ExactGpu::of(gpu).layout().to_string())
        .collect();
    out::either(args.view.json, &layouts, || {
        layouts.iter().map(|line| format!("{line}\n")).collect()
    })?;
    Ok(ExitCode::SUCCESS)
}

/// A GPU. docs/how-to/mig.md documents the fields.
#[derive(Debug, serde::Serialize)]
struct Shown<'v> {
    gpu: u32,
    uuid: &'v str,
    product: &'v str,
    mode: MigState,
    /// Whether the mode can change without a reset.
    resetless: Option<bool>,
    layout: String,
    instances: Vec<ShownInstance>,
    /// Profiles with the first units of their free places.
    free: Vec<ShownFree>,
    /// Who uses the GPU, and not a certain instance of it.
    used_by: Vec<&'v str>,
}

#[derive(Debug, serde::Serialize)]
struct ShownInstance {
    gpu_instance: u32,
    profile: Option<String>,
    start: u32,
    size: u32,
    memory_mib: Option<u64>,
    devices: Vec<ShownDevice>,
}

#[derive(Debug, serde::Serialize)]
struct ShownDevice {
    /// `0:1`
    name: Option<String>,
    uuid: Option<String>,
    compute_instance: u32,
    /// Compute slices.
    slices: Option<u32>,
    used_by: Vec<String>,
}

#[derive(Debug, serde::Serialize)]
struct ShownFree {
    profile: String,
    starts: Vec<u32>,
}

impl<'v> Shown<'v> {
    fn of(gpu: &'v MigGpu, view: &'v MigView) -> Self {
        let own: Vec<&InstanceHolder> = view.holders.iter().filter(|holder| holder.gpu == gpu.uuid).collect();
        let whole = own.iter().filter(|holder| holder.instance.is_none());
        let free = free_places(gpu).into_iter().map(|(profile, starts)| ShownFree {
            profile: profile.name.to_string(),
            starts,
        });
        Self {
            gpu: gpu.index.0,
            uuid: gpu.uuid.as_str(),
            product: &gpu.product,
            mode: gpu.mode,
            resetless: gpu.resetless,
            layout: ExactGpu::of(gpu).layout().wish.to_string(),
            instances: gpu.instances.iter().map(|one| instance(gpu, one, view, &own)).collect(),
            free: free.collect(),
            used_by: whole.map(|holder| holder.who.as_str()).collect(),
        }
    }
}

fn instance(gpu: &MigGpu, one: &GpuInstance, view: &MigView, own: &[&InstanceHolder]) -> ShownInstance {
    let profile = gpu.profile(one.profile);
    let devices = one.compute.iter().map(|compute| ShownDevice {
        name: view.name(gpu, one.id, compute.id),
        uuid: compute.uuid.as_ref().map(ToString::to_string),
        compute_instance: compute.id.0,
        slices: profile
            .and_then(|profile| profile.compute.iter().find(|offered| offered.id == compute.profile))
            .map(|offered| offered.slices),
        used_by: users(own, one.id, compute.id),
    });
    ShownInstance {
        gpu_instance: one.id.0,
        profile: profile.map(|profile| profile.name.to_string()),
        start: one.placement.start,
        size: one.placement.size,
        memory_mib: profile.map(|profile| profile.memory.mib()),
        devices: devices.collect(),
    }
}

/// `1c.3g.20gb` for a part of an instance, or the instance's profile.
fn name(profile: &str, device: Option<&ShownDevice>) -> String {
    match device.and_then(|device| device.slices) {
        Some(slices) if !profile.starts_with(&format!("{slices}g.")) => format!("{slices}c.{profile}"),
        _ => profile.to_owned(),
    }
}

fn users(own: &[&InstanceHolder], instance: GpuInstanceId, compute: ComputeInstanceId) -> Vec<String> {
    let uses = |holder: &&&InstanceHolder| {
        holder
            .instance
            .is_some_and(|(of, one)| of == instance && one.is_none_or(|one| one == compute))
    };
    own.iter().filter(uses).map(|holder| holder.who.clone()).collect()
}

fn text(gpu: &MigGpu, shown: &Shown<'_>) -> String {
    let mode = match (gpu.mode.current, gpu.mode.pending) {
        (MigMode::Enabled, MigMode::Enabled) => "MIG on",
        (MigMode::Disabled, MigMode::Disabled) => "MIG off",
        (MigMode::Enabled, MigMode::Disabled) => "MIG on, off after the next reset",
        (MigMode::Disabled, MigMode::Enabled) => "MIG off, on after the next reset",
    };
    let mut text = format!("gpu {}: {}, {mode}\n", shown.gpu, shown.product);
    if gpu.mode.current == MigMode::Disabled {
        return text;
    }
    text.push_str(&picture(gpu).unwrap_or_default());
    if !shown.instances.is_empty() {
        let mut table = Table::with_header(&["DEVICE", "PROFILE", "UNITS", "MEMORY", "USED BY"]);
        for one in &shown.instances {
            let units = format!("{}-{}", one.start, (one.start + one.size).saturating_sub(1));
            let row = |device: Option<&ShownDevice>| {
                [
                    or_dash(device.and_then(|device| device.name.clone())),
                    or_dash(one.profile.as_ref().map(|profile| name(profile, device))),
                    units.clone(),
                    or_dash(one.memory_mib.map(|mib| format!("{mib} MiB"))),
                    match device.map(|device| device.used_by.as_slice()) {
                        None => "no compute instance".to_owned(),
                        Some([]) => "-".to_owned(),
                        Some(users) => some(users),
                    },
                ]
            };
            match one.devices.as_slice() {
                [] => table.row(row(None)),
                devices => devices.iter().for_each(|device| table.row(row(Some(device)))),
            }
        }
        text.push_str(&table.text());
    }
    if !shown.used_by.is_empty() {
        text.push_str(&format!("used by {}\n", some(&shown.used_by)));
    }
    let free: Vec<String> = shown
        .free
        .iter()
        .map(|free| {
            let starts: Vec<String> = free.starts.iter().map(ToString::to_string).collect();
            format!("{} at {}", free.profile, starts.join(" "))
        })
        .collect();
    let free = if free.is_empty() {
        "nothing".to_owned()
    } else {
        free.join(", ")
    };
    text.push_str(&format!("fits: {free}\n"));
    text
}
