//! `tranche claim create`.

use super::{books, spec};
use crate::cdi::encode::{Format, encode};
use crate::cdi::{build, write};
use crate::claims;
use crate::cli::cdi::hook_beside_us;
use crate::cli::containers::Names;
use crate::cli::held::Held;
use crate::cli::sharing::{self, SharingArgs};
use crate::cli::specs::Specs;
use crate::cli::{out, root_only};
use crate::derive::{self, HookOptions, Options, Sharing};
use crate::error::{Context, Error, Result};
use crate::inventory::Inventory;
use crate::ledger::process::Machine;
use crate::ledger::{Ask, Book, Change, Claim, Ledger, Locked, State, World, utc};
use crate::share::{Fit, Method, Share, SplitDevice, Wish, fit};
use crate::text::some;
use crate::types::{CdiVersion, Device, DeviceSelector, HostPath, MemorySize, Percent, QualifiedName};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

#[derive(Debug, clap::Args)]
pub(super) struct Args {
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
    /// Reserve shares of this device: 0, 0:1, GPU-…, MIG-…, 0000:41:00.0, /dev/nvidia0 [default: the device
    /// whose free shares fit best]
    #[arg(long, visible_alias = "of", value_name = "DEVICE")]
    device: Option<DeviceSelector>,
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
    #[command(flatten)]
    dir: DirArgs,
    #[command(flatten)]
    at: SharingArgs,
}

/// Where the specification goes.
#[derive(Debug, clap::Args)]
struct DirArgs {
    /// The directory for the claim's specification; it must be one that engines read
    #[arg(
        long = "spec-dir",
        value_name = "DIR",
        env = "TRANCHE_SPEC_DIR",
        default_value = "/var/run/cdi"
    )]
    spec_dir: PathBuf,
}

pub(super) fn run(args: &Args) -> Result<ExitCode> {
    // The name becomes a device's and a file's before anything is taken.
    let device_name: QualifiedName = format!("nvidia.com/claim={}", args.name).parse()?;
    if args.memory.is_some_and(|m| m.mib() == 0) {
        return Err(Error::usage("--memory 0", "a claim without memory is of no use")
            .hint("leave the option out for a share of any size"));
    }
    let state_dir = &args.at.state.state_dir;
    root_only::check(state_dir)?;
    let (inventory, sharing) = sharing::required(&args.at)?;
    let wish = Wish {
        memory: args.memory,
        compute: args.compute.map(|c| c.get()),
        shares: args.shares.map(|n| n as usize),
        device: args
            .device
            .as_ref()
            .map(|selector| device(&inventory, &sharing, selector))
            .transpose()?,
    };
    sizeless(&sharing, wish)?;
    // A hook names this file later, from whatever directory an engine runs in.
    let file = spec::file(&args.dir.spec_dir, &args.name);
    let file = HostPath::new(std::path::absolute(&file).about(file.display(), "cannot be named")?)?;
    let machine = Machine::here()?;
    let ledger = Ledger::open(state_dir)?;
    let locked = ledger.lock()?;
    let (found, claim) = take(args, &locked, &machine, &inventory, &sharing, wish, &file)?;
    drop(locked);
    if args.json {
        let held = Held::of(
            &claim,
            &Specs::of_plan(&sharing.plan),
            &mut Names::default(),
            machine.uptime(),
        );
        out::json(&held)?;
    } else {
        out::result(&format!("{device_name}\n"))?;
    }
    out::note(describe(&found, &sharing));
    if let Some(split) = sharing.plan.split(found.device) {
        sharing::note_needs(&sharing, split);
    }
    Ok(ExitCode::SUCCESS)
}

