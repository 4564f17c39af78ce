//! From the policy to a plan for this host. Every verb about shares begins with it.

use super::look::{self, LookArgs};
use super::place::{ConfigArgs, HostArgs, StateArgs};
use crate::derive::Sharing;
use crate::error::{Error, Kind};
use crate::inventory::Inventory;
use crate::policy::read;
use crate::share;
use anyhow::{Result, bail};
use std::collections::BTreeSet;
use std::path::PathBuf;

/// The options of a verb that needs a plan.
#[derive(Debug, Clone, clap::Args)]
pub(super) struct SharingArgs {
    // In this order, because options without a heading of their own would get that of the ones before them.
    #[command(flatten)]
    pub(super) config: ConfigArgs,
    #[command(flatten)]
    pub(super) state: StateArgs,
    #[command(flatten)]
    pub(super) host: HostArgs,
    #[command(flatten)]
    pub(super) look: LookArgs,
}

/// The plan for `inventory`; `None` if the policy shares no device. Warnings are logged.
///
/// # Errors
/// Returns an error if the policy is invalid, or cannot be applied to this host.
pub(super) fn of(inventory: &Inventory, args: &SharingArgs) -> Result<Option<Sharing>> {
    let Some(read) = policy(&args.config)? else {
        return Ok(None);
    };
    for warning in &read.warnings {
        tracing::warn!("{warning}");
    }
    if read.policy.splits.is_empty() {
        return Ok(None);
    }
    let plan = share::plan(&read.policy, inventory)?;
    for warning in &plan.warnings {
        tracing::warn!("{warning}");
    }
    for absent in &plan.absent {
        tracing::warn!("{absent}");
    }
    for note in &plan.notes {
        tracing::info!("{note}");
    }
    Ok(Some(Sharing {
        plan,
        held: BTreeSet::new(),
        state_dir: args.state.dir()?,
    }))
}

/// The policy; `None` if no file was named and the default file does not exist.
///
/// # Errors
/// Returns an error if the policy cannot be read.
pub(super) fn policy(config: &ConfigArgs) -> Result<Option<read::Read>, Error> {
    let read = |file: PathBuf| read::file(&file, config.config_key.as_deref());
    config.file().map(read).transpose()
}

/// The inventory and the plan.
///
/// # Errors
/// As [`of`]; [`Kind::Nothing`] if the host has no GPU, or the policy shares none.
pub(super) fn required(args: &SharingArgs) -> Result<(Inventory, Sharing)> {
    let inventory = look::inventory(&args.host, &args.look)?;
    if inventory.gpus.is_empty() {
        bail!(look::no_gpu(&inventory));
    }
    match of(&inventory, args)? {
        Some(sharing) => Ok((inventory, sharing)),
        None => Err(Error::new(Kind::Nothing, "policy", "no device is shared")
            .hint(format!(
                "write a policy to {}, or give --config FILE",
                read::DEFAULT_FILE
            ))
            .into()),
    }
}
