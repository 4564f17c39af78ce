//! The ledger on a real disk: stopped at every step, shared by many processes, damaged.

use super::*;
use crate::ledger::process::Machine;
use crate::ledger::{Ask, ContainerName, Part, Process, State, World};
use std::cell::Cell;

/// Stops before the nth step, as `kill -9` would: nothing is cleaned up but what the kernel cleans.
struct StopAt {
    left: Cell<usize>,
    seen: Cell<usize>,
}

impl StopAt {
    fn step(n: usize) -> Self {
        Self {
            left: Cell::new(n),
            seen: Cell::new(0),
        }
    }
}

impl Steps for &StopAt {
    fn before(&self, step: &'static str) -> Result<()> {
        self.seen.set(self.seen.get() + 1);
        if self.left.get() == 0 {
            return Err(Error::failed("stopped", step));
        }
        self.left.set(self.left.get() - 1);
        Ok(())
    }
}

fn key() -> DeviceKey {
    "GPU-1".parse().unwrap()
}

fn ask(machine: &Machine, share: &str, id: &str) -> Ask {
    Ask {
        part: Part::share(share.parse().unwrap()),
        name: None,
        container: Some(name(id)),
        process: Some(machine.process(std::process::id()).unwrap()),
        state: State::Held,
        keep: false,
        alone: false,
        uid: 0,
        ttl: None,
    }
}

fn name(id: &str) -> ContainerName {
    ContainerName {
        bundle: "/b".into(),
        id: id.into(),
    }
}

fn take<S: Steps>(ledger: &Ledger<S>, machine: &Machine, share: &str, id: &str) -> Result<()> {
    let ask = ask(machine, share, id);
    ledger.change(&key(), |book| match book.take(&ask, machine) {
        Ok(()) => Ok(((), Change::Made)),
        Err(refused) => Err(Error::failed(share, refused)),
    })
}

fn release<S: Steps>(ledger: &Ledger<S>, id: &str) -> Result<usize> {
    // As poststop does it, when the container's process is gone.
    let machine = Gone(Machine::here().unwrap());
    ledger.change(&key(), |book| {
        Ok((book.release_container(&name(id), 0, &machine), Change::Made))
    })
}

/// This machine, where every process has ended.
struct Gone(Machine);

impl World for Gone {
    fn is_gone(&self, _: &Process) -> bool {
        true
    }
    fn lives(&self, _: &Process) -> bool {
        false
    }
    fn now(&self) -> u64 {
        self.0.now()
    }
    fn uptime(&self) -> u64 {
        self.0.uptime()
    }
    fn boot(&self) -> &str {
        self.0.boot()
    }
}

fn claims(dir: &Path) -> usize {
    Ledger::open(dir)
        .unwrap()
        .books()
        .unwrap()
        .books
        .iter()
        .map(|b| b.claims.len())
        .sum()
}

#[test]
fn stopped_at_every_step_it_is_the_old_state_or_the_new_one() {
    let machine = Machine::here().unwrap();
    let mut stops = 0;
    for step in 0.. {
        let dir = tempfile::tempdir().unwrap();
        take(&Ledger::open(dir.path()).unwrap(), &machine, "a", "first").unwrap();
        let stop = StopAt::step(step);
        let done = take(&Ledger::open_with(dir.path(), &stop).unwrap(), &machine, "b", "second").is_ok();
        let now = claims(dir.path());
        assert!(now == 1 || now == 2, "step {step}: {now} claims");
        assert!(!done || now == 2, "step {step}: said done and is not");
        // Whatever was left lying about, the next change works, and finds the first claim in its place.
        assert!(take(&Ledger::open(dir.path()).unwrap(), &machine, "a", "third").is_err());
        take(&Ledger::open(dir.path()).unwrap(), &machine, "b", "second").unwrap();
        let stop = StopAt::step(step);
        let gone = release(&Ledger::open_with(dir.path(), &stop).unwrap(), "second").is_ok();
        let now = claims(dir.path());
        assert!(now == 1 || now == 2, "step {step}: {now} claims after a release");
        assert!(!gone || now == 1, "step {step}: said released and is not");
        release(&Ledger::open(dir.path()).unwrap(), "second").unwrap();
        let stop = StopAt::step(step);
        let _ = release(&Ledger::open_with(dir.path(), &stop).unwrap(), "first");
        let now = claims(dir.path());
        assert!(now <= 1, "step {step}: {now} claims after the last release");
        if done && gone {
            break;
        }
        stops += 1;
    }
    assert!(stops >= 7, "only {stops} steps were tried");
}

#[test]
fn a_directory_that_others_may_enter_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    Ledger::open(dir.path()).unwrap();
    std::fs::set_permissions(dir.path().join("ledger"), Permissions::from_mode(0o755)).unwrap();
    assert!(Ledger::open(dir.path()).unwrap_err().to_string().contains("alone"));
    std::fs::remove_dir(dir.path().join("ledger")).unwrap();
    std::os::unix::fs::symlink("/tmp", dir.path().join("ledger")).unwrap();
    assert!(Ledger::open(dir.path()).is_err());
}

#[test]
fn what_is_no_ledger_of_ours_is_refused_and_left() {
    let machine = Machine::here().unwrap();
    let dir = tempfile::tempdir().unwrap();
    take(&Ledger::open(dir.path()).unwrap(), &machine, "a", "first").unwrap();
    let file = dir.path().join("ledger/GPU-1.json");
    let good = std::fs::read_to_string(&file).unwrap();
    let newer = good.replace("\"format\":1", "\"format\":2");
    let unknown = good.replace("\"device\"", "\"more\":1,\"device\"");
    let other = good.replace("GPU-1", "GPU-2");
    let twice = good.replace(
        "\"claims\":[",
        &format!("\"claims\":[{},", &good[good.find("[{").unwrap() + 1..good.len() - 2]),
    );
    for (bad, says) in [
        (&good[..good.len() / 2], "no ledger of ours"),
        ("", "no ledger of ours"),
        (newer.as_str(), "format 2"),
        (unknown.as_str(), "no ledger of ours"),
        (other.as_str(), "holds what no ledger"),
        (twice.as_str(), "holds what no ledger"),
    ] {
        std::fs::write(&file, bad).unwrap();
        let e = take(&Ledger::open(dir.path()).unwrap(), &machine, "b", "second")
            .unwrap_err()
            .to_string();
        assert!(e.contains(says) && e.contains("GPU-1.json"), "{e}");
        assert_eq!(std::fs::read_to_string(&file).unwrap(), bad, "left as it was found");
        let other: DeviceKey = "GPU-9".parse().unwrap();
        let ask = ask(&machine, "b", "second");
        let ledger = Ledger::open(dir.path()).unwrap();
        let took = ledger.change(&other, |book| Ok((book.take(&ask, &machine), Change::Made)));
        assert_eq!(took.unwrap(), Ok(()), "another device is as it was");
        let all = ledger.books().unwrap();
        assert_eq!((all.books.len(), all.damaged.len()), (1, 1));
    }
}

#[test]
fn two_threads_of_many_never_both_hold() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path();
    let wins: usize = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..16)
            .map(|i| {
                scope.spawn(move || {
                    let machine = Machine::here().unwrap();
                    let ledger = Ledger::open(path).unwrap();
                    take(&ledger, &machine, "a", &format!("c{i}")).is_ok()
                })
            })
            .collect();
        threads.into_iter().map(|t| usize::from(t.join().unwrap())).sum()
    });
    assert_eq!(wins, 1);
}
