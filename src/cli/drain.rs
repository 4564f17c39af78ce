//! `tranche drain` and `tranche undrain`: take devices out of service, and put them back.

use crate::out;
use crate::sharing::SharingArgs;
use anyhow::{Result, bail};
use std::path::Path;
use std::process::ExitCode;
use tranche_core::error::{Error, Result as CoreResult};
use tranche_core::ledger::Outage;
use tranche_core::types::DeviceSelector;
use tranche_host::examine;
use tranche_plan::host_file::HostFile;
use tranche_plan::inventory::Inventory;
use tranche_state::held::{self, root_only};
use tranche_state::out_of_service::{self, DrainTime, NamedDevice};
use tranche_state::renew;

/// The name that stands for every device.
const ALL: &str = "all";

/// Take devices out of service: nothing new is given of them, and who holds something keeps it until the end
#[derive(Debug, clap::Args)]
pub(super) struct DrainArgs {
    #[command(flatten)]
    which: WhichArgs,
    /// Why, in one line; refusals and tranche status show it to everybody
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
    /// From when on: 2026-11-26T08:00 or 08:00 (UTC), +2h, +30m, +1d [default: now]
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    at: Option<String>,
    #[command(flatten)]
    host: SharingArgs,
}

/// Put devices back into service
#[derive(Debug, clap::Args)]
pub(super) struct UndrainArgs {
    #[command(flatten)]
    which: WhichArgs,
    #[command(flatten)]
    host: SharingArgs,
}

/// Which devices.
#[derive(Debug, clap::Args)]
struct WhichArgs {
    /// The devices: 0, 0:1, GPU-…, MIG-…, 0000:41:00.0, /dev/nvidia0, or all. A GPU takes its MIG devices with it
    #[arg(value_name = "DEVICE", required = true)]
    devices: Vec<String>,
}

impl WhichArgs {
    fn is_all(&self) -> bool {
        self.devices == [ALL]
    }

    /// The devices by their keys, each once.
    fn named(&self, inventory: &Inventory) -> CoreResult<Vec<NamedDevice>> {
        if self.is_all() {
            return Ok(NamedDevice::all(inventory));
        }
        let mut named: Vec<NamedDevice> = Vec::new();
        for name in &self.devices {
            let selector: DeviceSelector = name.parse()?;
            let device = NamedDevice::find(inventory, &selector)?;
            if !named.contains(&device) {
                named.push(device);
            }
        }
        Ok(named)
    }
}

pub(super) fn drain(args: &DrainArgs) -> Result<ExitCode> {
    let state_dir = &args.host.state.state_dir;
    let time = DrainTime::of(args.at.as_deref())?;
    if let Some(reason) = &args.reason {
        out_of_service::check_reason(reason)?;
    }
    check_root(state_dir, "drain")?;
    let devices = args.which.named(&inventory(&args.host)?)?;
    if devices.is_empty() {
        bail!(Error::usage("device all", "this host has no GPU"));
    }
    let done = out_of_service::drain(state_dir, &devices, time, args.reason.as_deref())?;
    for (device, (outage, before)) in devices.iter().zip(&done) {
        let before = before.as_ref().filter(|before| *before != outage);
        let before = before.map_or_else(String::new, |before| format!("; it was {before}"));
        out::result(&format!("{}: {outage}{before}\n", device.label))?;
    }
    let refreshed = refresh_if_used(state_dir);
    let outages: Vec<&Outage> = done.iter().map(|(outage, _)| outage).collect();
    note_holders(&outages, state_dir)?;
    Ok(refreshed.map_or_else(|error| out::complain(error.into()), |()| ExitCode::SUCCESS))
}

/// Says who holds something of the devices.
fn note_holders(outages: &[&Outage], state_dir: &Path) -> Result<()> {
    let (books, mut view) = held::read(state_dir)?;
    let is_on = |claim: &&tranche_core::ledger::Claim| outages.iter().any(|outage| outage.covers(&claim.device));
    let claims: Vec<_> = books.claims().filter(is_on).collect();
    if !claims.is_empty() {
        out::note(format!("held until it is released: {}", view.list(claims.into_iter())));
    }
    Ok(())
}

pub(super) fn undrain(args: &UndrainArgs) -> Result<ExitCode> {
    let state_dir = &args.host.state.state_dir;
    check_root(state_dir, "undrain")?;
    if args.which.is_all() {
        let ended = out_of_service::undrain_all(state_dir)?;
        for outage in &ended {
            out::result(&format!("{}: in service; it was {outage}\n", outage.device))?;
        }
        if ended.is_empty() {
            out::note("no device was drained");
        }
    } else {
        let devices = args.which.named(&inventory(&args.host)?)?;
        let ended = out_of_service::undrain(state_dir, &devices)?;
        for (device, ended) in devices.iter().zip(ended) {
            let was: Vec<String> = ended.iter().map(ToString::to_string).collect();
            out::result(&match was.is_empty() {
                false => format!("{}: in service; it was {}\n", device.label, was.join("; ")),
                true => format!("{}: is in service already\n", device.label),
            })?;
        }
    }
    Ok(refresh_if_used(state_dir).map_or_else(|error| out::complain(error.into()), |()| ExitCode::SUCCESS))
}

fn check_root(state_dir: &Path, verb: &str) -> CoreResult<()> {
    root_only::check(state_dir).map_err(|_| {
        Error::failed(verb, "only root takes devices out of service and puts them back")
            .hint("run this command as root")
    })
}

/// What the last refresh found: a device may be taken out of service because it does not answer. Without that, or if a
/// host is named, it is examined.
fn inventory(host: &SharingArgs) -> Result<Inventory> {
    if host.host.inventory.is_none()
        && host.host.root.is_none()
        && let Ok(file) = HostFile::load(&host.state.state_dir)
    {
        return Ok(file.inventory);
    }
    Ok(examine::inventory(&host.options().host)?)
}

/// Writes the specifications again if a refresh has written them: names without a claim change with what is in service.
fn refresh_if_used(state_dir: &Path) -> CoreResult<()> {
    match HostFile::load(state_dir) {
        Err(_) => Ok(()),
        Ok(_) => renew::specifications(state_dir, &[]).map_err(|error| {
            Error::failed(
                "specifications",
                "are not up to date: what was said above is recorded, but they were not written again",
            )
            .from_source(error)
            .hint("tranche cdi refresh")
        }),
    }
}
