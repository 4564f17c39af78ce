//! Gathers what the checks look at.

use super::{daemons, labels};
use crate::cdi::registry::Registry;
use crate::cli::cdi::{self, CompareArgs};
use crate::cli::engines::EngineArgs;
use crate::cli::observed::{Deviation, DeviationKind, ObserveArgs, Observed};
use crate::cli::place::SpecDirArgs;
use crate::cli::sharing::{self, SharingArgs};
use crate::cli::{earlier, look, pipe_directories, root_only, status};
use crate::control::{DaemonState, PublicStatus};
use crate::device_files::{NodeSet, nodes};
use crate::doctor::{DaemonCondition, DoctorSubject, LedgerFacts, MpsFacts, SharedUse};
use crate::error::line;
use crate::host_file::HostFile;
use crate::inventory::Inventory;
use crate::policy::MpsDaemonOwner;
use crate::share::{self, Plan};
use anyhow::Result;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Looks at the host once.
///
/// # Errors
/// Returns an error if an option names a place that cannot be read.
pub(super) fn subject(at: &SharingArgs, specs: &SpecDirArgs, engines: &EngineArgs) -> Result<DoctorSubject> {
    let inventory = look::quietly(&at.host, &at.look)?;
    let spec_dirs = specs.dirs();
    let mut registry = Registry::read(&spec_dirs);
    if at.host.is_here() {
        registry.check_references();
    }
    let compare = CompareArgs {
        config: at.config.clone(),
        host: at.host.clone(),
        look: at.look.clone(),
    };
    let stale = cdi::compare(registry.files(), &inventory, &compare)?;
    let engines = match at.host.is_here() {
        true => engines.installed(),
        false => Vec::new(),
    };
    let daemons = match at.host.inventory {
        Some(_) => Vec::new(),
        None => daemons::running(&look::roots(&at.host)?.processes()),
    };
    let public = PublicStatus::read(&at.state.state_dir)?;
    let root = at.host.root.clone().unwrap_or_else(|| PathBuf::from("/"));
    let mps = mps(public.as_ref(), &inventory, at)?;
    Ok(DoctorSubject {
        daemons,
        labels: labels(&root, &inventory, &mps),
        mps,
        root,
        stale: stale.problems,
        not_compared: stale.notes,
        host_file: HostFile::read(&at.state.state_dir),
        ledger: ledger(&inventory, at, public.as_ref())?,
        shared_use: shared_use(at, specs)?,
        engines,
        inventory,
        registry,
        spec_dirs,
    })
}

/// The devices for which a broker has a daemon: their keys, which are UUIDs for whole GPUs.
fn managed(public: Option<&PublicStatus>) -> Vec<String> {
    let devices = public.into_iter().flat_map(|public| &public.devices);
    let managed = devices.filter(|device| device.daemon.is_some());
    managed.map(|device| device.key.to_string()).collect()
}

/// The MPS daemons, as the broker tells everybody. A policy that cannot be read is reported by the check of the ledger.
fn mps(public: Option<&PublicStatus>, inventory: &Inventory, at: &SharingArgs) -> Result<MpsFacts> {
    let devices = public.into_iter().flat_map(|public| &public.devices);
    let managed = devices.filter_map(|device| {
        let condition = match device.daemon.as_ref()?.state {
            DaemonState::Starting | DaemonState::Running | DaemonState::Stopping => DaemonCondition::Working,
            DaemonState::Failed => DaemonCondition::Failed,
            DaemonState::Foreign => DaemonCondition::Foreign,
        };
        Some((device.device.clone(), condition))
    });
    let policy = sharing::policy(&at.config).ok().flatten().map(|read| read.policy);
    let plan = policy.as_ref().and_then(|policy| share::plan(policy, inventory).ok());
    let state_dir = at.state.dir()?;
    let pipes = plan.map(|plan| pipe_directories::of(&plan, &state_dir));
    Ok(MpsFacts {
        managed: managed.collect(),
        is_external: policy.is_some_and(|policy| policy.mps.daemon == MpsDaemonOwner::External),
        pipes: pipes
            .into_iter()
            .flatten()
            .map(|pipe| pipe.as_path().to_owned())
            .collect(),
    })
}

/// The SELinux contexts of device nodes, of the pipe directories and of the directories that those are in.
fn labels(root: &Path, inventory: &Inventory, mps: &MpsFacts) -> BTreeMap<PathBuf, String> {
    let nodes = nodes(inventory, NodeSet::All).into_iter();
    let nodes = nodes.map(|file| file.node.host.as_path().to_owned());
    let pipes = mps.pipes.iter().flat_map(|pipe| pipe.ancestors().take(2));
    let mut labels = labels::of(root, nodes);
    // The state directory is one of this machine.
    labels.extend(labels::of(Path::new("/"), pipes.map(ToOwned::to_owned)));
    labels
}

/// What uses the devices that are shared; `None` if no device is, if this user cannot read the ledger, or if NVML is not to
/// be asked.
fn shared_use(at: &SharingArgs, specs: &SpecDirArgs) -> Result<Option<SharedUse>> {
    if at.host.inventory.is_some() || at.look.no_nvml || root_only::check(&at.state.state_dir).is_err() {
        return Ok(None);
    }
    let args = ObserveArgs::of(at, specs, at.look.nvml_deadline);
    if Observed::look(&args, false)?.devices.is_empty() {
        return Ok(None);
    }
    let observed = Observed::look(&args, true)?;
    let processes = observed.devices.iter().map(|device| {
        let gpus = observed.gpus.as_ref()?;
        let gpu = gpus.iter().find(|gpu| gpu.key.as_ref() == Some(&device.key))?;
        gpu.processes
    });
    let lines = |kind: DeviationKind| {
        let of_kind = observed
            .deviations
            .iter()
            .filter(move |deviation| deviation.kind == kind);
        of_kind.map(Deviation::line).collect()
    };
    Ok(Some(SharedUse {
        processes: processes.sum(),
        without_claim: lines(DeviationKind::ProcessWithoutClaim),
        beyond_promise: lines(DeviationKind::MoreMemoryThanPromised),
    }))
}

/// What the ledger has; `None` if this user cannot read it.
fn ledger(inventory: &Inventory, at: &SharingArgs, public: Option<&PublicStatus>) -> Result<Option<LedgerFacts>> {
    if root_only::check(&at.state.state_dir).is_err() {
        return Ok(None);
    }
    let plan = match sharing::policy(&at.config) {
        Ok(Some(read)) => share::plan(&read.policy, inventory),
        Ok(None) => Ok(Plan::default()),
        Err(error) => Err(error),
    };
    let plan = match plan {
        Ok(plan) => plan,
        Err(error) => {
            let wrong = vec![line(&error)];
            return Ok(Some(LedgerFacts {
                wrong,
                ..LedgerFacts::default()
            }));
        }
    };
    let (books, _) = status::books(&at.state)?;
    Ok(Some(LedgerFacts {
        claims: books.claims().count(),
        wrong: earlier::earlier(inventory, Some(&plan), &at.state)?.lines,
        exclusive: managed(public),
    }))
}
