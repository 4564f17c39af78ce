//! What the host has and what its owner wants, as one moment had it.

use super::options::{RefreshOptions, RefreshPlace, absolute};
use super::signs::{self, Sign};
use crate::generate::{self, Outcome};
use crate::nvidia_config;
use std::path::PathBuf;
use std::time::Duration;
use tranche_core::error::{Error, Result};
use tranche_core::types::HostPath;
use tranche_host::{Roots, examine};
use tranche_plan::cdi::header::SpecOrigin;
use tranche_plan::derive::{Options, Sharing};
use tranche_plan::edits::Derived;
use tranche_plan::engines::{self, FoundEngine};
use tranche_plan::host_file::{HostSource, SourceKind};
use tranche_plan::inventory::{Inventory, PlatformKind};
use tranche_plan::policy::RuntimeSettings;
use tranche_state::planning::{self, PolicyOptions};

/// The host, and the settings of its owner.
pub(super) struct Examined {
    pub(super) inventory: Inventory,
    /// Whether the driver is installed at most: its kernel module is not loaded, so the host has no device.
    pub(super) is_not_loaded: bool,
    /// What is wrong with the policy that was written since the last refresh, if that one's stays in force.
    pub(super) wrong_policy: Option<String>,
    settings: RuntimeSettings,
    options: Options,
    hook: HostPath,
    origin: SpecOrigin,
    engines: Vec<FoundEngine>,
    sources: Vec<HostSource>,
    pub(super) signs: Vec<Sign>,
}

/// What the files of a refresh are made from.
pub(super) struct FoundFiles {
    /// As in [`Examined`].
    pub(super) wrong_policy: Option<String>,
    pub(super) inventory: Inventory,
    pub(super) settings: RuntimeSettings,
    pub(super) sharing: Option<Sharing>,
    pub(super) hook: HostPath,
    pub(super) origin: SpecOrigin,
    pub(super) derived: Derived,
    /// The engines that are installed, unless the CDI version was given.
    pub(super) engines: Vec<FoundEngine>,
    /// All but the specifications.
    pub(super) sources: Vec<HostSource>,
}

/// Examines the host and reads the policy.
///
/// # Errors
/// Returns an error if the policy is invalid or cannot be applied, if the host cannot be examined, or if one of them
/// changes each time.
pub(super) fn examine(options: &RefreshOptions, place: &RefreshPlace, notes: &mut Vec<String>) -> Result<Examined> {
    let policy = &options.at.policy;
    let (examined, wrong_policy) = planning::in_force(policy, &place.state_dir, |policy| {
        examine_settled(options, place, policy, notes)
    })?;
    Ok(Examined {
        wrong_policy,
        ..examined
    })
}

/// As [`examine()`], with this policy.
fn examine_settled(
    options: &RefreshOptions,
    place: &RefreshPlace,
    policy: &PolicyOptions,
    notes: &mut Vec<String>,
) -> Result<Examined> {
    /// NVML makes missing nodes of MIG instances when it is opened, so the second time may be the first that counts.
    const ATTEMPTS: usize = 3;
    /// An instance that is being made exists a moment before its nodes, and one that is destroyed a moment after them.
    const PAUSE: Duration = Duration::from_millis(200);
    let noted = notes.len();
    for attempt in 1..=ATTEMPTS {
        notes.truncate(noted);
        let examined = examine_once(options, place, policy, notes)?;
        let is_between = options.at.host.inventory.is_none() && lacks_a_node(&examined.inventory);
        if is_between && attempt < ATTEMPTS {
            std::thread::sleep(PAUSE);
        } else if examined.sources.iter().all(HostSource::is_unchanged) {
            return Ok(examined);
        }
    }
    Err(Error::failed("host", "changed each time while it was examined").hint("run tranche cdi refresh again"))
}

/// Whether a MIG device has no node for one of its capabilities.
fn lacks_a_node(inventory: &Inventory) -> bool {
    let mut devices = inventory.gpus.iter().flat_map(|gpu| &gpu.mig_devices);
    devices.any(|mig| mig.gpu_instance_cap.is_none() || mig.compute_instance_cap.is_none())
}

