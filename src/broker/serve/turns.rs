//! The thread that gives devices to one holder after another.

mod first_turn;
mod noted;
mod suspended_first;

pub(super) use first_turn::{await_first_turn, first_turn};
pub(super) use suspended_first::suspended_first;

use super::commands::Commands;
use super::peer::BrokerClient;
use crate::control::DriverAccess;
use crate::control::nvml::Nvml;
use crate::control::turns_driver::{TurnsDriver, wait_for_earlier};
use crate::turns::{DeviceTurns, RealMachine, TurnHolder, nodes};
use crate::verbs;
use nix::time::{ClockId, clock_gettime};
use serde_json::{Value, json};
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};
use suspended_first::BeforeEnd;
use tranche_core::claims::Claims;
use tranche_core::error::{Context, Error, Result, line};
use tranche_core::ledger::{Books, Ledger, Strategy};
use tranche_core::types::{DeviceKey, DriverVersion, MemorySize};
use tranche_plan::policy::TurnSettings;
use tranche_plan::share::Method;
use tranche_plan::turns::drivers;
use tranche_protocol::TurnRequest;
use tranche_state::held::names::DeviceNames;
use tranche_state::mutex::lock;
use tranche_state::public_status::PublicTurns;
use tranche_state::turns::{ClaimKey, TurnRecord};
use tranche_turns::filter::DeviceNumber;
use tranche_turns::wishes::{self, HostLibrary, Wishes};

/// How often it looks although nobody holds a device by turns.
const SELDOM: Duration = Duration::from_secs(30);

/// For how long at a time calls of suspended processes are waited for, before it is looked whether the ledger changed.
const CALLS: Duration = Duration::from_millis(100);

/// How long a start waits until it is known that its container is kept from the device, or has it. A change of others
/// may be under way, whose longest step is a copy.
const PATIENCE: Duration = Duration::from_secs(120);

/// How long the process of an earlier broker has to end.
const EARLIER: Duration = Duration::from_secs(600);

/// Where other threads meet the one that makes changes.
pub(super) struct TurnDesk {
    state: Mutex<DeskState>,
    /// Who suspends and resumes, once somebody holds a device by turns.
    driver: Mutex<Option<Arc<TurnsDriver>>>,
    looked: Condvar,
    wake: UnixStream,
    woken: UnixStream,
}

#[derive(Default)]
struct DeskState {
    /// Looks that have begun, and those that are over.
    begun: u64,
    over: u64,
    is_closed: bool,
    has_holders: bool,
    /// Why the last look was not made to its end.
    failed: Option<String>,
    /// Why holders of a device are not as they should be.
    wrong: BTreeMap<DeviceKey, String>,
    /// Who is to be put aside, or resumed.
    asked: Vec<(DeviceKey, ClaimKey, bool)>,
    /// Who is about to be ended, and suspended first.
    before_end: BeforeEnd,
}

impl TurnDesk {
    pub(super) fn new() -> Result<Self> {
        let (wake, woken) = super::wakeful_pair()?;
        Ok(Self {
            state: Mutex::default(),
            driver: Mutex::default(),
            looked: Condvar::new(),
            wake,
            woken,
        })
    }

    /// Ends the thread.
    pub(super) fn close(&self) {
        lock(&self.state).is_closed = true;
        self.wake();
    }

    fn wake(&self) {
        // If the socket is full, the thread wakes anyway.
        let _ = (&self.wake).write(&[0]);
    }

    /// Waits until everything that the ledger has now was looked at.
    ///
    /// # Errors
    /// Returns an error if that takes too long.
    fn after_next_look(&self, device: &DeviceKey) -> Result<Option<String>> {
        let mut state = lock(&self.state);
        let wanted = state.begun + 1;
        self.wake();
        let until = Instant::now() + PATIENCE;
        while state.over < wanted {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() || state.is_closed {
                let error = Error::failed(
                    device,
                    "is being given to another holder for longer than a start may wait",
                );
                return Err(error.hint("try again; `tranche status` shows who has it"));
            }
            state = self
                .looked
                .wait_timeout(state, left)
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        }
        Ok(state.wrong.get(device).or(state.failed.as_ref()).cloned())
    }

