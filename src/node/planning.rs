//! From the policy to a plan for this host, and what the plan needs there. Every command about shares begins with it.

pub mod needs;
pub mod pipe_directories;

use std::collections::BTreeSet;
use std::path::PathBuf;
use tranche_core::error::{Error, Kind, Result};
use tranche_core::ledger::STATE_DIR;
use tranche_core::types::HostPath;
use tranche_host::examine::{self, HostOptions};
use tranche_plan::derive::Sharing;
use tranche_plan::inventory::Inventory;
use tranche_plan::policy::read::{self, DEFAULT_FILE};
use tranche_plan::share;

/// Which policy says how devices are shared.
#[derive(Debug, Clone, Default)]
pub struct PolicyOptions {
    /// The file; `None` for the default one, if it exists.
    pub file: Option<PathBuf>,
    /// The key of the configuration to use, if the file is a ConfigMap with several.
    pub key: Option<String>,
}

impl PolicyOptions {
    /// The file that counts, whether or not it exists.
    pub fn path(&self) -> PathBuf {
        self.file.clone().unwrap_or_else(|| DEFAULT_FILE.into())
    }

    /// The file to read. A file that was named must exist; the default file need not.
    pub fn to_read(&self) -> Option<PathBuf> {
        Some(self.path()).filter(|path| self.file.is_some() || path.exists())
    }
}

/// What a plan is made from.
#[derive(Debug, Clone)]
pub struct PlanOptions {
    /// The policy.
    pub policy: PolicyOptions,
    /// The directory of the ledger.
    pub state_dir: PathBuf,
    /// The host.
    pub host: HostOptions,
}

impl Default for PlanOptions {
    /// This machine, with the default policy and the usual ledger.
    fn default() -> Self {
        Self {
            policy: PolicyOptions::default(),
            state_dir: STATE_DIR.into(),
            host: HostOptions::default(),
        }
    }
}

/// The plan for `inventory`; `None` if the policy shares no device. Warnings are logged.
///
/// # Errors
/// Returns an error if the policy is invalid, or cannot be applied to this host.
pub fn of(inventory: &Inventory, options: &PlanOptions) -> Result<Option<Sharing>> {
    let Some(read) = policy(&options.policy)? else {
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
        state_dir: HostPath::absolute(&options.state_dir)?,
    }))
}

/// The policy; `None` if no file was named and the default file does not exist.
///
/// # Errors
/// Returns an error if the policy cannot be read.
pub fn policy(options: &PolicyOptions) -> Result<Option<read::Read>> {
    let read = |file: PathBuf| read::file(&file, options.key.as_deref());
    options.to_read().map(read).transpose()
}

/// The inventory and the plan.
///
/// # Errors
/// As [`of`]; [`Kind::Nothing`] if the host has no GPU, or the policy shares none.
pub fn required(options: &PlanOptions) -> Result<(Inventory, Sharing)> {
    let inventory = examine::inventory(&options.host)?;
    if inventory.gpus.is_empty() {
        return Err(examine::no_gpu(&inventory));
    }
    match of(&inventory, options)? {
        Some(sharing) => Ok((inventory, sharing)),
        None => Err(Error::new(Kind::Nothing, "policy", "no device is shared")
            .hint(format!("write a policy to {DEFAULT_FILE}, or give --config FILE"))),
    }
}
