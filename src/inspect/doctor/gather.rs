//! Gathers what the checks look at.

mod access;
mod daemons;
mod engine_files;
mod file_system;
mod id_maps;
mod kernel;
mod labels;
mod libraries;
mod machine;
mod needs;
mod programs;
mod trust;
mod way;

pub use way::replaceable;

use super::known;
use super::{BrokerCondition, DoctorSubject, FoundError, LedgerFacts, MpsFacts, PolicyFacts, SharedUse};
use crate::engine_config::view::EngineView;
use crate::observed::{Deviation, DeviationKind, ObserveOptions, Observed};
use machine::Machine;
use programs::Programs;
use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use tranche_core::error::{Result, line};
use tranche_core::ledger::clock;
use tranche_core::ledger::{Calendar, OutOfService, kept_dir, utc};
use tranche_core::root::{HostDirectory, Missing};
use tranche_core::text::shown;
use tranche_core::types::{DeviceKey, HostPath};
use tranche_host::examine::{self, HostOptions};
use tranche_host::{DiscoveryOptions, Roots};
use tranche_inject::runtime;
use tranche_plan::cdi::registry::Registry;
use tranche_plan::engines::Engine;
use tranche_plan::host_file::HostFile;
use tranche_plan::inventory::{Degraded, Inventory};
use tranche_plan::policy::{KubernetesSection, RuntimeSettings};
use tranche_plan::share::{self, Plan};
use tranche_specs::device_files::{NodeSet, nodes};
use tranche_specs::digests;
use tranche_specs::generate::stale;
use tranche_specs::installed::EngineDirs;
use tranche_state::accounts::{AccountSources, Accounts};
use tranche_state::held::{books, earlier, root_only};
use tranche_state::planning::own_hook;
use tranche_state::planning::{self, PlanOptions};
use tranche_state::public_status::PublicStatus;
use tranche_state::restore_failures::{FailedRestore, RestoreFailures};
use tranche_state::turn_tries;
use tranche_state::turns::TurnRecord;

/// Looks at the host once. `spec_dirs` are directories with specifications; without any, the usual ones of the host are
/// read. What cannot be read is a result of a check, and ends nothing.
///
/// # Errors
/// Returns an error if an option names a host that cannot be examined.
pub fn subject(at: &PlanOptions, spec_dirs: &[PathBuf], engines: &EngineDirs) -> Result<DoctorSubject> {
    let mut inventory = examine::quietly(&at.host)?;
    let machine = Machine::of(at, spec_dirs);
    let mut registry = Registry::read(&machine.spec_dirs);
    if machine.is_here {
        registry.check_references();
    }
    let (policy, plan) = policy(&machine, &inventory);
    let digest = plan.as_ref().and_then(|plan| digests::of_plan(plan).ok());
    let stale = stale::compare(registry.files(), &inventory, &at.host, digest)?;
    let (engines, other_programs) = match machine.is_here || engines.are_given() {
        true => (engines.installed(), engines.programs(&known::PROGRAMS)),
        false => (Vec::new(), Vec::new()),
    };
    let (engine_files, unchangeable) = engine_files::read(&machine, &engines);
    let daemons = match at.host.inventory {
        Some(_) => Vec::new(),
        None => daemons::running(&Roots::new(&at.host.roots)?.processes()),
    };
    let state = machine.state_dir.as_deref().map(state);
    // Nothing in a directory that is refused is used.
    let usable = machine.state_dir.as_deref().filter(|_| matches!(state, Some(Ok(()))));
    let public = usable.map(PublicStatus::read).transpose();
    let (public, public_error) = match public {
        Ok(public) => (public.flatten(), None),
        Err(error) => (None, Some(FoundError::of(&error))),
    };
    let state_dir = usable.map(HostPath::absolute).transpose()?;
    let mps = needs::mps(public.as_ref(), plan.as_ref(), state_dir.as_ref());
    let host_file = machine.state_dir.as_deref().map(HostFile::read);
    inventory
        .degraded
        .extend(usable.and_then(|state| lost(&inventory, state)));
    let root = machine.root.clone().unwrap_or_else(|| PathBuf::from(NOWHERE));
    let low_level = low_level(&engine_files, host_file.as_ref().and_then(|file| file.as_ref().ok()));
    let executed = low_level.as_ref().and_then(|found| found.as_deref().ok());
    let hook_files = trust::hook_files(&machine, &engines, &engine_files);
    let programs = Programs::named(
        &hook_files,
        &registry,
        &engine_files,
        executed.filter(|_| machine.is_here),
    );
    let named = trust::Named {
        machine: &machine,
        registry: &registry,
        engines: &engines,
        views: &engine_files,
        programs: &programs.paths(&machine),
    };
    let access = access::of(at, plan.as_ref(), &inventory);
    Ok(DoctorSubject {
        access: access?,
        replaceable: trust::replaceable(&named),
        unusable_programs: programs.unusable(&machine),
        without_room: machine.is_here.then(|| file_system::without_room(written(&machine))),
        other_libraries: libraries::others(&inventory, at),
        id_maps: id_maps::of(&machine),
        private_socket: usable.filter(|_| machine.is_here).and_then(private_socket),
        unchangeable,
        low_level,
        daemons,
        labels: labels(&root, &inventory, &mps),
        root,
        own_hook: own_hook().map(|path| path.as_path().to_owned()),
        stale: stale.problems,
        not_compared: stale.notes,
        ledger: usable.and_then(|state| ledger(&inventory, plan.as_ref(), state, public.as_ref())),
        out_of_service: usable.map(OutOfService::read),
        by_turns: usable.and_then(by_turns),
        calendar_problem: usable.and_then(calendar_problem),
        shared_use: usable.and_then(|state| shared_use(at, state)),
        broker: match (usable, &plan) {
            (Some(state), Some(plan)) if machine.is_here => needs::broker(plan, policy.makes_instances, state),
            _ if machine.is_here => BrokerCondition::NotNeeded,
            _ => BrokerCondition::Unknown,
        },
        mig_restore: usable.map(mig_restore).unwrap_or_default(),
        public_error,
        state,
        host_file,
        policy,
        mps,
        engine_files,
        engines,
        other_programs,
        kernel_without_modules: kernel::without_modules(&machine),
        architecture: machine.is_here.then_some(std::env::consts::ARCH),
        inventory,
        registry,
        spec_dirs: machine.spec_dirs,
    })
}