    /// Who of a device is to be put aside, or resumed.
    fn take_asked(&self, device: &DeviceKey) -> Vec<(ClaimKey, bool)> {
        let mut state = lock(&self.state);
        let (own, others): (Vec<_>, Vec<_>) = state.asked.drain(..).partition(|(of, ..)| of == device);
        state.asked = others;
        own.into_iter().map(|(_, key, suspend)| (key, suspend)).collect()
    }

    /// Whether somebody holds a device by turns, for whom this program has to stay.
    pub(super) fn has_holders(&self) -> bool {
        lock(&self.state).has_holders
    }

    /// Ends what keeps the driver in use, which is about to be changed. The caller has [`Commands::mig`], so that it is
    /// not started again meanwhile.
    pub(super) fn let_go(&self) {
        let driver = lock(&self.driver).clone();
        if let Some(driver) = driver {
            driver.let_go();
        }
    }

    /// Makes the device ready for its holders: one has it, and the others are kept from it.
    ///
    /// # Errors
    /// Returns why they are not.
    pub(super) fn wait_ready(&self, device: &DeviceKey) -> Result<()> {
        match self.after_next_look(device)? {
            None => Ok(()),
            Some(why) => Err(Error::failed(device, why)),
        }
    }
}

/// Suspends the work of a claim, or resumes it.
///
/// # Errors
/// Returns an error if nothing is meant, or if it is not held by turns.
pub(super) fn put_aside(commands: &Commands<'_>, peer: &BrokerClient, request: &TurnRequest) -> Result<Value> {
    let facts = commands.facts()?;
    // Those of the last refresh may not exist.
    let names = DeviceNames::new(facts.inventory.clone(), Arc::clone(&facts.plan));
    let holder = verbs::turn_holder(commands.state_dir(), names, peer.caller(), &request.what)?;
    let device = holder.claim.device.clone();
    let key = tranche_plan::hold::key(&holder.claim);
    let record = TurnRecord::read(commands.state_dir(), &device)?;
    let driver = facts.inventory.driver.as_ref().map(|driver| &driver.version);
    if !request.suspend
        && let Some(version) = record.suspended_by_other(&key, driver)
    {
        let what = format!("was suspended by driver {version}, which alone can resume it");
        return Err(Error::failed(&request.what, what).hint("end it, or install that driver again"));
    }
    {
        let mut state = lock(&commands.turns.state);
        if !request.suspend && state.before_end.has(&device, &key) {
            return Err(Error::failed(
                &request.what,
                "is being ended, and stays suspended until then",
            ));
        }
        state.asked.push((device.clone(), key, request.suspend));
    }
    commands.turns.wait_ready(&device)?;
    Ok(json!({}))
}

/// Gives devices to their holders, until the desk is closed.
pub(super) fn run(commands: &Commands<'_>) {
    let watch = match Ledger::open(commands.state_dir()) {
        Ok(ledger) => ledger.watch(),
        Err(error) => return tracing::warn!("{error}"),
    };
    let desk = &commands.turns;
    let mut thread = TurnThread::default();
    loop {
        {
            let mut state = lock(&desk.state);
            if state.is_closed {
                return;
            }
            state.begun += 1;
        }
        let (next, wrong, failed) = match thread.look(commands) {
            Ok((next, wrong)) => (next, wrong, None),
            Err(error) => {
                tracing::warn!("turns: {}", line(&error));
                (SELDOM, BTreeMap::new(), Some(line(&error)))
            }
        };
        {
            let mut state = lock(&desk.state);
            state.over = state.begun;
            (state.wrong, state.failed) = (wrong, failed);
        }
        desk.looked.notify_all();
        let until = Instant::now() + next;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let calls = thread.wishes.as_mut().filter(|_| thread.is_watching);
            let slice = if calls.is_some() { Duration::ZERO } else { left };
            let before = Instant::now();
            watch.wait_or(slice, Some(desk.woken.as_fd()));
            let mut bytes = [0; 256];
            let is_woken = (&desk.woken).read(&mut bytes).is_ok_and(|read| read > 0);
            let has_called = match calls {
                // An error shows at the next look.
                Some(wishes) => wishes.wait(left.min(CALLS)).map_or(true, |seen| !seen.is_empty()),
                // The ledger has changed, or the time is over.
                None => before.elapsed() < left,
            };
            if is_woken || has_called || Instant::now() >= until {
                break;
            }
        }
    }
}

