//! All devices of the machine that are changed for shares.

use super::blocked::Blocked;
use super::changes::DeviceChanges;
use super::client_user::client_uid;
use super::daemon::{Daemon, Processes, Starter};
use super::device::settle;
use super::goal::{Goal, goal, is_live, whole};
use super::journal::Journals;
use super::nvml::ResidentDriver;
use super::real::{RealDevice, Tools, now};
use super::shown::Shown;
use super::target::ControlTarget;
use super::{DriverAccess, MachineControl};
use crate::facts::HostFacts;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, TryLockError};
use std::time::{Duration, Instant};
use tranche_core::claims::Claims;
use tranche_core::error::{Error, Result, line};
use tranche_core::ledger::{Claim, ContainerName, InitProcess};
use tranche_core::text::some;
use tranche_core::types::{DeviceKey, HostPath, Strategy};
use tranche_plan::policy::MpsBlocked;
use tranche_state::controlled::ControlledDevice;
use tranche_state::mutex::lock;

/// How old an answer of a daemon may be when a claim is granted.
const FRESH: Duration = Duration::from_secs(2);

/// How often a daemon is asked while no claim is made.
const HEALTH: Duration = Duration::from_secs(10);

/// How often the machine is compared with the ledger while something of it is changed. Without a question to a daemon,
/// that takes some system calls.
const PULSE: Duration = Duration::from_secs(1);

/// How long the clients of a container that is about to be killed may take to end.
const CLIENTS_END: Duration = Duration::from_millis(400);

/// What is said of a daemon that an earlier version started.
const OF_EARLIER_VERSION: &str = "its MPS daemon was started by an earlier version of tranche: its containers can write the \
                                  daemon's directory, so nothing is guaranteed to them (grades: none); it serves no new \
                                  container, and is replaced when they have ended";

/// How devices are changed.
#[derive(Debug, Clone)]
pub struct ControlOptions {
    /// The state directory: the ledger, the journals and the pipe directories.
    pub state_dir: HostPath,
    /// The directory that has the host's files: `/`, or a copy of another machine.
    pub root: PathBuf,
    /// This program, which starts daemons: one that has the verb `mps run`.
    pub program: PathBuf,
    /// The program that asks NVML.
    pub driver: Arc<ResidentDriver>,
    /// The program that starts the unit `tranche-mps@.service`; `None`: daemons are started without systemd.
    pub systemctl: Option<PathBuf>,
    /// How long NVML may take to answer. Without persistence mode, the driver starts the GPUs first.
    pub nvml_patience: Duration,
}

/// The devices of this machine.
pub struct Control {
    options: ControlOptions,
    tools: Tools,
    claims: Claims,
    facts: Arc<dyn HostFacts>,
    devices: Mutex<BTreeMap<DeviceKey, Arc<Mutex<Slot>>>>,
    shown: Shown,
}

/// A device that is changed, or that a call is about.
#[derive(Debug, Default)]
struct Slot {
    /// As it was when it was changed first.
    target: Option<ControlTarget>,
    changes: Option<DeviceChanges>,
    answered: Option<Instant>,
    /// The connection that the daemon waited for at the last look.
    served: Option<u64>,
    /// Which holders blocked the daemon.
    blocked: Blocked,
    problems: Vec<String>,
}

impl Control {
    /// Reads what earlier processes have changed. [`MachineControl::tick`] then goes on from there.
    ///
    /// # Errors
    /// Returns an error if the ledger or the journals cannot be read, or if another user could change them.
    pub fn open(options: ControlOptions, facts: Arc<dyn HostFacts>) -> Result<Self> {
        let state_dir = options.state_dir.as_path();
        let starter = match &options.systemctl {
            Some(systemctl) => Starter::Systemd(systemctl.clone()),
            None => Starter::Own {
                program: options.program.clone(),
                state_dir: state_dir.to_owned(),
            },
        };
        let tools = Tools {
            processes: Processes::here()?,
            journals: Journals::open(state_dir)?,
            starter,
            driver: Arc::clone(&options.driver),
            nvml_patience: options.nvml_patience,
        };
        tools.journals.remove_left()?;
        if let Err(error) = tools.journals.add_checksums() {
            tracing::warn!("{}", line(&error));
        }
        let claims = Claims::open(state_dir)?;
        let control = Self {
            options,
            tools,
            claims,
            facts,
            devices: Mutex::default(),
            shown: Shown::default(),
        };
        control.read_journals()?;
        Ok(control)
    }

