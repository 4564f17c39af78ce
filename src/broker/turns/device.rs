//! One device: who has it, who wants it, and the change that is being made.

use super::holder::TurnHolder;
use super::machine::{TurnFault, TurnMachine};
use nix::unistd::Pid;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::Duration;
use tranche_core::error::Result;
use tranche_core::process_identity::ProcessIdentity;
use tranche_core::types::{DeviceKey, DriverVersion};
use tranche_plan::hold;
use tranche_plan::policy::TurnSettings;
use tranche_plan::turns::change::{Change, ChangeSeen, ClaimSeen, CudaState, Side, Step};
use tranche_plan::turns::{Handover, TurnDevice};
use tranche_state::turns::{ChangeRecord, ClaimKey, HolderRecord, TurnRecord};

/// How soon it is looked again while a step is to be repeated.
const SOON: Duration = Duration::from_millis(200);

/// How often it is looked whether the resident works and whether somebody wants the device.
const OFTEN: Duration = Duration::from_secs(1);

/// For how long memory may not be free after all processes were suspended, before the change goes back.
const PATIENCE: Duration = Duration::from_secs(30);

/// When it is to be looked again; `None`: when the ledger changes.
pub type TurnNext = Option<Duration>;

/// A device that its holders have by turns.
#[derive(Debug)]
pub struct DeviceTurns {
    key: DeviceKey,
    state_dir: PathBuf,
    settings: TurnSettings,
    turns: TurnDevice<ClaimKey>,
    record: TurnRecord,
    /// What the file has.
    written: TurnRecord,
    /// Since when the change has waited for memory.
    awaiting: Option<Duration>,
    /// Why nothing can be done now.
    cannot: Option<String>,
    /// Who cannot be kept from the device, and why. While a holder's device changes, this is as it was before.
    not_kept_away: BTreeMap<ClaimKey, String>,
    /// Which driver it is, if that is known.
    version: Option<DriverVersion>,
    /// Who wants the device and is paused, and is passed over until it goes on.
    paused: BTreeSet<ClaimKey>,
}

impl DeviceTurns {
    /// The device, as an earlier broker left it. `now` is the time since boot.
    ///
    /// # Errors
    /// Returns an error if what was recorded cannot be used.
    pub fn open(key: DeviceKey, state_dir: PathBuf, settings: TurnSettings, now: Duration) -> Result<Self> {
        let record = TurnRecord::read(&state_dir, &key)?;
        let mut turns = TurnDevice::new(settings.times());
        for (claim, holder) in &record.holders {
            let since = holder.wants_since.map(Duration::from_secs);
            turns.enter_again(claim.clone(), since, holder.is_put_aside);
            if holder.bytes > 0 {
                // It may have called while nobody looked.
                turns.call(claim, now);
            }
        }
        if let Some(resident) = &record.resident {
            turns.is_resident(resident, now);
        }
        Ok(Self {
            key,
            state_dir,
            settings,
            turns,
            written: record.clone(),
            record,
            awaiting: None,
            cannot: None,
            not_kept_away: BTreeMap::new(),
            version: None,
            paused: BTreeSet::new(),
        })
    }

    /// Takes in what the policy says now.
    pub fn set(&mut self, settings: TurnSettings) {
        self.turns.set_times(settings.times());
        self.settings = settings;
    }

    /// What is recorded of it.
    pub fn record(&self) -> &TurnRecord {
        &self.record
    }

    /// Takes in which process makes the changes from now on, with the driver of this version.
    pub fn set_driver(&mut self, driver: ProcessIdentity, version: Option<DriverVersion>) {
        self.record.driver = Some(driver);
        self.version = version;
    }

    /// Why somebody who is away can open the device; `None` if nobody can.
    pub fn not_kept_away(&self) -> Option<String> {
        self.cannot.as_ref().or(self.not_kept_away.values().next()).cloned()
    }

    /// Whether somebody is away, who may want it. How much memory that one has may be unknown.
    pub fn has_others(&self) -> bool {
        let mut holders = self.record.holders.keys();
        holders.any(|key| !self.record.is_resident(key))
    }

    /// Takes in that nothing can be done now.
    ///
    /// # Errors
    /// Returns an error if that cannot be recorded.
    pub fn cannot(&mut self, why: String) -> Result<()> {
        self.cannot = Some(why.clone());
        self.say(None, why);
        self.record.write(&self.state_dir, &self.key)
    }

    /// A person puts the holder `claim` aside, or lets it want the device again.
    ///
    /// # Errors
    /// Returns an error if that cannot be recorded.
    pub fn put_aside(&mut self, claim: &ClaimKey, is_aside: bool, now: Duration) -> Result<()> {
        match is_aside {
            true => self.turns.put_aside(claim),
            false => self.turns.resume(claim, now),
        }
        self.keep(now)
    }

