//! Changes in a world of processes that behave as the driver's documentation and its reports say, with faults and with
//! kills of the program that makes the change.

use super::{Change, ChangeSeen, ClaimSeen, CudaState, Side, Step};
use nix::unistd::Pid;
use proptest::prelude::*;

/// The faults that a process has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    None,
    /// It never finishes what it submitted.
    LocksNever,
    /// Its checkpoint is refused (MIG, managed memory).
    CheckpointRefused,
    /// Its checkpoint leaves it failed.
    CheckpointFails,
    /// Its restore is refused, for ever.
    RestoreFails,
    /// Its unlocking is refused.
    UnlockFails,
}

#[derive(Debug, Clone)]
struct Process {
    pid: Pid,
    state: CudaState,
    fault: Fault,
}

#[derive(Debug, Clone)]
struct Claim {
    processes: Vec<Process>,
    is_open: bool,
    ended: bool,
}

/// The device, its two claims, and how many looks a freed memory stays in use.
#[derive(Debug, Clone)]
struct World {
    from: Option<Claim>,
    to: Option<Claim>,
    memory_lingers: u32,
}

impl Claim {
    fn seen(&self) -> Option<ClaimSeen> {
        let processes = self.processes.iter().map(|process| (process.pid, process.state));
        (!self.ended).then(|| ClaimSeen {
            processes: processes.collect(),
            is_open: self.is_open,
        })
    }

    fn is_on_device(&self) -> bool {
        let mut processes = self.processes.iter();
        !self.ended && processes.any(|process| process.state != CudaState::Checkpointed)
    }

    fn all(&self, state: CudaState) -> bool {
        self.processes.iter().all(|process| process.state == state)
    }
}

impl World {
    fn seen(&mut self) -> ChangeSeen {
        let lingers = self.memory_lingers > 0;
        self.memory_lingers = self.memory_lingers.saturating_sub(1);
        ChangeSeen {
            from: self.from.as_ref().and_then(Claim::seen),
            to: self.to.as_ref().and_then(Claim::seen),
            is_memory_free: !lingers,
        }
    }

    fn claim(&mut self, side: Side) -> &mut Claim {
        match side {
            Side::From => self.from.as_mut().unwrap(),
            Side::To => self.to.as_mut().unwrap(),
        }
    }

    fn process(&mut self, pid: Pid) -> &mut Process {
        let claims = [&mut self.from, &mut self.to].into_iter().flatten();
        let mut processes = claims.flat_map(|claim| &mut claim.processes);
        processes.find(|process| process.pid == pid).unwrap()
    }

    /// Does a step, and says whether it succeeded. What must never be done is a panic.
    fn take(&mut self, step: Step) -> bool {
        match step {
            Step::Close(side) => self.claim(side).is_open = false,
            Step::Open(side) => {
                self.claim(side).is_open = true;
                let others = [&self.from, &self.to].into_iter().flatten();
                let open = others.filter(|claim| claim.is_open && !claim.ended).count();
                assert_eq!(open, 1, "two claims can open the device");
            }
            Step::Lock(pid) => {
                let process = self.process(pid);
                assert_eq!(process.state, CudaState::Running);
                if process.fault == Fault::LocksNever {
                    return false;
                }
                process.state = CudaState::Locked;
            }
            Step::Checkpoint(pid) => {
                let from = self.from.as_ref().unwrap();
                assert!(!from.processes.iter().any(|process| process.state == CudaState::Running));
                let process = self.process(pid);
                assert_eq!(process.state, CudaState::Locked);
                match process.fault {
                    Fault::CheckpointRefused => return false,
                    Fault::CheckpointFails => {
                        process.state = CudaState::Failed;
                        return false;
                    }
                    _ => process.state = CudaState::Checkpointed,
                }
                self.memory_lingers = 3;
            }
            Step::Restore(side, pid) => {
                assert!(self.claim(side).is_open, "a restore opens the device");
                let other = match side {
                    Side::From => &self.to,
                    Side::To => &self.from,
                };
                let is_used = other.as_ref().is_some_and(Claim::is_on_device);
                assert!(
                    !is_used && self.memory_lingers == 0,
                    "restored into memory that is in use"
                );
                let process = self.process(pid);
                assert_eq!(process.state, CudaState::Checkpointed);
                if process.fault == Fault::RestoreFails {
                    return false;
                }
                process.state = CudaState::Locked;
            }
            Step::Unlock(_, pid) => {
                let process = self.process(pid);
                assert_eq!(process.state, CudaState::Locked);
                if process.fault == Fault::UnlockFails {
                    return false;
                }
                process.state = CudaState::Running;
            }
            Step::End(side) => {
                let claim = self.claim(side);
                claim.ended = true;
                claim.processes.clear();
                claim.is_open = false;
            }
            Step::AwaitMemory | Step::Done | Step::GivenUp => {}
        }
        true
    }
}