    fn read_journals(&self) -> Result<()> {
        let journals = &self.tools.journals;
        for instance in journals.instances()? {
            let journal = match journals.read(&instance) {
                Ok(Some(journal)) => journal,
                Ok(None) => continue,
                // The device is refused as long as the file exists; the others work.
                Err(error) => {
                    tracing::error!("{}", line(&error));
                    continue;
                }
            };
            self.shown.show(&journal.target, Some(&journal.changes), &[]);
            let slot = self.slot(&journal.target.key);
            let mut slot = lock(&slot);
            slot.target = Some(journal.target);
            slot.changes = Some(journal.changes);
        }
        Ok(())
    }

    fn slot(&self, key: &DeviceKey) -> Arc<Mutex<Slot>> {
        Arc::clone(lock(&self.devices).entry(key.clone()).or_default())
    }

    /// The live claims on a device.
    fn live(&self, key: &DeviceKey) -> Result<Vec<Claim>> {
        let book = self.claims.book(key.gpu())?;
        Ok(book
            .claims
            .into_iter()
            .filter(|claim| claim.device == *key && is_live(claim))
            .collect())
    }

    /// The device, as it was when it was changed first, or as the plan says it now; `None` if tranche does not manage
    /// it.
    fn target(&self, slot: &Slot, key: &DeviceKey) -> Result<Option<ControlTarget>> {
        let facts = self.facts.now();
        if let Some(target) = slot.target.as_ref().filter(|_| slot.changes.is_some()) {
            let mut target = target.clone();
            let record = slot.changes.as_ref().and_then(|changes| changes.daemon.as_ref());
            let process = record.and_then(|record| record.process.as_ref());
            if !process.is_some_and(|process| self.tools.processes.lives(process)) {
                target.leave_earlier_version(self.options.state_dir.as_path());
            }
            // An upgrade of the driver replaces its files. If the host cannot be examined, they are where they were.
            if let Ok(facts) = &facts {
                target.find_programs(facts.inventory.driver.as_ref(), &self.options.root);
            }
            return Ok(Some(target));
        }
        let facts = facts?;
        let target = ControlTarget::find(&facts, key, &self.options.state_dir, &self.options.root);
        if let Some(target) = &target
            && self
                .tools
                .journals
                .read(&target.instance())?
                .is_some_and(|journal| journal.target.key != *key)
        {
            let what = "another device of this name is not put back yet";
            return Err(Error::failed(target.device, what).hint("tranche mps status shows why"));
        }
        Ok(target)
    }

    fn settle(&self, slot: &mut Slot, target: &ControlTarget, goal: &Goal, freshness: Duration) -> Result<()> {
        let Slot {
            changes,
            answered,
            served,
            blocked,
            problems,
            ..
        } = slot;
        problems.clear();
        let mut blockers = Vec::new();
        let mut device = RealDevice {
            tools: &self.tools,
            target,
            shown: &self.shown,
            answered,
            freshness,
            is_granted: !goal.is_exact,
            served,
            blockers: &mut blockers,
            problems,
        };
        let settled = settle(goal, changes, &mut device);
        if !blockers.is_empty() {
            blocked.add(blockers, &self.live(&target.key)?, &self.tools.processes, now());
        }
        problems.extend(blocked.lines());
        if changes.as_ref().is_some_and(|changes| changes.daemon.is_some())
            && target.directories().is_of_earlier_version()
        {
            problems.push(OF_EARLIER_VERSION.to_owned());
        }
        if let Err(error) = &settled {
            problems.push(error.to_string());
        }
        self.shown.show(target, changes.as_ref(), problems);
        slot.target = Some(target.clone());
        settled
    }

