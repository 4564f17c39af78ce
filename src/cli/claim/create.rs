//! `tranche claim create`.

use crate::out;
use crate::place::SpecDirArg;
use crate::sharing::SharingArgs;
use anyhow::{Result, bail};
use serde::Deserialize;
use std::process::ExitCode;
use std::time::Duration;
use tranche_core::broker::{ClaimRequest, MigMakeRequest};
use tranche_core::claims::Claims;
use tranche_core::error::Error;
use tranche_core::types::{
    CdiVersion, MemorySize, MigProfile, Percent, RequestedDevice, Selection, ShareName, WaitTime,
};
use tranche_plan::derive::{HookOptions, Sharing};
use tranche_plan::reserve::ReserveError;
use tranche_state::claim_spec::{self, ClaimFile, describe, is_of_user};
use tranche_state::held::Held;
use tranche_state::held::specs::Specs;
use tranche_state::held::{View, by_broker};
use tranche_state::planning::own_hook;
use tranche_state::planning::{self, needs, pipe_directories};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
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
    /// Reserve shares of this device: 0, 0:1, GPU-…, MIG-…, 0000:41:00.0, /dev/nvidia0; or any free dedicated
    /// device: any [default: the device whose free shares fit best]
    #[arg(long, visible_alias = "of", value_name = "DEVICE")]
    device: Option<RequestedDevice>,
    /// Only of a device with these properties: memory>=40Gi,product=A100
    #[arg(long, value_name = "CONDITIONS")]
    select: Option<Selection>,
    /// Make an instance of MIG with this profile and reserve it, where the policy allows that: 1g.10gb
    #[arg(long, value_name = "PROFILE", conflicts_with_all = ["device", "select", "shares", "memory", "compute"])]
    mig: Option<MigProfile>,
    /// Wait up to this time for what others hold: 30s, 5m. Root's requests are served in the order of their coming, and
    /// then those of users: who has held less lately comes first
    #[arg(long, value_name = "TIME")]
    wait: Option<WaitTime>,
    /// Release the claim when no container has used it for this many seconds [default: keep it until it is released]
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..))]
    ttl: Option<u64>,
    /// Release the claim together with the first container that uses it, even if that container fails to start
    #[arg(long)]
    once: bool,
    /// Let containers of engines that run as root use the claim as well; without this option, only your own engine
    /// can. A claim that root makes is for engines of root in any case
    #[arg(long)]
    for_root: bool,
    /// The newest CDI version that the engine supports (0.5 for podman 4.3)
    #[arg(long, value_name = "VERSION", env = "TRANCHE_CDI_VERSION")]
    cdi_version: Option<CdiVersion>,
    /// Print JSON; docs/shares.md describes the fields
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    specs: SpecDirArg,
    #[command(flatten)]
    at: SharingArgs,
}

pub(super) fn run(args: &Args) -> Result<ExitCode> {
    let mut request = args.request();
    // A device and a file get this name, so it is checked before anything is reserved.
    let device_name = claim_spec::device_name(&request.name)?;
    let state_dir = &args.at.state.state_dir;
    if by_broker::is_needed(state_dir) {
        if let Some(profile) = &args.mig {
            let error = Error::usage(format!("--mig {profile}"), "only root can have an instance made");
            bail!(error.hint("ask root for a claim"));
        }
        return ask_broker(args, &request);
    }
    if is_of_user(&args.name) {
        let error = Error::usage(format!("claim {}", args.name), "is a name for claims of users");
        bail!(error.hint("choose one that does not begin with a number and a dot"));
    }
    if let Some(profile) = args.mig.clone() {
        request.device = Some(RequestedDevice::One(MigMakeRequest { profile }.ask(state_dir)?));
    }
    let (inventory, sharing) = planning::required(&args.at.options())?;
    let reservation = claim_spec::reservation(&request, &inventory, &sharing.plan)?;
    let hook = own_hook().unwrap_or_else(|| HookOptions::default().path);
    let offer = ClaimFile::new(&request, &inventory, &sharing, hook, &args.specs.spec_dir)?;
    let claims = Claims::open(state_dir)?;
    pipe_directories::make(&sharing)?;
    let wait = args.wait.map_or(Duration::ZERO, WaitTime::get);
    let reserved = sharing.plan.reserve_waiting(&claims, &reservation, &offer, wait);
    let (found, claim) = reserved.map_err(|error| refusal(error, args, &sharing))?;
    let held = View::new(Specs::of_plan(&sharing.plan), claims.uptime()).held(&claim);
    out::either(args.json, &held, || format!("{device_name}\n"))?;
    out::note(describe(&found, &sharing.plan));
    if let Some(split) = sharing.plan.split(found.device) {
        needs::note(&sharing, split).into_iter().for_each(out::note);
    }
    Ok(ExitCode::SUCCESS)
}

/// Lets the broker make the claim, because this user cannot write the ledger.
fn ask_broker(args: &Args, request: &ClaimRequest) -> Result<ExitCode> {
    let answer: OwnClaim = by_broker::ask_waiting(&args.at.state.state_dir, request, request.wait.get())?;
    out::either(args.json, &answer.claim, || format!("{}\n", answer.claim.cdi))?;
    out::note(answer.note);
    Ok(ExitCode::SUCCESS)
}

/// The claim that the broker made, and what was found for it.
#[derive(Deserialize)]
struct OwnClaim {
    claim: Held,
    note: String,
}

impl Args {
    fn request(&self) -> ClaimRequest {
        ClaimRequest {
            name: self.name.clone(),
            memory: self.memory,
            compute: self.compute,
            shares: self.shares,
            names: self.share.clone(),
            device: self.device.clone(),
            select: self.select.clone().unwrap_or_default(),
            once: self.once,
            for_root: self.for_root,
            ttl: self.ttl,
            wait: self.wait.unwrap_or_default(),
            cdi_version: self.cdi_version,
        }
    }
}

/// The error for a claim that was not made. If the claim would fit on an unused device, the error lists who holds what.
fn refusal(error: ReserveError, args: &Args, sharing: &Sharing) -> Error {
    View::new(Specs::of_plan(&sharing.plan), 0).not_reserved(format_args!("claim {}", args.name), error)
}
