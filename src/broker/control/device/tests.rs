//! A machine that exists as data alone. Every call on it may be the one at which the broker is killed.

use super::*;
use crate::control::goal::goal;
use crate::control::target::ControlTarget;
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::path::PathBuf;
use tranche_core::ledger::{Cgroup, Claim, ClaimState, ContainerName, HeldPart, Holder, InitProcess, Promise};
use tranche_core::types::{Device, DeviceKey, GpuIndex, MemorySize, Percent};

const MEMORY: u64 = 1000;
const GRACE: u32 = 3;

fn target() -> ControlTarget {
    let gpu = "GPU-8188460b-0e3a-9d61-0000-000000000000".parse().unwrap();
    ControlTarget {
        device: Device::whole(GpuIndex(0)),
        cdi_name: "nvidia.com/gpu=0".into(),
        key: DeviceKey::whole(gpu),
        uuid: None,
        memory: Some(MemorySize::from_mib(MEMORY)),
        pipe: PathBuf::new(),
        work: Some("/run/tranche/mps-daemon/0".into()),
        users: Default::default(),
        limits_memory: true,
        blocked: Default::default(),
        server: None,
        libraries: None,
        is_exclusive: true,
        grace: GRACE,
        interval: Interval::Long,
        limits_cgroups: true,
        driver: None,
        control: None,
        smi: None,
        nvml: None,
    }
}

/// A live claim of this part of the device, by a container in a cgroup with this inode.
fn claim(part: HeldPart, number: u32, inode: u64) -> Claim {
    let name = ContainerName {
        bundle: format!("/{number}"),
        id: format!("c{number}"),
    };
    Claim {
        name: None,
        device: target().key,
        part,
        asked_as: None,
        spec_file: None,
        state: ClaimState::Held,
        holder: Holder::Container(name),
        process: Some(InitProcess {
            pid: 1,
            start: 1,
            namespace: 1,
            cgroup: Some(Cgroup {
                path: format!("/sys/fs/cgroup/c{number}"),
                inode,
                top: None,
            }),
        }),
        joined: false,
        once: true,
        for_root: false,
        uid: 0,
        since: 0,
        since_boot: None,
        ttl: None,
        until: None,
    }
}

fn share(number: u32, promise: &str) -> HeldPart {
    HeldPart::share(
        format!("s{number}").parse().unwrap(),
        promise.parse::<Promise>().unwrap(),
    )
}

/// What is true of the machine, and what is on its disk. It survives the broker.
#[derive(Debug, Clone)]
struct World {
    mode: ComputeMode,
    slice: Interval,
    /// What another program set last, or what was there before: what tranche did not set.
    others: (ComputeMode, Interval),
    /// The running daemon: its number, whether it answers, and its limits.
    daemon: Option<(u32, bool, Option<Limits>)>,
    /// The limits of memory of the cgroups that exist, in MiB, by inode.
    cgroups: BTreeMap<u64, Option<u64>>,
    journal: Option<DeviceChanges>,
    started: u32,
    now: u64,
}

/// What goes wrong with the calls that follow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Trouble {
    None,
    /// The broker is killed at this call, before it takes effect or after.
    Killed {
        call: u32,
        is_after: bool,
    },
    /// This call fails.
    Fails {
        call: u32,
    },
}

struct Hand<'a> {
    world: &'a mut World,
    trouble: Trouble,
    calls: u32,
    is_dead: bool,
}

impl Hand<'_> {
    /// Makes a change, unless the broker is dead or the call is to fail.
    fn change<T>(&mut self, change: impl FnOnce(&mut World) -> T) -> Result<T> {
        self.calls += 1;
        let killed = Err(Error::failed("broker", "was killed"));
        match self.trouble {
            _ if self.is_dead => killed,
            Trouble::Killed { call, is_after } if call == self.calls => {
                self.is_dead = true;
                if is_after {
                    change(self.world);
                }
                killed
            }
            Trouble::Fails { call } if call == self.calls => Err(Error::failed("machine", "does not do it")),
            _ => Ok(change(self.world)),
        }
    }
}

