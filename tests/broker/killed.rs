//! The broker, killed before each system call that changes something while it serves one request.

use crate::scene::{ANN, GPU_0, Scene, Sleeper, container};
use crate::support::{skip, until};
use nix::sys::signal::Signal;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs;
use std::process::{Child, Command};

/// Calls that change files, or that say a result.
const CHANGING: [&str; 12] = [
    "openat",
    "write",
    "sendto",
    "rename",
    "renameat",
    "renameat2",
    "unlink",
    "unlinkat",
    "mkdirat",
    "fchmod",
    "fsync",
    "flock",
];

/// Attaches strace to the broker, with what it is to do at which call.
pub(crate) fn traced(scene: &Scene, calls: &str, inject: Option<String>) -> Child {
    let pid = scene.pid();
    let mut command = Command::new("strace");
    command.args(["-f", "-qq", "-o"]).arg(scene.at("trace"));
    command.args(["-e", &format!("trace={calls}")]);
    command.args(inject.iter().flat_map(|inject| ["-e", inject]));
    let mut tracer = command.args(["-p", &pid.to_string()]).spawn().unwrap();
    let is_traced = || {
        let tasks = fs::read_dir(format!("/proc/{pid}/task")).unwrap();
        tasks.into_iter().all(|task| {
            let status = fs::read_to_string(task.unwrap().path().join("status")).unwrap_or_default();
            !status.contains("TracerPid:\t0\n")
        })
    };
    // The broker may make the call by itself, when it finds that a container has ended. Then it is killed at once,
    // strace ends with it, and nobody traces it any more.
    until("strace is attached to the broker", || {
        is_traced() || tracer.try_wait().unwrap().is_some()
    });
    tracer
}

/// Waits until strace has ended, as it does when the broker has.
fn ended(mut tracer: Child) {
    until("strace ends with the broker", || tracer.try_wait().unwrap().is_some());
}

/// The calls by which `request` is served: each name, and how often the thread makes it that has the ledger's lock.
fn steps(scene: &mut Scene, request: &dyn Fn(&Scene) -> Result<Value, String>) -> BTreeMap<String, usize> {
    let set: Vec<String> = CHANGING.iter().map(|name| format!("?{name}")).collect();
    let tracer = traced(scene, &set.join(","), None);
    request(scene).unwrap();
    scene.stop(Signal::SIGTERM);
    ended(tracer);
    let text = fs::read_to_string(scene.at("trace")).unwrap();
    let mut threads: BTreeMap<&str, BTreeMap<String, usize>> = BTreeMap::new();
    for line in text.lines() {
        let Some((thread, (name, _))) = line
            .split_once(' ')
            .and_then(|(t, l)| Some((t, l.trim_start().split_once('(')?)))
        else {
            continue;
        };
        if CHANGING.contains(&name) {
            *threads.entry(thread).or_default().entry(name.to_owned()).or_default() += 1;
        }
    }
    threads
        .into_values()
        .find(|calls| calls.contains_key("flock"))
        .unwrap_or_default()
}

/// Whether strace is there and may trace a process. If not, `test` is reported as not run.
pub(crate) fn may_trace(test: &str) -> bool {
    let strace = Command::new("strace")
        .args(["-f", "-qq", "-o", "/dev/null", "true"])
        .status();
    let may = strace.is_ok_and(|status| status.success());
    if !may {
        skip::not_run(test, "strace is missing, or may not trace a process");
    }
    may
}

/// Kills the broker at each step of `request`, in a scene that `set_up` prepared, and looks at what the next broker
/// finds.
fn at_each_step(
    test: &str,
    set_up: &dyn Fn(&Scene),
    request: &dyn Fn(&Scene) -> Result<Value, String>,
    look: &dyn Fn(&Scene, &str),
) {
    let Some(mut scene) = Scene::new(&format!("killed::{test}")) else {
        return;
    };
    if !may_trace(&format!("broker::killed::{test}")) {
        return;
    }
    set_up(&scene);
    let steps = steps(&mut scene, request);
    assert!(steps.values().sum::<usize>() >= 8, "what {test} changes: {steps:?}");
    let mut killed = 0;
    for (name, count) in &steps {
        for when in 1..=*count {
            let mut scene = Scene::new(&format!("killed::{test}")).unwrap();
            set_up(&scene);
            let tracer = traced(&scene, name, Some(format!("inject={name}:signal=KILL:when={when}")));
            let answered = request(&scene);
            // Another thread may have been the one that made the call. Then the broker was killed at another step.
            killed += usize::from(answered.is_err());
            scene.stop(Signal::SIGKILL);
            ended(tracer);
            scene.start();
            look(
                &scene,
                &format!("{test}, killed before {name} {when}, answered {answered:?}"),
            );
        }
    }
    assert!(killed >= 5, "{test}: of {steps:?} only {killed} were not answered");
}