/// What happens between two steps.
#[derive(Debug, Clone, Copy)]
enum Event {
    /// The program is killed after the step, before it has recorded what came of it.
    Kill,
    /// A process of the claim that gives way begins, if its claim can open the device.
    Begin,
    /// Its first process ends.
    End,
}

/// Makes a change to its end, and says how it ended.
fn run(world: &mut World, events: &[(usize, Event)]) -> Step {
    let mut change = Change::default();
    for count in 0..500 {
        let seen = world.seen();
        let step = change.next(&seen);
        if matches!(step, Step::Done | Step::GivenUp) {
            return step;
        }
        let after = if world.take(step) { change } else { change.fail(step) };
        let mut is_killed = false;
        for (_, event) in events.iter().filter(|(at, _)| *at == count) {
            let from = world.from.as_mut().filter(|claim| !claim.ended);
            match (event, from) {
                (Event::Kill, _) => is_killed = true,
                (Event::Begin, Some(claim)) if claim.is_open => claim.processes.push(Process {
                    pid: Pid::from_raw(1000 + i32::try_from(count).unwrap()),
                    state: CudaState::Running,
                    fault: Fault::None,
                }),
                (Event::End, Some(claim)) if !claim.processes.is_empty() => {
                    claim.processes.remove(0);
                }
                _ => {}
            }
        }
        if !is_killed {
            change = after;
        }
    }
    panic!("the change does not end: {world:?}");
}

fn claim(first: i32, state: CudaState, faults: &[Fault]) -> Claim {
    let process = |(pid, fault): (i32, &Fault)| Process {
        pid: Pid::from_raw(pid),
        state,
        fault: *fault,
    };
    Claim {
        processes: (first..).zip(faults).map(process).collect(),
        is_open: state == CudaState::Running,
        ended: false,
    }
}

fn world(from: &[Fault], to: &[Fault]) -> World {
    World {
        from: Some(claim(1, CudaState::Running, from)),
        to: Some(claim(100, CudaState::Checkpointed, to)),
        memory_lingers: 0,
    }
}

const FINE: [Fault; 2] = [Fault::None, Fault::None];

#[test]
fn the_steps_of_a_change() {
    let mut world = world(&FINE, &FINE);
    let mut steps = Vec::new();
    loop {
        let step = Change::default().next(&world.seen());
        world.take(step);
        if steps.last() != Some(&step) {
            steps.push(step);
        }
        if step == Step::Done {
            break;
        }
    }
    let [one, two, three, four] = [1, 2, 100, 101].map(Pid::from_raw);
    let expected = [
        Step::Close(Side::From),
        Step::Lock(one),
        Step::Lock(two),
        Step::Checkpoint(one),
        Step::Checkpoint(two),
        Step::AwaitMemory,
        Step::Open(Side::To),
        Step::Restore(Side::To, three),
        Step::Restore(Side::To, four),
        Step::Unlock(Side::To, three),
        Step::Unlock(Side::To, four),
        Step::Done,
    ];
    assert_eq!(steps, expected);
}

