//! Makes CDI specifications from a host and its policy.
//!
//! One difference from NVIDIA's `nvidia-ctk cdi generate` is intended: for a mode other than `nvml`, the kind is the
//! one that NVIDIA's runtime requests (`nvidia.com/gds`), while NVIDIA's command writes `nvidia.com/gpu` for every
//! mode.

mod files;
mod hints;
mod hook;
mod leftover;
mod outcome;
pub mod stale;

pub(crate) use files::{OutputFile, Writer};
pub use hook::program;
pub(crate) use hook::warn_if_missing;
pub(crate) use outcome::Outcome;

use crate::digests;
use std::path::{Path, PathBuf};
use tranche_core::error::{Error, Result};
use tranche_core::text::some;
use tranche_core::types::{CdiVersion, HostPath};
use tranche_host::examine;
use tranche_plan::cdi::encode::Format;
use tranche_plan::cdi::header::SpecOrigin;
use tranche_plan::derive::{self, Mode, Options, Sharing};
use tranche_plan::edits::Derived;
use tranche_plan::inventory::Inventory;
use tranche_plan::share::Plan;
use tranche_state::held::earlier;
use tranche_state::out_of_service;
use tranche_state::planning::{self, PlanOptions, pipe_directories};

/// What is made, and where it is written.
#[derive(Debug, Clone)]
pub struct GenerateOptions {
    /// The host, its policy and its ledger.
    pub at: PlanOptions,
    /// What goes into the specifications. The shares of the policy are added.
    pub what: Options,
    /// The file to write, beside which a further kind of devices gets a file of its own; `None` to write no file.
    pub output: Option<PathBuf>,
    /// The format; `None` for the one that the name of the file says, else YAML.
    pub format: Option<Format>,
    /// The newest CDI version that the engine supports; content that needs a newer one is left out.
    pub cdi_version: Option<CdiVersion>,
    /// Whether to accept that the host could not be examined completely, and write what was found over an older file.
    pub degraded: bool,
    /// The directories that engines read. In one of them, files that define the same devices are warned of.
    pub spec_dirs: Vec<PathBuf>,
    /// The directory of systemd-tmpfiles, which makes the directories of MPS daemons at boot.
    pub tmpfiles_dir: PathBuf,
}

/// What was made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Generated {
    /// The text of each specification that was not written to a file.
    pub documents: Vec<String>,
    /// Why the specifications do not describe the host completely; `None` if they do.
    pub missing: Option<String>,
}

/// Makes the specifications of a host. `notes` gets lines for the person who uses them.
///
/// # Errors
/// Returns an error if the host cannot be examined or has no device, if the policy is invalid or cannot be applied, if
/// something is held and the ledger cannot be read, or if a file cannot be written or must not be replaced.
pub fn generate(options: GenerateOptions, notes: &mut Vec<String>) -> Result<Generated> {
    let GenerateOptions { at, mut what, .. } = options;
    let inventory = examine::inventory(&at.host)?;
    let outcome = Outcome::of(&inventory, &what, options.degraded);
    if let Some(hook) = what.hook.as_ref().filter(|_| at.host.is_here()) {
        warn_if_missing(hook);
    }
    let origin = add_plan(&mut what, &inventory, &at, "tranche cdi generate", notes)?;
    let derived = derived(&inventory, &what, &outcome)?;
    let make_directories = |output: &Path| match at.host.is_here() {
        true => {
            let directory = output.parent().unwrap_or(output);
            pipe_directories::make_for(what.sharing.as_ref(), directory, &options.tmpfiles_dir)
        }
        false => Ok(None),
    };
    let writer = Writer {
        format: options.format,
        cdi_version: options.cdi_version,
        spec_dirs: options.spec_dirs,
        origin,
        first: derived.kind.clone(),
        refresh: false,
    };
    let documents = match &options.output {
        None => writer.documents(&derived.by_kind(), notes)?,
        Some(output) => {
            let before = || make_directories(output);
            writer.write(output, &derived.by_kind(), &outcome, before, notes)?;
            Vec::new()
        }
    };
    Ok(Generated {
        documents,
        missing: outcome.missing().map(str::to_owned),
    })
}

/// Adds the plan to `options`, and returns what the specifications are made from. `again` is the command that makes
/// them again.
///
/// # Errors
/// Returns an error if the policy is invalid or cannot be applied to this host, or if the ledger cannot be listed.
pub(crate) fn add_plan(
    options: &mut Options,
    inventory: &Inventory,
    at: &PlanOptions,
    again: &str,
    notes: &mut Vec<String>,
) -> Result<SpecOrigin> {
    let mut origin = SpecOrigin {
        host: digests::of_host(inventory)?,
        policy: None,
        options: at.host.choices().join(" "),
    };
    // Only these modes have shares.
    if matches!(options.mode, Mode::Auto | Mode::Nvml) {
        options.sharing = planning::of(inventory, at)?;
        let plan = options.sharing.as_ref().map(|s| &*s.plan);
        origin.policy = Some(digests::of_plan(plan.unwrap_or(&Plan::default()))?);
        options.sharing = with_held(options.sharing.take(), inventory, &at.state_dir, again, notes)?;
    }
    Ok(origin)
}

/// What the host gives to containers. Warnings are logged.
///
/// # Errors
/// Returns an error if the host has no device to give, or if engines crash at the kind of the devices.
pub(crate) fn derived(inventory: &Inventory, options: &Options, outcome: &Outcome) -> Result<Derived> {
    let derived = derive::derive(inventory, options).map_err(|error| outcome.of_failure(error))?;
    if derived.kind.crashes_engines() {
        let what = "engines crash when they read a vendor or a class of one letter";
        return Err(Error::usage(&derived.kind, what).hint("choose a longer one with --vendor or --class"));
    }
    for warning in &derived.warnings {
        tracing::warn!("{}: {}", warning.object, warning.text);
    }
    Ok(derived)
}

/// `sharing` with the devices that are out of service, and those that it does not split and of which something is held
/// under an earlier policy. Reports what is held, and what that changes in the specification.
///
/// # Errors
/// Returns an error if the ledger cannot be listed.
fn with_held(
    sharing: Option<Sharing>,
    inventory: &Inventory,
    state_dir: &Path,
    again: &str,
    notes: &mut Vec<String>,
) -> Result<Option<Sharing>> {
    let earlier = earlier::earlier(inventory, sharing.as_ref().map(|s| &*s.plan), state_dir)?;
    notes.extend(earlier.all_lines().cloned());
    let out_of_service = out_of_service::of_host(inventory, state_dir);
    if earlier.held.is_empty() && out_of_service.is_empty() {
        return Ok(sharing);
    }
    let sharing = Sharing {
        plan: sharing.map(|sharing| sharing.plan).unwrap_or_default(),
        held: earlier.held,
        out_of_service,
        state_dir: HostPath::absolute(state_dir)?,
    };
    let claimed = derive::claimed_since_held(inventory, &sharing);
    if !claimed.is_empty() {
        notes.push(format!(
            "{}: its names still claim the whole device, and `all` does not contain it, because a part of it is held or may \
             be held; run {again} again when that claim has ended",
            some(&claimed)
        ));
    }
    Ok(Some(sharing))
}