impl ControlledMachine for Hand<'_> {
    fn save(&mut self, changes: Option<&DeviceChanges>) -> Result<()> {
        self.change(|world| world.journal = changes.cloned())
    }

    fn daemon(&mut self, record: Option<&DaemonRecord>) -> SeenDaemon {
        let Some((pid, answers, limits)) = self.world.daemon else {
            return SeenDaemon::Absent;
        };
        let process = ProcessRecord { pid, start: 0 };
        match (record, answers) {
            (None, _) => SeenDaemon::Foreign("a process".into()),
            (Some(DaemonRecord { limits: Some(set), .. }), true) if limits != Some(*set) => {
                SeenDaemon::Altered(process)
            }
            (Some(_), true) => SeenDaemon::Running(process),
            (Some(_), false) => SeenDaemon::Silent("no answer".into()),
        }
    }

    fn check_start(&mut self) -> Result<()> {
        Ok(())
    }

    fn leave(&mut self, _: &str) {}

    fn compute_mode(&mut self) -> Result<Option<ComputeMode>> {
        let mode = self.world.mode;
        self.change(|_| Some(mode))
    }

    fn refuse_users(&mut self) -> Result<()> {
        self.change(|_| ())
    }

    fn set_compute_mode(&mut self, mode: ComputeMode) -> Result<()> {
        assert!(
            self.is_dead || self.world.journal.is_some(),
            "nothing is changed without a journal"
        );
        self.change(|world| world.mode = mode)
    }

    fn serves_many_users(&mut self) -> bool {
        true
    }
    fn start(&mut self) -> Result<ProcessRecord> {
        assert!(
            self.is_dead || self.world.journal.as_ref().unwrap().daemon.is_some(),
            "a daemon without a journal"
        );
        self.change(|world| {
            assert_eq!(world.daemon, None, "two daemons");
            assert_eq!(
                world.mode,
                ComputeMode::ExclusiveProcess,
                "a daemon on a device that others can open"
            );
            world.started += 1;
            world.daemon = Some((world.started, true, None));
            ProcessRecord {
                pid: world.started,
                start: 0,
            }
        })
    }

    fn set_limits(&mut self, limits: Limits) -> Result<()> {
        self.change(|world| {
            if let Some((_, _, set)) = &mut world.daemon {
                *set = Some(limits);
            }
        })
    }

    fn end(&mut self, _: &DaemonRecord) -> Result<()> {
        self.change(|world| world.daemon = None)
    }

    fn limit_cgroup(&mut self, limit: &CgroupLimit) -> Result<()> {
        assert!(
            self.is_dead
                || self
                    .world
                    .journal
                    .as_ref()
                    .unwrap()
                    .cgroups
                    .iter()
                    .any(|entry| entry.cgroup() == limit.cgroup()),
            "a limit without a journal"
        );
        self.change(|world| match world.cgroups.get_mut(&limit.cgroup().inode) {
            Some(cgroup) => {
                *cgroup = Some(limit.memory.mib());
                Ok(())
            }
            None => Err(Error::failed("cgroup", "is gone")),
        })?
    }

    fn free_cgroup(&mut self, limit: &CgroupLimit) -> Result<()> {
        self.change(|world| {
            if let Some(cgroup) = world.cgroups.get_mut(&limit.cgroup().inode) {
                *cgroup = None;
            }
        })
    }

    fn time_slice(&mut self) -> Option<Interval> {
        Some(self.world.slice)
    }

    fn set_time_slice(&mut self, interval: Interval) -> Result<()> {
        assert!(
            self.is_dead || self.world.journal.is_some(),
            "nothing is changed without a journal"
        );
        self.change(|world| world.slice = interval)
    }

    fn now(&self) -> u64 {
        self.world.now
    }

    fn failed(&self, what: &str) -> Error {
        Error::failed("gpu 0", what)
    }
}

/// The claims, the world and the memory of the broker.
struct Story {
    claims: Vec<Claim>,
    world: World,
    memory: Option<DeviceChanges>,
    /// How many cgroups were made.
    made: u64,
}

impl Story {
    fn new() -> Self {
        Self {
            claims: Vec::new(),
            world: World {
                mode: ComputeMode::Default,
                slice: Interval::Short,
                others: (ComputeMode::Default, Interval::Short),
                daemon: None,
                cgroups: BTreeMap::new(),
                journal: None,
                started: 0,
                now: 1000,
            },
            memory: None,
            made: 0,
        }
    }