/// Each claim has its specification, and there is no other.
fn in_order(scene: &Scene, names: &[&str], at: &str) {
    assert_eq!(scene.names(), names, "{at}");
    let gc = scene.tranche(0, &["claim", "gc", &scene.option("spec-dir", "cdi")]);
    assert!(gc.status.success(), "{at}: {}", String::from_utf8_lossy(&gc.stderr));
    let specs: Vec<String> = names
        .iter()
        .map(|name| format!("nvidia.com-claim_{name}.yaml"))
        .collect();
    assert_eq!(scene.specs(), specs, "{at}");
}

#[test]
fn a_claim_is_made_or_it_is_not() {
    at_each_step(
        "a_claim_is_made_or_it_is_not",
        &|scene| drop(scene.claim(ANN, "other").unwrap()),
        &|scene| scene.claim(ANN, "train"),
        &|scene, at| {
            match scene.names().len() {
                1 => in_order(scene, &["65534.other"], at),
                _ => in_order(scene, &["65534.other", "65534.train"], at),
            }
            // The name is free, or it is the user's claim.
            let again = scene.claim(ANN, "train");
            assert!(again.is_ok() || again.unwrap_err().contains("exists already"), "{at}");
            in_order(scene, &["65534.other", "65534.train"], at);
        },
    );
}

#[test]
fn a_claim_is_released_or_it_is_not() {
    at_each_step(
        "a_claim_is_released_or_it_is_not",
        &|scene| {
            scene.claim(ANN, "other").unwrap();
            scene.claim(ANN, "train").unwrap();
        },
        &|scene| scene.ask(ANN, "release", json!({"what": "train"})),
        &|scene, at| {
            let again = scene.ask(ANN, "release", json!({"what": "train"}));
            assert!(again.is_ok() || again.unwrap_err().contains("not found"), "{at}");
            in_order(scene, &["65534.other"], at);
        },
    );
}

#[test]
fn a_container_enters_and_leaves_once() {
    let init = Sleeper::new(ANN);
    let enter = |scene: &Scene| {
        let request = json!({"device": GPU_0, "share": "any", "container": container("c"), "pid": init.pid()});
        scene.ask(ANN, "enter", request)
    };
    at_each_step("a_container_enters_once", &|_| {}, &enter, &|scene, at| {
        assert!(scene.claims().len() <= 1, "{at}");
        enter(scene).unwrap();
        assert_eq!(scene.claims().len(), 1, "{at}");
    });
    // A container that has ended by the time that it leaves.
    let enter_and_end = |scene: &Scene| {
        let ended = Sleeper::new(ANN);
        let request = json!({"device": GPU_0, "share": "any", "container": container("gone"), "pid": ended.pid()});
        scene.ask(ANN, "enter", request).unwrap();
    };
    let leave = |scene: &Scene| scene.ask(ANN, "leave", json!({"container": container("gone")}));
    at_each_step(
        "a_container_leaves_once",
        &|scene| {
            enter(scene).unwrap();
            enter_and_end(scene);
        },
        &leave,
        &|scene, at| {
            leave(scene).unwrap();
            let left = scene.claims();
            assert_eq!(left.len(), 1, "{at}: {left:?}");
            assert_eq!(left[0].process.as_ref().unwrap().pid, init.pid(), "{at}");
        },
    );
}

/// A broker that is killed between a claim and its specification leaves one without the other, and the next one removes
/// it: its name can be that of a new claim, and no engine starts a container with it.
#[test]
fn the_next_broker_removes_a_specification_whose_claim_was_not_made() {
    let Some(mut scene) = Scene::new("the_next_broker_removes_a_specification_whose_claim_was_not_made") else {
        return;
    };
    for name in ["kept", "late"] {
        scene.claim(ANN, name).unwrap();
    }
    let left = scene.specs().into_iter().find(|file| file.contains("late")).unwrap();
    let path = scene.at("cdi").join(left);
    let text = fs::read(&path).unwrap();
    scene.stop(Signal::SIGKILL);
    let released = scene.of_root(&["claim", "release", &format!("{ANN}.late")]);
    assert!(released.status.success(), "{released:?}");
    fs::write(&path, text).unwrap();
    scene.start();
    until("what was left is removed", || !path.exists());
    assert_eq!((scene.names().len(), scene.specs().len()), (1, 1));
}
