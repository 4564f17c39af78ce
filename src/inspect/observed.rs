//! The state of the shares of this machine at one moment: what is held and free, who waits, what the GPUs do, and what
//! is not as expected.

mod deviations;
mod gpu;
mod messages;
mod process;
mod status;

pub use deviations::{Deviation, DeviationKind};
pub use gpu::DeviceUsage;
pub use messages::{Said, kept};
pub use process::ProcessRow;
pub use status::{Status, problems};

use crate::{measured, observe};
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::time::{Duration, UNIX_EPOCH};
use tranche_bench::kept::MeasuredHere;
use tranche_core::claims::{self, Claims};
use tranche_core::error::{Error, Result};
use tranche_core::ledger::process::Machine;
use tranche_core::ledger::{Books, Claim, OutOfService, Outage, QueuedStart, STATE_DIR, WhyOut};
use tranche_core::types::{DeviceKey, MemorySize, Strategy};
use tranche_host::examine::HostOptions;
use tranche_host::{DiscoveryOptions, Roots, Usage};
use tranche_plan::host_file::{self, HostFile, HostFileError};
use tranche_plan::idle::Idleness;
use tranche_plan::policy::UserPolicy;
use tranche_protocol::StatusRequest;
use tranche_state::access::Enforcement;
use tranche_state::accounts::{AccountSources, Accounts};
use tranche_state::controlled::DaemonState;
use tranche_state::device::{self, DeviceStatus};
use tranche_state::held::names::DeviceNames;
use tranche_state::held::not_ended::{self, NotEnded};
use tranche_state::held::user_wait::{self, UserWait};
use tranche_state::held::{Held, HeldTurn, HeldUsage, View, by_broker, idleness, root_only};
use tranche_state::hold::TimeLimits;
use tranche_state::public_status::{PublicDevice, PublicStatus};

/// What to look at.
#[derive(Debug, Clone)]
pub struct ObserveOptions {
    /// The directory of the ledger.
    pub state_dir: PathBuf,
    /// The host. Of its discovery, the options of NVML count.
    pub host: HostOptions,
}

/// How long NVML may be silent, unless another time is given: a person waits.
pub const GPU_TIMEOUT: Duration = Duration::from_secs(3);

impl Default for ObserveOptions {
    /// This machine, with the usual directories and [`GPU_TIMEOUT`].
    fn default() -> Self {
        Self {
            state_dir: STATE_DIR.into(),
            host: HostOptions {
                discovery: DiscoveryOptions {
                    deadline: GPU_TIMEOUT,
                    ..DiscoveryOptions::default()
                },
                ..HostOptions::default()
            },
        }
    }
}

/// The state at one moment.
#[derive(Debug)]
pub struct Observed {
    /// Devices that are handed out with a claim.
    pub devices: Vec<DeviceStatus>,
    /// What is held, as it is shown.
    pub claims: Vec<Held>,
    /// What is held, as the ledger records it.
    pub books: Books,
    /// How it is shown.
    pub view: View,
    /// What NVML says of each GPU and MIG device; `None` if it was not asked.
    pub gpus: Option<Vec<DeviceUsage>>,
    /// The processes on the GPUs.
    pub processes: Vec<ProcessRow>,
    /// Starts that wait, in the order in which they are served.
    pub waiters: Vec<WaiterRow>,
    /// Requests of users that wait in the broker: for root all, for a user the user's own.
    pub user_waits: Vec<UserWait>,
    /// The devices that are out of service, or will be.
    pub out_of_service: Vec<OutageRow>,
    /// The MPS daemons of the broker.
    pub daemons: Vec<DaemonRow>,
    /// The devices of which a guarantee was measured here and did not hold.
    pub not_held: Vec<MeasuredHere>,
    /// Whether host.json describes the host.
    pub host_file: HostFileRow,
    /// Whether device nodes are closed to users without a claim, as far as this user can see.
    pub access: Enforcement,
    /// What differs from the expected state.
    pub deviations: Vec<Deviation>,
    /// What could not be read, apart from books.
    problems: Vec<Error>,
    /// When the broker wrote what is shown, in seconds since 1970; `None` if it was read from the ledger.
    pub written: Option<u64>,
    /// Whether this user can read the ledger.
    pub sees_ledger: bool,
    /// In seconds since 1970.
    pub now: u64,
}

