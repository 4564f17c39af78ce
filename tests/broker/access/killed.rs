//! The broker, killed before each system call by which it changes the ledger or a device node: nobody may open more
//! than before or after, and the next broker makes the nodes what the ledger says.

use super::{Bed, POLICY};
use crate::killed::{may_trace, traced};
use crate::scene::{ANN, BOB, GPU_0};
use crate::support::until;
use nix::sys::signal::Signal;
use std::collections::BTreeMap;
use std::fs;
use std::time::{Duration, Instant};

/// Calls that change a node or a file.
const CHANGING: [&str; 11] = [
    "setxattr",
    "removexattr",
    "fchmodat",
    "fchownat",
    "rename",
    "renameat",
    "renameat2",
    "unlink",
    "unlinkat",
    "fsync",
    "sendto",
];

/// For how long a broker is awaited that is to be killed at a call.
const LONG: Duration = Duration::from_secs(5);

/// Something that changes who may open nodes.
struct Change {
    /// What was there before it.
    set_up: fn(&Bed),
    /// It.
    act: fn(&Bed),
    /// Who may open what before it, and after it.
    before: &'static str,
    after: &'static str,
}

impl Bed {
    /// What the ledger and the policy say of who may open what.
    fn expected(&self) -> String {
        if self.policy_is_open() {
            return "a0 a1 b0 b1".to_owned();
        }
        let claims = self.scene.claims();
        let word = |claim: &tranche_core::ledger::Claim| {
            let user = if claim.uid == ANN { 'a' } else { 'b' };
            let gpu = if claim.device.to_string() == GPU_0 { 0 } else { 1 };
            format!("{user}{gpu}")
        };
        let mut words: Vec<String> = claims.iter().map(word).collect();
        words.sort();
        words.join(" ")
    }

    fn policy_is_open(&self) -> bool {
        fs::read_to_string(self.scene.at("policy.yaml"))
            .unwrap()
            .contains("access: open")
    }

    fn let_count(&self, access: &str) {
        let policy = POLICY.replace("enforce", access);
        fs::write(self.scene.at("policy.yaml"), policy).unwrap();
    }
}

/// How often each call is made by the thread that makes it most often, while `change` has its effect.
fn steps(test: &str, change: &Change) -> Option<BTreeMap<String, usize>> {
    let mut bed = Bed::new(test, POLICY)?;
    if !may_trace(&format!("broker::access::killed::{test}")) {
        return None;
    }
    (change.set_up)(&bed);
    until("what was before", || bed.open() == change.before);
    let set = CHANGING.map(|name| format!("?{name}")).join(",");
    let mut tracer = traced(&bed.scene, &set, None);
    (change.act)(&bed);
    until("what is after", || bed.open() == change.after);
    bed.scene.stop(Signal::SIGTERM);
    until("strace ends with the broker", || tracer.try_wait().unwrap().is_some());
    let mut threads: BTreeMap<(String, String), usize> = BTreeMap::new();
    for line in fs::read_to_string(bed.scene.at("trace")).unwrap().lines() {
        let call = line
            .split_once(' ')
            .and_then(|(thread, line)| Some((thread, line.trim_start().split_once('(')?.0)));
        if let Some((thread, name)) = call.filter(|(_, name)| CHANGING.contains(name)) {
            *threads.entry((name.to_owned(), thread.to_owned())).or_default() += 1;
        }
    }
    let mut most: BTreeMap<String, usize> = BTreeMap::new();
    for ((name, _), count) in threads {
        let most = most.entry(name).or_default();
        *most = count.max(*most);
    }
    Some(most)
}

fn at_each_step(test: &str, change: &Change) {
    let Some(steps) = steps(test, change) else { return };
    let of_nodes = |name: &str| steps.get(name).copied().unwrap_or_default();
    assert!(
        of_nodes("setxattr") + of_nodes("removexattr") + of_nodes("fchmodat") > 0,
        "{test} changes a node: {steps:?}"
    );
    let mut killed = 0;
    for (name, count) in &steps {
        for when in 1..=*count {
            let at = format!("{test}, killed before {name} {when}");
            let mut bed = Bed::new(test, POLICY).unwrap();
            (change.set_up)(&bed);
            until("what was before", || bed.open() == change.before);
            let mut tracer = traced(&bed.scene, name, Some(format!("inject={name}:signal=KILL:when={when}")));
            (change.act)(&bed);
            let began = Instant::now();
            while bed.scene.runs() && began.elapsed() < LONG {
                std::thread::sleep(Duration::from_millis(5));
            }
            match bed.scene.runs() {
                true => drop(bed.scene.stop(Signal::SIGKILL)),
                false => killed += 1,
            }
            until("strace ends with the broker", || tracer.try_wait().unwrap().is_some());
            let left = bed.open();
            let is_known = |word: &str| change.before.contains(word) || change.after.contains(word);
            assert!(left.split_whitespace().all(is_known), "{at}: {left} may be opened");
            fs::remove_file(bed.scene.at("state/status.json")).unwrap();
            bed.start();
            until(&at, || bed.open() == bed.expected());
            assert_eq!(
                bed.scene.at("state/nodes-closed").exists(),
                !bed.policy_is_open(),
                "{at}"
            );
            assert_eq!(bed.mode("nvidiactl"), 0o666, "{at}");
        }
    }
    println!("{test}: killed {killed} times");
    assert!(killed >= 4, "{test}: of {steps:?} only {killed} were met");
}

fn claim(bed: &Bed) {
    // A broker that was killed does not answer.
    let _ = bed.claim(ANN, "a", "0");
}

#[test]
fn a_claim() {
    at_each_step(
        "a_claim",
        &Change {
            set_up: |bed| drop(bed.claim(BOB, "b", "1").unwrap()),
            act: claim,
            before: "b1",
            after: "a0 b1",
        },
    );
}

#[test]
fn a_release() {
    at_each_step(
        "a_release",
        &Change {
            set_up: |bed| {
                bed.claim(ANN, "a", "0").unwrap();
                bed.claim(BOB, "b", "1").unwrap();
            },
            act: |bed| drop(bed.scene.ask(ANN, "release", serde_json::json!({"what": "a"}))),
            before: "a0 b1",
            after: "b1",
        },
    );
}

#[test]
fn a_policy_that_opens_the_nodes_and_one_that_closes_them() {
    let test = "a_policy_that_opens_the_nodes_and_one_that_closes_them";
    at_each_step(
        test,
        &Change {
            set_up: |bed| drop(bed.claim(BOB, "b", "1").unwrap()),
            act: |bed| {
                bed.let_count("open");
                claim(bed);
            },
            before: "b1",
            after: "a0 a1 b0 b1",
        },
    );
    at_each_step(
        test,
        &Change {
            set_up: |bed| {
                bed.claim(BOB, "b", "1").unwrap();
                bed.let_count("open");
                bed.claim(ANN, "first", "0").unwrap();
                bed.scene
                    .ask(ANN, "release", serde_json::json!({"what": "first"}))
                    .unwrap();
            },
            act: |bed| {
                bed.let_count("enforce");
                claim(bed);
            },
            before: "a0 a1 b0 b1",
            after: "a0 b1",
        },
    );
}
