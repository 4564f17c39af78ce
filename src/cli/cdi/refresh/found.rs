//! What the host has and what its owner wants, as one moment had it.

use super::super::generate::{self, Outcome};
use super::arguments::{RefreshArgs, RefreshPlace};
use super::signs::{self, Sign};
use crate::cdi::header::SpecOrigin;
use crate::cli::{look, out, sharing};
use crate::derive::{Options, Sharing};
use crate::edits::Derived;
use crate::engines::{self, FoundEngine};
use crate::error::Error;
use crate::host::Roots;
use crate::host_file::{HostSource, SourceKind};
use crate::inventory::{Inventory, PlatformKind};
use crate::policy::RuntimeSettings;
use crate::policy::read::{self, DEFAULT_NVIDIA_CONFIG};
use crate::types::HostPath;
use anyhow::{Result, bail};
use std::path::PathBuf;

/// The host, and the settings of its owner.
pub(super) struct Examined {
    pub(super) inventory: Inventory,
    /// Whether the driver is installed at most: its kernel module is not loaded, so the host has no device.
    pub(super) is_not_loaded: bool,
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
pub(super) fn examine(args: &RefreshArgs, place: &RefreshPlace) -> Result<Examined> {
    /// NVML makes missing nodes of MIG instances when it is opened, so the second time may be the first that counts.
    const ATTEMPTS: usize = 3;
    for _ in 0..ATTEMPTS {
        let examined = examine_once(args, place)?;
        if examined.sources.iter().all(HostSource::is_unchanged) {
            return Ok(examined);
        }
    }
    bail!(Error::failed("host", "changed each time while it was examined").hint("run tranche cdi refresh again"))
}

fn examine_once(args: &RefreshArgs, place: &RefreshPlace) -> Result<Examined> {
    // Each source is recorded before it is read.
    let mut sources = vec![
        HostSource::now(SourceKind::Boot, "/proc/sys/kernel/random/boot_id"),
        HostSource::now(SourceKind::Policy, std::path::absolute(args.policy_file())?),
    ];
    let mut settings = settings(args, &mut sources)?;
    let asks_engines = args.at.host.is_here() || args.engines.are_given();
    if asks_engines {
        let podman = args.engines.podman().into_iter();
        sources.extend(podman.map(|path| HostSource::now(SourceKind::Engine, path)));
    }
    let mut signs = signs::now(args, place, &settings.spec_dirs)?;
    let mut at = args.at.clone();
    if at.host.is_here() && at.host.driver_root.is_none() {
        at.host.driver_root = settings.driver_root.as_ref().map(|root| PathBuf::from(root.as_str()));
    }
    let roots = match at.host.inventory {
        Some(_) => None,
        None => Some(look::roots(&at.host)?),
    };
    if let Some(roots) = &roots {
        sources.push(HostSource::now(SourceKind::DriverModule, roots.module_version()));
        sources.push(HostSource::now(SourceKind::MigNodes, roots.mig_nodes()));
    }
    let inventory = look::inventory(&at.host, &at.look)?;
    if let (Some(roots), Some(library)) = (&roots, library(&inventory)) {
        sources.push(HostSource::now(SourceKind::DriverLibrary, roots.open(library)));
    }
    signs.extend(signs::of_files(args, &inventory)?);
    let mut engines = match asks_engines {
        true => args.engines.installed(),
        false => Vec::new(),
    };
    settings.oldest_podman = engines::oldest_podman(&engines).cloned();
    if !args.at.host.is_here() || args.cdi_version.is_some() {
        engines.clear();
    }
    let mut hook = args.hook()?;
    hook.disabled.extend(&settings.disabled_hooks);
    if at.host.is_here() {
        generate::warn_if_missing(&hook);
    }
    let path = hook.path.clone();
    let mut options = Options {
        additional_gids: settings.additional_gids,
        hook: Some(hook),
        ..Options::default()
    };
    let origin = generate::add_plan(&mut options, &inventory, &at, "tranche cdi refresh")?;
    let is_without = |roots: &Roots| inventory.platform.kind == PlatformKind::Linux && !roots.has_module();
    let is_not_loaded = inventory.gpus.is_empty() && roots.as_ref().is_some_and(is_without);
    Ok(Examined {
        inventory,
        is_not_loaded,
        settings,
        options,
        hook: path,
        origin,
        engines,
        sources,
        signs,
    })
}

/// The settings of the runtime: from the policy, else from NVIDIA's file, else the defaults.
fn settings(args: &RefreshArgs, sources: &mut Vec<HostSource>) -> Result<RuntimeSettings> {
    if let Some(settings) = sharing::policy(&args.at.config)?.and_then(|read| read.runtime) {
        return Ok(settings);
    }
    let default = || PathBuf::from(DEFAULT_NVIDIA_CONFIG);
    let file = args.nvidia_config.clone().unwrap_or_else(default);
    sources.push(HostSource::now(SourceKind::NvidiaConfig, std::path::absolute(&file)?));
    // A file that was named must exist.
    if args.nvidia_config.is_none() && !file.exists() {
        return Ok(RuntimeSettings::default());
    }
    let read = read::nvidia_config(&file)?;
    read.warnings.iter().for_each(out::note);
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
            settings,
            options,
            hook,
            origin,
            engines,
            sources,
            signs: _,
        } = examined;
        Ok(Self {
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
