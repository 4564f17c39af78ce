//! `tranche claim create`.

use super::spec;
use crate::cdi::encode::{Format, encode};
use crate::cdi::{build, write};
use crate::claims::{Claims, Offer, Reservation, ReserveError, explain_reserve, remove};
use crate::cli::cdi::hook_beside_us;
use crate::cli::held::View;
use crate::cli::sharing::{self, SharingArgs};
use crate::cli::specs::Specs;
use crate::cli::{needs, out, root_only};
use crate::derive::{self, HookOptions, Options, Sharing};
use crate::error::{Context, Error};
use crate::inventory::Inventory;
use crate::ledger::{Claim, is_start_name};
use crate::share::{Fit, Share, SplitDevice, Wish};
use crate::text::some;
use crate::types::{CdiVersion, Device, DeviceSelector, HostPath, MemorySize, Percent, QualifiedName, ShareName};
use anyhow::{Result, bail};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

#[derive(Debug, clap::Args)]
pub(in crate::cli) struct Args {
    /// The name of the claim; a container requests it as nvidia.com/claim=NAME
    #[arg(long)]
    name: String,
    /// At least this much memory: 8Gi
    #[arg(long, value_name = "SIZE")]
    memory: Option<MemorySize>,
    /// At least this much compute: 30%
    #[arg(long, value_name = "PERCENT")]
    compute: Option<Percent>,
    /// Reserve this many shares of one device as one claim
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    shares: Option<u32>,
    /// Reserve the share of this name; can be given more than once. --shares is then the number of further shares
    #[arg(long, value_name = "NAME", requires = "device")]
    share: Vec<ShareName>,
    /// Reserve shares of this device: 0, 0:1, GPU-…, MIG-…, 0000:41:00.0, /dev/nvidia0 [default: the device
    /// whose free shares fit best]
    #[arg(long, visible_alias = "of", value_name = "DEVICE")]
    device: Option<DeviceSelector>,
    /// Wait up to this many seconds for what others hold. Those who wait are served in the order of their coming
    #[arg(long, value_name = "SECONDS", default_value_t = 0, hide_default_value = true)]
    wait: u64,
    /// Release the claim when no container has used it for this many seconds [default: keep it until it is released]
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..))]
    ttl: Option<u64>,
    /// Release the claim together with the first container that uses it, even if that container fails to start
    #[arg(long)]
    once: bool,
    /// The newest CDI version that the engine supports (0.5 for podman 4.3)
    #[arg(long, value_name = "VERSION", env = "TRANCHE_CDI_VERSION")]
    cdi_version: Option<CdiVersion>,
    /// Print JSON; docs/sharing.md describes the fields
    #[arg(long)]
    json: bool,
    /// The directory for the claim's specification; it must be one that engines read
    #[arg(long, value_name = "DIR", env = "TRANCHE_SPEC_DIR", default_value = "/var/run/cdi")]
    spec_dir: PathBuf,
    #[command(flatten)]
    at: SharingArgs,
}

pub(super) fn run(args: &Args) -> Result<ExitCode> {
    // A device and a file get this name, so it is checked before anything is reserved.
    let device_name: QualifiedName = format!("nvidia.com/claim={}", args.name).parse()?;
    if is_start_name(&args.name) {
        let error = Error::usage(
            format!("claim {}", args.name),
            "is a name that starts of containers use",
        );
        bail!(error.hint("choose another name"));
    }
    if args.memory.is_some_and(|m| m.mib() == 0) {
        bail!(
            Error::usage("--memory 0", "a claim needs some memory")
                .hint("leave the option out for a share of any size")
        );
    }
    let state_dir = &args.at.state.state_dir;
    root_only::check(state_dir)?;
    let (inventory, sharing) = sharing::required(&args.at)?;
    let wish = Wish {
        memory: args.memory,
        compute: args.compute.map(|c| c.get()),
        names: args.share.clone(),
        shares: args.shares.map(|n| n as usize),
        device: args
            .device
            .as_ref()
            .map(|selector| device(&inventory, &sharing, selector))
            .transpose()?,
    };
    sizeless(&sharing, &wish)?;
    // Absolute, because hooks that use this path run in other directories.
    let file = spec::file(&args.spec_dir, &args.name);
    let file = HostPath::new(std::path::absolute(&file).about(file.display(), "has no absolute path")?)?;
    let claims = Claims::open(state_dir)?;
    let reservation = Reservation {
        once: args.once,
        ttl: args.ttl,
        ..Reservation::of(&args.name, wish)
    };
    let offer = Specification {
        args,
        inventory: &inventory,
        sharing: &sharing,
        file: &file,
    };
    let wait = Duration::from_secs(args.wait);
    let reserved = claims.reserve_waiting(&sharing.plan, &reservation, &offer, wait);
    let (found, claim) = reserved.map_err(|error| refusal(error, args, &sharing))?;
    let held = View::new(Specs::of_plan(&sharing.plan), claims.uptime()).held(&claim);
    out::either(args.json, &held, || format!("{device_name}\n"))?;
    out::note(describe(&found, &sharing));
    if let Some(split) = sharing.plan.split(found.device) {
        needs::note(&sharing, split);
    }
    Ok(ExitCode::SUCCESS)
}