    /// As [`MachineControl::tick`], for one device. Returns whether something of it is changed.
    fn tick_one(&self, key: &DeviceKey, slot: &mut Slot) -> Result<bool> {
        if slot.changes.is_none() {
            return Ok(false);
        }
        let (Some(target), Some(changes)) = (self.target(slot, key)?, slot.changes.as_mut()) else {
            return Ok(false);
        };
        let claims = self.live(key)?;
        let idle_since = claims.is_empty().then(|| changes.idle_since.unwrap_or_else(now));
        // A clock that was set back would keep the device for long.
        let idle_since = idle_since.map(|since| since.min(now()));
        if changes.idle_since != idle_since {
            changes.idle_since = idle_since;
            self.tools.journals.write(&target, Some(changes))?;
        }
        let claims: Vec<&Claim> = claims.iter().collect();
        let mut goal = goal(&claims, &target, Some(changes), now());
        if claims.is_empty() && target.directories().is_of_earlier_version() && !changes.is_kept {
            goal.daemon = None;
        }
        self.settle(slot, &target, &goal, HEALTH)?;
        if goal.daemon.is_some() && slot.changes.is_some() {
            self.follow_driver(slot, &target, &goal)?;
        }
        Ok(slot.changes.is_some())
    }

    /// Replaces a daemon of another version than the driver that the host has now, as soon as it has no clients: new
    /// clients bring libraries of the new version, which the daemon does not serve.
    fn follow_driver(&self, slot: &mut Slot, target: &ControlTarget, goal: &Goal) -> Result<()> {
        let Ok(facts) = self.facts.now() else { return Ok(()) };
        let Some(now) = facts.inventory.driver.as_ref().map(|driver| driver.version.to_string()) else {
            return Ok(());
        };
        if target.driver.as_ref() == Some(&now) {
            return Ok(());
        }
        let before = target.driver.as_deref().unwrap_or("unknown");
        let clients = self.daemon(target).clients(CLIENTS_END);
        if clients.is_ok_and(|clients| clients.is_empty()) {
            tracing::warn!(
                "{}: its MPS daemon is of driver {before}, and is replaced",
                target.device
            );
            self.settle(slot, target, &Goal::default(), Duration::ZERO)?;
            let target = ControlTarget {
                driver: Some(now),
                ..target.clone()
            };
            return self.settle(slot, &target, goal, Duration::ZERO);
        }
        slot.problems.push(format!(
            "its MPS daemon is of driver {before}, and the host has {now}; it is replaced when it has no clients"
        ));
        self.shown.show(target, slot.changes.as_ref(), &slot.problems);
        Ok(())
    }

    fn daemon<'a>(&'a self, target: &'a ControlTarget) -> Daemon<'a> {
        Daemon {
            target,
            starter: &self.tools.starter,
            processes: &self.tools.processes,
        }
    }

    /// Ends the clients of one device's daemon that are processes of the container with this init.
    fn end_clients_of(&self, key: &DeviceKey, init: &InitProcess, until: Instant) -> Result<usize> {
        let slot = self.slot(key);
        let target = loop {
            match slot.try_lock() {
                Ok(slot) => break slot.target.clone().filter(|_| slot.answered.is_some()),
                Err(_) if Instant::now() < until => std::thread::sleep(Duration::from_millis(5)),
                Err(_) => return Err(Error::failed(key, "is being changed")),
            }
        };
        // A device without a daemon that answers has no clients that could be ended.
        let Some(target) = target else { return Ok(0) };
        let daemon = self.daemon(&target);
        let failed = |error| Error::failed(target.device, format!("its clients could not be ended: {error}"));
        let left = || until.saturating_duration_since(Instant::now());
        // Each client is looked at, of which a daemon has some tens: a container may have any number of processes.
        let mut own = Vec::new();
        for (server, client) in daemon.clients(left()).map_err(failed)? {
            if self.tools.processes.is_of_container(init, client)? {
                own.push((server, client));
            }
        }
        daemon.terminate(&own, left()).map_err(failed)?;
        Ok(own.len())
    }

