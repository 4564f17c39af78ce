//! `tranche cdi generate`: write a specification for a host.
//!
//! The options and environment variables of `nvidia-ctk cdi generate` have the same meaning here, so that a script only
//! changes the program's name. One difference is intended: for a mode other than `nvml`, the kind is the one that
//! NVIDIA's runtime requests (`nvidia.com/gds`), while NVIDIA's command writes `nvidia.com/gpu` for every mode.

mod arguments;
mod files;
mod hints;
mod hook;
mod nvidia;
mod options;
mod outcome;

pub(in crate::cli) use arguments::Args;
pub(in crate::cli) use hook::hook_beside_us;
pub(super) use nvidia::{take_nvidia_variables, with_nvidia_names};

use super::super::earlier;
use super::super::look;
use super::super::out;
use super::super::place::StateArgs;
use super::super::sharing;
use crate::cdi::header::SpecOrigin;
use crate::derive::{self, Mode, Sharing};
use crate::error::Error;
use crate::inventory::Inventory;
use crate::share::Plan;
use crate::text::some;
use anyhow::{Result, bail};
use files::Writer;
use outcome::Outcome;
use std::path::Path;
use std::process::ExitCode;

pub(super) fn run(mut args: Args) -> Result<ExitCode> {
    take_nvidia_variables(&mut args.at.host, &mut args.at.look)?;
    let mut options = options::options(&args)?;
    args.at.look.take_feature_flags(&args.what.feature_flags);
    let inventory = look::inventory(&args.at.host, &args.at.look)?;
    let outcome = Outcome::of(&inventory, options.mode, args.file.degraded);
    if args.at.host.is_here()
        && let Some(hook) = &options.hook
    {
        hook::warn_if_missing(hook);
    }
    let mut origin = SpecOrigin {
        host: inventory.digest()?,
        policy: None,
        options: look::choices(&args.at.host, &args.at.look),
    };
    // Only these modes have shares.
    if matches!(options.mode, Mode::Auto | Mode::Nvml) {
        options.sharing = sharing::of(&inventory, &args.at)?;
        let plan = options.sharing.as_ref().map(|s| &s.plan);
        origin.policy = Some(plan.unwrap_or(&Plan::default()).digest()?);
        options.sharing = with_held(options.sharing, &inventory, &args.at.state)?;
    }
    let derived = derive::derive(&inventory, &options).map_err(|error| outcome.of_failure(error))?;
    if derived.kind.crashes_engines() {
        let what = "engines crash when they read a vendor or a class of one letter";
        bail!(Error::usage(&derived.kind, what).hint("choose a longer one with --vendor or --class"));
    }
    for warning in &derived.warnings {
        tracing::warn!("{}: {}", warning.object, warning.text);
    }
    let make_directories = || match &options.sharing {
        Some(sharing) if args.at.host.is_here() => Ok(sharing::make_pipe_directories(sharing)?),
        _ => Ok(()),
    };
    let writer = Writer {
        args: &args.file,
        origin,
        first: derived.kind.clone(),
    };
    match args.file.output.as_deref().filter(|output| !output.is_empty()) {
        None => writer.print(&derived.by_kind())?,
        Some(output) => writer.write(Path::new(output), &derived.by_kind(), &outcome, make_directories)?,
    }
    Ok(outcome.exit_code())
}

/// `sharing` with the devices that it does not split and of which something is held under an earlier policy. Reports what
/// is held, and what that changes in the specification.
///
/// # Errors
/// Returns an error if the ledger cannot be listed.
fn with_held(sharing: Option<Sharing>, inventory: &Inventory, state: &StateArgs) -> Result<Option<Sharing>> {
    let earlier = earlier::earlier(inventory, sharing.as_ref().map(|s| &s.plan), state)?;
    earlier.report();
    if earlier.held.is_empty() {
        return Ok(sharing);
    }
    let sharing = Sharing {
        plan: sharing.map(|sharing| sharing.plan).unwrap_or_default(),
        held: earlier.held,
        state_dir: state.dir()?,
    };
    let claimed = derive::claimed_since_held(inventory, &sharing);
    if !claimed.is_empty() {
        out::note(format_args!(
            "{}: its names still claim the whole device, and `all` does not contain it, because a part of it is held or may \
             be held; run tranche cdi generate again when that claim has ended",
            some(&claimed)
        ));
    }
    Ok(Some(sharing))
}
