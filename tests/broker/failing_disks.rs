//! What is answered and what is kept, whatever write of a verb is the first that the disk refuses: all of it is done,
//! or nothing, also after a boot.

use crate::scene::{ANN, GPU_0, GPU_1, Scene, Sleeper, container};
use crate::support::failing_disk::{FailingDisk, Failure, files};
use crate::support::skip;
use nix::sys::signal::Signal;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use tranche_core::ledger::events::{EventKind, EventLine, parse};
use tranche_core::ledger::{Claim, Ledger, OutOfService};

const POLICY: &str = "\
version: v1
sharing: {timeSlicing: {resources: [{name: nvidia.com/gpu, devices: [0, 1], replicas: 10}]}}
";

const POLICY_OF_DRA: &str = "\
version: v1
kubernetes: {door: dra}
sharing: {timeSlicing: {resources: [{name: nvidia.com/gpu, devices: [0, 1], replicas: 10}]}}
";

const UID: &str = "aaaaaaaa-0000-4000-8000-000000000001";

/// What there is.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Kept {
    /// The claims.
    held: BTreeSet<String>,
    /// Those that there would be after a boot, and what is out of service.
    after_boot: BTreeSet<String>,
    /// The specifications of claims.
    specs: BTreeSet<PathBuf>,
}

fn claims(claims: impl Iterator<Item = Claim>) -> BTreeSet<String> {
    let text = |claim: Claim| format!("{} {} {}", claim.name.unwrap_or_default(), claim.device, claim.part);
    claims.map(text).collect()
}

/// What a boot leaves of the ledger: what is kept in another directory.
fn after_boot(scene: &Scene) -> BTreeSet<String> {
    let booted = tempfile::tempdir().unwrap();
    let ledger = booted.path().join("kept/ledger");
    fs::create_dir_all(&ledger).unwrap();
    fs::set_permissions(&ledger, PermissionsExt::from_mode(0o700)).unwrap();
    let kept = scene.at("state/kept/ledger");
    for file in files(&kept) {
        fs::copy(kept.join(&file), ledger.join(&file)).unwrap();
    }
    let Some(ledger) = Ledger::existing(booted.path()).unwrap() else {
        return BTreeSet::new();
    };
    let books = ledger.books().unwrap();
    assert!(books.damaged.is_empty(), "{books:?}");
    claims(books.books.into_iter().flat_map(|book| book.claims))
}

fn kept(scene: &Scene) -> Kept {
    let specs = files(&scene.at("cdi")).into_iter();
    let out = OutOfService::read(&scene.at("state"));
    assert_eq!(out.unreadable, None);
    let drained = out
        .drained
        .into_iter()
        .map(|outage| format!("without {}", outage.device));
    Kept {
        held: claims(scene.claims().into_iter()),
        after_boot: after_boot(scene).into_iter().chain(drained).collect(),
        specs: specs.filter(|file| !is_temporary(file)).collect(),
    }
}

fn is_temporary(file: &Path) -> bool {
    let name = file.file_name().unwrap().to_str().unwrap();
    name.starts_with("new") || name.starts_with(".tranche")
}

/// What is done, and how it is undone.
struct Verb {
    name: &'static str,
    /// Whether it ends a claim, and makes none.
    ends: bool,
    /// Whether it may be asked again, as the kubelet's plugins do until it is done.
    repeats: bool,
    ask: fn(&Scene, &FailingDisk) -> Result<(), String>,
    undo: fn(&Scene),
}

fn of_broker(scene: &Scene, uid: u32, command: &str, fields: Value) -> Result<(), String> {
    let answer = scene.ask(uid, command, fields)?;
    match answer["left"].as_array() {
        // The answer says what could not be removed.
        Some(left) if !left.is_empty() => Err(format!("released; {left:?}")),
        _ => Ok(()),
    }
}

fn pod(devices: &[(&str, u32)]) -> Value {
    let ids = devices.iter().map(|(gpu, share)| format!("{gpu}.{share}"));
    json!({"pod": {"namespace": "shop", "name": "web-1"}, "devices": ids.collect::<Vec<_>>()})
}

fn one() -> Value {
    pod(&[(GPU_0, 9)])
}

fn two() -> Value {
    pod(&[(GPU_0, 9), (GPU_1, 9)])
}