/// What the last restore of layouts could not do.
fn mig_restore(state_dir: &Path) -> Vec<FoundError> {
    let failed = match RestoreFailures::read(state_dir) {
        Ok(failed) => failed,
        Err(error) => return vec![FoundError::of(&error)],
    };
    let of = |one: FailedRestore| FoundError {
        found: shown(&one.reason).into_owned(),
        hint: None,
    };
    failed.into_iter().map(of).collect()
}

/// A directory that does not exist: the files of a machine of which only an inventory is known.
const NOWHERE: &str = "/dev/null";

/// What the policy says for this host, and its plan. A host without a policy has an empty plan, and one whose policy
/// cannot be read or applied has no plan.
fn policy(machine: &Machine, inventory: &Inventory) -> (PolicyFacts, Option<Plan>) {
    let Some(config) = &machine.policy else {
        return (PolicyFacts::default(), Some(Plan::default()));
    };
    let mut facts = PolicyFacts {
        file: config.to_read().map(|file| file.display().to_string()),
        ..PolicyFacts::default()
    };
    let read = match planning::policy(config) {
        Ok(Some(read)) => read,
        Ok(None) => return (facts, Some(Plan::default())),
        Err(error) => {
            facts.invalid = Some(FoundError::of(&error));
            return (facts, None);
        }
    };
    facts.warnings = read.warnings;
    if machine.is_here {
        let monitors = Accounts::new(AccountSources::default())
            .monitors(&read.policy.monitors)
            .1;
        facts.warnings.extend(monitors.iter().map(|error| line(error)));
    }
    facts.makes_instances = read.policy.mig_on_demand.is_some();
    facts.entries = read.policy.splits.len();
    // Where no device is shared, none is placed.
    let kubernetes = KubernetesSection {
        placement: None,
        ..read.policy.kubernetes.clone()
    };
    facts.says_more =
        read.runtime.is_some() || !read.policy.mig_layouts.is_empty() || kubernetes != KubernetesSection::default();
    match share::plan(&read.policy, inventory) {
        Ok(plan) => {
            facts.missing = plan.absent.iter().map(ToString::to_string).collect();
            facts.warnings.extend(plan.warnings.iter().cloned());
            if let Some(state) = machine.state_dir.as_deref().filter(|_| machine.is_here) {
                match turn_tries::read(state) {
                    Ok(tries) => facts.untried = plan.untried(&tries, inventory.driver.as_ref()),
                    Err(error) => facts.warnings.push(line(&error)),
                }
            }
            facts.devices = plan.devices.len();
            facts.shares = plan.devices.iter().map(|split| split.shares.len()).sum();
            (facts, Some(plan))
        }
        Err(error) => {
            facts.unfit = Some(FoundError::of(&error));
            (facts, None)
        }
    }
}

/// Whether the state directory, and for root the ledger in it, are such that no other user can replace what is in them.
fn state(state_dir: &Path) -> Result<(), FoundError> {
    let checked = HostDirectory::state_dir(state_dir, Missing::Leave).map(drop);
    checked.map_err(|error| FoundError::of(&error))
}

/// What the driver has lost since the last refresh, which a refresh then refuses to forget.
fn lost(inventory: &Inventory, state_dir: &Path) -> Option<Degraded> {
    let last = HostFile::load(state_dir).ok()?;
    let files = inventory.lost_since(&last.inventory);
    (!files.is_empty()).then_some(Degraded::Lost { files })
}