/// Chooses the shares, writes the claim's specification and then the claim, all under the ledger's lock.
///
/// In this order, whoever is killed on the way leaves nothing that is held: at worst a specification without a claim, which
/// no container can use, and which the next `gc` or `create` in that directory removes.
fn take(
    args: &Args,
    locked: &Locked<'_>,
    machine: &Machine,
    inventory: &Inventory,
    sharing: &Sharing,
    wish: Wish,
    file: &HostPath,
) -> Result<(Fit, Claim)> {
    // A claim of this name, or what holds the device, may be in a book that cannot be read.
    if let Some(error) = books::collect(locked, machine)?.1.into_iter().next() {
        return Err(error);
    }
    let books = locked.books()?.books;
    let held: Vec<&Claim> = books.iter().flat_map(|b| &b.claims).collect();
    if held.iter().any(|c| c.name.as_deref() == Some(&args.name)) {
        return Err(Error::usage(format!("claim {}", args.name), "exists already")
            .hint(format!("tranche claim release {}, or choose another name", args.name)));
    }
    let state_dir = Path::new(sharing.state_dir.as_str());
    spec::sweep(&args.dir.spec_dir, &held, state_dir)?;
    if std::fs::symlink_metadata(file.as_path()).is_ok() {
        return Err(
            Error::failed(file, "exists already, and is not of a claim in this ledger")
                .hint("choose another name, or remove the file if it is not needed"),
        );
    }
    let found = fit(&sharing.plan, wish, |split, share| {
        claims::is_free(&books, split, share)
    })
    .map_err(|error| refusal(error, sharing, wish, &books))?;
    let split = sharing
        .plan
        .split(found.device)
        .ok_or_else(|| Error::failed(found.device, "is not split"))?;
    let options = Options {
        hook: Some(hook_beside_us().map_or_else(HookOptions::default, HookOptions::at)),
        sharing: Some(sharing.clone()),
        ..Options::default()
    };
    let derived = derive::claim(inventory, &options, &found, &args.name, file)?;
    let (spec, _) = build(&derived, args.cdi_version)?;
    let header = format!("Made by tranche {}", env!("CARGO_PKG_VERSION"));
    let text = encode(&spec, Format::Yaml, &[header])?;
    let ask = Ask {
        device: split.key.clone(),
        part: claims::part(split, &found.shares),
        bounds: claims::bounds(split),
        asked_as: Some(format!("nvidia.com/claim={}", args.name)),
        name: Some(args.name.clone()),
        container: None,
        process: None,
        state: State::Reserved,
        once: args.once,
        alone: false,
        uid: nix::unistd::getuid().as_raw(),
        ttl: args.ttl,
        spec_file: Some(file.to_string()),
    };
    sharing::make_pipe_directories(sharing)?;
    write::write(file.as_path(), &text)?;
    let taken = locked.change(&split.key, |book| match book.take(&ask, machine) {
        Ok(()) => {
            let own = book.claims.iter().find(|c| c.name == ask.name).cloned();
            Ok((own, Change::Made))
        }
        Err(refused) => Err(Error::failed(format!("claim {}", args.name), refused)),
    });
    match taken {
        Ok(Some(claim)) => Ok((found, claim)),
        Ok(None) => Err(Error::failed(format!("claim {}", args.name), "was not recorded")),
        Err(error) => {
            spec::remove(file.as_path())?;
            Err(error)
        }
    }
}

/// Refuses a wish for a size where no share that is in question has one: no free share would ever serve it.
fn sizeless(sharing: &Sharing, wish: Wish) -> Result<()> {
    let asked = |split: &&SplitDevice| wish.device.is_none_or(|device| device == split.device);
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
        format!("no share here has a limit of {what}: shares under time-slicing have no size"),
    )
    .hint("ask for a number of shares with --shares, or split the device under mps"))
}

/// The refusal of a wish that would fit if less were held: adds who holds what since when.
fn refusal(error: Error, sharing: &Sharing, wish: Wish, books: &[Book]) -> Error {
    let is_asked = |claim: &&Claim| {
        let splits = sharing.plan.devices.iter();
        splits
            .filter(|split| wish.device.is_none_or(|device| device == split.device))
            .any(|split| claim.device.overlaps(&split.key))
    };
    let specs = Specs::of_plan(&sharing.plan);
    let mut names = Names::default();
    let held: Vec<String> = books
        .iter()
        .flat_map(|b| &b.claims)
        .filter(is_asked)
        .map(|claim| {
            let held = Held::of(claim, &specs, &mut names, 0);
            let by = match &held.container {
                Some(container) => container.shown(),
                None => "no container yet".to_owned(),
            };
            format!("{} by {by} since {}", held.cdi, utc(held.since))
        })
        .collect();
    if held.is_empty() {
        return error;
    }
    error.and_hint(format_args!("held: {}", some(&held)))
}

/// The split or dedicated device that `selector` names.
fn device(inventory: &Inventory, sharing: &Sharing, selector: &DeviceSelector) -> Result<Device> {
    let device = inventory.catalogue().get(selector)?.device();
    if sharing.plan.split(device).is_some() {
        return Ok(device);
    }
    let split: Vec<String> = sharing.plan.devices.iter().map(|d| d.device.cdi_name()).collect();
    Err(
        Error::usage(format!("device {selector}"), "is not shared by the policy")
            .hint(format!("the policy shares {}", some(&split))),
    )
}

fn describe(found: &Fit, sharing: &Sharing) -> String {
    let split = sharing.plan.split(found.device);
    if split.is_some_and(|split| split.method == Method::Dedicated) {
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
