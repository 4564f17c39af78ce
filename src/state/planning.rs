//! From the policy to a plan for this host, and what the plan needs there. Every command about shares begins with it.

mod hook;
mod last_policy;
pub mod needs;
pub mod pipe_directories;

pub use hook::own_hook;
pub use last_policy::LastPolicy;

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tranche_core::error::{Error, Kind, Result, line};
use tranche_core::ledger::{OutOfService, STATE_DIR, kept_dir};
use tranche_core::types::HostPath;
use tranche_host::examine::{self, HostOptions};
use tranche_plan::derive::Sharing;
use tranche_plan::inventory::Inventory;
use tranche_plan::policy::read::{self, CLUSTER_FILE, DEFAULT_FILE};
use tranche_plan::policy::{KubernetesSection, Policy};
use tranche_plan::share;

/// Which policy says how devices are shared.
#[derive(Debug, Clone)]
pub struct PolicyOptions {
    /// The file; `None` for the default one, if it exists, or else that of the cluster.
    pub file: Option<PathBuf>,
    /// The key of the configuration to use, if the file is a ConfigMap with several.
    pub key: Option<String>,
    /// The policy that a Kubernetes cluster has given this node, if it exists.
    pub cluster: PathBuf,
    /// What is read in place of the file, because the file is not valid.
    pub last: Option<LastPolicy>,
}

impl PolicyOptions {
    /// The policy of a node whose ledger is in `state_dir`.
    pub fn of(file: Option<PathBuf>, key: Option<String>, state_dir: &Path) -> Self {
        let cluster = kept_dir(state_dir).join(CLUSTER_FILE);
        Self {
            file,
            key,
            cluster,
            last: None,
        }
    }

    /// The files of which the first that exists counts. If none does, there is no policy.
    pub fn candidates(&self) -> Vec<PathBuf> {
        match &self.file {
            Some(file) => vec![file.clone()],
            None => vec![DEFAULT_FILE.into(), self.cluster.clone()],
        }
    }

    /// The file that counts, whether or not it exists.
    pub fn path(&self) -> PathBuf {
        self.to_read().unwrap_or_else(|| DEFAULT_FILE.into())
    }

    /// The file to read. A file that was named must exist; the others need not.
    pub fn to_read(&self) -> Option<PathBuf> {
        let exists = |path: &PathBuf| self.file.is_some() || path.exists();
        self.candidates().into_iter().find(exists)
    }

    /// What decides before the policy of the cluster; `None` if nothing does.
    pub fn of_the_owner(&self) -> Option<PathBuf> {
        self.to_read().filter(|path| *path != self.cluster)
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
            policy: PolicyOptions::of(None, None, STATE_DIR.as_ref()),
            state_dir: STATE_DIR.into(),
            host: HostOptions::default(),
        }
    }
}

impl PlanOptions {
    /// The same options with another policy.
    #[must_use]
    pub fn with_policy(&self, policy: &PolicyOptions) -> Self {
        Self {
            policy: policy.clone(),
            ..self.clone()
        }
    }

    /// The options of a command that say the same.
    pub fn arguments(&self) -> Vec<OsString> {
        let mut arguments = Vec::new();
        let mut add = |name: &str, value: Option<&OsStr>| {
            arguments.extend(value.map(|value| option(name, value)));
        };
        add("config", self.policy.file.as_deref().map(OsStr::new));
        add("config-key", self.policy.key.as_deref().map(OsStr::new));
        add("state-dir", Some(self.state_dir.as_os_str()));
        add("root", self.host.roots.root.as_deref().map(OsStr::new));
        add("inventory", self.host.inventory.as_deref().map(OsStr::new));
        arguments.extend(self.host.choices().into_iter().map(OsString::from));
        arguments
    }
}

/// The option of this name with its value, in one word.
pub fn option(name: &str, value: &OsStr) -> OsString {
    let mut word = OsString::from(format!("--{name}="));
    word.push(value);
    word
}

/// The plan for `inventory`; `None` if the policy shares no device and says nothing of Kubernetes. Warnings are logged.
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
    let policy = &read.policy;
    let says_nothing = policy.splits.is_empty() && policy.kubernetes == KubernetesSection::default();
    if says_nothing && policy.mig_on_demand.is_none() {
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
        plan: Arc::new(plan),
        held: BTreeSet::new(),
        out_of_service: OutOfService::default(),
        state_dir: HostPath::absolute(&options.state_dir)?,
    }))
}

/// The policy; `None` if no file was named and the default file does not exist.
///
/// # Errors
/// Returns an error if the policy cannot be read.
pub fn policy(options: &PolicyOptions) -> Result<Option<read::Read>> {
    let key = options.key.as_deref();
    if let Some(last) = &options.last {
        return read::parse_key(&last.file.display().to_string(), &last.text, key).map(Some);
    }
    let read = |file: PathBuf| read::file(&file, key);
    options.to_read().map(read).transpose()
}

/// What `with` makes of the policy of `options`, or else of the policy that the last refresh has applied. With the
/// second one, a line says what is wrong with the policy that somebody has written since.
///
/// # Errors
/// Returns the error for the policy of `options` if there is no other one, or if that does not help.
pub fn in_force<T>(
    options: &PolicyOptions,
    state_dir: &Path,
    mut with: impl FnMut(&PolicyOptions) -> Result<T>,
) -> Result<(T, Option<String>)> {
    let error = match with(options) {
        Ok(made) => return Ok((made, None)),
        Err(error) => error,
    };
    let last = LastPolicy::instead_of(options, state_dir).unwrap_or_else(|unusable| {
        tracing::warn!("{}", line(&unusable));
        None
    });
    match last.map(|last| with(&last)) {
        Some(Ok(made)) => {
            let wrong = format!("{}; the policy of the last refresh stays in force", line(&error));
            Ok((made, Some(wrong)))
        }
        Some(Err(_)) | None => Err(error),
    }
}

/// The policy; without one, a policy that says nothing.
///
/// # Errors
/// As [`policy`].
pub fn policy_or_none(options: &PolicyOptions) -> Result<Policy> {
    Ok(policy(options)?.map(|read| read.policy).unwrap_or_default())
}

/// As [`policy_or_none`], while the policy is not valid the one that the last refresh has applied.
///
/// # Errors
/// As [`policy`], if no other one is in force.
pub fn policy_in_force(options: &PolicyOptions, state_dir: &Path) -> Result<Policy> {
    in_force(options, state_dir, policy_or_none).map(|(policy, _)| policy)
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
        Some(sharing) if !sharing.plan.is_empty() => Ok((inventory, sharing)),
        _ => Err(Error::new(Kind::Nothing, "policy", "no device is shared")
            .hint(format!("write a policy to {DEFAULT_FILE}, or give --config FILE"))),
    }
}