/// The directories that tranche writes to: those of the state, also the one that outlives a boot, and the last one of
/// the specifications, because engines prefer it.
fn written(machine: &Machine) -> Vec<PathBuf> {
    let kept = machine.state_dir.as_deref().map(kept_dir);
    let output = machine.spec_dirs.last().cloned();
    machine.state_dir.iter().cloned().chain(kept).chain(output).collect()
}

/// The socket of the broker and its mode, if no user but root can write to it, which is needed to connect (unix(7)).
fn private_socket(state_dir: &Path) -> Option<(PathBuf, u32)> {
    let path = state_dir.join(tranche_core::broker::SOCKET);
    let data = path.symlink_metadata().ok()?;
    let mode = data.mode() & 0o7777;
    let for_group = mode & 0o020 != 0 && data.gid() != 0;
    (mode & 0o002 == 0 && !for_group).then_some((path, mode))
}

/// The program that the runtime executes; `None` if no engine has the runtime.
fn low_level(
    engines: &[(Engine, Result<EngineView, FoundError>)],
    host_file: Option<&HostFile>,
) -> Option<Result<PathBuf, FoundError>> {
    let views = engines.iter().filter_map(|(_, view)| view.as_ref().ok());
    let (_, program) = views.flat_map(EngineView::of_tranche).next()?;
    let settings = host_file.map_or_else(RuntimeSettings::default, |file| file.runtime.clone());
    Some(runtime::low_level(&settings.runtimes, program).map_err(|error| FoundError::of(&error)))
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

/// What uses the devices that are shared; `None` if no device is, if this user cannot read the ledger, or if NVML is
/// not to be asked.
fn shared_use(at: &PlanOptions, state_dir: &Path) -> Option<SharedUse> {
    if at.host.inventory.is_some() || !at.host.discovery.nvml || root_only::check(state_dir).is_err() {
        return None;
    }
    let looked = observed_use(&ObserveOptions {
        state_dir: at.state_dir.clone(),
        host: HostOptions {
            discovery: DiscoveryOptions {
                deadline: at.host.discovery.deadline,
                ..DiscoveryOptions::default()
            },
            ..at.host.clone()
        },
    });
    looked.unwrap_or_else(|error| {
        Some(SharedUse {
            unknown: Some(FoundError::of(&error)),
            ..SharedUse::default()
        })
    })
}

fn observed_use(options: &ObserveOptions) -> Result<Option<SharedUse>> {
    if Observed::look(options, false)?.devices.is_empty() {
        return Ok(None);
    }
    let observed = Observed::look(options, true)?;
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
        unknown: None,
    }))
}

/// The devices for which a broker has a daemon: their keys, which are UUIDs for whole GPUs.
fn managed(public: Option<&PublicStatus>) -> Vec<String> {
    let devices = public.into_iter().flat_map(|public| &public.devices);
    let managed = devices.filter(|device| device.daemon.is_some());
    managed.map(|device| device.key.to_string()).collect()
}

/// What the ledger has; `None` if this user cannot read it. Without a plan, what is held is not compared with one: the
/// check of the policy says why the plan is missing.
fn ledger(
    inventory: &Inventory,
    plan: Option<&Plan>,
    state_dir: &Path,
    public: Option<&PublicStatus>,
) -> Option<LedgerFacts> {
    if root_only::check(state_dir).is_err() {
        return None;
    }
    let look = || -> Result<LedgerFacts> {
        let (books, _) = books(state_dir)?;
        let held = match plan {
            Some(plan) => earlier::earlier(inventory, Some(plan), state_dir)?.lines,
            None => Vec::new(),
        };
        Ok(LedgerFacts {
            claims: books.claims().count(),
            held,
            damaged: books.errors().map(FoundError::of).collect(),
            exclusive: managed(public),
            unusable: None,
        })
    };
    Some(look().unwrap_or_else(|error| LedgerFacts {
        unusable: Some(FoundError::of(&error)),
        exclusive: managed(public),
        ..LedgerFacts::default()
    }))
}

/// What is recorded of devices that are held by turns. Records that cannot be read are reported by the broker.
fn by_turns(state: &Path) -> Option<Vec<(DeviceKey, TurnRecord)>> {
    let devices = TurnRecord::devices(state).ok()?;
    let record = |device: DeviceKey| Some((device.clone(), TurnRecord::read(state, &device).ok()?));
    Some(devices.into_iter().filter_map(record).collect())
}

/// What is wrong with the calendar, or with the clock.
fn calendar_problem(state: &Path) -> Option<String> {
    let calendar = match Calendar::read(state) {
        Err(error) => return Some(line(&error)),
        Ok(calendar) => calendar,
    };
    let changed = calendar.is_behind(clock())?;
    Some(format!(
        "the clock says {}, and reservations were changed at {}",
        utc(clock()),
        utc(changed)
    ))
}
