//! Turns on a machine that is made up, with a broker that is killed before and after each step.

use super::{DeviceTurns, TurnFault, TurnHolder, TurnMachine};
use nix::unistd::Pid;
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;
use tranche_core::ledger::{Claim, ClaimState, HeldPart, HeldShare, Holder, InitProcess};
use tranche_core::types::{DeviceKey, MemorySize, Promise, ShareName, WaitTime};
use tranche_plan::hold;
use tranche_plan::policy::TurnSettings;
use tranche_plan::turns::change::CudaState;
use tranche_state::turns::{ClaimKey, TurnRecord};

const GIB: u64 = 1 << 30;

/// The memory of the device.
const DEVICE: u64 = 24 * GIB;

fn settings() -> TurnSettings {
    TurnSettings {
        holders: 4,
        turn: WaitTime::seconds(60),
        idle: WaitTime::seconds(10),
        host_memory: MemorySize::from_mib(40 << 10),
        assume_tested: true,
    }
}

fn key() -> DeviceKey {
    "GPU-11111111-2222-3333-4444-555555555555".parse().unwrap()
}

/// The claim on the place `number` that was made at `since`.
fn holder(number: u32, since: u64) -> (ClaimKey, TurnHolder) {
    let init = InitProcess {
        pid: 100 * (number + 1),
        start: 1,
        namespace: 1,
        cgroup: None,
    };
    let claim = Claim {
        name: Some(format!("of{number}")),
        device: key(),
        part: HeldPart::Shares(vec![HeldShare {
            name: ShareName::replica(number),
            promise: Promise::Turns { holders: 4 },
        }]),
        asked_as: None,
        spec_file: None,
        state: ClaimState::Held,
        holder: Holder::Person,
        process: Some(init.clone()),
        joined: false,
        once: false,
        for_root: false,
        uid: 1000,
        since,
        since_boot: Some(since),
        ttl: None,
        until: None,
    };
    let inits = vec![init];
    (hold::key(&claim), TurnHolder { claim, inits })
}

/// What the driver does when it is asked the next time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mood {
    Good,
    /// The step fails, and nothing happens.
    Fails,
    /// The broker is killed before the step.
    KilledBefore,
    /// The broker is killed after the step.
    KilledAfter,
}

/// A process with a context.
#[derive(Debug, Clone)]
struct Process {
    pid: Pid,
    state: CudaState,
    bytes: u64,
}

#[derive(Debug, Default)]
struct World {
    processes: BTreeMap<ClaimKey, Vec<Process>>,
    open: BTreeMap<ClaimKey, bool>,
    calls: BTreeMap<ClaimKey, bool>,
    works: bool,
    moods: Vec<Mood>,
    was_killed: bool,
    /// Whose step has failed at last.
    failed: Option<ClaimKey>,
    /// A process whose restore found too little memory, or that was taken off a device that another one had.
    harm: Option<String>,
}

impl World {
    fn find(&mut self, pid: Pid) -> &mut Process {
        let processes = self.processes.values_mut().flatten();
        processes.into_iter().find(|process| process.pid == pid).unwrap()
    }

    fn used(&self) -> u64 {
        let processes = self.processes.values().flatten();
        let on_device = processes.filter(|process| process.state != CudaState::Checkpointed);
        on_device.map(|process| process.bytes).sum()
    }

    /// Whose process it is.
    fn owner(&self, pid: Pid) -> &ClaimKey {
        let is_its = |processes: &[Process]| processes.iter().any(|process| process.pid == pid);
        let mut claims = self.processes.iter().filter(|(_, processes)| is_its(processes));
        claims.next().unwrap().0
    }

    /// Does a step for a claim in the mood of the moment.
    fn act(&mut self, claim: &ClaimKey, step: impl FnOnce(&mut Self)) -> Result<(), TurnFault> {
        let mood = self.moods.pop().unwrap_or(Mood::Good);
        let killed = || Err(TurnFault::Unable("killed".into()));
        match mood {
            Mood::Good => {
                step(self);
                Ok(())
            }
            Mood::Fails => {
                self.failed = Some(claim.clone());
                Err(TurnFault::Failed("a fault".into()))
            }
            Mood::KilledBefore => {
                self.was_killed = true;
                killed()
            }
            Mood::KilledAfter => {
                step(self);
                self.was_killed = true;
                killed()
            }
        }
    }

    fn change(&mut self, pid: Pid, from: CudaState, to: CudaState) -> Result<(), TurnFault> {
        self.act(&self.owner(pid).clone(), |world| {
            let process = world.find(pid);
            assert_eq!(process.state, from, "{pid}: to {to:?}");
            process.state = to;
        })
    }
}

