//! What the checks look at.

use super::{Fix, IdMaps, NoRoom, OtherLibrary, Replaceable, Trusted, UnusableProgram};
use crate::engine_config::view::EngineView;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use tranche_core::error::{Error, line, parts};
use tranche_core::ledger::OutOfService;
use tranche_core::text::shown;
use tranche_core::types::{DeviceKey, EngineVersion};
use tranche_plan::cdi::registry::{Loaded, Registry};
use tranche_plan::cdi::{Problem, ProblemKind};
use tranche_plan::engines::{Engine, FoundEngine};
use tranche_plan::host_file::{HostFile, HostFileError};
use tranche_plan::inventory::{Degraded, Inventory, Warning, WarningKind};
use tranche_state::access::{Enforcement, Opened};
use tranche_state::turns::TurnRecord;

/// Everything that the checks look at, gathered once.
#[derive(Debug)]
pub struct DoctorSubject {
    /// The host.
    pub inventory: Inventory,
    /// The directory that is `/` for files which belong to no driver. A test host has another one than the machine.
    pub root: PathBuf,
    /// The specifications that engines read.
    pub registry: Registry,
    /// The directories that were read for them.
    pub spec_dirs: Vec<PathBuf>,
    /// Specifications that are older than the host or the policy.
    pub stale: Vec<Problem>,
    /// Why specifications could not be compared with the host.
    pub not_compared: Vec<String>,
    /// The `tranche-oci` beside this program, which a specification that is written now would name.
    pub own_hook: Option<PathBuf>,
    /// What root's engines trust and a user other than root can change; `None` if the owners of files are not known.
    pub replaceable: Option<Vec<(Trusted, Replaceable)>>,
    /// Programs that exist and that no engine can execute.
    pub unusable_programs: Vec<UnusableProgram>,
    /// The directories that tranche cannot write to for want of room; `None` if another machine is examined.
    pub without_room: Option<Vec<NoRoom>>,
    /// Libraries of another driver that programs of the host load.
    pub other_libraries: Vec<OtherLibrary>,
    /// What maps the ids of users, and the ids of the user who asks.
    pub id_maps: IdMaps,
    /// The policy.
    pub policy: PolicyFacts,
    /// Whether the state directory is one of tranche's; `None` if another machine is examined.
    pub state: Option<Result<(), FoundError>>,
    /// What the runtime knows of the host; `None` if another machine is examined.
    pub host_file: Option<Result<HostFile, HostFileError>>,
    /// The program that the runtime executes; `None` if no engine has the runtime.
    pub low_level: Option<Result<PathBuf, FoundError>>,
    /// The ledger; `None` if this user cannot read it.
    pub ledger: Option<LedgerFacts>,
    /// The devices that are out of service; `None` if another machine is examined.
    pub out_of_service: Option<OutOfService>,
    /// What is recorded of devices that are held by turns; `None` if this user cannot read it.
    pub by_turns: Option<Vec<(DeviceKey, TurnRecord)>>,
    /// What is wrong with the calendar of reservations, or with the clock by which it counts.
    pub calendar_problem: Option<String>,
    /// What uses the devices that are shared; `None` if no device is, or if nobody can be asked.
    pub shared_use: Option<SharedUse>,
    /// Why layouts of MIG were not made at boot.
    pub mig_restore: Vec<FoundError>,
    /// The engines that are installed.
    pub engines: Vec<FoundEngine>,
    /// Other programs that are installed, of which faults are known, and their versions.
    pub other_programs: Vec<(&'static str, Option<EngineVersion>)>,
    /// The running kernel, if it is known to have no modules of the driver, so that none can be loaded.
    pub kernel_without_modules: Option<String>,
    /// The architecture of the machine, as Rust names it; `None` if it is not this one.
    pub architecture: Option<&'static str>,
    /// What their configuration files say. A file that does not exist is left out.
    pub engine_files: Vec<(Engine, Result<EngineView, FoundError>)>,
    /// Files that `tranche runtime configure` does not change, each with the reason.
    pub unchangeable: Vec<(Engine, FoundError)>,
    /// Who may open device nodes.
    pub access: AccessFacts,
    /// The broker.
    pub broker: BrokerCondition,
    /// The socket of the broker, if only root can use it, and its mode.
    pub private_socket: Option<(PathBuf, u32)>,
    /// Why what the broker tells every user cannot be read.
    pub public_error: Option<FoundError>,
    /// The processes that are daemons of NVIDIA's ([`super::DAEMONS`]).
    pub daemons: Vec<FoundDaemon>,
    /// The MPS daemons that tranche manages.
    pub mps: MpsFacts,
    /// The SELinux contexts of device nodes and of the directories of MPS sockets, by their paths on the host. A file
    /// that does not exist or has no context is left out.
    pub labels: BTreeMap<PathBuf, String>,
}

/// An error that a start of a container would end with, for a result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundError {
    /// The object, what is wrong with it, and why.
    pub found: String,
    /// What the error says that can be done.
    pub hint: Option<String>,
}