fn prepared() -> Value {
    let devices =
        json!([{"device": "gpu-0", "share_id": "a", "shares": 2}, {"device": "gpu-1", "share_id": "b", "shares": 1}]);
    json!({"claim": {"namespace": "lab", "name": "train", "uid": UID}, "devices": devices, "asked_at": u64::MAX})
}

fn command_of_root(scene: &Scene, arguments: &[&str]) -> Command {
    // Only what makes a claim looks at the host.
    let mut command = match arguments[1] {
        "create" | "0" | "1" => scene.command_of_root(arguments),
        _ => {
            let mut command = Command::new(scene.at("tranche"));
            command.args(arguments).arg(scene.option("state-dir", "state"));
            command.env_clear();
            command
        }
    };
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

/// A command of root, whose own writes are on the disk too.
fn of_root(scene: &Scene, disk: &FailingDisk, arguments: &[&str]) -> Result<(), String> {
    let started = disk.spawn(&mut command_of_root(scene, arguments)).unwrap();
    let output = started.wait_with_output().unwrap();
    let said = String::from_utf8([output.stderr, output.stdout].concat()).unwrap();
    output.status.success().then_some(()).ok_or(said)
}

fn by_root(scene: &Scene, arguments: &[&str]) {
    let output = command_of_root(scene, arguments).output().unwrap();
    assert!(output.status.success(), "{arguments:?}: {output:?}");
}

/// A process of `uid` for all tests.
fn init(uid: u32) -> u32 {
    static INITS: [OnceLock<Sleeper>; 2] = [const { OnceLock::new() }; 2];
    INITS[usize::from(uid == ANN)].get_or_init(|| Sleeper::new(uid)).pid()
}

fn entry() -> Value {
    json!({"device": GPU_0, "share": "7", "container": container("of-a-user"), "pid": init(ANN)})
}

/// The hook of a container of root.
fn enter(scene: &Scene, disk: &FailingDisk) -> Result<(), String> {
    let mut command = Command::new(scene.at("tranche-oci"));
    command.args(["hook", "claim", "--label=gpu 0", "--size=1/10", "--of=10", "--share=6"]);
    command
        .arg(format!("--device={GPU_0}"))
        .arg(scene.option("state-dir", "state"));
    command.env_clear().stdin(Stdio::piped()).stderr(Stdio::piped());
    let mut hook = disk.spawn(&mut command).unwrap();
    let state = json!({"id": "of-root", "bundle": scene.at("of-root"), "pid": init(0), "annotations": {}});
    let mut stdin = hook.stdin.take().unwrap();
    // It may have ended by now.
    let _ = stdin.write_all(state.to_string().as_bytes());
    drop(stdin);
    let output = hook.wait_with_output().unwrap();
    output
        .status
        .success()
        .then_some(())
        .ok_or(String::from_utf8(output.stderr).unwrap())
}

fn broker(scene: &Scene, uid: u32, command: &str, fields: Value) {
    of_broker(scene, uid, command, fields).unwrap_or_else(|error| panic!("{command}: {error}"));
}

const CREATE: [&str; 6] = ["claim", "create", "--name=train", "--device=0", "--shares=1", "--json"];

const VERBS: &[Verb] = &[
    Verb {
        name: "reserve",
        ends: false,
        repeats: true,
        ask: |scene, _| of_broker(scene, 0, "reserve", one()),
        undo: |scene| broker(scene, 0, "give-up", one()),
    },
    Verb {
        name: "reserve of two GPUs",
        ends: false,
        repeats: true,
        ask: |scene, _| of_broker(scene, 0, "reserve", two()),
        undo: |scene| broker(scene, 0, "give-up", two()),
    },
    Verb {
        name: "give-up",
        ends: true,
        repeats: true,
        ask: |scene, _| of_broker(scene, 0, "give-up", pod(&[(GPU_0, 8), (GPU_1, 8)])),
        undo: |scene| broker(scene, 0, "reserve", pod(&[(GPU_0, 8), (GPU_1, 8)])),
    },
    Verb {
        name: "claim",
        ends: false,
        repeats: false,
        ask: |scene, _| of_broker(scene, ANN, "claim", json!({"name": "mine", "device": "0", "shares": 1})),
        undo: |scene| broker(scene, ANN, "release", json!({"what": "mine"})),
    },
    Verb {
        name: "release",
        ends: true,
        repeats: false,
        ask: |scene, _| of_broker(scene, ANN, "release", json!({"what": "held"})),
        undo: |scene| {
            drop(
                scene
                    .ask(ANN, "claim", json!({"name": "held", "device": "1", "shares": 1}))
                    .unwrap(),
            )
        },
    },
    Verb {
        name: "claim create",
        ends: false,
        repeats: false,
        ask: |scene, disk| of_root(scene, disk, &CREATE),
        undo: |scene| by_root(scene, &["claim", "release", "train"]),
    },
    Verb {
        name: "claim release",
        ends: true,
        repeats: false,
        ask: |scene, disk| of_root(scene, disk, &["claim", "release", "old"]),
        undo: |scene| by_root(scene, &["claim", "create", "--name=old", "--device=1", "--shares=2"]),
    },
    Verb {
        name: "enter",
        ends: false,
        repeats: false,
        ask: |scene, _| of_broker(scene, ANN, "enter", entry()),
        undo: |scene| by_root(scene, &["claim", "release", "--force", &format!("{ANN}.of-a-user")]),
    },
    Verb {
        name: "hook claim",
        ends: false,
        repeats: false,
        ask: enter,
        undo: |scene| by_root(scene, &["claim", "release", "--force", "of-root"]),
    },
];

const VERBS_OF_SERVICE: &[Verb] = &[
    Verb {
        name: "drain",
        ends: false,
        repeats: true,
        ask: |scene, disk| of_root(scene, disk, &["drain", "0"]),
        undo: |scene| by_root(scene, &["undrain", "0"]),
    },
    Verb {
        name: "undrain",
        ends: true,
        repeats: true,
        ask: |scene, disk| of_root(scene, disk, &["undrain", "1"]),
        undo: |scene| by_root(scene, &["drain", "1"]),
    },
];

const VERBS_OF_DRA: &[Verb] = &[
    Verb {
        name: "prepare-claim",
        ends: false,
        repeats: true,
        ask: |scene, _| of_broker(scene, 0, "prepare-claim", prepared()),
        undo: |scene| broker(scene, 0, "unprepare-claim", json!({"uid": UID})),
    },
    Verb {
        name: "unprepare-claim",
        ends: true,
        repeats: true,
        ask: |scene, _| of_broker(scene, 0, "unprepare-claim", json!({"uid": UID})),
        undo: |scene| broker(scene, 0, "prepare-claim", prepared()),
    },
];

/// What a writer left that has ended: in these directories the one who has the lock writes.
fn left(scene: &Scene) -> Vec<PathBuf> {
    let tops = ["state/ledger", "state/kept", "cdi"].map(|top| scene.at(top));
    let all = tops
        .iter()
        .flat_map(|top| files(top).into_iter().map(|file| top.join(file)));
    all.filter(|file| is_temporary(file)).collect()
}

/// The disks: that of the ledger, that of what outlives a boot, that of specifications, and one that is all three.
fn disks(scene: &Scene) -> [(&'static str, Vec<PathBuf>, Vec<PathBuf>); 4] {
    let [state, kept, cdi] = ["state", "state/kept", "cdi"].map(|name| scene.at(name));
    [
        ("run", vec![state.clone()], vec![kept.clone()]),
        ("persistent", vec![kept], Vec::new()),
        ("specifications", vec![cdi.clone()], Vec::new()),
        ("all", vec![state, cdi], Vec::new()),
    ]
}

/// Does `verb` on a disk that fails at every write in turn. `before` is what there is without it. Returns how often it
/// was refused.
fn each_write(scene: &Scene, disk: &FailingDisk, verb: &Verb) -> (usize, Vec<String>) {
    let before = kept(scene);
    (verb.ask)(scene, disk).unwrap_or_else(|error| panic!("{}: {error}", verb.name));
    let done = kept(scene);
    assert_ne!(before, done, "{}: does nothing", verb.name);
    (verb.undo)(scene);
    assert_eq!(kept(scene), before, "{}: was not undone", verb.name);
    let (mut refused, mut wrong) = (0, Vec::new());
    for failure in Failure::ALL {
        for (which, tops, except) in disks(scene) {
            for spared in 0.. {
                disk.fail(failure, &tops, &except, spared);
                let answer = (verb.ask)(scene, disk);
                let found = kept(scene);
                let mut asked = vec![(answer, found)];
                if verb.repeats && asked[0].0.is_err() {
                    let again = (verb.ask)(scene, disk);
                    asked.push((again, kept(scene)));
                }
                let failed = disk.mend();
                let at = format!(
                    "{}, {which} is {failure:?} after {spared} writes ({failed:?})",
                    verb.name
                );
                let mut was = &before;
                for (answer, found) in &asked {
                    refused += usize::from(answer.is_err());
                    wrong.extend(compare(verb, answer, failure, was, found, &done).map(|what| format!("{at}: {what}")));
                    was = found;
                }
                let left = left(scene);
                // What is read-only keeps what there is, until the next writer.
                if failure == Failure::Full && !left.is_empty() {
                    wrong.push(format!("{at}: left {left:?}"));
                }
                // With room, it is done.
                let (_, found) = asked.pop().unwrap();
                if verb.repeats || found != done && found.held == before.held {
                    if let Err(error) = (verb.ask)(scene, disk) {
                        wrong.push(format!("{at}: again: {error}"));
                    }
                    if kept(scene) != done {
                        wrong.push(format!("{at}: again: {:#?}", kept(scene)));
                    }
                }
                (verb.undo)(scene);
                if kept(scene) != before {
                    wrong.push(format!("{at}: undone: {:#?}", kept(scene)));
                }
                if failed.is_empty() {
                    break;
                }
            }
        }
    }
    (refused, wrong)
}

/// What the answer does not say.
fn compare(
    verb: &Verb,
    answer: &Result<(), String>,
    failure: Failure,
    before: &Kept,
    found: &Kept,
    done: &Kept,
) -> Option<String> {
    let is = |expected: &Kept| match answer {
        Ok(()) => found == expected,
        // A specification that is left is of no claim, and the next command removes it.
        Err(_) => (&found.held, &found.after_boot) == (&expected.held, &expected.after_boot),
    };
    let says = |what: &str| answer.as_ref().is_err_and(|error| error.contains(what));
    let is_true = match answer {
        Ok(()) => is(done),
        Err(_) if verb.ends && (says("released") || says("given up")) => is(done),
        // Nobody can undo on a disk that can only be read what was done before it was. The answer says so, and what was
        // promised to others is not lost.
        Err(_) if failure == Failure::ReadOnly && (says("a part of it is recorded") || says("stays reserved")) => {
            is_between(before, found, done)
        }
        Err(_) => is(before),
    };
    (!is_true).then(|| format!("{answer:?}, and there is {found:#?}"))
}

/// Whether nothing was lost that was there before and is there when all is done, and nothing else was added.
fn is_between(before: &Kept, found: &Kept, done: &Kept) -> bool {
    let between = |of: fn(&Kept) -> &BTreeSet<String>| {
        let (before, found, done) = (of(before), of(found), of(done));
        before.intersection(done).all(|claim| found.contains(claim))
            && found.iter().all(|claim| before.contains(claim) || done.contains(claim))
    };
    between(|kept| &kept.held) && between(|kept| &kept.after_boot)
}

fn tried(test: &str, policy: &str, prepare: fn(&Scene), verbs: &[Verb]) {
    let Some(mut scene) = Scene::without_broker(test) else {
        return;
    };
    fs::write(scene.at("policy.yaml"), policy).unwrap();
    let disk = FailingDisk::default();
    // It warns of each file that it cannot write.
    let broker = match disk.spawn(scene.command().stderr(Stdio::null())) {
        Ok(broker) => broker,
        Err(error) => return skip::not_run(&format!("broker::{test}"), &format!("no seccomp listener: {error}")),
    };
    scene.watch(broker);
    prepare(&scene);
    let mut wrong = Vec::new();
    for verb in verbs {
        let (refused, found) = each_write(&scene, &disk, verb);
        println!("{}: refused {refused} times, {} times wrong", verb.name, found.len());
        assert!(refused > 0, "{}: no write failed", verb.name);
        wrong.extend(found);
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    // What was taken for what a boot leaves is what a boot leaves.
    let before = kept(&scene);
    scene.stop(Signal::SIGTERM);
    fs::remove_dir_all(scene.at("state/ledger")).unwrap();
    let _ = fs::remove_dir_all(scene.at("cdi"));
    scene.start();
    scene.ask(0, "offers", json!({})).unwrap();
    let after = kept(&scene);
    assert_eq!(after.after_boot, before.after_boot);
    let is_claim = |text: &&String| !text.starts_with("without ");
    assert!(
        after.held.iter().eq(before.after_boot.iter().filter(is_claim)),
        "{after:?}"
    );
}

/// What others hold, on both GPUs: no file is empty before or after.
fn others(scene: &Scene) {
    let devices = [format!("{GPU_0}.0"), format!("{GPU_1}.0")];
    let pod = json!({"namespace": "shop", "name": "web-0"});
    broker(scene, 0, "reserve", json!({"pod": pod, "devices": devices}));
}

#[test]
fn what_is_answered_is_what_is_kept() {
    tried(
        "failing_disks::what_is_answered_is_what_is_kept",
        POLICY,
        |scene| {
            others(scene);
            // What is given up and released.
            for name in ["give-up", "release", "claim release"] {
                let verb = VERBS.iter().find(|verb| verb.name == name).unwrap();
                (verb.undo)(scene);
            }
        },
        VERBS,
    );
}

#[test]
fn what_is_answered_of_service_is_what_is_kept() {
    tried(
        "failing_disks::what_is_answered_of_service_is_what_is_kept",
        POLICY,
        VERBS_OF_SERVICE[1].undo,
        VERBS_OF_SERVICE,
    );
}

/// The same where nobody else has anything.
#[test]
fn what_is_answered_is_what_is_kept_of_the_first() {
    tried(
        "failing_disks::what_is_answered_is_what_is_kept_of_the_first",
        POLICY,
        |_| {},
        &VERBS[..2],
    );
}

#[test]
fn what_is_answered_of_a_resource_claim_is_what_is_kept() {
    tried(
        "failing_disks::what_is_answered_of_a_resource_claim_is_what_is_kept",
        POLICY_OF_DRA,
        |_| {},
        &VERBS_OF_DRA[..1],
    );
}

#[test]
fn what_is_answered_of_the_end_of_a_resource_claim_is_what_is_kept() {
    tried(
        "failing_disks::what_is_answered_of_the_end_of_a_resource_claim_is_what_is_kept",
        POLICY_OF_DRA,
        VERBS_OF_DRA[1].undo,
        &VERBS_OF_DRA[1..],
    );
}

/// Whatever of an event is written: the claim is made, and each later event is a line of its own.
#[test]
fn a_full_disk_costs_events_and_never_a_claim() {
    let test = "failing_disks::a_full_disk_costs_events_and_never_a_claim";
    let Some(scene) = Scene::without_broker(test) else {
        return;
    };
    fs::write(scene.at("policy.yaml"), POLICY).unwrap();
    let events = scene.at("state/events");
    fs::create_dir_all(&events).unwrap();
    let disk = FailingDisk::default();
    if let Err(error) = disk.spawn(&mut Command::new("true")) {
        return skip::not_run(&format!("broker::{test}"), &format!("no seccomp listener: {error}"));
    }
    let verb = VERBS.iter().find(|verb| verb.name == "hook claim").unwrap();
    let mut lost = 0;
    for failure in Failure::ALL {
        // The first event makes the file, and later ones append to it.
        let _ = fs::remove_file(events.join("log"));
        for spared in [0, 1, 2, 3, 0, 1] {
            disk.fail(failure, std::slice::from_ref(&events), &[], spared);
            (verb.ask)(&scene, &disk).unwrap_or_else(|error| panic!("{failure:?} after {spared} writes: {error}"));
            lost += disk.mend().len();
            assert_eq!(scene.claims().len(), 1, "{failure:?} after {spared} writes");
            (verb.undo)(&scene);
            assert!(scene.claims().is_empty());
            let text = fs::read_to_string(events.join("log")).unwrap();
            let last = text.lines().last().map(parse);
            let is_end = |line: &EventLine| matches!(line, EventLine::Event(event) if event.kind == EventKind::Ended);
            assert!(last.as_ref().is_some_and(is_end) && text.ends_with('\n'), "{text}");
            assert!(
                !text.lines().map(parse).any(|line| line == EventLine::Unknown),
                "{text}"
            );
        }
    }
    assert!(lost > 4, "{lost} writes failed");
}