    /// Makes the next step that is due at `now`, the time since boot. `holders` are all who use the device. Returns
    /// when it is to be looked again.
    ///
    /// # Errors
    /// Returns an error if something cannot be recorded: then nothing of it was done.
    pub fn look(
        &mut self,
        now: Duration,
        holders: &BTreeMap<ClaimKey, TurnHolder>,
        machine: &mut dyn TurnMachine,
    ) -> Result<TurnNext> {
        self.take_in(now, holders, machine)?;
        if self.record.change.is_some() {
            match self.step(now, holders, machine)? {
                Went::On => return Ok(Some(Duration::ZERO)),
                Went::Again => return Ok(Some(SOON)),
                Went::Through => {}
            }
        }
        let Some(handover) = self.turns.next(now) else {
            return Ok(self.next(now));
        };
        let is_paused = |machine: &mut dyn TurnMachine| {
            let holder = holders.get(handover.from.as_ref()?)?;
            let what = "is paused, so its work cannot be suspended";
            machine.is_paused(holder).then(|| format!("{} {what}", holder.who()))
        };
        let refused = is_paused(machine).or_else(|| self.lacks_room(&handover, holders, machine));
        if let Some(why) = refused {
            self.turns.fail(now);
            self.say(handover.from.as_ref(), why);
            self.keep(now)?;
            return Ok(self.next(now));
        }
        self.record.change = Some(ChangeRecord::new(handover.from, handover.to, now));
        self.keep(now)?;
        Ok(Some(Duration::ZERO))
    }

    /// Who holds it now, who has worked, and who wants it.
    fn take_in(
        &mut self,
        now: Duration,
        holders: &BTreeMap<ClaimKey, TurnHolder>,
        machine: &mut dyn TurnMachine,
    ) -> Result<()> {
        let known: BTreeSet<ClaimKey> = self.turns.holders().cloned().collect();
        for gone in known.iter().filter(|key| !holders.contains_key(*key)) {
            self.turns.leave(gone);
        }
        for new in holders.keys().filter(|key| !known.contains(*key)) {
            self.turns.enter(new.clone());
            // It was started to use the device, and cannot open it before its turn.
            self.turns.call(new, now);
        }
        self.leave_to_other_driver(holders);
        self.cannot = None;
        self.not_kept_away.retain(|key, _| holders.contains_key(key));
        let resident = self.turns.resident().cloned();
        for (key, holder) in holders {
            let is_resident = resident.as_ref() == Some(key);
            // A container may have begun to use the claim since. What is changing is left to the change.
            let is_changing = self.record.change.as_ref().is_some_and(|change| change.is_of(key));
            if !is_resident && !is_changing {
                self.pass_over_paused(key, machine.is_paused(holder), now);
            }
            if is_resident && !is_changing {
                // A holder that cannot be seen working is taken for one that works, until the turn ends.
                if machine.has_worked(holder).unwrap_or(true) {
                    self.turns.work(now);
                }
            } else if !is_resident && !self.paused.contains(key) && machine.has_called(holder) {
                self.turns.call(key, now);
            }
            if is_changing {
                continue;
            }
            self.not_kept_away.remove(key);
            if let Err(fault) = set_open(holder, is_resident, machine) {
                let why = format!("{}: {fault}", holder.who());
                self.not_kept_away.insert(key.clone(), why.clone());
                self.say(Some(key), why);
            }
        }
        self.keep(now)
    }

    /// Lets one who is paused want nothing until it goes on: it could not be resumed, and others would wait for it.
    fn pass_over_paused(&mut self, key: &ClaimKey, is_paused: bool, now: Duration) {
        if is_paused && self.turns.wants_since(key).is_some() {
            self.turns.want_nothing(key);
            self.paused.insert(key.clone());
        } else if !is_paused && self.paused.remove(key) {
            self.turns.call(key, now);
        }
    }

    /// Puts aside those whom another driver has suspended: with this one, they would be lost.
    fn leave_to_other_driver(&mut self, holders: &BTreeMap<ClaimKey, TurnHolder>) {
        let Some(now) = self.version.clone() else { return };
        for (key, holder) in holders {
            let other = self.record.suspended_by_other(key, Some(&now));
            if let Some(other) = other.filter(|_| !self.turns.is_put_aside(key)) {
                let what = format!("was suspended by driver {other}, and this is driver {now}, which cannot resume it");
                let why = format!("{} {what}", holder.who());
                self.turns.put_aside(key);
                self.say(Some(key), why);
            }
        }
    }

