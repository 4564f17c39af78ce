//! Programs that users run in a share without a container (`tranche run`).

use crate::scene::{ANN, BOB, GPU_0, Scene, Sleeper};
use crate::support::until;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};
use std::fs;
use std::process::{Child, Command, Output, Stdio};

/// `tranche run` of `uid`.
fn command(scene: &Scene, uid: u32, arguments: &[&str]) -> Command {
    let mut command = Command::new("setpriv");
    command.args([
        format!("--reuid={uid}"),
        format!("--regid={uid}"),
        "--clear-groups".into(),
    ]);
    command.arg(scene.at("tranche")).arg("run");
    command.arg(scene.option("state-dir", "state")).args(arguments);
    command
        .env_clear()
        .env("PATH", "/usr/bin:/bin")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

pub(crate) fn run(scene: &Scene, uid: u32, arguments: &[&str]) -> Output {
    command(scene, uid, arguments).output().unwrap()
}

/// The error of a run that was refused: one line.
fn refused(scene: &Scene, uid: u32, arguments: &[&str]) -> String {
    let output = run(scene, uid, arguments);
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{arguments:?}: {said}");
    assert!(output.stdout.is_empty(), "{arguments:?}: the program has run");
    assert_eq!(said.lines().count(), 1, "{said}");
    said
}

/// A program of `uid` that holds a share and sleeps.
pub(crate) struct Running {
    tranche: Child,
    pub(crate) program: Pid,
}

impl Running {
    pub(crate) fn new(scene: &Scene, uid: u32, share: &str) -> Self {
        let before = programs(scene, uid);
        let tranche = command(scene, uid, &["--share", share, "--", "sleep", "1000"]);
        let tranche = { tranche }.spawn().unwrap();
        let mut new = Vec::new();
        until("it holds its share", || {
            new = programs(scene, uid);
            new.retain(|pid| !before.contains(pid));
            !new.is_empty()
        });
        let program = new[0];
        let comm = format!("/proc/{program}/comm");
        until("the program has begun", || {
            fs::read_to_string(&comm).unwrap() == "sleep\n"
        });
        Self { tranche, program }
    }

    /// Whether the command has ended, which waits for its program.
    pub(crate) fn has_ended(&mut self) -> bool {
        self.tranche.try_wait().unwrap().is_some()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = kill(self.program, Signal::SIGKILL);
        let _ = self.tranche.kill();
        let _ = self.tranche.wait();
    }
}

/// The processes of the programs of `uid` that hold something, as the user sees it.
fn programs(scene: &Scene, uid: u32) -> Vec<Pid> {
    let list = scene.ask(uid, "list", json!({})).unwrap();
    let pid = |claim: &Value| claim["process"]["pid"].as_i64();
    let claims = list["claims"].as_array().unwrap().iter();
    claims
        .filter_map(pid)
        .map(|pid| Pid::from_raw(i32::try_from(pid).unwrap()))
        .collect()
}

#[test]
fn a_program_of_a_user_gets_its_device_and_its_exit_code_is_passed_on() {
    let Some(scene) = Scene::new("programs::a_program_of_a_user_gets_its_device_and_its_exit_code_is_passed_on") else {
        return;
    };
    let script = "echo $CUDA_VISIBLE_DEVICES $CUDA_MPS_PIPE_DIRECTORY; id -u; exit 7";
    for share in [&["--share", "0.any"][..], &["--share", "0.3", "--share", "0.4"]] {
        let mut command = command(&scene, ANN, share);
        command.args(["--", "sh", "-c", script]);
        let output = command.env("CUDA_MPS_PIPE_DIRECTORY", "/elsewhere").output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(7), "{share:?}: {said}");
        let out = String::from_utf8(output.stdout).unwrap();
        assert_eq!(out, format!("{GPU_0}\n{ANN}\n"), "{share:?}");
    }
    assert_eq!(scene.seen(ANN), [""; 0], "it is released with the end of the program");
    let output = run(&scene, ANN, &["--share", "0.any", "--", "/no/such/program"]);
    assert_eq!(output.status.code(), Some(127));
    assert_eq!(scene.seen(ANN), [""; 0]);
}

#[test]
fn a_share_is_held_while_the_program_lives_whatever_happens_to_the_command() {
    let test = "programs::a_share_is_held_while_the_program_lives_whatever_happens_to_the_command";
    let Some(scene) = Scene::new(test) else { return };
    let mut running = Running::new(&scene, ANN, "0.any");
    assert!(programs(&scene, BOB).is_empty());
    let status = scene.of_root(&["status"]);
    let status = String::from_utf8(status.stdout).unwrap();
    assert!(
        status.contains(&format!("sleep (process {})", running.program)),
        "{status}"
    );
    running.tranche.kill().unwrap();
    running.tranche.wait().unwrap();
    assert_eq!(programs(&scene, ANN), [running.program], "the program lives");
    kill(running.program, Signal::SIGKILL).unwrap();
    until("it is released", || programs(&scene, ANN).is_empty());
}

