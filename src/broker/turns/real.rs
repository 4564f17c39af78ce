//! The machine, as turns change it: the driver through its process, the filter of cgroups, and NVML.

use super::end::{EndTimes, end};
use super::filters::filters;
use super::holder::TurnHolder;
use super::host_memory;
use super::machine::{TurnFault, TurnMachine};
use super::paused;
use crate::control::nvml::{Nvml, NvmlFailure};
use crate::control::turns_driver::TurnsDriver;
use nix::unistd::Pid;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;
use tranche_core::ledger::process::Machine;
use tranche_core::process_identity::ProcessIdentity;
use tranche_core::types::GpuUuid;
use tranche_driver_protocol::{GpuMemory, TurnsFailure};
use tranche_plan::turns::change::CudaState;
use tranche_turns::filter::{DeviceNumber, FilterError};
use tranche_turns::wishes::Wishes;

/// For how long submitted work may go on once its process is to be suspended.
const LOCK: Duration = Duration::from_secs(10);

/// How long the driver may take to say or to change a state.
const STATE: Duration = Duration::from_secs(20);

/// How long it may take to copy the memory of a process: that of the largest GPU at half a gigabyte in a second.
const COPY: Duration = Duration::from_secs(600);

const TIMES: EndTimes = EndTimes {
    lock: LOCK,
    copy: COPY,
    state: STATE,
};

/// The most processes of a holder that are looked at.
const MOST_PROCESSES: usize = 4096;

/// The machine, for one device.
pub struct RealMachine<'a> {
    /// The device.
    pub gpu: GpuUuid,
    /// The device nodes that are closed to those who are away.
    pub nodes: Vec<DeviceNumber>,
    /// Who suspends and resumes.
    pub driver: &'a TurnsDriver,
    /// Who says how the memory is used.
    pub nvml: &'a Nvml,
    /// Who sees that a suspended process wants the device; `None` where that cannot be seen.
    pub wishes: Option<&'a mut Wishes>,
    /// This machine.
    pub machine: &'a Machine,
    /// Why resumed work must not be killed before it is suspended; `None` if it can be.
    pub hangs: Option<String>,
    /// The processes that were found, which are not taken for later ones with their numbers.
    pub known: BTreeMap<Pid, ProcessIdentity>,
}

impl RealMachine<'_> {
    /// All processes of a holder.
    fn pids(&self, holder: &TurnHolder) -> Result<Vec<u32>, TurnFault> {
        let mut pids = Vec::new();
        for init in &holder.inits {
            pids.extend(self.machine.processes(init)?);
        }
        // Of a pid namespace that cannot be seen, numbers are 0.
        if pids.contains(&0) {
            return Err(TurnFault::Unable(format!(
                "{}: its processes cannot be seen here",
                holder.who()
            )));
        }
        match pids.len() > MOST_PROCESSES {
            true => Err(TurnFault::Unable(format!(
                "{} has more than {MOST_PROCESSES} processes",
                holder.who()
            ))),
            false => Ok(pids),
        }
    }

    fn identity(&self, process: Pid) -> Result<ProcessIdentity, TurnFault> {
        let known = self.known.get(&process).copied();
        known.ok_or_else(|| TurnFault::Unable(format!("process {process} was not looked at")))
    }

    fn memory(&self) -> Result<GpuMemory, TurnFault> {
        self.nvml.memory(&self.gpu).map_err(|failure| unable(&failure))
    }

    fn change(
        &mut self,
        process: Pid,
        what: &str,
        change: impl FnOnce(&TurnsDriver, ProcessIdentity) -> Result<(), TurnsFailure>,
    ) -> Result<(), TurnFault> {
        let identity = self.identity(process)?;
        // One that cannot be started is no fault of the process.
        self.driver.process().map_err(|failure| unable(&failure))?;
        match change(self.driver, identity) {
            Ok(()) | Err(TurnsFailure::Ended(_)) => Ok(()),
            // Nothing is wrong with the work, and its state says what is left to do.
            Err(failure @ TurnsFailure::Killed) => Err(unable(&format_args!("process {process}: {failure}"))),
            Err(failure) => Err(TurnFault::Failed(format!("process {process}: {what}: {failure}"))),
        }
    }
}