    /// Makes the next step of the change.
    fn step(
        &mut self,
        now: Duration,
        holders: &BTreeMap<ClaimKey, TurnHolder>,
        machine: &mut dyn TurnMachine,
    ) -> Result<Went> {
        let Some(record) = self.record.change.clone() else {
            return Ok(Went::Through);
        };
        let sides = Sides {
            from: record.from.as_ref().and_then(|key| holders.get(key)),
            to: record.to.as_ref().and_then(|key| holders.get(key)),
        };
        let change = record.state();
        let next = if change.is_back { &record.from } else { &record.to };
        let bytes = next.as_ref().map_or(0, |key| self.bytes(key));
        let seen = match sides.seen(bytes, machine) {
            Ok(seen) => seen,
            Err((side, fault)) => {
                self.say(side.and_then(|side| record.of(side)), fault.to_string());
                return Ok(Went::Again);
            }
        };
        let step = change.next(&seen);
        if step != Step::AwaitMemory {
            self.awaiting = None;
        }
        let done = match step {
            Step::Done => return self.complete(record, now),
            Step::GivenUp => {
                self.record.change = None;
                self.turns.fail(now);
                self.keep(now)?;
                return Ok(Went::Through);
            }
            Step::AwaitMemory => {
                let since = *self.awaiting.get_or_insert(now);
                if now.saturating_sub(since) < PATIENCE || change.is_back || sides.from.is_none() {
                    self.say(None, "the memory of the device is not free".to_owned());
                    return Ok(Went::Again);
                }
                self.set_state(record, change.go_back(), now)?;
                return Ok(Went::On);
            }
            step => {
                if let Step::Unlock(side, _) = step {
                    self.note_resumed(&record, side, now)?;
                }
                sides.make(step, machine, &self.record)
            }
        };
        let holder = step.side().and_then(|side| record.of(side));
        match done {
            Ok(()) => {
                if let Step::End(side) = step {
                    self.set_state(record, change.ended(side), now)?;
                }
                Ok(Went::On)
            }
            Err(TurnFault::Unable(why)) => {
                self.say(holder, why);
                Ok(Went::Again)
            }
            Err(TurnFault::Failed(why)) => {
                self.say(holder, why);
                let after = change.fail(step);
                self.set_state(record, after, now)?;
                Ok(if after == change { Went::Again } else { Went::On })
            }
        }
    }

    /// Records that a holder goes on, before it does.
    fn note_resumed(&mut self, change: &ChangeRecord, side: Side, now: Duration) -> Result<()> {
        let key = change.of(side);
        if let Some(holder) = key.and_then(|key| self.record.holders.get_mut(key)) {
            holder.was_resumed = true;
        }
        self.keep(now)
    }

    fn set_state(&mut self, mut record: ChangeRecord, state: Change, now: Duration) -> Result<()> {
        record.set_state(state);
        self.record.change = Some(record);
        self.keep(now)
    }

    fn complete(&mut self, record: ChangeRecord, now: Duration) -> Result<Went> {
        let handover = Handover {
            from: record.from,
            to: record.to,
        };
        self.turns.complete(&handover, now);
        self.record.count_change(now);
        (self.record.trouble, self.record.trouble_of) = (None, None);
        for key in handover.from.iter().chain(&handover.to) {
            if let Some(holder) = self.record.holders.get_mut(key) {
                holder.since = now.as_secs();
            }
        }
        self.keep(now)?;
        Ok(Went::Through)
    }

    /// Why the memory of the one who gives way does not fit into that of the machine, and how much it is.
    fn lacks_room(
        &mut self,
        handover: &Handover<ClaimKey>,
        holders: &BTreeMap<ClaimKey, TurnHolder>,
        machine: &mut dyn TurnMachine,
    ) -> Option<String> {
        let key = handover.from.as_ref()?;
        let holder = holders.get(key)?;
        let bytes = match machine.bytes(holder) {
            Ok(bytes) => bytes,
            Err(fault) => return Some(fault.to_string()),
        };
        // The one who gives way is still resident.
        let suspended: u64 = self.record.suspended().map(|(_, holder)| holder.bytes).sum();
        let most = self.settings.host_memory.bytes();
        if suspended.saturating_add(bytes) > most {
            let mib = |bytes: u64| bytes >> 20;
            return Some(format!(
                "{}: its {} MiB and the {} MiB of suspended work are more than hostMemory, {}",
                holder.who(),
                mib(bytes),
                mib(suspended),
                self.settings.host_memory
            ));
        }
        let lacks = machine.lacks_host_memory(holder, bytes);
        if lacks.is_none()
            && let Some(known) = self.record.holders.get_mut(key)
        {
            known.bytes = bytes;
            known.driver_version.clone_from(&self.version);
        }
        lacks.map(|why| format!("{}: {why}", holder.who()))
    }

    fn bytes(&self, key: &ClaimKey) -> u64 {
        self.record.holders.get(key).map_or(0, |holder| holder.bytes)
    }