/// The specification by which engines know a claim.
struct Specification<'a> {
    args: &'a Args,
    inventory: &'a Inventory,
    sharing: &'a Sharing,
    file: &'a HostPath,
}

impl Offer for Specification<'_> {
    fn sweep(&self, claims: &[&Claim]) -> Result<(), Error> {
        let state_dir = Path::new(self.sharing.state_dir.as_str());
        spec::sweep(&self.args.spec_dir, claims, state_dir)?;
        match std::fs::symlink_metadata(self.file.as_path()) {
            Err(_) => Ok(()),
            Ok(_) => Err(Error::failed(
                self.file,
                "exists already, and does not belong to a claim in this ledger",
            )
            .hint("choose another name, or remove the file if it is not needed")),
        }
    }

    fn publish(&self, fit: &Fit) -> Result<Option<String>, Error> {
        let options = Options {
            hook: Some(hook_beside_us().map_or_else(HookOptions::default, HookOptions::at)),
            sharing: Some(self.sharing.clone()),
            ..Options::default()
        };
        let derived = derive::claim(self.inventory, &options, fit, &self.args.name, self.file)?;
        let (spec, _) = build(&derived, self.args.cdi_version)?;
        let header = format!("Made by tranche {}", env!("CARGO_PKG_VERSION"));
        let text = encode(&spec, Format::Yaml, &[header])?;
        sharing::make_pipe_directories(self.sharing)?;
        write::write(self.file.as_path(), &text)?;
        Ok(Some(self.file.to_string()))
    }

    fn withdraw(&self) -> Result<(), Error> {
        remove(self.file.as_path())
    }
}

/// Refuses a wish for a size if none of the shares that may serve it has a limit: it could never be fulfilled.
fn sizeless(sharing: &Sharing, wish: &Wish) -> Result<()> {
    let asked = |split: &&SplitDevice| wish.is_about(split);
    let mut asked = sharing.plan.devices.iter().filter(asked).peekable();
    if asked.peek().is_none() {
        return Ok(());
    }
    let shares: Vec<&Share> = asked.flat_map(|split| &split.shares).collect();
    let (option, what) = if wish.memory.is_some() && shares.iter().all(|s| s.memory.is_none()) {
        ("--memory", "memory")
    } else if wish.compute.is_some() && shares.iter().all(|s| s.compute.is_none()) {
        ("--compute", "compute")
    } else {
        return Ok(());
    };
    Err(Error::usage(
        option,
        format!("no share of the policy has a limit of {what}: shares under time-slicing have no size"),
    )
    .hint("request a number of shares with --shares, or split the device under mps")
    .into())
}

/// The error for a claim that was not made. If the claim would fit on an unused device, the error lists who holds what.
fn refusal(error: ReserveError, args: &Args, sharing: &Sharing) -> Error {
    explain_reserve(format_args!("claim {}", args.name), error, |held| {
        View::new(Specs::of_plan(&sharing.plan), 0).list(held)
    })
}

/// The split or dedicated device that `selector` names.
fn device(inventory: &Inventory, sharing: &Sharing, selector: &DeviceSelector) -> Result<Device> {
    let device = inventory.catalogue().get(selector)?.device();
    if sharing.plan.split(device).is_some() {
        return Ok(device);
    }
    let split: Vec<String> = sharing.plan.devices.iter().map(|d| d.device.cdi_name()).collect();
    let error = Error::usage(format!("device {selector}"), "is not shared by the policy");
    Err(error.hint(format!("the policy shares {}", some(&split))).into())
}

fn describe(found: &Fit, sharing: &Sharing) -> String {
    let split = sharing.plan.split(found.device);
    if split.is_some_and(|split| split.method.is_whole()) {
        return format!("{}: the whole device", found.device);
    }
    let memory = found.memory.map(|m| format!(", {m}")).unwrap_or_default();
    let compute = found
        .compute
        .map(|c| format!(", up to {c}% compute"))
        .unwrap_or_default();
    let names: Vec<&str> = found.shares.iter().map(|s| s.as_str()).collect();
    let word = if names.len() == 1 { "share" } else { "shares" };
    format!("{}: {word} {}{memory}{compute}", found.device, some(&names))
}