/// A start that waits for a share. docs/reference/claims.md documents the fields.
#[derive(Debug, Serialize)]
pub struct WaiterRow {
    /// What may serve it, each of them alone; `null` if another version of tranche wrote that.
    pub wants: Option<Vec<WantedRow>>,
    /// In seconds since 1970.
    pub since: u64,
    /// The process that waits.
    pub pid: u32,
    /// The name of its program.
    pub command: Option<String>,
}

/// Something that a start waits for.
#[derive(Debug, Serialize)]
pub struct WantedRow {
    /// `nvidia.com/gpu=0`.
    pub device: String,
    /// The shares; empty for any part of the device.
    pub shares: Vec<String>,
}

/// A device that is out of service, or will be. docs/reference/claims.md documents the fields.
#[derive(Debug, Serialize)]
pub struct OutageRow {
    /// `nvidia.com/gpu=0`; its key, if the host does not have it.
    pub device: String,
    /// Its key in the ledger.
    pub key: DeviceKey,
    /// From when on, in seconds since 1970.
    pub from: u64,
    /// Why.
    pub reason: Option<String>,
    /// Whether its time has come.
    pub in_force: bool,
    /// Whether it is because the compute mode of the GPU is PROHIBITED, and not because of `tranche drain`.
    pub by_compute_mode: bool,
}

/// The MPS daemon of a device.
#[derive(Debug, Serialize)]
pub struct DaemonRow {
    /// `nvidia.com/gpu=0`.
    pub device: String,
    /// What it does.
    pub state: DaemonState,
    /// When it was started, in seconds since 1970.
    pub since: Option<u64>,
    /// How often it was started again after it had died.
    pub restarts: u32,
}

impl DaemonRow {
    /// The state, as it is in JSON.
    pub fn state(&self) -> &'static str {
        match self.state {
            DaemonState::Starting => "starting",
            DaemonState::Running => "running",
            DaemonState::Failed => "failed",
            DaemonState::ServerFailed => "server-failed",
            DaemonState::Foreign => "foreign",
            DaemonState::Stopping => "stopping",
        }
    }
}

/// Whether host.json describes the host.
#[derive(Debug, Serialize)]
pub struct HostFileRow {
    /// `false` if it is missing, too.
    pub current: bool,
    /// What is wrong with it or with the policy, and what to do; `null` if nothing is, or if it is missing while
    /// nothing is held.
    pub problem: Option<String>,
}

impl Observed {
    /// Looks at the ledger, at the queue, at host.json and, with `with_gpus`, at what NVML says.
    ///
    /// # Errors
    /// Returns an error if the ledger or a root of the host cannot be read at all.
    pub fn look(options: &ObserveOptions, with_gpus: bool) -> Result<Self> {
        let (host_file, file) = host_file(&options.state_dir);
        let access = file.as_ref().map(|file| file.plan.access).unwrap_or_default();
        let users = file.as_ref().map(|file| file.plan.users.clone());
        let names = file.map_or_else(DeviceNames::default, |file| DeviceNames::new(file.inventory, file.plan));
        let mut observed = Self {
            devices: Vec::new(),
            claims: Vec::new(),
            books: Books::default(),
            view: View::new(names, 0),
            gpus: None,
            processes: Vec::new(),
            waiters: Vec::new(),
            user_waits: Vec::new(),
            out_of_service: Vec::new(),
            daemons: Vec::new(),
            not_held: Vec::new(),
            host_file,
            access: match options.host.inventory {
                None => Enforcement::on(&options.host, access)?,
                Some(_) => Enforcement::Off,
            },
            deviations: Vec::new(),
            problems: Vec::new(),
            written: None,
            sees_ledger: true,
            now: UNIX_EPOCH.elapsed().map_or(0, |since| since.as_secs()),
        };
        // The broker brings status.json up to date before it answers. Without it, the file says how old it is.
        let is_public = by_broker::is_needed(&options.state_dir);
        let own = is_public.then(|| by_broker::own(&options.state_dir, &StatusRequest {}));
        let own = own.and_then(Result::ok).unwrap_or_default();
        (observed.claims, observed.user_waits) = (own.claims, own.waiting);
        let public = observed.read_public(&options.state_dir);
        match root_only::check(&options.state_dir) {
            Ok(()) => observed.read_ledger(options, users.as_ref())?,
            Err(unseen) => observed.take_public(public.as_ref(), unseen),
        }
        observed.say_missing_host_file(&options.state_dir);
        observed.daemons = daemons(public.as_ref());
        observed.read_out_of_service(options);
        let names = &observed.view.devices;
        observed.not_held = measured::here(&options.state_dir, &options.host, names.driver(), names.shared());
        observed.not_held.retain(|one| one.not_held().is_some());
        // A description of another machine says nothing about what this one does.
        if with_gpus && options.host.inventory.is_none() {
            let roots = Roots::new(&options.host.roots)?;
            let usage = tranche_host::usage(&roots, &options.host.discovery);
            observed.take_usage(usage);
        }
        observed.deviations = deviations::find(&observed);
        Ok(observed)
    }

