//! From what was typed to what is derived.

use super::arguments::Args;
use super::hook;
use crate::cli::look::EXPLICIT_LIBRARIES;
use crate::cli::out;
use crate::derive::{Options, capabilities_from_text};
use anyhow::Result;

/// The options of a specification.
///
/// # Errors
/// A driver capability or a hook that does not exist.
pub(super) fn options(args: &Args) -> Result<Options> {
    let is_here = args.at.host.is_here();
    let mut options = Options {
        mode: args.what.mode,
        vendor: args.file.vendor.clone(),
        class: args.file.class.clone(),
        devices: args.what.device_ids.clone(),
        all_device: !args.what.no_all_device,
        hook: hook::options(&args.hooks, is_here)?,
        capabilities: capabilities_from_text(&args.what.driver_capabilities)?,
        ..Options::default()
    };
    if !args.what.device_name_strategies.is_empty() {
        options.names.clone_from(&args.what.device_name_strategies);
    }
    for flag in &args.what.feature_flags {
        match flag.as_str() {
            "no-additional-gids-for-device-nodes" => options.additional_gids = false,
            "disable-ipc-discoverer" => options.sockets = false,
            "enable-coherent-annotations" => options.split_by_coherence = true,
            // This flag decides which files discovery looks for; a saved inventory is not changed.
            EXPLICIT_LIBRARIES if args.at.host.inventory.is_none() => {}
            EXPLICIT_LIBRARIES => out::note(format_args!(
                "feature flag {EXPLICIT_LIBRARIES}: has no effect with --inventory; give it to the command that makes the \
                 inventory"
            )),
            // About parts of NVIDIA's tool that do not exist here.
            "disable-nvsandboxutils" | "disable-nvsandbox-utils" | "disable-multiple-csv-devices" => {}
            other => out::note(format_args!("feature flag {other}: unknown, ignored")),
        }
    }
    Ok(options)
}