/// What the thread knows.
#[derive(Default)]
struct TurnThread {
    devices: BTreeMap<DeviceKey, DeviceTurns>,
    wishes: Option<Wishes>,
    /// Whether somebody is away whose calls are looked for.
    is_watching: bool,
    /// Whether something has changed that every user may know.
    has_changed: bool,
}

impl TurnThread {
    /// Makes one step of each device. Returns when it is to be looked again, and what is wrong.
    fn look(&mut self, commands: &Commands<'_>) -> Result<(Duration, BTreeMap<DeviceKey, String>)> {
        let facts = commands.facts()?;
        let claims = Claims::existing(commands.state_dir())?;
        let books = claims.as_ref().map(Claims::books).transpose()?.unwrap_or_default();
        let planned: BTreeMap<DeviceKey, TurnSettings> = facts
            .plan
            .devices
            .iter()
            .filter_map(|split| match &split.method {
                Method::Turns(turns) => Some((split.key.clone(), turns.settings)),
                Method::TimeSlicing(_) | Method::Mps(_) | Method::Dedicated(_) => None,
            })
            .collect();
        let devices = self.with_holders(&books);
        lock(&commands.turns.state).has_holders = !devices.is_empty();
        let mut wrong = BTreeMap::new();
        let (Some(claims), false) = (claims, devices.is_empty()) else {
            self.rest(&commands.turns);
            lock(&commands.turns.state).asked.clear();
            return Ok((SELDOM, wrong));
        };
        let access = commands.control.driver()?;
        // Nothing is suspended or resumed while MIG is changed: the driver has to be out of use for that.
        let _no_change = lock(&commands.mig);
        let driver = self.find(&commands.turns, &access)?;
        let version = facts.inventory.driver.as_ref().map(|driver| &driver.version);
        let mut next = SELDOM;
        for device in devices {
            let settings = planned
                .get(&device)
                .copied()
                .unwrap_or_else(|| unplanned(&books, &device));
            let nodes = nodes(&facts.inventory, &device);
            if nodes.is_empty() {
                wrong.insert(device, "its device node is not known".to_owned());
                continue;
            }
            let holders = TurnHolder::all(&books, &device);
            let asked = commands.turns.take_asked(&device);
            let place = Place {
                state_dir: commands.state_dir(),
                driver: &driver,
                version,
                nvml: &access.nvml,
                claims: &claims,
                nodes,
            };
            let looked = self.step(&device, settings, asked, &holders, place)?;
            next = next.min(looked);
            let trouble = self.devices.get(&device).and_then(|turns| turns.not_kept_away());
            wrong.extend(trouble.map(|why| (device, why)));
        }
        if std::mem::take(&mut self.has_changed) {
            commands.wake();
        }
        Ok((next, wrong))
    }

    /// The devices that somebody holds by turns, and those that somebody held at the last look.
    fn with_holders(&self, books: &Books) -> BTreeSet<DeviceKey> {
        let held = books.claims().filter(|claim| claim.part.strategy() == Strategy::Turns);
        held.map(|claim| claim.device.clone())
            .chain(self.devices.keys().cloned())
            .collect()
    }

    /// Ends what keeps the driver in use.
    fn rest(&mut self, desk: &TurnDesk) {
        if let Some(driver) = lock(&desk.driver).take() {
            driver.let_go();
        }
        (self.wishes, self.is_watching) = (None, false);
    }