impl TurnMachine for World {
    fn processes(&mut self, holder: &TurnHolder) -> Result<Vec<(Pid, CudaState)>, TurnFault> {
        let processes = self.processes.get(&hold::key(&holder.claim)).into_iter().flatten();
        Ok(processes.map(|process| (process.pid, process.state)).collect())
    }

    fn is_open(&mut self, holder: &TurnHolder) -> Result<bool, TurnFault> {
        Ok(self.open.get(&hold::key(&holder.claim)).copied().unwrap_or(true))
    }

    fn set_open(&mut self, holder: &TurnHolder, is_open: bool) -> Result<(), TurnFault> {
        let claim = hold::key(&holder.claim);
        self.act(&claim, |world| {
            world.open.insert(claim.clone(), is_open);
        })
    }

    fn lock(&mut self, process: Pid) -> Result<(), TurnFault> {
        self.change(process, CudaState::Running, CudaState::Locked)
    }

    fn checkpoint(&mut self, process: Pid) -> Result<(), TurnFault> {
        self.change(process, CudaState::Locked, CudaState::Checkpointed)
    }

    fn restore(&mut self, process: Pid) -> Result<(), TurnFault> {
        let bytes = self.find(process).bytes;
        if self.used() + bytes > DEVICE {
            self.harm = Some(format!("{process} was restored into too little memory"));
        }
        self.change(process, CudaState::Checkpointed, CudaState::Locked)
    }

    fn unlock(&mut self, process: Pid) -> Result<(), TurnFault> {
        self.change(process, CudaState::Locked, CudaState::Running)
    }

    fn bytes(&mut self, holder: &TurnHolder) -> Result<u64, TurnFault> {
        let processes = self.processes.get(&hold::key(&holder.claim)).into_iter().flatten();
        Ok(processes.map(|process| process.bytes).sum())
    }

    fn is_memory_free(&mut self, bytes: u64, those: &[Pid]) -> Result<bool, TurnFault> {
        let others = self.processes.values().flatten();
        let mut others =
            others.filter(|process| process.state != CudaState::Checkpointed && !those.contains(&process.pid));
        Ok(others.next().is_none() && bytes <= DEVICE)
    }

    fn lacks_host_memory(&mut self, _: &TurnHolder, _: u64) -> Option<String> {
        None
    }

    fn is_paused(&mut self, _: &TurnHolder) -> bool {
        false
    }

    fn has_worked(&mut self, holder: &TurnHolder) -> Result<bool, TurnFault> {
        // The real machine stops looking for its calls, and would miss the one that is made during a change.
        if self
            .processes(holder)?
            .iter()
            .any(|(_, state)| *state != CudaState::Running)
        {
            self.harm = Some("one that is suspended was taken for one that has the device".to_owned());
        }
        Ok(self.works)
    }

    fn has_called(&mut self, holder: &TurnHolder) -> bool {
        self.calls.remove(&hold::key(&holder.claim)).unwrap_or(false)
    }

    fn end(&mut self, holder: &TurnHolder, _: bool) -> Result<(), TurnFault> {
        let claim = hold::key(&holder.claim);
        self.act(&claim, |world| {
            world.processes.remove(&claim);
        })
    }
}

/// A device with its broker, which begins anew whenever it was killed.
struct Scene {
    top: tempfile::TempDir,
    now: Duration,
    world: World,
    holders: BTreeMap<ClaimKey, TurnHolder>,
    /// The claim on each place.
    places: BTreeMap<u32, ClaimKey>,
    /// How many claims were made.
    started: u64,
    turns: DeviceTurns,
}

fn open(top: &Path, now: Duration) -> DeviceTurns {
    DeviceTurns::open(key(), top.to_owned(), settings(), now).unwrap()
}

impl Scene {
    fn new() -> Self {
        let top = tempfile::tempdir().unwrap();
        std::fs::create_dir(top.path().join("turns")).unwrap();
        let turns = open(top.path(), Duration::ZERO);
        Self {
            top,
            now: Duration::from_secs(100),
            world: World {
                works: true,
                ..World::default()
            },
            holders: BTreeMap::new(),
            places: BTreeMap::new(),
            started: 0,
            turns,
        }
    }

    fn start(&mut self, number: u32) -> ClaimKey {
        let is_held = |key: &&ClaimKey| self.holders.contains_key(*key);
        if let Some(key) = self.places.get(&number).filter(is_held) {
            return key.clone();
        }
        let (key, holder) = holder(number, self.started);
        self.started += 1;
        self.holders.insert(key.clone(), holder);
        self.places.insert(number, key.clone());
        key
    }

    /// The last claim on a place.
    fn place(&self, number: u32) -> ClaimKey {
        self.places.get(&number).cloned().unwrap_or_default()
    }

