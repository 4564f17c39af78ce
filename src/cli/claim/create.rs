//! `tranche claim create`.

use super::ClaimDirArgs;
use crate::cdi::encode::{Format, encode};
use crate::cdi::{build, write};
use crate::claims;
use crate::cli::cdi::hook_beside_us;
use crate::cli::sharing::{self, SharingArgs};
use crate::cli::{out, status};
use crate::derive::{self, HookOptions, Options, Sharing};
use crate::error::{Context, Error, Result};
use crate::inventory::Inventory;
use crate::ledger::process::Machine;
use crate::ledger::{Ask, Change, Ledger, Part, State};
use crate::share::{DeviceRef, Fit, Wish, fit};
use crate::types::{CdiVersion, DeviceId, HostPath, MemorySize, Percent, QualifiedName};
use std::process::ExitCode;

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    at: SharingArgs,
    #[command(flatten)]
    dir: ClaimDirArgs,
    /// What to call it; the device is then nvidia.com/claim=NAME
    #[arg(long)]
    name: String,
    /// At least so much memory: 8Gi
    #[arg(long, value_name = "SIZE")]
    memory: Option<MemorySize>,
    /// At least so much compute: 30%
    #[arg(long, value_name = "PERCENT")]
    compute: Option<Percent>,
    /// So many shares, as one
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    shares: Option<u32>,
    /// Of this device: 0, 0:1, GPU-…, MIG-…
    #[arg(long, visible_alias = "of", value_name = "DEVICE")]
    device: Option<DeviceId>,
    /// Give it back after so many seconds, unless a container uses it by then
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..))]
    ttl: Option<u64>,
    /// Keep it when the container that used it is gone
    #[arg(long)]
    keep: bool,
    /// Write its specification for engines that know no newer CDI than this
    #[arg(long, value_name = "VERSION", env = "TRANCHE_CDI_VERSION")]
    cdi_version: Option<CdiVersion>,
}

pub(super) fn run(args: &Args) -> Result<ExitCode> {
    // The name becomes a device's and a file's before anything is taken.
    let device_name: QualifiedName = format!("nvidia.com/claim={}", args.name).parse()?;
    let (inventory, sharing) = sharing::required(&args.at)?;
    let wish = Wish {
        memory: args.memory,
        compute: args.compute.map(|c| c.get()),
        shares: args.shares.map(|n| n as usize),
        device: args
            .device
            .as_ref()
            .map(|id| device(&inventory, &sharing, id))
            .transpose()?,
    };
    // A hook removes it later, from wherever an engine runs.
    let file = args.dir.file(&args.name);
    let file = HostPath::new(std::path::absolute(&file).about(file.display(), "cannot be named")?)?;
    let found = take(args, &sharing, wish)?;
    let options = Options {
        hook: Some(hook_beside_us().map_or_else(HookOptions::default, HookOptions::at)),
        sharing: Some(sharing.clone()),
        ..Options::default()
    };
    let written = derive::claim(&inventory, &options, &found, &args.name, &file)
        .and_then(|derived| build(&derived, args.cdi_version))
        .and_then(|(spec, _)| {
            encode(
                &spec,
                Format::Yaml,
                &[format!("Made by tranche {}", env!("CARGO_PKG_VERSION"))],
            )
        })
        .and_then(|text| {
            sharing::make_pipe_directories(&sharing)?;
            write::write(file.as_path(), &text)
        });
    if let Err(error) = written {
        // A claim that no container can name is nobody's.
        give_back(args, &sharing, &found)?;
        return Err(error);
    }
    out::result(&format!("{device_name}\n"))?;
    if let Some(split) = sharing.plan.split(found.device) {
        out::note(describe(&found, &claims::part(split, &found.shares)));
        sharing::note_needs(&sharing, split);
    }
    Ok(ExitCode::SUCCESS)
}

/// Chooses the shares and takes them, under one lock: nobody is faster, and no name is given twice.
fn take(args: &Args, sharing: &Sharing, wish: Wish) -> Result<Fit> {
    let machine = Machine::here()?;
    let ledger = Ledger::open(&args.at.state.state_dir)?;
    let locked = ledger.lock()?;
    let books = status::current(locked.books()?.books, &machine);
    let mut claims = books.iter().flat_map(|b| &b.claims);
    if claims.any(|c| c.name.as_deref() == Some(&args.name)) {
        return Err(
            Error::usage(format!("claim {}", args.name), "is there already").hint("release it, or choose another name")
        );
    }
    let found = fit(&sharing.plan, wish, |split, share| {
        claims::is_free(&books, split, share)
    })?;
    let split = sharing
        .plan
        .split(found.device)
        .ok_or_else(|| Error::failed(found.device, "is not split"))?;
    let ask = Ask {
        device: split.key.clone(),
        part: claims::part(split, &found.shares),
        bounds: claims::bounds(split),
        asked_as: Some(format!("nvidia.com/claim={}", args.name)),
        name: Some(args.name.clone()),
        container: None,
        process: None,
        state: State::Reserved,
        once: !args.keep,
        alone: false,
        uid: nix::unistd::getuid().as_raw(),
        ttl: args.ttl,
    };
    locked.change(&split.key, |book| match book.take(&ask, &machine) {
        Ok(()) => Ok(((), Change::Made)),
        Err(refused) => Err(Error::failed(format!("claim {}", args.name), refused)),
    })?;
    Ok(found)
}

fn give_back(args: &Args, sharing: &Sharing, found: &Fit) -> Result<()> {
    let Some(split) = sharing.plan.split(found.device) else {
        return Ok(());
    };
    Ledger::open(&args.at.state.state_dir)?.change(&split.key, |book| {
        let uid = nix::unistd::getuid().as_raw();
        book.release_name(&args.name, uid)
            .map_err(|r| Error::failed(format!("claim {}", args.name), r))?;
        Ok(((), Change::Made))
    })
}

/// The split or dedicated device that `id` names.
fn device(inventory: &Inventory, sharing: &Sharing, id: &DeviceId) -> Result<DeviceRef> {
    let found = inventory.device(id).map(|(gpu, mig)| DeviceRef {
        gpu: gpu.index,
        mig: mig.map(|mig| mig.index),
    });
    let Some(device) = found else {
        return Err(
            Error::usage(format!("device {id}"), "this host has no such device").hint("tranche list shows them")
        );
    };
    if sharing.plan.split(device).is_some() {
        return Ok(device);
    }
    let split: Vec<String> = sharing.plan.devices.iter().map(|d| d.device.cdi_name()).collect();
    Err(Error::usage(format!("device {id}"), "is not shared by the policy")
        .hint(format!("the policy shares {}", split.join(", "))))
}

fn describe(found: &Fit, part: &Part) -> String {
    let memory = found.memory.map(|m| format!(", {m}")).unwrap_or_default();
    let compute = found
        .compute
        .map(|c| format!(", up to {c}% compute"))
        .unwrap_or_default();
    format!("{}: {}{memory}{compute}", found.device, part)
}