    /// The process that suspends and resumes, by the driver's library of CUDA. Sees calls of that library.
    fn find(&mut self, desk: &TurnDesk, access: &DriverAccess) -> Result<Arc<TurnsDriver>> {
        let mut known = lock(&desk.driver);
        if let Some(driver) = &*known {
            return Ok(Arc::clone(driver));
        }
        let library = access.cuda.clone();
        let library =
            library.ok_or_else(|| Error::failed("turns", "libcuda.so.1, the driver's library, was not found"))?;
        let wishes = HostLibrary::at(&library).and_then(|library| Wishes::new(library, wishes::MOST));
        if let Err(why) = &wishes {
            tracing::info!("turns: who is away has to be resumed by `tranche resume`: {why}");
        }
        self.wishes = wishes.ok();
        let driver = Arc::new(TurnsDriver::new(
            access.nvml.driver.program().map(ToOwned::to_owned),
            library,
        ));
        *known = Some(Arc::clone(&driver));
        Ok(driver)
    }

    /// Makes the next step of a device. Returns when it is to be looked again.
    fn step(
        &mut self,
        device: &DeviceKey,
        settings: TurnSettings,
        asked: Vec<(ClaimKey, bool)>,
        holders: &BTreeMap<ClaimKey, TurnHolder>,
        place: Place<'_>,
    ) -> Result<Duration> {
        let now = uptime()?;
        let turns = match self.devices.entry(device.clone()) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(vacant) => {
                let turns = DeviceTurns::open(device.clone(), place.state_dir.to_owned(), settings, now)?;
                if let Some(earlier) = turns.record().driver {
                    let waited = wait_for_earlier(earlier, EARLIER);
                    waited.about("turns", "cannot wait for the process of an earlier broker")?;
                }
                vacant.insert(turns)
            }
        };
        turns.set(settings);
        for (key, suspend) in asked {
            turns.put_aside(&key, suspend, now)?;
        }
        match place.driver.process() {
            Ok(process) => turns.set_driver(process, place.version.cloned()),
            Err(failure) => return turns.cannot(failure.to_string()).map(|()| SELDOM),
        }
        let mut machine = RealMachine {
            gpu: device.gpu().clone(),
            nodes: place.nodes,
            driver: place.driver,
            nvml: place.nvml,
            wishes: self.wishes.as_mut(),
            machine: place.claims.machine(),
            hangs: place.version.and_then(drivers::hangs),
            known: BTreeMap::new(),
        };
        let before = turns.record().clone();
        let next = turns.look(now, holders, &mut machine)?;
        let has_changed = PublicTurns::of(&before) != PublicTurns::of(turns.record());
        noted::note(place.claims, [&before, turns.record()], holders)?;
        self.is_watching = turns.has_others();
        self.has_changed |= has_changed;
        if next.is_none() {
            self.devices.remove(device);
        }
        Ok(next.unwrap_or(SELDOM))
    }
}

/// What a step is made with.
struct Place<'a> {
    state_dir: &'a Path,
    driver: &'a TurnsDriver,
    /// Which driver it is, if that is known.
    version: Option<&'a DriverVersion>,
    nvml: &'a Nvml,
    claims: &'a Claims,
    /// The nodes of the device.
    nodes: Vec<DeviceNumber>,
}

/// What is known of a device that the policy does not give by turns any more, while somebody still holds it so.
fn unplanned(books: &Books, device: &DeviceKey) -> TurnSettings {
    let holders = books.claims().filter(|claim| claim.device == *device).count();
    TurnSettings {
        holders: u32::try_from(holders).unwrap_or(u32::MAX),
        turn: TurnSettings::TURN,
        idle: TurnSettings::IDLE,
        host_memory: MemorySize::from_mib(1 << 40),
        assume_tested: true,
    }
}

/// Since the boot, with suspended time.
fn uptime() -> Result<Duration> {
    clock_gettime(ClockId::CLOCK_BOOTTIME)
        .map(Duration::from)
        .about("clock", "cannot be read")
}
