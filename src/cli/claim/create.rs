//! `tranche claim create`.

use crate::out;
use crate::place::SpecDirArg;
use crate::sharing::SharingArgs;
use anyhow::{Result, bail};
use serde::Deserialize;
use std::path::Path;
use std::process::ExitCode;
use tranche_broker::verbs::{self, Caller, ClaimPlace, RootsTurn};
use tranche_core::broker::MigMakeRequest;
use tranche_core::claims::{Claims, explain};
use tranche_core::error::Error;
use tranche_core::ledger::Refused;
use tranche_core::types::{
    CdiVersion, MemorySize, MigProfile, Percent, RequestedDevice, Selection, ShareName, WaitTime,
};
use tranche_plan::derive::HookOptions;
use tranche_plan::host_file::HostFileSeen;
use tranche_protocol::ClaimRequest;
use tranche_state::held::{Held, by_broker};
use tranche_state::planning::{self, PolicyOptions, own_hook};

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
    /// Print JSON; docs/reference/claims.md describes the fields
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    specs: SpecDirArg,
    #[command(flatten)]
    at: SharingArgs,
}

pub(super) fn run(args: &Args) -> Result<ExitCode> {
    let mut request = args.request();
    let state_dir = &args.at.state.state_dir;
    if by_broker::is_needed(state_dir) {
        if let Some(profile) = &args.mig {
            let error = Error::usage(format!("--mig {profile}"), "only root can have an instance made");
            bail!(error.hint("ask root for a claim"));
        }
        let answer: OwnClaim = by_broker::ask_waiting(state_dir, &request, request.wait.get())?;
        return show(args, &answer.claim, answer.note.lines());
    }
    if let Some(profile) = args.mig.clone() {
        // Otherwise an instance would be made for nobody.
        refuse_taken(state_dir, &request.name)?;
        request.device = Some(RequestedDevice::One(MigMakeRequest { profile }.ask(state_dir)?));
    }
    let options = args.at.options();
    let seen = HostFileSeen::now(state_dir);
    let with = |policy: &PolicyOptions| planning::required(&options.with_policy(policy));
    let ((inventory, sharing), wrong) = planning::in_force(&options.policy, state_dir, with)?;
    wrong.iter().for_each(out::note);
    let place = ClaimPlace {
        inventory: &inventory,
        sharing,
        hook: own_hook().unwrap_or_else(|| HookOptions::default().path),
        spec_dir: &args.specs.spec_dir,
    };
    let turn = RootsTurn {
        wait: request.wait.get(),
        inventory: &inventory,
        seen,
    };
    let created = verbs::create(place, Caller::Root, request, &turn)?;
    show(args, &created.held, created.notes.iter().map(String::as_str))
}

/// Refuses the name of a claim that exists.
///
/// # Errors
/// Returns the refusal, or an error if the ledger cannot be read.
fn refuse_taken(state_dir: &Path, name: &str) -> Result<()> {
    let books = match Claims::existing(state_dir)? {
        Some(claims) => claims.books()?.books,
        None => return Ok(()),
    };
    match books.iter().any(|book| book.named(name).is_some()) {
        true => bail!(explain(
            format!("claim {name}"),
            Refused::NameTaken(name.to_owned()).into()
        )),
        false => Ok(()),
    }
}

/// Prints the name of the claim, or all of it as JSON, and what was found for it.
fn show<'a>(args: &Args, held: &Held, notes: impl Iterator<Item = &'a str>) -> Result<ExitCode> {
    out::either(args.json, held, || format!("{}\n", held.cdi))?;
    notes.for_each(out::note);
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