    /// What could not be read, and so is missing.
    pub fn problems(&self) -> impl Iterator<Item = &Error> {
        self.books.errors().chain(&self.problems)
    }

    /// `users` are the rules of the plan of host.json, if it could be read.
    fn read_ledger(&mut self, options: &ObserveOptions, users: Option<&UserPolicy>) -> Result<()> {
        let claims = Claims::existing(&options.state_dir)?;
        let uptime = match &claims {
            Some(claims) => {
                self.books = claims.books()?;
                match user_wait::read(&options.state_dir) {
                    Ok(waits) => self.user_waits = waits,
                    Err(error) => self.problems.push(error),
                }
                match claims.queued() {
                    Ok(mut queued) => {
                        // Those of users are shown with their users.
                        let is_of_user = |number| self.user_waits.iter().any(|wait| wait.ticket == Some(number));
                        queued.retain(|start| !is_of_user(start.number));
                        self.waiters = self.waiter_rows(queued);
                    }
                    Err(error) => self.problems.push(claims::explain("waiting starts".to_owned(), error)),
                }
                claims.uptime()
            }
            None => 0,
        };
        self.view.set_uptime(uptime);
        self.devices = device::devices(&self.view.devices, users.is_some(), &self.books);
        let accounts = Accounts::new(AccountSources::default());
        let limits = users.map(|policy| TimeLimits {
            accounts: &accounts,
            policy,
            uptime,
        });
        let idleness = idleness::read(&options.state_dir).unwrap_or_else(|error| {
            self.problems.push(error);
            Idleness::default()
        });
        let not_ended = not_ended::read(&options.state_dir).unwrap_or_else(|error| {
            self.problems.push(error);
            NotEnded::default()
        });
        for claim in self.books.claims() {
            let mut held = self.view.held(claim);
            if let Some(limits) = &limits {
                limits.show(&mut held, claim, &idleness, &not_ended);
            }
            match HeldTurn::of(claim, &options.state_dir, true) {
                Ok(turn) => held.turn = turn,
                Err(error) => self.problems.push(error),
            }
            self.claims.push(held);
        }
        Ok(())
    }

    /// Says that there is no host.json, if something is held: devices have the names of the ledger then.
    fn say_missing_host_file(&mut self, state_dir: &Path) {
        let row = &mut self.host_file;
        if !row.current && row.problem.is_none() && self.books.claims().next().is_some() {
            let path = state_dir.join(host_file::NAME);
            row.problem = Some(HostFileError::Missing { path }.to_string());
        }
    }

    fn take_public(&mut self, public: Option<&PublicStatus>, unseen: Error) {
        self.sees_ledger = false;
        match public {
            Some(public) => {
                self.written = Some(public.written);
                let devices = public.devices.iter();
                let devices = devices.map(|device| DeviceStatus::of_public(device, public.plan_known));
                self.devices = devices.collect();
            }
            None => self.problems.push(unseen),
        }
    }