    fn end(&mut self, key: &ClaimKey) {
        self.holders.remove(key);
        self.world.processes.remove(key);
        self.world.open.remove(key);
    }

    /// A process of the holder makes a context, if the holder can open the device.
    fn compute(&mut self, key: &ClaimKey, bytes: u64) -> bool {
        if !self.holders.contains_key(key) {
            return false;
        }
        let is_open = self.world.open.get(key).copied().unwrap_or(true);
        let is_known = self.turns.record().holders.contains_key(key);
        if is_open && is_known {
            let number = self.world.processes.values().flatten().count();
            let pid = Pid::from_raw(1000 + i32::try_from(number).unwrap());
            let state = CudaState::Running;
            let process = Process { pid, state, bytes };
            self.world.processes.entry(key.clone()).or_default().push(process);
        }
        is_open && is_known
    }

    /// Lets `time` pass, with all that is due.
    fn pass(&mut self, time: Duration) {
        let until = self.now + time;
        for _ in 0..100_000 {
            let next = self.turns.look(self.now, &self.holders, &mut self.world).unwrap();
            if std::mem::take(&mut self.world.was_killed) {
                self.turns = open(self.top.path(), self.now);
            }
            self.check();
            let next = next.unwrap_or(Duration::from_secs(30));
            if self.now + next > until {
                self.now = until;
                return;
            }
            self.now += next;
        }
        panic!("it does not come to rest: {:?}", self.turns);
    }

    fn check(&self) {
        assert_eq!(self.world.harm, None);
        let on_device = |processes: &&Vec<Process>| processes.iter().any(|one| one.state == CudaState::Running);
        let running = self.world.processes.values().filter(on_device).count();
        assert!(running <= 1, "{running} run: {:?}", self.world);
        let can_open = |key: &&ClaimKey| self.world.open.get(*key) == Some(&true);
        assert!(
            self.world.open.keys().filter(can_open).count() <= 1,
            "{:?}",
            self.world.open
        );
    }

    fn resident(&self) -> Option<&ClaimKey> {
        self.turns.record().resident.as_ref()
    }
}

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn two_who_compute_have_the_device_by_turns() {
    let mut scene = Scene::new();
    let (a, b) = (scene.start(0), scene.start(1));
    scene.pass(SECOND);
    assert_eq!(scene.resident(), Some(&a));
    assert!(scene.compute(&a, 20 * GIB) && !scene.compute(&b, 20 * GIB));
    scene.pass(58 * SECOND);
    assert_eq!(scene.resident(), Some(&a), "its turn lasts");
    scene.pass(3 * SECOND);
    assert_eq!(scene.resident(), Some(&b));
    assert!(scene.compute(&b, 20 * GIB) && !scene.compute(&a, GIB));
    let recorded = TurnRecord::read(scene.top.path(), &key()).unwrap();
    assert_eq!(recorded.holders[&a].bytes, 20 * GIB);
    assert!(recorded.holders[&a].wants_since.is_some(), "it worked until then");
    // Who does nothing gives way earlier.
    scene.pass(5 * SECOND);
    scene.world.works = false;
    scene.pass(12 * SECOND);
    assert_eq!(scene.resident(), Some(&a));
    scene.pass(1000 * SECOND);
    assert_eq!(scene.resident(), Some(&a), "nobody wants it");
    scene.world.calls.insert(b.clone(), true);
    scene.pass(2 * SECOND);
    assert_eq!(scene.resident(), Some(&b));
    scene.end(&a);
    scene.end(&b);
    scene.pass(2 * SECOND);
    assert!(!scene.top.path().join("turns").join(format!("{}.json", key())).exists());
}

#[test]
fn what_does_not_fit_into_the_memory_of_the_machine_stays() {
    let mut scene = Scene::new();
    let (a, b, c) = (scene.start(0), scene.start(1), scene.start(2));
    scene.pass(SECOND);
    assert!(scene.compute(&a, 22 * GIB));
    scene.pass(61 * SECOND);
    assert!(scene.compute(&b, 22 * GIB));
    scene.pass(600 * SECOND);
    assert_eq!(scene.resident(), Some(&b), "22 and 22 are more than 40 GiB");
    let trouble = scene.turns.record().trouble.clone().unwrap();
    assert!(trouble.contains("are more than hostMemory"), "{trouble}");
    let told = |claim: &ClaimKey| scene.turns.record().trouble_for(claim).is_some();
    assert_eq!([told(&a), told(&b), told(&c)], [false, true, false]);
    scene.end(&a);
    let has_it = |_: &u32| {
        scene.pass(SECOND);
        scene.resident() == Some(&c)
    };
    assert!(
        (0..61).collect::<Vec<u32>>().iter().any(has_it),
        "it is tried again at least once in a turn"
    );
    assert_eq!(scene.turns.record().trouble, None);
}

