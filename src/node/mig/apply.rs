//! Applies layouts to the GPUs of this machine.

use super::change::{change, finish};
use super::handles::NodeUser;
use super::hold::DevicesHeld;
use super::in_the_way::{destroyed_devices, in_the_way, refusal};
use super::machine::{ChangeError, MigMachine};
use super::saved::{SavedGpu, SavedLayouts};
use super::services;
use crate::control::MachineControl;
use std::path::{Path, PathBuf};
use tranche_core::claims::Claims;
use tranche_core::error::{Error, Kind, Result, line};
use tranche_core::types::{DeviceKey, GpuUuid};
use tranche_plan::inventory::VirtualizationMode;
use tranche_plan::mig::{ExactGpu, MigChange, MigGpu};

/// What layouts are applied with.
pub struct MigTools<'a> {
    /// The GPUs.
    pub machine: &'a dyn MigMachine,
    /// What manages the MPS daemons on them.
    pub control: &'a dyn MachineControl,
    /// The ledger.
    pub claims: &'a Claims,
    /// Its directory.
    pub state_dir: &'a Path,
    /// The processes that have a GPU open.
    pub users: &'a dyn Fn(&GpuUuid) -> Result<Vec<NodeUser>>,
    /// systemd's program, where systemd runs.
    pub systemctl: Option<PathBuf>,
}

/// What is to be done, and what it may cost.
#[derive(Debug, Clone, Default)]
pub struct MigOrder {
    /// What the GPUs are to have.
    pub target: Vec<ExactGpu>,
    /// Whether the MIG mode of a GPU may change.
    pub may_change_mode: bool,
    /// Whether a GPU may be reset for it that cannot change its mode otherwise.
    pub may_reset: bool,
    /// Services that may be stopped for it, and are started again.
    pub services: Vec<String>,
    /// Whether it is for a while: the next boot makes what was saved before.
    pub is_temporary: bool,
}