/// Those of the processes that still run.
fn identities(pids: &[u32]) -> impl Iterator<Item = ProcessIdentity> {
    pids.iter()
        .filter_map(|pid| ProcessIdentity::of(pid.cast_signed()).ok().flatten())
}

fn unable(why: &impl std::fmt::Display) -> TurnFault {
    TurnFault::Unable(why.to_string())
}

impl From<NvmlFailure> for TurnFault {
    fn from(failure: NvmlFailure) -> Self {
        unable(&failure)
    }
}

impl TurnMachine for RealMachine<'_> {
    fn processes(&mut self, holder: &TurnHolder) -> Result<Vec<(Pid, CudaState)>, TurnFault> {
        if self.is_paused(holder) {
            // To ask for their states would take as long as an answer may take at most.
            return Err(unable(&format!("{} is paused", holder.who())));
        }
        let mut found = Vec::new();
        for pid in self.pids(holder)? {
            let pid = pid.cast_signed();
            let identity = ProcessIdentity::of(pid).map_err(|error| unable(&format!("process {pid}: {error}")))?;
            let Some(identity) = identity else { continue };
            match self.driver.state(identity, STATE) {
                Ok(Some(state)) => {
                    self.known.insert(Pid::from_raw(pid), identity);
                    found.push((Pid::from_raw(pid), state));
                }
                Ok(None) | Err(TurnsFailure::Ended(_)) => {}
                Err(failure) => return Err(TurnFault::Unable(format!("process {pid}: {failure}"))),
            }
        }
        Ok(found)
    }

    fn is_open(&mut self, holder: &TurnHolder) -> Result<bool, TurnFault> {
        for filter in filters(holder, self.machine)? {
            let is_closed = filter.is_closed(&self.nodes);
            if !is_closed.map_err(|error| TurnFault::Failed(error.to_string()))? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn set_open(&mut self, holder: &TurnHolder, is_open: bool) -> Result<(), TurnFault> {
        let failed = |error: FilterError| TurnFault::Failed(error.to_string());
        for filter in filters(holder, self.machine)? {
            match is_open {
                true => filter.open(&self.nodes).map_err(failed)?,
                false => filter.close(&self.nodes).map_err(failed)?,
            }
            // A cgroup of version 1 that allows everything cannot be kept from a part of it.
            if !is_open && !filter.is_closed(&self.nodes).map_err(failed)? {
                filter.open(&self.nodes).map_err(failed)?;
                let what = "its container may open devices that no rule names: it is privileged, or has rules with *";
                return Err(TurnFault::Failed(what.to_owned()));
            }
        }
        Ok(())
    }

    fn lock(&mut self, process: Pid) -> Result<(), TurnFault> {
        let identity = self.identity(process)?;
        // Before: a call that has begun before it is watched is not seen.
        if let Some(wishes) = &mut self.wishes
            && let Err(why) = wishes.watch(identity)
        {
            tracing::info!("process {process}: its wish for the device will not be seen: {why}");
        }
        let locked = self.change(process, "cannot be locked", |driver, identity| {
            driver.lock(identity, LOCK)
        });
        if let (Err(_), Some(wishes)) = (&locked, &mut self.wishes) {
            wishes.forget(identity);
        }
        locked
    }

    fn checkpoint(&mut self, process: Pid) -> Result<(), TurnFault> {
        self.change(process, "cannot be suspended", |driver, identity| {
            driver.checkpoint(identity, COPY)
        })
    }

    fn restore(&mut self, process: Pid) -> Result<(), TurnFault> {
        self.change(process, "cannot be resumed", |driver, identity| {
            driver.restore(identity, COPY)
        })
    }

    fn unlock(&mut self, process: Pid) -> Result<(), TurnFault> {
        let identity = self.identity(process)?;
        self.change(process, "cannot be unlocked", |driver, identity| {
            driver.unlock(identity, STATE)
        })?;
        if let Some(wishes) = &mut self.wishes {
            wishes.forget(identity);
        }
        Ok(())
    }

    fn bytes(&mut self, holder: &TurnHolder) -> Result<u64, TurnFault> {
        let memory = self.memory()?;
        let pids = self.pids(holder)?;
        let of = |pid: &u32| memory.processes.get(pid).copied();
        let own: Vec<Option<u64>> = pids.iter().filter_map(of).collect();
        match own.iter().any(Option::is_none) {
            // All that is in use is no less than what it has.
            true => Ok(memory.used),
            false => Ok(own.into_iter().flatten().sum()),
        }
    }

    fn is_memory_free(&mut self, bytes: u64, those: &[Pid]) -> Result<bool, TurnFault> {
        let memory = self.memory()?;
        let is_of_those = |pid: &u32| those.contains(&Pid::from_raw(pid.cast_signed()));
        let of_those: u64 = memory
            .processes
            .iter()
            .filter(|(pid, _)| is_of_those(pid))
            .filter_map(|(_, bytes)| *bytes)
            .sum();
        let is_alone = memory.processes.keys().all(is_of_those);
        let free = memory.total.saturating_sub(memory.used);
        Ok(is_alone && free.saturating_add(of_those) >= bytes)
    }

    fn lacks_host_memory(&mut self, holder: &TurnHolder, bytes: u64) -> Option<String> {
        // The recorded cgroup is the container's; where that has no limit of memory, another hierarchy may.
        let cgroups = holder.inits.iter().filter_map(|init| {
            let mut cgroups = vec![PathBuf::from(&init.cgroup.as_ref()?.path)];
            cgroups.extend(self.machine.cgroup_directories(init.pid));
            Some(cgroups)
        });
        host_memory::lacks(bytes, cgroups)
    }

    fn is_paused(&mut self, holder: &TurnHolder) -> bool {
        holder.inits.iter().any(|init| paused::is_paused(self.machine, init))
    }

    fn has_worked(&mut self, holder: &TurnHolder) -> Result<bool, TurnFault> {
        let work = self.nvml.work(std::slice::from_ref(&self.gpu))?;
        let Some(Ok(work)) = work.into_iter().next() else {
            return Err(TurnFault::Unable("NVML does not say who works".to_owned()));
        };
        let own = self.pids(holder)?;
        if let Some(wishes) = &mut self.wishes {
            // Who has the device wants nothing, and probes cost time.
            identities(&own).for_each(|identity| wishes.forget(identity));
        }
        let is_of_nobody = work.is_busy && work.processes.is_empty();
        Ok(is_of_nobody || own.iter().any(|pid| work.processes.contains(pid)))
    }

    fn has_called(&mut self, holder: &TurnHolder) -> bool {
        let pids = self.pids(holder).unwrap_or_default();
        let Some(wishes) = &mut self.wishes else { return false };
        let mut has_called = false;
        for identity in identities(&pids) {
            // Of an earlier broker, or begun since. One that uses no CUDA, or another library, cannot be watched.
            let _ = wishes.watch(identity);
            has_called |= wishes.since(identity).is_some();
        }
        has_called
    }

    fn end(&mut self, holder: &TurnHolder, was_resumed: bool) -> Result<(), TurnFault> {
        for (process, _) in self.processes(holder)? {
            let identity = self.identity(process)?;
            tracing::warn!(
                "{}: process {process} is ended: the driver cannot go on with it",
                holder.who()
            );
            let hangs = self.hangs.as_ref().filter(|_| was_resumed);
            let ended = end(self.driver, identity, hangs.is_some(), TIMES);
            ended.map_err(|why| match hangs {
                Some(hangs) => TurnFault::Failed(format!("process {process} is not ended: {hangs}; {why}")),
                None => unable(&format!("process {process}: {why}")),
            })?;
        }
        Ok(())
    }
}