#[test]
fn a_person_puts_work_aside_and_resumes_it() {
    let mut scene = Scene::new();
    let a = scene.start(0);
    scene.pass(SECOND);
    scene.compute(&a, GIB);
    scene.turns.put_aside(&a, true, scene.now).unwrap();
    scene.pass(SECOND);
    assert_eq!(scene.resident(), None);
    assert_eq!(scene.world.processes[&a][0].state, CudaState::Checkpointed);
    scene.world.calls.insert(a.clone(), true);
    scene.turns = open(scene.top.path(), scene.now);
    scene.pass(100 * SECOND);
    assert_eq!(
        scene.resident(),
        None,
        "only a person resumes it, also with the next broker"
    );
    scene.turns.put_aside(&a, false, scene.now).unwrap();
    scene.pass(SECOND);
    assert_eq!(scene.resident(), Some(&a));
    assert_eq!(scene.world.processes[&a][0].state, CudaState::Running);
}

#[test]
fn a_fault_is_told_to_the_holder_whose_step_has_failed() {
    let told = (0..6).map(|step| {
        let mut scene = Scene::new();
        let (a, b) = (scene.start(0), scene.start(1));
        scene.pass(SECOND);
        scene.compute(&a, GIB);
        scene.pass(61 * SECOND);
        scene.compute(&b, GIB);
        scene.pass(61 * SECOND);
        assert_eq!(scene.resident(), Some(&a));
        scene.world.calls.insert(b.clone(), true);
        scene.world.moods = std::iter::once(Mood::Fails).chain(vec![Mood::Good; step]).collect();
        // What was said is gone when the change has ended.
        let mut said = None;
        while scene.world.failed.is_none() {
            let _ = scene.turns.look(scene.now, &scene.holders, &mut scene.world).unwrap();
            said = scene.turns.record().trouble_of.clone();
            scene.now += SECOND;
        }
        assert_eq!(said, scene.world.failed, "step {step}");
        if scene.world.failed == Some(a) { 'a' } else { 'b' }
    });
    assert_eq!(told.collect::<String>(), "aaabbb");
}

fn mood() -> impl Strategy<Value = Mood> {
    prop_oneof![
        6 => Just(Mood::Good),
        1 => Just(Mood::Fails),
        1 => Just(Mood::KilledBefore),
        1 => Just(Mood::KilledAfter),
    ]
}

/// What happens to a holder of this number.
#[derive(Debug, Clone, Copy)]
enum Event {
    Start(u32),
    End(u32),
    Compute(u32, u64),
    Call(u32),
    Aside(u32, bool),
    Pass(u64),
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        (0..4u32).prop_map(Event::Start),
        (0..4u32).prop_map(Event::End),
        (0..4u32, 1..8u64).prop_map(|(who, gib)| Event::Compute(who, gib)),
        (0..4u32).prop_map(Event::Call),
        (0..4u32, any::<bool>()).prop_map(|(who, is_aside)| Event::Aside(who, is_aside)),
        (1..100u64).prop_map(Event::Pass),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn whatever_happens_one_at_most_has_the_device_and_all_come_back(
        events in prop::collection::vec(event(), 1..40),
        moods in prop::collection::vec(mood(), 0..200),
    ) {
        let mut scene = Scene::new();
        scene.world.moods = moods;
        for event in events {
            match event {
                Event::Start(who) => drop(scene.start(who)),
                Event::End(who) => scene.end(&scene.place(who)),
                Event::Compute(who, gib) => {
                    scene.compute(&scene.place(who), gib * GIB);
                }
                Event::Call(who) => drop(scene.world.calls.insert(scene.place(who), true)),
                Event::Aside(who, is_aside) => scene.turns.put_aside(&scene.place(who), is_aside, scene.now).unwrap(),
                Event::Pass(seconds) => scene.pass(Duration::from_secs(seconds)),
            }
        }
        // From now on nothing fails, and each who is left has the device again.
        scene.world.moods.clear();
        let left: Vec<ClaimKey> = scene.holders.keys().cloned().collect();
        for key in left {
            scene.turns.put_aside(&key, false, scene.now).unwrap();
            scene.world.works = false;
            scene.world.calls.insert(key.clone(), true);
            scene.pass(Duration::from_secs(600));
            scene.world.calls.insert(key.clone(), true);
            scene.pass(Duration::from_secs(200));
            let has_all = |key: &ClaimKey| {
                let processes = scene.world.processes.get(key).into_iter().flatten();
                processes.into_iter().all(|process| process.state == CudaState::Running)
            };
            prop_assert!(scene.resident() != Some(&key) || has_all(&key), "{:?}", scene.world);
            prop_assert_eq!(scene.turns.record().change.clone(), None);
        }
    }
}
