//! A device of this machine, as [`super::device::settle`] changes it.

use super::cgroup_limit::CgroupLimit;
use super::changes::{DaemonRecord, DeviceChanges, ProcessRecord};
use super::daemon::{Blocker, Daemon, DaemonError, Defaults, Processes, Starter, describe};
use super::device::{ControlledMachine, SeenDaemon};
use super::goal::Limits;
use super::journal::Journals;
use super::nvml::{Nvml, NvmlFailure, ResidentDriver};
use super::shown::Shown;
use super::target::ControlTarget;
use super::time_slice;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tranche_core::error::{Error, Result};
use tranche_core::ledger::process::CgroupState;
use tranche_core::text::some;
use tranche_core::types::Interval;
use tranche_plan::inventory::ComputeMode;

/// What every device of the machine is changed with.
#[derive(Debug)]
pub(super) struct Tools {
    pub(super) processes: Processes,
    pub(super) journals: Journals,
    pub(super) starter: Starter,
    /// The program that asks NVML.
    pub(super) driver: Arc<ResidentDriver>,
    /// How long NVML may take.
    pub(super) nvml_patience: Duration,
}

/// What cannot be done without NVML.
const NO_MODE: &str = "its compute mode cannot be set";

/// Seconds since 1970.
pub(super) fn now() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |time| time.as_secs())
}

/// One device.
pub(super) struct RealDevice<'a> {
    pub(super) tools: &'a Tools,
    pub(super) target: &'a ControlTarget,
    /// Where its state is shown.
    pub(super) shown: &'a Shown,
    /// When its daemon answered last.
    pub(super) answered: &'a mut Option<Instant>,
    /// How old an answer of the daemon may be.
    pub(super) freshness: Duration,
    /// Whether a claim is about to be granted.
    pub(super) is_granted: bool,
    /// The connection that the daemon waited for at the last look.
    pub(super) served: &'a mut Option<u64>,
    /// Who kept the daemon from others.
    pub(super) blockers: &'a mut Vec<Blocker>,
    /// What differs from what it should be and cannot be corrected.
    pub(super) problems: &'a mut Vec<String>,
}

/// How long a daemon may take to answer that has waited for one client since the last look.
const HELD_UP: Duration = Duration::from_millis(500);

/// How often in a row a daemon is freed that clients block.
const MOST_TRIES: u32 = 4;

impl RealDevice<'_> {
    /// Asks the daemon for its defaults. If it does not answer because it waits for a client, that client's connection
    /// is shut down, and the daemon is asked again.
    fn ask(&mut self, running: &ProcessRecord, misses: u32, is_held_up: bool) -> Result<Defaults, SeenDaemon> {
        let patience = if is_held_up { HELD_UP } else { Daemon::patience(misses) };
        let error = match self.own_daemon().check(patience) {
            Ok(defaults) => return Ok(defaults),
            Err(error) => error,
        };
        if !error.is_silence() {
            return Err(SeenDaemon::Silent(error.to_string()));
        }
        for tries in 0..MOST_TRIES {
            match self.own_daemon().free(running) {
                Err(why) => {
                    let why = format!("{error}; which client it waits for is unknown: {why}");
                    return Err(SeenDaemon::Unexamined(why));
                }
                Ok(blockers) if blockers.is_empty() && tries == 0 => return Err(SeenDaemon::Silent(error.to_string())),
                Ok(blockers) => self.blockers.extend(blockers),
            }
            if let Ok(defaults) = self.own_daemon().check(HELD_UP) {
                return Ok(defaults);
            }
        }
        // Clients block it again and again: it is not replaced for that.
        Err(SeenDaemon::Blocked(error.to_string()))
    }

    /// What the log says of the server, if it does not start. Before a claim is granted, it is started again.
    fn server_failure(&self) -> Option<String> {
        let daemon = self.own_daemon();
        let failure = daemon.server_failure()?;
        if !self.is_granted {
            return Some(failure);
        }
        match daemon.try_server() {
            Ok(()) => daemon.server_failure(),
            Err(error) => Some(format!("{failure}; {error}")),
        }
    }

    pub(super) fn own_daemon(&self) -> Daemon<'_> {
        Daemon {
            target: self.target,
            starter: &self.tools.starter,
            processes: &self.tools.processes,
        }
    }

    /// NVML; without it, `what` cannot be done.
    fn nvml(&self, what: &str) -> Result<Nvml> {
        let library = self.target.nvml.clone();
        let library = library.ok_or_else(|| self.failed(&format!("{what}: libnvidia-ml.so.1 was not found")))?;
        Ok(Nvml {
            driver: Arc::clone(&self.tools.driver),
            library,
            patience: self.tools.nvml_patience,
        })
    }

    fn wrong(&self, what: &str, error: &DaemonError) -> Error {
        self.failed(&format!("its MPS daemon {what}: {error}"))
    }

    fn not_limited(&self, limit: &CgroupLimit, why: &str) -> Error {
        let error = self.failed(&format!("the memory of {} cannot be limited: {why}", limit.holder));
        error.hint("with sharing.mps.enforcement: v2, MPS alone limits each process; see docs/explanation/mps.md")
    }

    fn no_mode(&self, what: &str, failure: &NvmlFailure) -> Error {
        let error = self.failed(&format!("its compute mode cannot be {what}: {failure}"));
        error.hint("with sharing.mps.computeMode: keep, tranche leaves the mode unchanged, and limits are advisory")
    }
}