    fn take_usage(&mut self, usage: Usage) {
        let claims: Vec<&Claim> = self.books.claims().collect();
        let machine = Machine::here().ok();
        let processes = observe::attribute(&usage.gpus, &claims, |pid| machine.as_ref()?.lineage(pid));
        let gpus = gpu::devices(&usage.gpus, &processes, &self.view.devices);
        for (position, (held, claim)) in self.claims.iter_mut().zip(&claims).enumerate() {
            let sees = |init| machine.as_ref().is_some_and(|machine| machine.sees(init));
            held.can_be_seen = claim.process.as_ref().is_none_or(sees);
            let device = gpus.iter().find(|gpu| gpu.key.as_ref() == Some(&held.key));
            let Some(device) = device.filter(|device| device.processes.is_some()) else {
                continue;
            };
            let used = observe::usage_of(position, &processes);
            let is_known = !device.hides_mps_clients || held.strategy != Strategy::Mps;
            held.usage = Some(HeldUsage {
                processes: used.processes,
                memory_mib: used
                    .memory
                    .filter(|_| is_known)
                    .map(|bytes| MemorySize::from_bytes(bytes).mib()),
                busy_percent: used.busy.filter(|_| is_known),
            });
        }
        let name = |process: &observe::DeviceProcess| {
            let gpu = gpus.iter().find(|gpu| gpu.key == process.device);
            gpu.map_or_else(|| "unknown".to_owned(), |gpu| gpu.device.clone())
        };
        let rows = processes
            .iter()
            .map(|process| ProcessRow::new(process, name(process), &self.claims));
        self.processes = rows.collect();
        let failed = usage.warnings.into_iter();
        self.problems
            .extend(failed.map(|warning| Error::failed(warning.object, warning.text)));
        self.gpus = Some(gpus);
    }

    fn waiter_rows(&self, queued: Vec<QueuedStart>) -> Vec<WaiterRow> {
        let machine = Machine::here().ok();
        let row = |start: QueuedStart| WaiterRow {
            wants: start.wants.map(|wants| {
                let wanted = wants.into_iter().map(|wanted| WantedRow {
                    device: self.view.devices.device(&wanted.device),
                    shares: wanted.shares.iter().map(ToString::to_string).collect(),
                });
                wanted.collect()
            }),
            since: start.since,
            pid: start.pid,
            command: machine
                .as_ref()
                .and_then(|machine| Some(machine.lineage(start.pid)?.command)),
        };
        queued.into_iter().map(row).collect()
    }

    /// Which devices are out of service: every user may read that.
    fn read_out_of_service(&mut self, options: &ObserveOptions) {
        let out = OutOfService::read(&options.state_dir);
        let name = |key: &DeviceKey| {
            // A user who cannot read host.json has the names that the broker wrote for everybody.
            let public = self.devices.iter().find(|device| device.key == *key);
            public.map_or_else(|| self.view.devices.device(key), |device| device.device.clone())
        };
        let row = |outage: &Outage, by_compute_mode: bool| OutageRow {
            device: name(&outage.device),
            key: outage.device.clone(),
            from: outage.from,
            reason: outage.reason.clone(),
            in_force: outage.is_in_force(),
            by_compute_mode,
        };
        let drained = out.drained.iter().map(|outage| row(outage, false));
        self.out_of_service = drained
            .chain(out.prohibited.iter().map(|outage| row(outage, true)))
            .collect();
        if let Some(why) = out.unreadable {
            self.problems
                .push(Error::failed("out of service", WhyOut::Unreadable(why)));
        }
    }

    /// What the broker wrote for everybody; `None` if it wrote nothing.
    fn read_public(&mut self, state_dir: &Path) -> Option<PublicStatus> {
        PublicStatus::read(state_dir).unwrap_or_else(|error| {
            self.problems.push(error);
            None
        })
    }
}

fn daemons(public: Option<&PublicStatus>) -> Vec<DaemonRow> {
    let devices = public.into_iter().flat_map(|public| &public.devices);
    let row = |device: &PublicDevice| {
        let daemon = device.daemon.as_ref()?;
        Some(DaemonRow {
            device: device.device.clone(),
            state: daemon.state,
            since: daemon.since,
            restarts: daemon.restarts,
        })
    };
    devices.filter_map(row).collect()
}

/// Whether host.json is current, and what it has.
fn host_file(state_dir: &Path) -> (HostFileRow, Option<HostFile>) {
    let (current, problem, file) = match HostFile::read(state_dir) {
        Ok(file) => (true, file.wrong_policy.clone(), Some(file)),
        Err(HostFileError::Missing { .. }) => (false, None, None),
        Err(error @ HostFileError::Stale { .. }) => (false, Some(error.to_string()), HostFile::load(state_dir).ok()),
        // Another user cannot read the directory of root, and does not need to.
        Err(HostFileError::Refused(_)) if !nix::unistd::geteuid().is_root() => (false, None, None),
        Err(error) => (false, Some(error.to_string()), None),
    };
    (HostFileRow { current, problem }, file)
}