#[test]
fn a_program_waits_and_a_command_that_is_killed_meanwhile_leaves_nothing() {
    let test = "programs::a_program_waits_and_a_command_that_is_killed_meanwhile_leaves_nothing";
    let Some(mut scene) = Scene::without_broker(test) else {
        return;
    };
    let policy = "version: v1\nsharing:\n  dedicated: {devices: [0, 1]}\n  quota: {shares: 2, all: 2}\n";
    fs::write(scene.at("policy.yaml"), policy).unwrap();
    scene.start();
    for device in ["0", "1"] {
        let made = scene.tranche_of_root(&["claim", "create", "--name", &format!("of-{device}"), "--device", device]);
        assert!(made.status.success(), "{made:?}");
    }
    let waiting = || {
        let text = fs::read_to_string(scene.at("state/waiting.json")).unwrap_or_else(|_| "{}".to_owned());
        let waits: Value = serde_json::from_str(&text).unwrap();
        waits["waiting"].as_array().map_or(0, Vec::len)
    };
    let asks = |number: &str| command(&scene, ANN, &["--share", "any", "--wait", "5m", "--", "echo", number]);
    let mut killed = asks("killed").spawn().unwrap();
    until("it waits", || waiting() == 1);
    let served = asks("served").spawn().unwrap();
    until("both wait", || waiting() == 2);
    killed.kill().unwrap();
    killed.wait().unwrap();
    until("it does not wait any more", || waiting() == 1);
    assert!(scene.of_root(&["claim", "release", "of-1"]).status.success());
    let output = served.wait_with_output().unwrap();
    assert_eq!(String::from_utf8(output.stdout).unwrap(), "served\n");
    assert_eq!(scene.seen(ANN), [""; 0]);
    let line = refused(&scene, ANN, &["--share", "0", "--wait", "1s", "--", "echo"]);
    assert!(line.contains("gpu 0") && line.contains("waited"), "{line}");
}

#[test]
fn a_claim_is_used_by_its_user_alone() {
    let Some(scene) = Scene::new("programs::a_claim_is_used_by_its_user_alone") else {
        return;
    };
    scene.claim(ANN, "train").unwrap();
    let line = refused(&scene, BOB, &["--claim", "train", "--", "echo"]);
    assert!(line.contains(&format!("claim {BOB}.train: not found")), "{line}");
    let line = refused(&scene, BOB, &["--claim", &format!("{ANN}.train"), "--", "echo"]);
    assert!(line.contains("not found"), "{line}");
    let ran = run(
        &scene,
        ANN,
        &["--claim", "train", "--", "sh", "-c", "echo $CUDA_VISIBLE_DEVICES"],
    );
    assert_eq!(String::from_utf8(ran.stdout).unwrap(), format!("{GPU_0}\n"));
    assert_eq!(
        scene.seen(ANN),
        [format!("{ANN}.train")],
        "it waits for the next program"
    );
}

#[test]
fn what_a_user_may_not_have_is_refused_in_one_line() {
    let Some(scene) = Scene::new("programs::what_a_user_may_not_have_is_refused_in_one_line") else {
        return;
    };
    for (share, why) in [
        ("1.any", "under MPS"),
        ("1", "under MPS"),
        ("7.any", "not found"),
        ("0.big", "not a share of this host"),
        ("mig-1g.5gb.any", "only root can have an instance made"),
    ] {
        let output = run(&scene, ANN, &["--share", share, "--", "echo"]);
        let line = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success() && output.stdout.is_empty(), "{share}");
        assert!(line.contains(why) && line.lines().count() == 1, "{share}: {line}");
    }
    // The quota of the scene is three shares.
    let running = ["0.any", "0.any", "0.any"].map(|share| Running::new(&scene, ANN, share));
    let line = refused(&scene, ANN, &["--share", "0.any", "--", "echo"]);
    assert!(line.contains("sharing.quota"), "{line}");
    let bob = run(&scene, BOB, &["--share", "0.any", "--", "echo"]);
    assert!(bob.status.success(), "{bob:?}");
    drop(running);
    let drained = scene.tranche_of_root(&["drain", "0", "--reason", "fan"]);
    assert!(drained.status.success(), "{drained:?}");
    let line = refused(&scene, ANN, &["--share", "0.any", "--wait", "1m", "--", "echo"]);
    assert!(line.contains("out of service") && line.contains("fan"), "{line}");
}

#[test]
fn a_process_of_somebody_else_holds_nothing_for_a_user() {
    let Some(scene) = Scene::new("programs::a_process_of_somebody_else_holds_nothing_for_a_user") else {
        return;
    };
    let of_bob = Sleeper::new(BOB);
    for pid in [1, of_bob.pid(), std::process::id(), 0, u32::MAX] {
        let fields = json!({"pid": pid, "program": "train", "shares": ["0.any"]});
        let error = scene.ask(ANN, "run", fields).unwrap_err();
        assert!(error.contains(&format!("process {pid}")), "{error}");
    }
    let own = Sleeper::new(ANN);
    for fields in [
        json!({"pid": own.pid(), "program": "x"}),
        json!({"pid": own.pid(), "program": "x", "shares": ["0.any"], "claim": "no"}),
        json!({"pid": own.pid(), "program": "x", "shares": ["0.any", "1.any"]}),
        json!({"pid": own.pid(), "program": "x", "shares": ["any", "any"]}),
    ] {
        let error = scene.ask(ANN, "run", fields.clone()).unwrap_err();
        assert_eq!(error.lines().count(), 1, "{fields}: {error}");
    }
    assert_eq!(scene.seen(ANN), [""; 0]);
    let fields = json!({"pid": own.pid(), "program": "a\n\u{1b}[2Jb", "shares": ["0.any"]});
    scene.ask(ANN, "run", fields).unwrap();
    let status = scene.of_root(&["status", "--json"]);
    let status = String::from_utf8(status.stdout).unwrap();
    assert!(status.contains("a___2Jb"), "{status}");
}