fn examine_once(
    options: &RefreshOptions,
    place: &RefreshPlace,
    policy: &PolicyOptions,
    notes: &mut Vec<String>,
) -> Result<Examined> {
    // Each source is recorded before it is read.
    let mut sources = vec![HostSource::now(SourceKind::Boot, "/proc/sys/kernel/random/boot_id")];
    for file in options.at.policy.candidates() {
        sources.push(HostSource::now(SourceKind::Policy, absolute(&file)?));
    }
    let mut settings = settings(options, policy, &mut sources, notes)?;
    let asks_engines = options.at.host.is_here() || options.engines.are_given();
    if asks_engines {
        let podman = options.engines.podman().into_iter();
        sources.extend(podman.map(|path| HostSource::now(SourceKind::Engine, path)));
    }
    let mut signs = signs::now(options, place, &settings.spec_dirs)?;
    let mut at = options.at.with_policy(policy);
    if at.host.is_here() && at.host.roots.driver_root.is_none() {
        at.host.roots.driver_root = settings.driver_root.as_ref().map(|root| PathBuf::from(root.as_str()));
    }
    let roots = match at.host.inventory {
        Some(_) => None,
        None => Some(Roots::new(&at.host.roots)?),
    };
    if let Some(roots) = &roots {
        sources.push(HostSource::now(SourceKind::DriverModule, roots.module_version()));
        sources.push(HostSource::now(SourceKind::MigNodes, roots.mig_nodes()));
    }
    let inventory = examine::inventory(&at.host)?;
    if let (Some(roots), Some(library)) = (&roots, library(&inventory)) {
        sources.push(HostSource::now(SourceKind::DriverLibrary, roots.open(library)));
    }
    signs.extend(signs::of_files(options, &inventory)?);
    let mut engines = match asks_engines {
        true => options.engines.installed(),
        false => Vec::new(),
    };
    settings.oldest_podman = engines::oldest_podman(&engines).cloned();
    if !options.at.host.is_here() || options.cdi_version.is_some() {
        engines.clear();
    }
    let mut hook = options.hook()?;
    hook.disabled.extend(&settings.disabled_hooks);
    if at.host.is_here() {
        generate::warn_if_missing(&hook);
    }
    let path = hook.path.clone();
    let mut derived = Options {
        additional_gids: settings.additional_gids,
        hook: Some(hook),
        ..Options::default()
    };
    let origin = generate::add_plan(&mut derived, &inventory, &at, "tranche cdi refresh", notes)?;
    let is_without = |roots: &Roots| inventory.platform.kind == PlatformKind::Linux && !roots.has_module();
    let is_not_loaded = inventory.gpus.is_empty() && roots.as_ref().is_some_and(is_without);
    Ok(Examined {
        inventory,
        is_not_loaded,
        wrong_policy: None,
        settings,
        options: derived,
        hook: path,
        origin,
        engines,
        sources,
        signs,
    })
}

/// The settings of the runtime: from the policy, else from NVIDIA's file, else the defaults.
fn settings(
    options: &RefreshOptions,
    policy: &PolicyOptions,
    sources: &mut Vec<HostSource>,
    notes: &mut Vec<String>,
) -> Result<RuntimeSettings> {
    if let Some(settings) = planning::policy(policy)?.and_then(|read| read.runtime) {
        return Ok(settings);
    }
    let default = || PathBuf::from(nvidia_config::DEFAULT_FILE);
    let file = options.nvidia_config.clone().unwrap_or_else(default);
    sources.push(HostSource::now(SourceKind::NvidiaConfig, absolute(&file)?));
    // A file that was named must exist.
    if options.nvidia_config.is_none() && !file.exists() {
        return Ok(RuntimeSettings::default());
    }
    let read = nvidia_config::read(&file)?;
    notes.extend(read.warnings);
    Ok(read.settings)
}

/// A library that every update of the driver replaces.
fn library(inventory: &Inventory) -> Option<&HostPath> {
    let driver = inventory.driver.as_ref()?;
    let named = |soname: &str| driver.library(soname).map(|file| &file.host);
    named("libcuda.so.1").or_else(|| named("libnvidia-ml.so.1"))
}

impl FoundFiles {
    /// What the host gives to containers.
    ///
    /// # Errors
    /// Returns an error if that is nothing.
    pub(super) fn of(examined: Examined, outcome: &Outcome) -> Result<Self> {
        let Examined {
            inventory,
            is_not_loaded: _,
            wrong_policy,
            settings,
            options,
            hook,
            origin,
            engines,
            sources,
            signs: _,
        } = examined;
        Ok(Self {
            wrong_policy,
            derived: generate::derived(&inventory, &options, outcome)?,
            inventory,
            settings,
            sharing: options.sharing,
            hook,
            origin,
            engines,
            sources,
        })
    }
}
