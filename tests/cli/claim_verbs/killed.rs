//! Every verb and every claim hook, killed before each system call that changes something.

use super::*;

/// Calls that change files, or that say a result.
const CHANGING: &[&str] = &[
    "openat",
    "creat",
    "write",
    "pwrite64",
    "rename",
    "renameat",
    "renameat2",
    "unlink",
    "unlinkat",
    "link",
    "linkat",
    "symlink",
    "symlinkat",
    "mkdir",
    "mkdirat",
    "rmdir",
    "ftruncate",
    "fchmod",
    "fchmodat",
    "fchown",
    "fsync",
    "flock",
];

/// The calls of one run that change something, each as its name and which of that name it is.
pub(super) fn steps(scene: &Scene, call: &Call) -> Vec<(String, usize)> {
    let log = scene.at("trace");
    // A name that this architecture does not have is skipped where a question mark is before it.
    let set: Vec<String> = CHANGING.iter().map(|name| format!("?{name}")).collect();
    let (trace, file) = (format!("trace={}", set.join(",")), log.display().to_string());
    call.run_behind(&["strace", "-f", "-qq", "-o", &file, "-e", &trace])
        .ok();
    // strace counts the calls of each thread on its own.
    let mut counts: std::collections::BTreeMap<(String, String), usize> = std::collections::BTreeMap::new();
    let mut steps = Vec::new();
    for line in fs::read_to_string(&log).unwrap().lines() {
        let call = line
            .split_once(' ')
            .and_then(|(thread, l)| Some((thread, l.trim_start().split_once('(')?)));
        let Some((thread, (name, rest))) = call else {
            continue;
        };
        if !CHANGING.contains(&name) {
            continue;
        }
        let count = counts.entry((thread.to_owned(), name.to_owned())).or_default();
        *count += 1;
        let changes = name != "openat"
            || ["O_CREAT", "O_TRUNC", "O_TMPFILE"]
                .iter()
                .any(|flag| rest.contains(flag));
        if changes {
            steps.push((name.to_owned(), *count));
        }
    }
    steps
}

/// Runs `call` and kills it before its step.
pub(super) fn killed(call: &Call, (name, count): &(String, usize)) {
    let (trace, inject) = (
        format!("trace={name}"),
        format!("inject={name}:signal=KILL:when={count}"),
    );
    let said = call.run_behind(&["strace", "-f", "-qq", "-o", "/dev/null", "-e", &trace, "-e", &inject]);
    assert_eq!(
        said.code, None,
        "killed before {name} {count}, and strace with it: {said:?}"
    );
}

/// Checks that after the next `gc` everything is in order, and nothing is lost.
fn in_order(scene: &Scene, at: &str) {
    let gc = scene.collect(&[]).run();
    assert_eq!(gc.code, Some(0), "{at}: {}", gc.err);
    let claims = scene.claims();
    let mut expected: Vec<String> = claims
        .iter()
        .map(|name| format!("nvidia.com-claim_{name}.yaml"))
        .collect();
    expected.push("tranche.yaml".to_owned());
    expected.sort();
    assert_eq!(
        names_in(&scene.at("cdi")),
        expected,
        "{at}: each claim has its specification, and nothing else is there"
    );
    let ledger = names_in(&scene.at("state/ledger"));
    assert!(
        ledger
            .iter()
            .all(|name| ["lock", "queue", "kept-was-read"].contains(&name.as_str()) || name.starts_with("GPU-")),
        "{at}: {ledger:?}"
    );
    let queue = scene.at("state/ledger/queue");
    assert!(!queue.exists() || names_in(&queue).is_empty(), "{at}: nobody waits");
    for name in &claims {
        let released = scene.tranche(&["claim", "release", "--force", name]).run();
        assert_eq!(released.code, Some(0), "{at}: {}", released.err);
    }
    // What containers held ended with them.
    let inits: Vec<Init> = (0..4)
        .map(|n| scene.start(&format!("nvidia.com/gpu=0.{n}"), &format!("after{n}")))
        .collect();
    let second = Init::new();
    let refused = scene
        .hook("createRuntime", "nvidia.com/gpu=0.0", "second", second.pid())
        .run();
    assert_eq!(refused.code, Some(1), "{at}: a share has one holder");
    drop(inits);
}

