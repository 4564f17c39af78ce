//! From what was typed to what is generated.

use super::arguments::{Args, HookArgs};
use super::take_nvidia_options;
use crate::out;
use crate::place::SpecDirArgs;
use anyhow::{Result, bail};
use std::collections::BTreeSet;
use std::path::PathBuf;
use tranche_core::call::NvidiaHook;
use tranche_core::error::Error;
use tranche_host::examine::EXPLICIT_LIBRARIES;
use tranche_plan::derive::{HookOptions, Options, capabilities_from_text};
use tranche_specs::generate::{GenerateOptions, program};
use tranche_state::planning::own_hook;

/// What is generated, and where it is written.
///
/// # Errors
/// Returns an error for a driver capability or a hook that does not exist, and for a search path that is not absolute.
pub(super) fn options(args: Args) -> Result<GenerateOptions> {
    let mut at = args.at.options();
    take_nvidia_options(&mut at.host, &args.what.feature_flags)?;
    let mut options = Options {
        mode: args.what.mode,
        vendor: args.file.vendor,
        class: args.file.class,
        devices: args.what.device_ids,
        all_device: !args.what.no_all_device,
        hook: hook(&args.hooks, at.host.is_here())?,
        capabilities: capabilities_from_text(&args.what.driver_capabilities)?,
        ..Options::default()
    };
    if !args.what.device_name_strategies.is_empty() {
        options.names = args.what.device_name_strategies;
    }
    for flag in &args.what.feature_flags {
        match flag.as_str() {
            "no-additional-gids-for-device-nodes" => options.additional_gids = false,
            "disable-ipc-discoverer" => options.sockets = false,
            "enable-coherent-annotations" => options.split_by_coherence = true,
            // This flag decides which files discovery looks for; a saved inventory is not changed.
            EXPLICIT_LIBRARIES if at.host.inventory.is_none() => {}
            EXPLICIT_LIBRARIES => out::note(format_args!(
                "feature flag {EXPLICIT_LIBRARIES}: has no effect with --inventory; give it to the command that makes the \
                 inventory"
            )),
            // About parts of NVIDIA's tool that do not exist here.
            "disable-nvsandboxutils" | "disable-nvsandbox-utils" | "disable-multiple-csv-devices" => {}
            other => out::note(format_args!("feature flag {other}: unknown, ignored")),
        }
    }
    Ok(GenerateOptions {
        at,
        what: options,
        output: args.file.output.filter(|output| !output.is_empty()).map(PathBuf::from),
        format: args.file.format,
        cdi_version: args.file.cdi_version,
        degraded: args.file.degraded,
        spec_dirs: SpecDirArgs::of_environment().dirs(),
        tmpfiles_dir: args.tmpfiles.tmpfiles_dir,
    })
}

/// The hook that was asked for; `None` for a specification without one. `is_here` says whether the host is the machine
/// that runs this program.
///
/// # Errors
/// Returns an error for a program that is neither an absolute path nor a bare name, and for `--enable-hook all`, which
/// NVIDIA's generator refuses too.
fn hook(args: &HookArgs, is_here: bool) -> Result<Option<HookOptions>> {
    if args.no_hooks {
        return Ok(None);
    }
    if args.enable_hooks.iter().any(|name| name == "all") {
        bail!(Error::usage("--enable-hook all", "is not supported").hint("name the hooks one by one"));
    }
    let mut hook = match &args.hook_path {
        Some(given) => HookOptions::at(program(given, is_here)?),
        None => own_hook().map_or_else(HookOptions::default, HookOptions::at),
    };
    if args.disable_hooks.iter().any(|name| name == "all") {
        hook.disabled.extend(NvidiaHook::WRITTEN);
    }
    let disabled = args.disable_hooks.iter().filter(|name| *name != "all");
    hook.disabled.extend(known("--disable-hook", disabled));
    for part in known("--enable-hook", args.enable_hooks.iter()) {
        hook.disabled.remove(&part);
    }
    hook.ldconfig.clone_from(&args.ldconfig_path);
    Ok(Some(hook))
}

/// The parts with these names. An unknown name is a warning, as it is for NVIDIA's generator: it may be of a
/// newer version, and the same script must work with both.
fn known<'a>(option: &str, names: impl Iterator<Item = &'a String>) -> BTreeSet<NvidiaHook> {
    let mut parts = BTreeSet::new();
    for name in names {
        match NvidiaHook::written(name) {
            Ok(part) => {
                parts.insert(part);
            }
            Err(error) => tracing::warn!("{option}: {error}; ignored"),
        }
    }
    parts
}