    /// Records what is known, if it has changed.
    fn keep(&mut self, now: Duration) -> Result<()> {
        let mut holders = BTreeMap::new();
        for key in self.turns.holders() {
            let known = self.record.holders.get(key).cloned();
            let known = known.unwrap_or(HolderRecord {
                since: now.as_secs(),
                ..HolderRecord::default()
            });
            holders.insert(
                key.clone(),
                HolderRecord {
                    wants_since: self.turns.wants_since(key).map(|since| since.as_secs()),
                    is_put_aside: self.turns.is_put_aside(key),
                    ..known
                },
            );
        }
        self.record.resident = self.turns.resident().cloned();
        self.record.holders = holders;
        if self.record != self.written {
            self.record.write(&self.state_dir, &self.key)?;
            self.written.clone_from(&self.record);
        }
        Ok(())
    }

    /// When it is to be looked again.
    fn next(&self, now: Duration) -> TurnNext {
        let due = self.turns.due().map(|due| due.saturating_sub(now).max(SOON));
        match self.record.holders.len() {
            0 => None,
            // A call of one who is away is not waited for, but looked for.
            _ => Some(due.map_or(OFTEN, |due| due.min(OFTEN))),
        }
    }

    /// Says what is wrong with the holder `of`, or with the device, once while it lasts.
    fn say(&mut self, of: Option<&ClaimKey>, why: String) {
        if self.record.trouble.as_ref() != Some(&why) {
            tracing::warn!("turns of {}: {why}", self.key);
        }
        self.record.trouble = Some(why);
        self.record.trouble_of = of.cloned();
    }
}

/// Lets the processes of a holder open the device, or keeps them from it, if that is not so already.
fn set_open(holder: &TurnHolder, is_open: bool, machine: &mut dyn TurnMachine) -> std::result::Result<(), TurnFault> {
    match machine.is_open(holder)? == is_open {
        true => Ok(()),
        false => machine.set_open(holder, is_open),
    }
}

/// How a step went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Went {
    /// The next step can be made.
    On,
    /// It has to be made again, later.
    Again,
    /// No change is being made any more.
    Through,
}

/// The holders of a change that still exist.
struct Sides<'c> {
    from: Option<&'c TurnHolder>,
    to: Option<&'c TurnHolder>,
}

impl Sides<'_> {
    /// How far the change has come; a fault with the side that it is about.
    fn seen(
        &self,
        bytes: u64,
        machine: &mut dyn TurnMachine,
    ) -> std::result::Result<ChangeSeen, (Option<Side>, TurnFault)> {
        let mut see = |holder: Option<&TurnHolder>| {
            let Some(holder) = holder else { return Ok(None) };
            Ok::<_, TurnFault>(Some(ClaimSeen {
                processes: machine.processes(holder)?,
                is_open: machine.is_open(holder)?,
            }))
        };
        let from = see(self.from).map_err(|fault| (Some(Side::From), fault))?;
        let to = see(self.to).map_err(|fault| (Some(Side::To), fault))?;
        let on_device = |claim: &Option<ClaimSeen>| -> Vec<Pid> {
            let processes = claim.iter().flat_map(|claim| &claim.processes);
            let is_on = |(_, state): &&(Pid, CudaState)| *state != CudaState::Checkpointed;
            processes.filter(is_on).map(|(pid, _)| *pid).collect()
        };
        let those = [on_device(&from), on_device(&to)].concat();
        let is_memory_free = machine.is_memory_free(bytes, &those).map_err(|fault| (None, fault))?;
        Ok(ChangeSeen {
            from,
            to,
            is_memory_free,
        })
    }

    fn make(
        &self,
        step: Step,
        machine: &mut dyn TurnMachine,
        record: &TurnRecord,
    ) -> std::result::Result<(), TurnFault> {
        let of = |side: Side| match side {
            Side::From => self.from,
            Side::To => self.to,
        };
        match step {
            Step::Close(side) => of(side).map_or(Ok(()), |holder| machine.set_open(holder, false)),
            Step::Open(side) => of(side).map_or(Ok(()), |holder| machine.set_open(holder, true)),
            Step::End(side) => of(side).map_or(Ok(()), |holder| {
                let known = record.holders.get(&hold::key(&holder.claim));
                machine.end(holder, known.is_some_and(|known| known.was_resumed))
            }),
            Step::Lock(pid) => machine.lock(pid),
            Step::Checkpoint(pid) => machine.checkpoint(pid),
            Step::Restore(_, pid) => machine.restore(pid),
            Step::Unlock(_, pid) => machine.unlock(pid),
            Step::AwaitMemory | Step::Done | Step::GivenUp => Ok(()),
        }
    }
}
