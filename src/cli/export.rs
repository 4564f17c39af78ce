//! `tranche export`: what gives a device to a program that has no CDI.

use super::out;
use super::sharing::SharingArgs;
use anyhow::{Result, bail};
use nix::sys::stat;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::process::ExitCode;
use tranche_broker::run::wanted;
use tranche_core::error::Error;
use tranche_core::types::{DevicePart, HostPath, Part, Selection, ShareName};
use tranche_host::examine;
use tranche_inspect::export::{self, ExportTarget, HostEntry};
use tranche_plan::derive::{DeviceChoice, NameStrategy, Options, Sharing, derive};
use tranche_plan::edits::{Edits, MountEdit};
use tranche_plan::inventory::Inventory;
use tranche_plan::share::{SplitDevice, Wish};
use tranche_state::planning;

/// Print the flags or lines that give a device to a program without CDI: apptainer, nspawn, bwrap or lxc
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Example: eval bwrap --ro-bind / / --dev /dev $(tranche export --for bwrap 0) nvidia-smi\n\
                  A share lasts while tranche run holds it: tranche run --share 0.big -- PROGRAM"
)]
pub(super) struct Args {
    /// The program: apptainer, nspawn, bwrap or lxc
    #[arg(long = "for", value_name = "PROGRAM")]
    target: ExportTarget,
    /// A device or a share: 0, 0:1, GPU-…, all, 0.big, 0.any, nvidia.com/gpu=0.big
    #[arg(value_name = "DEVICE", required = true)]
    devices: Vec<String>,
    #[command(flatten)]
    at: SharingArgs,
}

pub(super) fn run(args: &Args) -> Result<ExitCode> {
    let options = args.at.options();
    let inventory = examine::inventory(&options.host)?;
    if inventory.gpus.is_empty() {
        bail!(examine::no_gpu(&inventory));
    }
    let sharing = planning::of(&inventory, &options)?;
    let is_shared = |typed: &&String| {
        sharing
            .as_ref()
            .is_some_and(|sharing| is_split(typed, &inventory, sharing))
    };
    let edits = match (&sharing, args.devices.iter().find(is_shared)) {
        (Some(sharing), Some(_)) => of_share(&args.devices, &inventory, sharing)?,
        _ => {
            let choices = args.devices.iter().map(|typed| without_kind(typed).parse());
            of_devices(choices.collect::<Result<_, _>>()?, &inventory)?
        }
    };
    let lines = export::lines(args.target, &edits, look_at);
    out::result(&lines.iter().map(|line| format!("{line}\n")).collect::<String>())?;
    Ok(ExitCode::SUCCESS)
}

fn without_kind(typed: &str) -> &str {
    typed.split_once('=').map_or(typed, |(_, name)| name)
}

/// Whether `typed` names a share, or a device that the policy splits.
fn is_split(typed: &str, inventory: &Inventory, sharing: &Sharing) -> bool {
    let Ok(DevicePart { device, part }) = typed.parse() else {
        return false;
    };
    let found = inventory.catalogue().find(&device);
    part != Part::Whole || found.is_some_and(|found| sharing.plan.split(found.device()).is_some())
}

/// What a container gets with these devices as a whole. A hook is not called: mounts do what it would do.
fn of_devices(devices: Vec<DeviceChoice>, inventory: &Inventory) -> Result<Edits> {
    let options = Options {
        devices,
        names: vec![NameStrategy::Index],
        all_device: false,
        hook: None,
        ..Options::default()
    };
    let derived = derive(inventory, &options)?;
    for warning in &derived.warnings {
        tracing::warn!("{}: {}", warning.object, warning.text);
    }
    let mut edits = derived.common;
    for device in &derived.devices {
        edits.merge(&device.edits)?;
    }
    Ok(edits)
}

/// What a container gets with shares of one device. Who starts it holds them by `tranche run`.
fn of_share(names: &[String], inventory: &Inventory, sharing: &Sharing) -> Result<Edits> {
    let wish = wanted::wish(names, &Selection::default(), inventory, &sharing.plan)?;
    let split = wish.device.and_then(|device| sharing.plan.split(device));
    let split = split.ok_or_else(|| Error::usage(wish.text(), "not a share of this host"))?;
    let mut edits = of_devices(vec![split.device.cdi_name().parse()?], inventory)?;
    let shares = chosen(split, &wish);
    let first = shares.first().and_then(|name| split.share(name));
    if let Some((first, promise)) = first.zip(split.part(&shares).promise()) {
        let inside = split.in_container(promise, first.priority, &sharing.state_dir)?;
        let variables = inside.environment.into_iter();
        edits
            .env
            .extend(variables.map(|(name, value)| (name.to_owned(), value)));
        for directory in inside.directories {
            let options = vec!["ro".to_owned(), "rbind".to_owned()];
            edits.mounts.insert(
                directory.path,
                MountEdit {
                    host: directory.host,
                    options,
                },
            );
        }
    }
    let shares: Vec<String> = names
        .iter()
        .map(|typed| format!("--share {}", without_kind(typed)))
        .collect();
    out::note(format_args!(
        "a share lasts while a program holds it: tranche run {} -- PROGRAM",
        shares.join(" ")
    ));
    Ok(edits)
}

/// The shares that serve the wish on an unused device. Those of equal size have equal variables.
fn chosen(split: &SplitDevice, wish: &Wish) -> Vec<ShareName> {
    let further = split.shares.names().filter(|name| !wish.names.contains(name));
    let count = wish.shares.unwrap_or(0);
    wish.names.iter().cloned().chain(further.take(count)).collect()
}

/// What a path of this host is.
fn look_at(path: &HostPath) -> Option<HostEntry> {
    let data = std::fs::metadata(path.as_path()).ok()?;
    let kind = data.file_type();
    Some(match kind.is_char_device() {
        true => {
            // Linux has 32 bits for each.
            let numbers = [stat::major(data.rdev()), stat::minor(data.rdev())].map(u32::try_from);
            let [Ok(major), Ok(minor)] = numbers else { return None };
            HostEntry::Device(major, minor)
        }
        false if kind.is_dir() => HostEntry::Directory,
        false => HostEntry::Other,
    })
}
