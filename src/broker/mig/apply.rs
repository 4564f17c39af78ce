//! Applies layouts to the GPUs of this machine.

use super::change::{Unchanged, change};
use super::hold::{DevicesHeld, PROGRAM};
use super::in_the_way::{destroyed_devices, in_the_way, refusal};
use super::journal::{MigJournal, Record};
use super::machine::MigMachine;
use super::on_demand::OnDemandInstances;
use super::saved::{SavedGpu, SavedLayouts};
use super::services;
use crate::control::MachineControl;
use std::path::{Path, PathBuf};
use tranche_core::claims::Claims;
use tranche_core::error::{Error, Kind, Result, line};
use tranche_core::types::{DeviceKey, GpuUuid};
use tranche_plan::inventory::VirtualizationMode;
use tranche_plan::mig::{ExactGpu, MigChange, MigGpu};
use tranche_state::node_users::NodeUser;

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
    /// What is recorded when it is done.
    pub record: Record,
}

impl MigTools<'_> {
    /// Applies `order`. Returns the GPUs that were changed, as they are now; a GPU that has what it is to have is not
    /// touched. The caller keeps other changes of layouts waiting meanwhile.
    ///
    /// # Errors
    /// Returns who or what stands in the way. Nothing has changed then, or everything was put back as it was; where it
    /// could not be, the error says so.
    pub fn apply(&self, order: &MigOrder) -> Result<Vec<MigGpu>> {
        self.apply_then(order, || Ok(()))
    }

    /// As [`MigTools::apply`]; `then` brings the specifications up to date before anybody else can claim what was
    /// destroyed. Where that fails, what was destroyed stays held by this process ([`DevicesHeld::keep`]).
    ///
    /// # Errors
    /// As there, and those of `then`: everything has changed then.
    pub fn apply_then(&self, order: &MigOrder, then: impl FnOnce() -> Result<()>) -> Result<Vec<MigGpu>> {
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
        let before = wanted.iter().map(|(now, _)| SavedGpu::of(now)).collect();
        let target = wanted.iter().map(|(_, target)| target.clone()).collect();
        let mut journal = MigJournal::new(before, target, order.record);
        journal.services = self.services_to_stop(&wanted, &order.services)?;
        let applied = self.apply_journal(&wanted, &mut journal);
        let started = self.start_services(&journal.services);
        let removed = match &applied {
            Err(unchanged) if unchanged.is_unfinished => Ok(()),
            _ => MigJournal::remove(self.state_dir),
        };
        let held = match (applied, started.and(removed)) {
            (Ok(held), Ok(())) => held,
            (Err(Unchanged { error, .. }), Ok(())) | (Ok(_), Err(error)) => return Err(error),
            (Err(Unchanged { error, .. }), Err(other)) => return Err(error.and_hint(line(&other))),
        };
        // An instance that was made for a claim has no name in a specification.
        if !held.is_empty() && order.record == Record::Layout {
            self.machine.await_starts();
        }
        if let Err(error) = then() {
            held.keep();
            return Err(error);
        }
        drop(held);
        wanted.iter().map(|(now, _)| self.gpu(&now.uuid)).collect()
    }

    /// Makes the change. Returns what is held until nobody can start with what was destroyed.
    fn apply_journal(
        &self,
        wanted: &[(MigGpu, ExactGpu)],
        journal: &mut MigJournal,
    ) -> Result<DevicesHeld<'_>, Unchanged> {
        if let (Some(systemctl), false) = (&self.systemctl, journal.services.is_empty()) {
            // A process that is killed from here on leaves what is to be started again.
            journal.write(self.state_dir)?;
            services::stop(systemctl, &journal.services)?;
        }
        let mut devices = Vec::new();
        for (now, to) in wanted {
            devices.extend(destroyed_devices(
                now,
                to,
                &self.claims.book(&now.uuid).map_err(Error::from)?,
            ));
        }
        self.stop_daemons(&devices)?;
        // A container may have started since the plan was made.
        let held = DevicesHeld::take(self.claims, PROGRAM, devices);
        let held = held.map_err(|error| error.and_hint("that is in the way of the layout; end it first"))?;
        // From here on no container gets one of them. Who has one already is seen now.
        for (planned, target) in wanted {
            let now = self.gpu(&planned.uuid)?;
            if now.instances != planned.instances || now.mode != planned.mode {
                let what = "its instances have changed since the layout was planned";
                return Err(Error::failed(format!("gpu {}", now.index), what)
                    .hint("try again")
                    .into());
            }
            self.refuse_if_used(&now, target)?;
        }
        // What cannot be read is found before anything changes.
        SavedLayouts::read(self.state_dir)?;
        OnDemandInstances::read(self.state_dir)?;
        if let Err(mut unchanged) = change(self.machine, self.state_dir, journal, &mut report) {
            if !unchanged.is_unfinished
                && let Err(other) = self.record_numbers(journal)
            {
                unchanged.error = unchanged.error.and_hint(line(&other));
            }
            return Err(unchanged);
        }
        match self.record(journal) {
            Ok(()) => Ok(held),
            Err(error) => Err(Unchanged {
                error: error.and_hint("the next command for MIG tries again"),
                is_unfinished: true,
            }),
        }
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

    /// Those of `services` that have a GPU open whose mode changes.
    fn services_to_stop(&self, wanted: &[(MigGpu, ExactGpu)], services: &[String]) -> Result<Vec<String>> {
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
        match self.systemctl.is_some() || units.is_empty() {
            true => Ok(units),
            false => Err(Error::failed(
                units.join(" "),
                "cannot be stopped, because systemd does not run here",
            )),
        }
    }
}

pub(super) fn report(gpu: &GpuUuid, change: &MigChange) {
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
