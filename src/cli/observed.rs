//! The state of the shares of this machine at one moment, as `status`, `top` and `metrics` show it.

mod deviations;
mod device;
mod gpu;
mod process;

pub(super) use deviations::{Deviation, DeviationKind};
pub(super) use device::DeviceStatus;
pub(super) use gpu::DeviceUsage;
pub(super) use process::ProcessRow;

use super::held::{Held, HeldUsage, View};
use super::look;
use super::place::{HostArgs, SpecDirArgs, StateArgs};
use super::sharing::SharingArgs;
use super::specs::Specs;
use super::{by_broker, root_only};
use crate::broker::StatusRequest;
use crate::claims;
use crate::claims::Claims;
use crate::control::{DaemonState, PublicDevice, PublicStatus};
use crate::error::Error;
use crate::host::{self, DiscoveryOptions, Usage};
use crate::host_file::{HostFile, HostFileError};
use crate::ledger::process::Machine;
use crate::ledger::{Books, Claim, QueuedStart};
use crate::observe;
use crate::share::Plan;
use crate::types::{MemorySize, Strategy};
use anyhow::Result;
use serde::Serialize;
use std::path::Path;
use std::time::{Duration, UNIX_EPOCH};

/// What to look at.
#[derive(Debug, Clone, clap::Args)]
pub(super) struct ObserveArgs {
    // In this order, because options without a heading of their own would get that of the ones before them.
    #[command(flatten)]
    pub(super) state: StateArgs,
    #[command(flatten)]
    pub(super) specs: SpecDirArgs,
    /// Give up on NVML, the driver's library, after this time
    #[arg(long, value_name = "SECONDS", default_value = "3", value_parser = look::seconds)]
    gpu_timeout: Duration,
    #[command(flatten)]
    pub(super) host: HostArgs,
}

/// The state at one moment.
#[derive(Debug)]
pub(super) struct Observed {
    /// Devices that are handed out with a claim.
    pub(super) devices: Vec<DeviceStatus>,
    pub(super) claims: Vec<Held>,
    /// What is held, as the ledger records it.
    pub(super) books: Books,
    /// How it is shown.
    pub(super) view: View,
    /// What NVML says of each GPU and MIG device; `None` if it was not asked.
    pub(super) gpus: Option<Vec<DeviceUsage>>,
    pub(super) processes: Vec<ProcessRow>,
    pub(super) waiters: Vec<WaiterRow>,
    pub(super) daemons: Vec<DaemonRow>,
    pub(super) host_file: HostFileRow,
    pub(super) deviations: Vec<Deviation>,
    /// What could not be read, apart from books.
    problems: Vec<Error>,
    /// When the broker wrote what is shown, in seconds since 1970; `None` if it was read from the ledger.
    pub(super) written: Option<u64>,
    /// Whether this user can read the ledger.
    pub(super) sees_ledger: bool,
    /// In seconds since 1970.
    pub(super) now: u64,
}

/// A start that waits for a share. docs/shares.md documents the fields.
#[derive(Debug, Serialize)]
pub(super) struct WaiterRow {
    /// What may serve it, each of them alone; `null` if another version of tranche wrote that.
    pub(super) wants: Option<Vec<WantedRow>>,
    /// In seconds since 1970.
    pub(super) since: u64,
    /// The process that waits.
    pub(super) pid: u32,
    /// The name of its program.
    pub(super) command: Option<String>,
}

/// Something that a start waits for.
#[derive(Debug, Serialize)]
pub(super) struct WantedRow {
    /// `nvidia.com/gpu=0`.
    pub(super) device: String,
    /// The shares; empty for any part of the device.
    pub(super) shares: Vec<String>,
}

/// The MPS daemon of a device.
#[derive(Debug, Serialize)]
pub(super) struct DaemonRow {
    /// `nvidia.com/gpu=0`.
    pub(super) device: String,
    pub(super) state: DaemonState,
    /// When it was started, in seconds since 1970.
    pub(super) since: Option<u64>,
    /// How often it was started again after it had died.
    pub(super) restarts: u32,
}

impl DaemonRow {
    /// The state, as it is in JSON.
    pub(super) fn state(&self) -> &'static str {
        match self.state {
            DaemonState::Starting => "starting",
            DaemonState::Running => "running",
            DaemonState::Failed => "failed",
            DaemonState::Foreign => "foreign",
            DaemonState::Stopping => "stopping",
        }
    }
}

/// Whether host.json describes the host.
#[derive(Debug, Serialize)]
pub(super) struct HostFileRow {
    /// `false` if it is missing, too.
    pub(super) current: bool,
    /// What is wrong, and what to do; `null` if it is current, or missing.
    pub(super) problem: Option<String>,
}