#[test]
fn a_holder_that_has_not_used_the_device_is_let_in_when_the_other_is_suspended() {
    let mut world = world(&FINE, &[]);
    assert_eq!(run(&mut world, &[]), Step::Done);
    assert!(world.to.unwrap().is_open);
    assert!(world.from.unwrap().all(CudaState::Checkpointed));
}

#[test]
fn what_cannot_be_suspended_stays_resident() {
    for fault in [Fault::LocksNever, Fault::CheckpointRefused] {
        for faults in [[fault, Fault::None], [Fault::None, fault]] {
            let mut world = world(&faults, &FINE);
            assert_eq!(run(&mut world, &[]), Step::GivenUp, "{fault:?}");
            let (from, to) = (world.from.unwrap(), world.to.unwrap());
            assert!(from.all(CudaState::Running) && from.is_open, "{from:?}");
            assert!(to.all(CudaState::Checkpointed) && !to.is_open, "{to:?}");
        }
    }
}

#[test]
fn a_claim_that_the_driver_has_lost_ends_and_the_other_one_is_resident() {
    for fault in [Fault::RestoreFails, Fault::UnlockFails] {
        let mut world = world(&FINE, &[Fault::None, fault]);
        assert_eq!(run(&mut world, &[]), Step::Done, "{fault:?}");
        assert!(world.to.unwrap().ended);
        assert!(
            world.from.unwrap().all(CudaState::Checkpointed),
            "it wants the device again, or not"
        );
    }
    let mut world = world(&[Fault::CheckpointFails, Fault::None], &FINE);
    assert_eq!(run(&mut world, &[]), Step::Done);
    assert!(world.from.unwrap().ended);
    assert!(world.to.unwrap().all(CudaState::Running));
}

fn faults() -> impl Strategy<Value = Vec<Fault>> {
    let fault = prop_oneof![
        8 => Just(Fault::None),
        1 => Just(Fault::LocksNever),
        1 => Just(Fault::CheckpointRefused),
        1 => Just(Fault::CheckpointFails),
        1 => Just(Fault::RestoreFails),
        1 => Just(Fault::UnlockFails),
    ];
    prop::collection::vec(fault, 0..4)
}

fn events() -> impl Strategy<Value = Vec<(usize, Event)>> {
    let event = prop_oneof![3 => Just(Event::Kill), 1 => Just(Event::Begin), 1 => Just(Event::End)];
    prop::collection::vec((0..40_usize, event), 0..12)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    /// Whatever fails, and whenever the program is killed: in the end no process waits for something that does not
    /// come, one claim at most is on the device, and a claim ends only if the driver cannot go on with it.
    #[test]
    fn a_change_ends_well(from in faults(), to in faults(), events in events(), has_from: bool, has_to: bool) {
        let mut world = world(&from, &to);
        if !has_from { world.from = None; }
        if !has_to { world.to = None; }
        let end = run(&mut world, &events);
        let lost = |faults: &[Fault]| {
            let is_lost = |fault: &Fault| {
                matches!(fault, Fault::CheckpointFails | Fault::RestoreFails | Fault::UnlockFails)
            };
            faults.iter().any(is_lost)
        };
        let ends_as = |claim: &Claim, is_resident: bool| {
            let state = if is_resident { CudaState::Running } else { CudaState::Checkpointed };
            claim.all(state) && claim.is_open == is_resident
        };
        if let Some(claim) = &world.from {
            prop_assert!(if claim.ended { lost(&from) } else { ends_as(claim, end == Step::GivenUp) }, "{claim:?}");
        }
        if let Some(claim) = &world.to {
            prop_assert!(if claim.ended { lost(&to) } else { ends_as(claim, end == Step::Done) }, "{claim:?}");
        }
    }
}