    /// As the broker does it: when a claim was entered (`is_exact` is false), or from time to time.
    fn settle(&mut self, is_exact: bool, trouble: Trouble) -> Result<()> {
        let now = self.world.now;
        if let Some(changes) = &mut self.memory {
            changes.idle_since = self.claims.is_empty().then(|| changes.idle_since.unwrap_or(now));
        }
        let claims: Vec<&Claim> = self.claims.iter().collect();
        let wanted = goal(&claims, &target(), self.memory.as_ref(), now);
        let wanted = Goal {
            is_exact: wanted.is_exact && is_exact,
            ..wanted
        };
        let mut hand = Hand {
            world: &mut self.world,
            trouble,
            calls: 0,
            is_dead: false,
        };
        let settled = settle(&wanted, &mut self.memory, &mut hand);
        if hand.is_dead {
            // The next broker knows what the journal says.
            self.memory = self.world.journal.clone();
        }
        settled
    }

    /// From time to time, until the machine agrees with the claims.
    fn rest(&mut self) {
        for _ in 0..200 {
            self.world.now += 1;
            if self.memory.is_none() {
                return;
            }
            // What is refused now is tried again later.
            let _ = self.settle(true, Trouble::None);
        }
    }

    fn largest(&self) -> Option<Limits> {
        let claims: Vec<&Claim> = self.claims.iter().collect();
        goal(&claims, &target(), None, self.world.now).daemon
    }

    /// The limits that the cgroups of the claims are to have, by inode.
    fn promised(&self) -> BTreeMap<u64, u64> {
        let claims: Vec<&Claim> = self.claims.iter().collect();
        let wanted = goal(&claims, &target(), None, self.world.now).cgroups;
        wanted
            .into_iter()
            .map(|wanted| (wanted.cgroup.unwrap().inode, wanted.memory.mib()))
            .collect()
    }

    /// The limits that cgroups have, by inode.
    fn limited(&self) -> BTreeMap<u64, u64> {
        let cgroups = self.world.cgroups.iter();
        cgroups.filter_map(|(inode, limit)| Some((*inode, (*limit)?))).collect()
    }
}

#[derive(Debug, Clone)]
enum Event {
    Mps(u32, u64, u32),
    Turns(u32),
    /// Whether the container's cgroup is removed before its claim is released, and not after it.
    Release(usize, bool),
    Whole,
    Tick,
    Time(u64),
    DaemonDies,
    DaemonHangs,
    /// Another program sets the mode of the device, or the length of a turn.
    SetMode(ComputeMode),
    SetSlice(Interval),
    /// Another program commands the daemon.
    SetLimits,
    Reopen,
}

fn events() -> impl Strategy<Value = Vec<(Event, Trouble)>> {
    let event = prop_oneof![
        4 => (0..8u32, 1..MEMORY, 1..100u32).prop_map(|(number, mib, percent)| Event::Mps(number, mib, percent)),
        1 => (0..8u32).prop_map(Event::Turns),
        3 => (0..8usize, any::<bool>()).prop_map(|(at, is_gone)| Event::Release(at, is_gone)),
        1 => Just(Event::Whole),
        3 => Just(Event::Tick),
        2 => (1..10u64).prop_map(Event::Time),
        1 => Just(Event::DaemonDies),
        1 => Just(Event::DaemonHangs),
        1 => prop_oneof![Just(ComputeMode::Default), Just(ComputeMode::Prohibited)].prop_map(Event::SetMode),
        1 => prop_oneof![Just(Interval::Medium), Just(Interval::Default)].prop_map(Event::SetSlice),
        1 => Just(Event::SetLimits),
        1 => Just(Event::Reopen),
    ];
    let trouble = prop_oneof![
        4 => Just(Trouble::None),
        2 => (1..20u32, any::<bool>()).prop_map(|(call, is_after)| Trouble::Killed { call, is_after }),
        1 => (1..20u32).prop_map(|call| Trouble::Fails { call }),
    ];
    prop::collection::vec((event, trouble), 1..40)
}