impl MigTools<'_> {
    /// Puts back what a killed process left half changed. Returns the GPUs that were put back.
    ///
    /// # Errors
    /// Returns an error if a GPU cannot be put back.
    pub fn finish(&self) -> Result<Vec<GpuUuid>> {
        finish(self.machine, self.state_dir, &mut report)
    }

    /// Applies `order`. Returns the GPUs that were changed, as they are now; a GPU that has what it is to have is not
    /// touched. The caller keeps other changes of layouts waiting meanwhile.
    ///
    /// # Errors
    /// Returns who or what stands in the way. Nothing has changed then, or everything was put back as it was; where it
    /// could not be, the error says so.
    pub fn apply(&self, order: &MigOrder) -> Result<Vec<MigGpu>> {
        self.finish()?;
        let mut wanted = Vec::new();
        for target in &order.target {
            let now = self.gpu(&target.gpu)?;
            let is_there = matches!(target.next(&now), Ok(None));
            if !is_there {
                check(&now, target, order)?;
                wanted.push((now, target.clone()));
            }
        }
        if wanted.is_empty() {
            return Ok(Vec::new());
        }
        let stopped = self.stop_services(&wanted, &order.services)?;
        let applied = self.apply_to(&wanted, order.is_temporary);
        let started = match &self.systemctl {
            Some(systemctl) => services::start(systemctl, &stopped),
            None => Ok(()),
        };
        match (applied, started) {
            (Ok(()), Ok(())) => {}
            (Err(error), Ok(())) | (Ok(()), Err(error)) => return Err(error),
            (Err(error), Err(other)) => return Err(error.and_hint(line(&other))),
        }
        wanted.iter().map(|(now, _)| self.gpu(&now.uuid)).collect()
    }

    fn apply_to(&self, wanted: &[(MigGpu, ExactGpu)], is_temporary: bool) -> Result<()> {
        let mut devices = Vec::new();
        for (now, to) in wanted {
            devices.extend(destroyed_devices(now, to, &self.claims.book(&now.uuid)?));
        }
        self.stop_daemons(&devices)?;
        let _held = DevicesHeld::take(self.claims, devices)?;
        // From here on no container gets one of them. Who has one already is seen now.
        let mut before = Vec::new();
        for (planned, target) in wanted {
            let now = self.gpu(&planned.uuid)?;
            if now.instances != planned.instances || now.mode != planned.mode {
                let what = "its instances have changed since the layout was planned";
                return Err(Error::failed(format!("gpu {}", now.index), what).hint("try again"));
            }
            self.refuse_if_used(&now, target)?;
            before.push(ExactGpu::of(&now));
        }
        let target: Vec<ExactGpu> = wanted.iter().map(|(_, target)| target.clone()).collect();
        // One that cannot be read is found before anything changes.
        let mut saved = SavedLayouts::read(self.state_dir)?;
        change(self.machine, self.state_dir, &before, &target, &mut report)?;
        if is_temporary {
            return Ok(());
        }
        let (mut gpus, mut renumbered) = (Vec::new(), Vec::new());
        for (had, _) in wanted {
            let now = self.gpu(&had.uuid)?;
            renumbered.extend(made_again(had, saved.of(&had.uuid), &now));
            gpus.push(SavedGpu::of(&now));
        }
        // First what is reserved: a process that is killed here leaves the saved numbers, by which it is found again.
        if !renumbered.is_empty() {
            for problem in self.claims.lock()?.renumber(&renumbered)? {
                tracing::warn!("{}", line(&problem));
            }
        }
        saved.record(before, gpus);
        saved.write(self.state_dir)
    }

    fn gpu(&self, gpu: &GpuUuid) -> Result<MigGpu> {
        let found = self.machine.gpu(gpu);
        found.map_err(|error: ChangeError| Error::failed(gpu, error))
    }

    /// Claims on what is destroyed are refused by the ledger, where they are held as a whole: those of this function's
    /// caller are left out.
    fn refuse_if_used(&self, now: &MigGpu, target: &ExactGpu) -> Result<()> {
        let users = (self.users)(&now.uuid)?;
        let holders = in_the_way(now, target, [], &users);
        match holders.is_empty() {
            true => Ok(()),
            false => Err(refusal(now, &holders, &users)),
        }
    }

    /// Stops the MPS daemons of devices that are destroyed; one that containers use is not stopped.
    fn stop_daemons(&self, devices: &[DeviceKey]) -> Result<()> {
        let running = self.control.devices();
        let on_them = running
            .iter()
            .filter(|one| devices.iter().any(|device| device.overlaps(&one.key)));
        for one in on_them {
            match self.control.stop(&one.key, false) {
                Err(error) if error.kind() != Kind::Nothing => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }

    /// Stops those of `services` that have a GPU open whose mode changes. Returns them.
    fn stop_services(&self, wanted: &[(MigGpu, ExactGpu)], services: &[String]) -> Result<Vec<String>> {
        let mut units = Vec::new();
        for (now, target) in wanted {
            if services.is_empty() || now.mode.current == target.mode {
                continue;
            }
            let users = (self.users)(&now.uuid)?;
            units.extend(users.into_iter().filter_map(|user| user.unit));
        }
        units.retain(|unit| services.contains(unit));
        units.sort();
        units.dedup();
        let Some(systemctl) = &self.systemctl else {
            return match units.is_empty() {
                true => Ok(units),
                false => Err(Error::failed(
                    units.join(" "),
                    "cannot be stopped, because systemd does not run here",
                )),
            };
        };
        if let Err(error) = services::stop(systemctl, &units) {
            services::start(systemctl, &units)?;
            return Err(error);
        }
        Ok(units)
    }
}

/// The devices of `saved` that a boot had ended and that were made again with other numbers: old and new. What is
/// reserved for them outlives a boot.
fn made_again(had: &MigGpu, saved: Option<&SavedGpu>, now: &MigGpu) -> Vec<(DeviceKey, DeviceKey)> {
    let existed = |key: &DeviceKey| {
        let instance = key.instance().map(|(instance, _)| instance);
        had.instances.iter().any(|one| Some(one.id) == instance)
    };
    let pairs = saved.map(|saved| saved.renumbered(now)).unwrap_or_default();
    pairs.into_iter().filter(|(old, _)| !existed(old)).collect()
}

fn report(gpu: &GpuUuid, change: &MigChange) {
    tracing::info!("{gpu}: {change}");
}

/// Refuses what is not possible on such a GPU, and a change of its mode that nobody has asked for.
fn check(now: &MigGpu, target: &ExactGpu, order: &MigOrder) -> Result<()> {
    let changes_mode = now.mode.current != target.mode;
    let why = match now.virtualization {
        Some(VirtualizationMode::Vgpu) => "is a vGPU: the hypervisor decides how it is divided",
        Some(VirtualizationMode::HostVgpu | VirtualizationMode::HostVsga) => "is divided among virtual machines",
        Some(VirtualizationMode::Passthrough) if changes_mode => {
            "was passed to this virtual machine, where its MIG mode would wait for a reset for ever"
        }
        _ if !changes_mode => return Ok(()),
        _ if !order.may_change_mode => "has another MIG mode than the layout",
        _ if now.resetless != Some(true) && !order.may_reset => "changes its MIG mode with a reset only",
        _ => return Ok(()),
    };
    let error = Error::failed(format!("gpu {}", now.index), why);
    Err(match (now.virtualization, now.resetless) {
        (Some(mode), _) if mode != VirtualizationMode::None => error,
        (_, Some(true)) => error.hint("give --mode to change it; no process may use the GPU meanwhile"),
        _ => error.hint("give --mode --reset to change it: the GPU is reset, and no process may use it meanwhile"),
    })
}