impl FoundError {
    /// What `error` says.
    pub fn of(error: &Error) -> Self {
        let (object, what, hint) = parts(error);
        Self {
            found: shown(&format!("{object}: {what}")).into_owned(),
            hint: hint.map(|hint| shown(&hint).into_owned()),
        }
    }

    /// As [`FoundError::of`], for an error that is not one of tranche's own.
    pub fn of_any(error: &(dyn std::error::Error + 'static)) -> Self {
        match error.downcast_ref() {
            Some(error) => Self::of(error),
            None => Self {
                found: line(error),
                hint: None,
            },
        }
    }

    /// The same without its hint, which is for another command.
    #[must_use]
    pub fn without_hint(self) -> Self {
        Self { hint: None, ..self }
    }

    /// The fix that the error names, or else `fix`. A hint that is a command has the mark of one.
    pub(super) fn fix_or(&self, fix: &str) -> Fix {
        let hint = self.hint.as_deref().unwrap_or(fix);
        match hint.strip_prefix("run: ") {
            Some(command) => Fix::command(command),
            None => Fix::by_hand(hint),
        }
    }
}

/// What is known of the policy.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PolicyFacts {
    /// Its file; `None` if the host has none.
    pub file: Option<String>,
    /// Why it cannot be read.
    pub invalid: Option<FoundError>,
    /// Why it cannot be applied to this host.
    pub unfit: Option<FoundError>,
    /// A line for each device that it names and that the host does not have.
    pub missing: Vec<String>,
    /// A line for each part that has no effect, or another one than its author may expect.
    pub warnings: Vec<String>,
    /// Why starts are refused on devices by turns whose driver was not tried, each with the command that tries it.
    pub untried: Vec<(String, String)>,
    /// How many devices it splits or dedicates.
    pub devices: usize,
    /// How many shares it makes.
    pub shares: usize,
    /// How many entries it has that split or dedicate devices.
    pub entries: usize,
    /// Whether it says how GPUs are divided by MIG, how the runtime behaves, or what Kubernetes gets.
    pub says_more: bool,
    /// Whether it lets instances of MIG be made on demand.
    pub makes_instances: bool,
}

/// Whether the broker does what starts of containers need.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BrokerCondition {
    /// No share of the policy needs it.
    NotNeeded,
    /// It is that of another machine.
    Unknown,
    /// It answers.
    Works,
    /// It does not answer.
    Stopped {
        /// The devices whose shares need it: `nvidia.com/gpu=0`.
        devices: Vec<String>,
        /// What the attempt to reach it ended with.
        why: String,
    },
    /// It answers with an error.
    Refuses(FoundError),
}

/// A daemon of NVIDIA's that runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundDaemon {
    /// The name of its program.
    pub program: &'static str,
    /// Its number.
    pub pid: u32,
}

/// What is known of MPS daemons.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MpsFacts {
    /// The devices for which the broker has a daemon (`nvidia.com/gpu=0`), and how that is.
    pub managed: Vec<(String, DaemonCondition)>,
    /// Whether the policy leaves the daemons to the operator.
    pub is_external: bool,
    /// Daemons of the operator that do not run, each with what a start of a container ends with.
    pub stopped: Vec<FoundError>,
    /// The directories of sockets that the policy's shares under MPS need.
    pub pipes: Vec<PathBuf>,
}

/// How a daemon of the broker is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum DaemonCondition {
    /// It runs, or is being started or stopped.
    Working,
    /// It runs, and was started by an earlier version of tranche.
    OfEarlierVersion,
    /// It runs, and the server that it starts for clients does not.
    ServerFailed,
    /// It could not be started again.
    Failed,
    /// Another program runs one for the device.
    Foreign,
}

/// The processes on devices that are handed out with a claim.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SharedUse {
    /// How many there are, as NVML reports them; `None` if it does not for one of the devices.
    pub processes: Option<usize>,
    /// A line for each process without a claim on its device.
    pub without_claim: Vec<String>,
    /// A line for each claim whose processes use more memory than it was promised.
    pub beyond_promise: Vec<String>,
    /// Why this could not be determined.
    pub unknown: Option<FoundError>,
}

/// How device nodes are closed to users without a claim.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AccessFacts {
    /// Whether they are.
    pub enforcement: Enforcement,
    /// Whether the driver's module gets the option that leaves nodes alone when it is loaded.
    pub has_option: bool,
    /// The nodes that should be closed and are open to every user.
    pub open: Vec<String>,
    /// Why logind opens and closes nodes too.
    pub seat: Option<FoundError>,
    /// The members of the group `docker`, whose containers have every device that they ask for.
    pub docker: Vec<String>,
    /// The members of the groups that sudo makes root.
    pub sudo: Vec<String>,
    /// The processes that have closed nodes open which their users may not open; empty if this user cannot know.
    pub opened: Vec<Opened>,
}

