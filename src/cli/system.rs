//! `tranche system`: the driver's device nodes, the links in `/dev/char` that lead to them, and the removal of tranche.

mod create_dev_char_symlinks;
mod create_device_nodes;
mod modules;
mod prepare_removal;

use anyhow::{Result, bail};
use std::path::Path;
use std::process::ExitCode;
use tranche_core::error::Error;
use tranche_host::examine::{self, HostOptions};
use tranche_plan::inventory::Inventory;

#[derive(clap::Subcommand)]
pub(super) enum Verb {
    CreateDeviceNodes(create_device_nodes::Args),
    CreateDevCharSymlinks(create_dev_char_symlinks::Args),
    PrepareRemoval(Box<prepare_removal::Args>),
}

pub(super) fn run(verb: &Verb) -> Result<ExitCode> {
    match verb {
        Verb::CreateDeviceNodes(args) => create_device_nodes::run(args),
        Verb::CreateDevCharSymlinks(args) => create_dev_char_symlinks::run(args),
        Verb::PrepareRemoval(args) => prepare_removal::run(args),
    }
}

/// The host's inventory. What is in `/dev` and is not the driver's node is an error here, and not a warning.
///
/// # Errors
/// Returns an error for a host that is not this machine, and those of the discovery.
fn examine(host: &HostOptions) -> Result<(Inventory, Vec<Error>)> {
    if !host.is_here() {
        bail!(
            Error::usage("--root and --inventory", "describe another machine")
                .hint("device files are made on this machine; give --driver-root or --dev-root")
        );
    }
    let inventory = examine::quietly(host)?;
    // A warning about a node that exists says that it is not the driver's.
    let exists = |path: &str| path.contains("/dev/nvidia") && Path::new(path).symlink_metadata().is_ok();
    let (wrong, others): (Vec<_>, Vec<_>) = inventory.warnings.iter().partition(|warning| exists(&warning.object));
    for warning in others {
        tracing::warn!("{}: {}", warning.object, warning.text);
    }
    let wrong = wrong
        .into_iter()
        .map(|warning| Error::failed(&warning.object, &warning.text))
        .collect();
    Ok((inventory, wrong))
}