    /// Refuses to end a daemon that containers use.
    fn refuse_if_held(&self, target: &ControlTarget) -> Result<()> {
        let held = self.live(&target.key)?.len();
        match held {
            0 => Ok(()),
            1 => Err(Error::failed(target.device, "a container holds a share of it")),
            _ => Err(Error::failed(
                target.device,
                format!("{held} containers hold shares of it"),
            )),
        }
        .map_err(|error| error.hint("stop them first, or use --force: their processes lose the device"))
    }

    /// Refuses claims of several users on a device whose daemon serves one user at a time: the processes of the second
    /// one would wait until those of the first one have ended.
    fn refuse_second_user(&self, slot: &Slot, target: &ControlTarget, claims: &[&Claim]) -> Result<()> {
        let claims = claims.iter().filter(|claim| claim.part.strategy() == Strategy::Mps);
        let users: BTreeMap<u32, &Claim> = claims.map(|claim| (client_uid(claim), *claim)).collect();
        if users.len() < 2 {
            return Ok(());
        }
        let record = slot.changes.as_ref().and_then(|changes| changes.daemon.as_ref());
        let process = record.and_then(|record| record.process.as_ref());
        if self.daemon(target).serves_many(process) {
            return Ok(());
        }
        let users: Vec<String> = users
            .iter()
            .map(|(uid, claim)| format!("uid {uid} ({})", claim.who()))
            .collect();
        let driver = target.driver.as_deref().unwrap_or("of this version");
        let what = format!(
            "its MPS daemon serves one user at a time (driver {driver}): {}",
            some(&users)
        );
        Err(Error::failed(target.device, what)
            .hint("run the containers as one user, or upgrade the driver: from 555 on, one daemon serves all users"))
    }

    fn not_shared(key: &DeviceKey) -> Error {
        let what = "is not shared by MPS with a daemon that tranche manages";
        Error::usage(key, what).hint("see: tranche plan")
    }
}

impl MachineControl for Control {
    fn prepare(&self, device: &DeviceKey) -> Result<()> {
        let slot = self.slot(device);
        let mut slot = lock(&slot);
        let Some(mut target) = self.target(&slot, device)? else {
            return Ok(());
        };
        let claims = self.live(device)?;
        let claims: Vec<&Claim> = claims.iter().collect();
        if target.directories().is_of_earlier_version() && slot.changes.is_some() {
            // The claim that is granted is one of them.
            if claims.len() > 1 {
                let what = "its MPS daemon was started by an earlier version of tranche, and serves no new container";
                return Err(Error::failed(target.device, what)
                    .hint("it is replaced when the containers that hold shares of the device have ended"));
            }
            self.settle(&mut slot, &target, &Goal::default(), Duration::ZERO)?;
            match self.target(&slot, device)? {
                Some(now) => target = now,
                None => return Ok(()),
            }
        }
        self.refuse_second_user(&slot, &target, &claims)?;
        if slot.changes.is_none() && goal(&claims, &target, None, now()).is_empty() {
            return Ok(());
        }
        if let Some(changes) = &mut slot.changes {
            changes.idle_since = None;
        }
        let goal = goal(&claims, &target, slot.changes.as_ref(), now());
        // Limits are only raised here: to lower them takes commands that this claim need not wait for.
        let goal = Goal {
            is_exact: false,
            ..goal
        };
        self.settle(&mut slot, &target, &goal, FRESH)
    }

    fn end_clients(&self, container: &ContainerName) -> Result<usize> {
        let until = Instant::now() + CLIENTS_END;
        let devices: Vec<DeviceKey> = lock(&self.devices).keys().cloned().collect();
        let mut ended = 0;
        for key in devices {
            let claims = self.live(&key)?;
            let held = claims.iter().find(|claim| claim.holder.container() == Some(container));
            if let Some(init) = held.and_then(|claim| claim.process.as_ref()) {
                ended += self.end_clients_of(&key, init, until)?;
            }
        }
        Ok(ended)
    }