impl ControlledMachine for RealDevice<'_> {
    fn save(&mut self, changes: Option<&DeviceChanges>) -> Result<()> {
        self.tools.journals.write(self.target, changes)?;
        self.shown.show(self.target, changes, self.problems);
        Ok(())
    }

    fn daemon(&mut self, record: Option<&DaemonRecord>) -> SeenDaemon {
        let process = record.and_then(|record| record.process.as_ref());
        let daemon = self.own_daemon();
        let mut seen = daemon.look(process, record.is_some());
        let SeenDaemon::Running(running) = &seen else {
            return seen;
        };
        let running = running.clone();
        if let Err(error) = daemon.repair() {
            self.problems.push(error.to_string());
        }
        let served = self.own_daemon().served(&running);
        let is_held_up = served.is_some() && served == *self.served;
        *self.served = served;
        // One that is not ready yet is checked when its limits are set.
        let is_ready = record.is_some_and(|record| record.is_ready);
        let is_fresh = self.answered.is_some_and(|at| at.elapsed() < self.freshness);
        if is_ready && (!is_fresh || is_held_up) {
            *self.answered = None;
            let misses = record.map_or(0, |record| record.misses);
            let set = record.and_then(|record| record.limits);
            match self.ask(&running, misses, is_held_up) {
                Err(silent) => return silent,
                Ok(has) if set.is_some_and(|set| !set.are(has)) => seen = SeenDaemon::Altered(running.clone()),
                Ok(_) => {}
            }
            *self.answered = Some(Instant::now());
            if let Err(error) = self.own_daemon().bound_logs() {
                self.problems.push(error.to_string());
            }
        }
        if is_ready && let Some(why) = self.server_failure() {
            let problem = format!("its MPS server does not start: {why}");
            if !self.problems.contains(&problem) {
                self.problems.push(problem);
            }
            if seen == SeenDaemon::Running(running.clone()) {
                seen = SeenDaemon::NoServer(running, why);
            }
        }
        seen
    }

    fn check_start(&mut self) -> Result<()> {
        let checked = self.own_daemon().check_start();
        checked.map_err(|error| self.wrong("cannot be started", &error))
    }

    fn compute_mode(&mut self) -> Result<Option<ComputeMode>> {
        if !self.target.is_exclusive {
            return Ok(None);
        }
        match self.nvml(NO_MODE)?.compute_mode(self.target.key.gpu()) {
            Ok(mode) => Ok(Some(mode)),
            // What is set on it next says that it is gone.
            Err(NvmlFailure::Gone) => Ok(None),
            Err(failure) => Err(self.no_mode("read", &failure)),
        }
    }

    fn refuse_users(&mut self) -> Result<()> {
        match self.nvml(NO_MODE)?.processes(self.target.key.gpu()) {
            Ok(pids) if pids.is_empty() => Ok(()),
            Ok(pids) => {
                let pids: Vec<String> = pids.into_iter().map(describe).collect();
                let what = format!("it is used without a claim by process {}", some(&pids));
                Err(self
                    .failed(&what)
                    .hint("end it, or start it in a container with a share; MPS needs the device alone"))
            }
            Err(NvmlFailure::Unsupported | NvmlFailure::Missing) => {
                let problem =
                    "NVML does not list the processes that use it; one that does keeps the MPS daemon from it";
                self.problems.push(problem.to_owned());
                Ok(())
            }
            Err(failure) => Err(self.failed(&format!("the processes that use it are unknown: {failure}"))),
        }
    }

    fn set_compute_mode(&mut self, mode: ComputeMode) -> Result<()> {
        match self.nvml(NO_MODE)?.set_compute_mode(self.target.key.gpu(), mode) {
            Ok(()) => Ok(()),
            // The mode is gone with the GPU.
            Err(NvmlFailure::Gone) if mode != ComputeMode::ExclusiveProcess => {
                tracing::warn!("{}: is gone, so its compute mode is not put back", self.target.device);
                Ok(())
            }
            Err(failure) => Err(self.no_mode("set", &failure)),
        }
    }

    fn serves_many_users(&mut self) -> bool {
        self.own_daemon().serves_many(None)
    }

    fn start(&mut self) -> Result<ProcessRecord> {
        *self.answered = None;
        self.own_daemon()
            .start()
            .map_err(|error| self.wrong("could not be started", &error))
    }

    fn set_limits(&mut self, limits: Limits) -> Result<()> {
        let mut set = self.own_daemon().set_limits(limits);
        // A client may have begun to block it since it was looked at.
        if set.as_ref().is_err_and(DaemonError::is_silence)
            && let SeenDaemon::Running(running) = self.own_daemon().look(None, true)
            && let Ok(blockers) = self.own_daemon().free(&running)
            && !blockers.is_empty()
        {
            self.blockers.extend(blockers);
            set = self.own_daemon().set_limits(limits);
        }
        set.map_err(|error| self.wrong("does not take its limits", &error))?;
        *self.answered = Some(Instant::now());
        Ok(())
    }

    fn end(&mut self, record: &DaemonRecord) -> Result<()> {
        *self.answered = None;
        let ended = self.own_daemon().end(record.process.as_ref());
        ended.map_err(|error| self.wrong("could not be ended", &error))
    }

    fn limit_cgroup(&mut self, limit: &CgroupLimit) -> Result<()> {
        let cgroup = limit.cgroup();
        match self.tools.processes.cgroup(&cgroup)? {
            CgroupState::Version2 => {}
            CgroupState::Version1 => return Err(self.not_limited(limit, "its cgroup is not one of version 2")),
            CgroupState::Gone => return Err(self.not_limited(limit, "its cgroup is gone")),
        }
        let bytes = limit.memory.bytes();
        let limited = self
            .nvml("the memory of its containers cannot be limited")?
            .limit_cgroup(self.target.key.gpu(), &cgroup.path, bytes);
        match limited {
            Ok(Some(reported)) => {
                if reported != bytes {
                    let (reported, set) = (reported >> 20, limit.memory.mib());
                    let holder = &limit.holder;
                    self.problems.push(format!(
                        "NVML reports a limit of {reported} MiB for {holder}, and {set} MiB was set"
                    ));
                }
                Ok(())
            }
            Ok(None) => Err(self.not_limited(limit, "NVML reports no limit after it was set")),
            Err(failure) => Err(self.not_limited(limit, &failure.to_string())),
        }
    }

    fn free_cgroup(&mut self, limit: &CgroupLimit) -> Result<()> {
        let cgroup = limit.cgroup();
        let is_gone = || Ok::<bool, Error>(self.tools.processes.cgroup(&cgroup)? == CgroupState::Gone);
        if is_gone()? {
            return Ok(());
        }
        let nvml = self.nvml("the limits of its containers cannot be removed")?;
        match nvml.free_cgroup(self.target.key.gpu(), &cgroup.path) {
            Ok(()) => Ok(()),
            // A driver that was replaced, or a GPU that fell off the bus, took its limits with it.
            Err(failure @ (NvmlFailure::Gone | NvmlFailure::Missing)) => {
                tracing::warn!("{}: {failure}, so no limit of a cgroup is removed", self.target.device);
                Ok(())
            }
            _ if is_gone()? => Ok(()),
            Err(failure) => Err(self.failed(&format!("the limit of {} cannot be removed: {failure}", limit.holder))),
        }
    }

    fn time_slice(&mut self) -> Option<Interval> {
        time_slice::read(self.target.smi.as_deref()?, self.target.key.gpu())
    }

    fn set_time_slice(&mut self, interval: Interval) -> Result<()> {
        let smi = self.target.smi.as_deref();
        let smi = smi.ok_or_else(|| self.failed("the length of a turn cannot be set: nvidia-smi was not found"))?;
        let set = time_slice::set(smi, self.target.key.gpu(), interval);
        set.map_err(|error| self.failed(&format!("the length of a turn cannot be set: {error}")))
    }

    fn now(&self) -> u64 {
        now()
    }

    fn failed(&self, what: &str) -> Error {
        Error::failed(self.target.device, what)
    }

    fn leave(&mut self, what: &str) {
        tracing::warn!("{}: {what}", self.target.device);
        self.problems.push(what.to_owned());
    }
}
