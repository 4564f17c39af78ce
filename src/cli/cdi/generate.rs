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
pub(super) use arguments::FileArgs;
pub(super) use files::{OutputFile, Writer};
pub(in crate::cli) use hook::hook_beside_us;
pub(super) use hook::{program, warn_if_missing};
pub(super) use nvidia::{take_nvidia_variables, with_nvidia_names};
pub(super) use outcome::Outcome;

use super::super::earlier;
use super::super::look;
use super::super::out;
use super::super::pipe_directories;
use super::super::place::StateArgs;
use super::super::sharing::{self, SharingArgs};
use crate::cdi::header::SpecOrigin;
use crate::derive::{self, Mode, Options, Sharing};
use crate::edits::Derived;
use crate::error::Error;
use crate::inventory::Inventory;
use crate::share::Plan;
use crate::text::some;
use anyhow::{Result, bail};
use std::path::Path;
use std::process::ExitCode;

pub(super) fn run(mut args: Args) -> Result<ExitCode> {
    take_nvidia_variables(&mut args.at.host, &mut args.at.look)?;
    let mut options = options::options(&args)?;
    args.at.look.take_feature_flags(&args.what.feature_flags);
    let inventory = look::inventory(&args.at.host, &args.at.look)?;
    let outcome = Outcome::of(&inventory, options.mode, &options.devices, args.file.degraded);
    if args.at.host.is_here()
        && let Some(hook) = &options.hook
    {
        warn_if_missing(hook);
    }
    let origin = add_plan(&mut options, &inventory, &args.at, "tranche cdi generate")?;
    let derived = derived(&inventory, &options, &outcome)?;
    let make_directories = |output: &Path| match args.at.host.is_here() {
        true => {
            let directory = output.parent().unwrap_or(output);
            Ok(pipe_directories::make_for(
                options.sharing.as_ref(),
                directory,
                &args.tmpfiles,
            )?)
        }
        false => Ok(()),
    };
    let writer = Writer {
        args: &args.file,
        origin,
        first: derived.kind.clone(),
        refresh: false,
    };
    match args.file.output.as_deref().filter(|output| !output.is_empty()) {
        None => writer.print(&derived.by_kind())?,
        Some(output) => {
            let output = Path::new(output);
            writer.write(output, &derived.by_kind(), &outcome, || make_directories(output))?;
        }
    }
    Ok(outcome.exit_code())
}

/// Adds the plan to `options`, and returns what the specifications are made from. `again` is the command that makes them
/// again.
///
/// # Errors
/// Returns an error if the policy is invalid or cannot be applied to this host, or if the ledger cannot be listed.
pub(super) fn add_plan(
    options: &mut Options,
    inventory: &Inventory,
    at: &SharingArgs,
    again: &str,
) -> Result<SpecOrigin> {
    let mut origin = SpecOrigin {
        host: inventory.digest()?,
        policy: None,
        options: look::choices(&at.host, &at.look).join(" "),
    };
    // Only these modes have shares.
    if matches!(options.mode, Mode::Auto | Mode::Nvml) {
        options.sharing = sharing::of(inventory, at)?;
        let plan = options.sharing.as_ref().map(|s| &s.plan);
        origin.policy = Some(plan.unwrap_or(&Plan::default()).digest()?);
        options.sharing = with_held(options.sharing.take(), inventory, &at.state, again)?;
    }
    Ok(origin)
}

/// What the host gives to containers. Warnings are logged.
///
/// # Errors
/// Returns an error if the host has no device to give, or if engines crash at the kind of the devices.
pub(super) fn derived(inventory: &Inventory, options: &Options, outcome: &Outcome) -> Result<Derived> {
    let derived = derive::derive(inventory, options).map_err(|error| outcome.of_failure(error))?;
    if derived.kind.crashes_engines() {
        let what = "engines crash when they read a vendor or a class of one letter";
        bail!(Error::usage(&derived.kind, what).hint("choose a longer one with --vendor or --class"));
    }
    for warning in &derived.warnings {
        tracing::warn!("{}: {}", warning.object, warning.text);
    }
    Ok(derived)
}

/// `sharing` with the devices that it does not split and of which something is held under an earlier policy. Reports what
/// is held, and what that changes in the specification.
///
/// # Errors
/// Returns an error if the ledger cannot be listed.
fn with_held(
    sharing: Option<Sharing>,
    inventory: &Inventory,
    state: &StateArgs,
    again: &str,
) -> Result<Option<Sharing>> {
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
             be held; run {again} again when that claim has ended",
            some(&claimed)
        ));
    }
    Ok(Some(sharing))
}