impl ObserveArgs {
    /// What another verb looks at, which waits for NVML as long as `gpu_timeout`.
    pub(super) fn of(sharing: &SharingArgs, specs: &SpecDirArgs, gpu_timeout: Duration) -> Self {
        Self {
            state: sharing.state.clone(),
            specs: specs.clone(),
            gpu_timeout,
            host: sharing.host.clone(),
        }
    }
}

impl Observed {
    /// Looks at the ledger, at the queue, at host.json and, with `with_gpus`, at what NVML says.
    ///
    /// # Errors
    /// Returns an error if the ledger or a root of the host cannot be read at all.
    pub(super) fn look(args: &ObserveArgs, with_gpus: bool) -> Result<Self> {
        let (host_file, plan) = host_file(&args.state.state_dir);
        let mut observed = Self {
            devices: Vec::new(),
            claims: Vec::new(),
            books: Books::default(),
            view: View::default(),
            gpus: None,
            processes: Vec::new(),
            waiters: Vec::new(),
            daemons: Vec::new(),
            host_file,
            deviations: Vec::new(),
            problems: Vec::new(),
            written: None,
            sees_ledger: true,
            now: UNIX_EPOCH.elapsed().map_or(0, |since| since.as_secs()),
        };
        // The broker brings status.json up to date before it answers. Without it, the file says how old it is.
        let is_public = by_broker::is_needed(&args.state.state_dir);
        let own = is_public.then(|| by_broker::own(&args.state.state_dir, &StatusRequest {}));
        observed.claims = own.and_then(Result::ok).unwrap_or_default();
        let public = observed.read_public(&args.state.state_dir);
        match root_only::check(&args.state.state_dir) {
            Ok(()) => observed.read_ledger(args, plan.as_ref())?,
            Err(unseen) => observed.take_public(public.as_ref(), unseen),
        }
        observed.daemons = daemons(public.as_ref());
        // A description of another machine says nothing about what this one does.
        if with_gpus && args.host.inventory.is_none() {
            let options = DiscoveryOptions {
                deadline: args.gpu_timeout,
                ..DiscoveryOptions::default()
            };
            let usage = host::usage(&look::roots(&args.host)?, &options);
            observed.take_usage(usage);
        }
        observed.deviations = deviations::find(&observed, plan.as_ref());
        Ok(observed)
    }

    /// What could not be read, and so is missing.
    pub(super) fn problems(&self) -> impl Iterator<Item = &Error> {
        self.books.errors().chain(&self.problems)
    }

    fn read_ledger(&mut self, args: &ObserveArgs, plan: Option<&Plan>) -> Result<()> {
        let claims = Claims::existing(&args.state.state_dir)?;
        let uptime = match &claims {
            Some(claims) => {
                self.books = claims.books()?;
                match claims.queued() {
                    Ok(queued) => self.waiters = self.waiter_rows(queued, args),
                    Err(error) => self.problems.push(claims::explain("waiting starts".to_owned(), error)),
                }
                claims.uptime()
            }
            None => 0,
        };
        self.view = View::new(Specs::read(&args.specs, &args.state.state_dir), uptime);
        self.devices = device::devices(&self.view.specs, plan, &self.books);
        self.claims = self.books.claims().map(|claim| self.view.held(claim)).collect();
        Ok(())
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
        let gpus = gpu::devices(&usage.gpus, &processes, &self.view.specs);
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

    fn waiter_rows(&self, queued: Vec<QueuedStart>, args: &ObserveArgs) -> Vec<WaiterRow> {
        let specs = Specs::read(&args.specs, &args.state.state_dir);
        let machine = Machine::here().ok();
        let row = |start: QueuedStart| WaiterRow {
            wants: start.wants.map(|wants| {
                let wanted = wants.into_iter().map(|wanted| WantedRow {
                    device: specs.device(&wanted.device),
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

/// Whether host.json is current, and its plan.
fn host_file(state_dir: &Path) -> (HostFileRow, Option<Plan>) {
    let (current, problem, file) = match HostFile::read(state_dir) {
        Ok(file) => (true, None, Some(file)),
        Err(HostFileError::Missing { .. }) => (false, None, None),
        Err(error @ HostFileError::Stale { .. }) => (false, Some(error.to_string()), HostFile::load(state_dir).ok()),
        // Another user cannot read the directory of root, and does not need to.
        Err(HostFileError::Refused(_)) if !nix::unistd::geteuid().is_root() => (false, None, None),
        Err(error) => (false, Some(error.to_string()), None),
    };
    (HostFileRow { current, problem }, file.map(|file| file.plan))
}
