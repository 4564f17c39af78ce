//! Finishes what the journal says: a change that was just made, or one that a killed process has left.

use super::apply::{MigTools, report};
use super::change::{Settled, settle};
use super::journal::{MigJournal, Record};
use super::machine::ChangeError;
use super::on_demand::{OnDemandInstance, OnDemandInstances};
use super::saved::{SavedGpu, SavedLayouts};
use super::services;
use tranche_core::error::{Error, Result, line};
use tranche_core::types::{DeviceKey, GpuUuid};
use tranche_plan::mig::{GpuInstance, MigGpu, Placement};

impl MigTools<'_> {
    /// Finishes what a killed process left: GPUs that are half changed are put back; those that have what they were to
    /// have keep it, and it is recorded. Services that were stopped for it are started. Returns the GPUs.
    ///
    /// # Errors
    /// Returns an error if that cannot be done. The journal stays then, and the next call tries again.
    pub fn finish(&self) -> Result<Vec<GpuUuid>> {
        let Some(mut journal) = MigJournal::read(self.state_dir)? else {
            return Ok(Vec::new());
        };
        let settled = settle(self.machine, &journal, &mut report);
        let recorded = settled.and_then(|settled| match settled {
            Settled::Reached => self.record(&mut journal),
            Settled::PutBack => self.record_numbers(&journal),
        });
        // Also where it failed: what was stopped for it is not to stay stopped.
        self.start_services(&journal.services)?;
        recorded?;
        MigJournal::remove(self.state_dir)?;
        Ok(journal.target.into_iter().map(|gpu| gpu.gpu).collect())
    }

    /// Records what the GPUs of `journal` have now. A process that is killed here leaves the journal, and what was
    /// recorded already is recorded once more.
    pub(super) fn record(&self, journal: &mut MigJournal) -> Result<()> {
        match journal.record {
            Record::Nothing => Ok(()),
            Record::OnDemand(placement) => self.record_on_demand(journal, placement),
            Record::Layout => self.record_layouts(journal),
        }
    }

    fn record_layouts(&self, journal: &mut MigJournal) -> Result<()> {
        let mut saved = SavedLayouts::read(self.state_dir)?;
        let (mut gpus, mut pairs) = (Vec::new(), Vec::new());
        for had in &journal.before {
            let now = self.gpu(&had.layout.gpu)?;
            pairs.extend(made_again(had, saved.of(&had.layout.gpu), &now));
            gpus.push(SavedGpu::of(&now));
        }
        if journal.moved.is_some() || !pairs.is_empty() {
            let claims = self.claims.lock()?;
            let moved = match journal.moved.take() {
                Some(moved) => moved,
                None => claims.to_renumber(&pairs)?,
            };
            // Which claims they are is written first, so that none follows twice.
            journal.moved = Some(moved.clone());
            journal.write(self.state_dir)?;
            for problem in claims.renumber(&moved)? {
                tracing::warn!("{}", line(&problem));
            }
        }
        saved.record(journal.layouts_before(), gpus);
        saved.write(self.state_dir)
    }

    /// Records the numbers of what was put back.
    pub(super) fn record_numbers(&self, journal: &MigJournal) -> Result<()> {
        let mut saved = SavedLayouts::read(self.state_dir)?;
        let mut is_other = false;
        for had in &journal.before {
            is_other |= saved.take_numbers(&self.gpu(&had.layout.gpu)?);
        }
        if is_other {
            saved.write(self.state_dir)?;
        }
        self.follow_on_demand(journal)
    }

    /// Records the instances that were made on demand and put back: what the driver has made again has another UUID,
    /// and would be taken for somebody's who made it by hand.
    fn follow_on_demand(&self, journal: &MigJournal) -> Result<()> {
        let mut all = OnDemandInstances::read(self.state_dir)?;
        let mut is_other = false;
        for had in &journal.before {
            let now = self.gpu(&had.layout.gpu)?;
            for old in &had.instances {
                let is_there = |one: &&GpuInstance| (one.placement, one.profile) == (old.placement, old.profile);
                let again = now.instances.iter().find(is_there);
                let uuid = old.compute.first().and_then(|compute| compute.uuid.as_ref());
                let Some((uuid, again)) = uuid.zip(again) else { continue };
                if let Some(made) = OnDemandInstance::of(&now, again) {
                    is_other |= all.follow(uuid, made);
                }
            }
        }
        match is_other {
            true => all.write(self.state_dir),
            false => Ok(()),
        }
    }

    fn record_on_demand(&self, journal: &MigJournal, placement: Placement) -> Result<()> {
        let mut all = OnDemandInstances::read(self.state_dir)?;
        for target in &journal.target {
            let now = self.gpu(&target.gpu)?;
            let Some(one) = now.instances.iter().find(|one| one.placement == placement) else {
                continue;
            };
            match OnDemandInstance::of(&now, one) {
                Some(made) => all.add(made),
                None => tracing::warn!(
                    "gpu {}: the driver does not say the UUID of GPU instance {}",
                    now.index,
                    one.id
                ),
            }
        }
        all.write(self.state_dir)
    }

    pub(super) fn gpu(&self, gpu: &GpuUuid) -> Result<MigGpu> {
        let found = self.machine.gpu(gpu);
        found.map_err(|error: ChangeError| Error::failed(gpu, error))
    }

    /// Starts services that were stopped for a change.
    pub(super) fn start_services(&self, units: &[String]) -> Result<()> {
        match &self.systemctl {
            Some(systemctl) => services::start(systemctl, units),
            None if units.is_empty() => Ok(()),
            None => Err(Error::failed(
                units.join(" "),
                "cannot be started again, because systemd does not run here",
            )),
        }
    }
}

/// The devices of `saved` that a boot had ended and that were made again with other numbers: old and new. What is
/// reserved for them outlives a boot.
fn made_again(had: &SavedGpu, saved: Option<&SavedGpu>, now: &MigGpu) -> Vec<(DeviceKey, DeviceKey)> {
    let existed = |key: &DeviceKey| {
        let instance = key.instance().map(|(instance, _)| instance);
        had.instances.iter().any(|one| Some(one.id) == instance)
    };
    let pairs = saved.map(|saved| saved.renumbered(now)).unwrap_or_default();
    pairs.into_iter().filter(|(old, _)| !existed(old)).collect()
}