/// Claims a part as the ledger grants it, and prepares it as a hook does: a claim that cannot be served is given back.
fn take(story: &mut Story, part: HeldPart, number: u32, trouble: Trouble) {
    let strategy = part.strategy();
    let is_free = |claim: &Claim| claim.part.strategy() == strategy && !claim.part.overlaps(&part);
    if !story.claims.iter().all(is_free) {
        return;
    }
    story.made += 1;
    let inode = story.made;
    story.world.cgroups.insert(inode, None);
    story.claims.push(claim(part, number, inode));
    match story.settle(false, trouble) {
        Ok(()) => {
            let limited = story.limited();
            for (inode, mib) in story.promised() {
                assert_eq!(limited.get(&inode), Some(&mib), "a granted claim is limited");
            }
            if let Some(largest) = story.largest() {
                let (_, answers, limits) = story.world.daemon.expect("a granted claim has a daemon");
                assert!(answers && limits.unwrap().covers(largest), "{limits:?} {largest:?}");
                assert_eq!(story.world.mode, ComputeMode::ExclusiveProcess);
            }
        }
        Err(_) => drop(story.claims.pop()),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    /// Events of any kind in any order: the machine is as it was before once nothing is claimed any more. A running
    /// daemon has no limit below a granted claim, and after a while no limit above the largest one.
    #[test]
    fn the_machine_agrees_with_the_claims(events in events()) {
        let mut story = Story::new();
        for (event, trouble) in events {
            match event {
                Event::Mps(number, mib, percent) => {
                    take(&mut story, share(number, &format!("mps:{mib}:{percent}")), number, trouble);
                }
                Event::Turns(number) => take(&mut story, share(number, "1/10"), number, trouble),
                Event::Whole => take(&mut story, HeldPart::Whole, 99, trouble),
                Event::Release(at, is_gone) if at < story.claims.len() => {
                    let claim = story.claims.remove(at);
                    if let Some(cgroup) = claim.process.and_then(|process| process.cgroup).filter(|_| is_gone) {
                        story.world.cgroups.remove(&cgroup.inode);
                    }
                }
                Event::Release(..) => {}
                Event::Tick => drop(story.settle(true, trouble)),
                Event::Time(seconds) => story.world.now += seconds,
                Event::DaemonDies => story.world.daemon = None,
                Event::DaemonHangs => {
                    if let Some((_, answers, _)) = &mut story.world.daemon {
                        *answers = false;
                    }
                }
                Event::SetMode(mode) => (story.world.mode, story.world.others.0) = (mode, mode),
                Event::SetLimits => {
                    if let Some((_, _, Some(limits))) = &mut story.world.daemon {
                        limits.compute = Percent::of_sum(1);
                    }
                }
                Event::SetSlice(slice) => (story.world.slice, story.world.others.1) = (slice, slice),
                Event::Reopen => story.memory = story.world.journal.clone(),
            }
            // While the mode is changed or a daemon runs, the journal says how to put that back.
            let journal = story.world.journal.as_ref();
            if story.world.mode != story.world.others.0 {
                let mode = journal.map(|journal| journal.mode);
                prop_assert!(matches!(mode, Some(ModeChange::Changing(ComputeMode::Default) | ModeChange::Changed(ComputeMode::Default))));
            }
            for inode in story.limited().keys() {
                let cgroups = journal.map(|journal| &journal.cgroups);
                prop_assert!(cgroups.is_some_and(|cgroups| cgroups.iter().any(|limit| limit.cgroup().inode == *inode)));
            }
            prop_assert!(story.world.daemon.is_none() || journal.is_some_and(|journal| journal.daemon.is_some()));
            prop_assert!(story.world.slice == story.world.others.1 || journal.is_some_and(|j| j.time_slice.is_some()));
        }
        let failures = story.memory.as_ref().and_then(|changes| changes.daemon.as_ref()).map_or(0, |d| d.failures);
        story.rest();
        let largest = story.largest().filter(|_| failures < MOST_FAILURES);
        if let (Some(largest), Some((_, answers, limits))) = (largest, story.world.daemon) {
            prop_assert!(answers);
            prop_assert_eq!(limits, Some(largest));
        }
        if failures < MOST_FAILURES && story.world.daemon.is_some() {
            prop_assert_eq!(story.limited(), story.promised());
        }
        story.claims.clear();
        story.rest();
        prop_assert_eq!(story.limited(), BTreeMap::new());
        prop_assert_eq!((story.world.mode, story.world.slice), story.world.others);
        prop_assert_eq!(story.world.daemon, None);
        prop_assert_eq!(&story.world.journal, &None);
        prop_assert_eq!(&story.memory, &None);
    }
}