/// What the ledger has.
#[derive(Debug, Default)]
pub struct LedgerFacts {
    /// How many claims there are.
    pub claims: usize,
    /// A line for each claim that the policy does not provide for.
    pub held: Vec<String>,
    /// Each part that cannot be read.
    pub damaged: Vec<FoundError>,
    /// Why it cannot be used at all.
    pub unusable: Option<FoundError>,
    /// Devices whose compute mode tranche may have changed, because it runs their MPS daemon: their UUIDs.
    pub exclusive: Vec<String>,
}

impl DoctorSubject {
    /// The path of a file of the host.
    pub(super) fn at(&self, path: &str) -> PathBuf {
        self.root.join(path.trim_start_matches('/'))
    }

    /// As [`DoctorSubject::at`], for a path.
    pub(super) fn at_path(&self, path: &Path) -> PathBuf {
        self.root.join(path.strip_prefix("/").unwrap_or(path))
    }

    /// Whether the host has a driver.
    pub(super) fn has_driver(&self) -> bool {
        self.inventory.driver.is_some()
    }

    /// Whether no GPU of the host can be used, so that every device is missing for the same reason.
    pub(super) fn has_no_gpu(&self) -> bool {
        self.inventory.gpus.is_empty()
    }

    /// The warnings of one kind that the examination of the host gave.
    pub(super) fn warns_of(&self, kind: WarningKind) -> impl Iterator<Item = &Warning> {
        self.inventory
            .warnings
            .iter()
            .filter(move |warning| warning.kind == kind)
    }

    /// Whether `path` is a file of `tranche cdi refresh`, which writes it again.
    pub(super) fn is_refreshed(&self, path: &Path) -> bool {
        let mut files = self.registry.files().iter();
        files.find(|file| file.path == path).is_some_and(Loaded::is_refreshed)
    }

    /// Whether the host differs from what it should be, for a reason that another check reports. It is then no wonder
    /// that specifications are of another state.
    pub(super) fn is_in_disorder(&self) -> bool {
        let lacks_files = |degraded: &Degraded| {
            matches!(
                degraded,
                Degraded::Lost { .. } | Degraded::Library { .. } | Degraded::NoLibraries { .. }
            )
        };
        [WarningKind::Versions, WarningKind::WrongNode]
            .into_iter()
            .any(|kind| self.warns_of(kind).next().is_some())
            || self.inventory.degraded.iter().any(lacks_files)
    }

    /// The names of files that the driver lost, or does not have.
    pub(super) fn lost(&self) -> impl Iterator<Item = &str> {
        let lost = self.inventory.degraded.iter().flat_map(|degraded| match degraded {
            Degraded::Lost { files } => files.as_slice(),
            Degraded::Library { soname } => std::slice::from_ref(soname),
            Degraded::Nvml { .. }
            | Degraded::Device { .. }
            | Degraded::NoLibraries { .. }
            | Degraded::ControlNode { .. }
            | Degraded::NoGpu { .. } => &[],
        });
        lost.map(String::as_str)
    }

    /// Whether a specification that refresh keeps is reported already, because it is older than the host or names what
    /// does not exist. Refresh writes it together with host.json.
    pub(super) fn reports_refreshed(&self) -> bool {
        let references = self.registry.problems.iter();
        let references = references.filter(|problem| matches!(problem.kind, ProblemKind::Reference(_)));
        let mut reported = self.stale.iter().chain(references);
        reported.any(|problem| self.is_refreshed(&problem.path))
    }

    /// Whether the specification in `path` is older than the host.
    pub(super) fn is_stale(&self, path: &Path) -> bool {
        self.stale.iter().any(|problem| problem.path == path)
    }

    /// Whether `path`, which does not exist, is a file that the driver lost: a result of the driver names it.
    pub(super) fn reports_lost(&self, path: &Path) -> bool {
        let stem = |name: &str| name.split(".so").next().unwrap_or(name).to_owned();
        let name = path.file_name().and_then(|name| name.to_str()).map(stem);
        name.is_some_and(|name| self.lost().any(|file| stem(file) == name))
    }

    /// The processes of this program.
    pub(super) fn daemons_of(&self, program: &str) -> impl Iterator<Item = u32> {
        let of_program = self.daemons.iter().filter(move |daemon| daemon.program == program);
        of_program.map(|daemon| daemon.pid)
    }

    /// Whether systemd runs on the host (sd_booted(3)).
    pub(super) fn has_systemd(&self) -> bool {
        self.at("/run/systemd/system").is_dir()
    }
}

/// Whether a file of the host exists.
pub(super) fn exists(path: &Path) -> bool {
    path.symlink_metadata().is_ok()
}