/// Whether strace is there and may trace a process. If not, the test `test` is reported as not run.
pub(super) fn may_trace(test: &str) -> bool {
    let test = format!("claim_verbs::killed::{test}");
    let is_there = Command::new("strace")
        .arg("-V")
        .output()
        .is_ok_and(|o| o.status.success());
    if !is_there {
        skip::not_run(&test, "strace is missing");
        return false;
    }
    let traced = Call {
        words: vec!["/bin/true".into()],
        input: None,
    }
    .run_behind(&["strace", "-f", "-qq", "-o", "/dev/null"]);
    if traced.code != Some(0) {
        skip::not_run(&test, "may not trace a process");
    }
    traced.code == Some(0)
}

/// Kills a call at each of its steps. `set_up` makes what it needs in a fresh scene, and gives the call, with what must
/// live until it has run.
fn at_each_step<T>(test: &str, fewest: usize, set_up: impl Fn(&Scene) -> (Call, T)) {
    at_each_step_of(test, CHANGING, fewest, set_up);
}

/// As [`at_each_step`], for these system calls alone.
pub(super) fn at_each_step_of<T>(test: &str, calls: &[&str], fewest: usize, set_up: impl Fn(&Scene) -> (Call, T)) {
    let Some(first) = Scene::new(&format!("killed::{test}")) else {
        return;
    };
    let (call, _alive) = set_up(&first);
    if !may_trace(test) {
        return;
    }
    let mut steps = steps(&first, &call);
    steps.retain(|(name, _)| calls.contains(&name.as_str()));
    assert!(steps.len() >= fewest, "what {test} changes: {steps:?}");
    for step in &steps {
        let scene = Scene::new(test).unwrap();
        let (call, alive) = set_up(&scene);
        killed(&call, step);
        drop(alive);
        in_order(&scene, &format!("{test}, killed before {} {}", step.0, step.1));
    }
}

#[test]
fn create() {
    at_each_step("create", 8, |scene| {
        (scene.create(&["--name=one", "--shares=2", "--of=0"]), ())
    });
}

#[test]
fn create_beside_another_claim_and_what_a_killed_one_left() {
    at_each_step("create_beside", 8, |scene| {
        scene.create(&["--name=other", "--shares=1", "--of=0"]).run().ok();
        fs::copy(scene.spec("other"), scene.at("kept")).unwrap();
        fs::write(scene.at("cdi/.tranche.left.tmp"), "half").unwrap();
        (scene.create(&["--name=one", "--shares=2", "--of=0"]), ())
    });
}

#[test]
fn release() {
    at_each_step("release", 3, |scene| {
        scene.create(&["--name=one", "--shares=2", "--of=0"]).run().ok();
        (scene.tranche(&["claim", "release", "one"]), ())
    });
}

#[test]
fn gc() {
    at_each_step("gc", 3, |scene| {
        scene
            .create(&["--name=one", "--shares=1", "--of=0", "--once"])
            .run()
            .ok();
        scene.create(&["--name=kept", "--shares=1", "--of=0"]).run().ok();
        drop(scene.start("nvidia.com/claim=one", "gone"));
        drop(scene.start("nvidia.com/gpu=0.3", "gone-too"));
        (scene.collect(&[]), ())
    });
}

#[test]
fn the_hook_that_takes_a_share() {
    at_each_step("the_hook_that_takes_a_share", 3, |scene| {
        let init = Init::new();
        (scene.hook("createRuntime", "nvidia.com/gpu=0.1", "c", init.pid()), init)
    });
}

#[test]
fn the_hook_that_uses_a_claim() {
    at_each_step("the_hook_that_uses_a_claim", 3, |scene| {
        scene.create(&["--name=one", "--shares=2", "--of=0"]).run().ok();
        let init = Init::new();
        (
            scene.hook("createRuntime", "nvidia.com/claim=one", "c", init.pid()),
            init,
        )
    });
}

#[test]
fn the_hook_that_gives_back() {
    for device in ["nvidia.com/gpu=0.1", "nvidia.com/claim=once", "nvidia.com/claim=kept"] {
        at_each_step("the_hook_that_gives_back", 2, |scene| {
            scene
                .create(&["--name=once", "--shares=1", "--of=0", "--once"])
                .run()
                .ok();
            scene.create(&["--name=kept", "--shares=1", "--of=0"]).run().ok();
            // The two claims have the shares 0 and 1.
            let device = device.replace("0.1", "0.3");
            drop(scene.start(&device, "c"));
            (scene.hook("poststop", &device, "c", 0), ())
        });
    }
}