    fn tick(&self) -> Option<Duration> {
        let devices: Vec<(DeviceKey, Arc<Mutex<Slot>>)> = lock(&self.devices)
            .iter()
            .map(|(key, slot)| (key.clone(), Arc::clone(slot)))
            .collect();
        let mut is_changed = false;
        for (key, slot) in devices {
            let mut slot = match slot.try_lock() {
                Ok(slot) => slot,
                Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
                // A call about this device is under way.
                Err(TryLockError::WouldBlock) => {
                    is_changed = true;
                    continue;
                }
            };
            let before = slot.problems.clone();
            match self.tick_one(&key, &mut slot) {
                Ok(changed) => is_changed |= changed,
                Err(error) => {
                    if !before.contains(&error.to_string()) {
                        tracing::error!("{}", line(&error));
                    }
                    is_changed = true;
                }
            }
        }
        is_changed.then_some(PULSE)
    }

    fn blockers(&self) -> Vec<Claim> {
        let slots: Vec<Arc<Mutex<Slot>>> = lock(&self.devices).values().map(Arc::clone).collect();
        let mut found = Vec::new();
        for slot in slots {
            // A device that is being changed now is looked at the next time.
            let Ok(slot) = slot.try_lock() else { continue };
            let target = slot.target.as_ref();
            if target.is_some_and(|target| target.blocked == MpsBlocked::End) {
                found.extend(slot.blocked.repeated().cloned());
            }
        }
        found
    }

    fn start(&self, device: &DeviceKey) -> Result<()> {
        let slot = self.slot(device);
        let mut slot = lock(&slot);
        let target = self.target(&slot, device)?.ok_or_else(|| Self::not_shared(device))?;
        let claims = self.live(device)?;
        let claims: Vec<&Claim> = claims.iter().collect();
        if claims.iter().any(|claim| claim.part.strategy() != Strategy::Mps) {
            return Err(Error::failed(target.device, "is in use without MPS"));
        }
        let wanted = goal(&claims, &target, slot.changes.as_ref(), now());
        let wanted = Goal {
            daemon: wanted.daemon.or(Some(whole(&target))),
            ..wanted
        };
        self.settle(&mut slot, &target, &wanted, Duration::ZERO)?;
        if let Some(changes) = &mut slot.changes {
            changes.is_kept = true;
            self.tools.journals.write(&target, Some(changes))?;
        }
        Ok(())
    }

    fn stop(&self, device: &DeviceKey, force: bool) -> Result<()> {
        let slot = self.slot(device);
        let mut slot = lock(&slot);
        let target = self.target(&slot, device)?.ok_or_else(|| Self::not_shared(device))?;
        if slot.changes.is_none() {
            return Err(Error::new(
                tranche_core::error::Kind::Nothing,
                target.device,
                "has no MPS daemon that tranche started",
            ));
        }
        if !force {
            self.refuse_if_held(&target)?;
        }
        self.settle(&mut slot, &target, &Goal::default(), Duration::ZERO)
    }

    fn restart(&self, device: &DeviceKey) -> Result<()> {
        let is_kept = {
            let slot = self.slot(device);
            let slot = lock(&slot);
            slot.changes.as_ref().is_some_and(|changes| changes.is_kept)
        };
        self.stop(device, true)?;
        match is_kept || self.live(device)?.is_empty() {
            true => self.start(device),
            false => self.prepare(device),
        }
    }

    fn devices(&self) -> Vec<ControlledDevice> {
        self.shown.devices()
    }

    fn driver(&self) -> Result<DriverAccess> {
        DriverAccess::find(&*self.facts.now()?, &self.options)
    }

    fn unreadable(&self) -> Vec<String> {
        self.tools
            .journals
            .unreadable()
            .iter()
            .map(|error| line(error))
            .collect()
    }
}
