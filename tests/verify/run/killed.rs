//! `tranche run` is killed: its share is held while the program runs, and no longer.

use super::{Place, text, until};
use crate::support::skip;
use serde_json::Value;
use std::fs;
use std::process::{Command, Stdio};

/// Calls that change files or processes. Names that an architecture does not have are skipped with the mark.
const CHANGING: [&str; 12] = [
    "openat",
    "write",
    "?rename,renameat,renameat2",
    "?mkdir,mkdirat",
    "?unlink,unlinkat",
    "flock",
    "pipe2",
    "?clone,clone3,?vfork,?fork",
    "close",
    "rt_sigprocmask",
    "?signalfd4",
    "waitid,wait4",
];

/// More calls of one kind than a run makes.
const MOST: usize = 400;

#[test]
fn a_program_keeps_its_share_when_tranche_run_is_killed() {
    let place = Place::new();
    let mut child = place.hold(&["--share", "0.a"]);
    // The program reads from this end, so it runs on.
    let input = child.stdin.take();
    child.kill().unwrap();
    child.wait().unwrap();
    let [claim] = &place.claims()[..] else {
        panic!("one claim")
    };
    assert_eq!(claim["cdi"], "nvidia.com/gpu=0.a");
    assert_eq!(place.run(&["--share", "0.a"], &["true"]).status.code(), Some(1));
    drop(input);
    until("the claim is gone", || place.claims() == [Value::Null; 0]);
    let output = place.run(&["--share", "0.a"], &["true"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
}

#[test]
fn at_any_step() {
    let traced = Command::new("strace")
        .args(["-qq", "-o", "/dev/null", "/bin/true"])
        .output();
    if !traced.is_ok_and(|output| output.status.success()) {
        return skip::not_run("run::killed::at_any_step", "strace is missing, or may not trace");
    }
    let mut killed = 0;
    for calls in CHANGING {
        for when in 1..MOST {
            let place = Place::new();
            let seen = place.at("seen");
            // What the program sees of its own claim.
            let script = format!(
                "{} status --json > {seen}.part; mv {seen}.part {seen}",
                env!("CARGO_BIN_EXE_tranche"),
                seen = seen.display()
            );
            let run = place.command(&["--no-nvml", "--share", "0.a"], &["sh", "-c", &script]);
            let mut strace = Command::new("strace");
            strace
                .args(["-qq", "-o", "/dev/null", "-e"])
                .arg(format!("trace={calls}"));
            strace.arg("-e").arg(format!("inject={calls}:signal=KILL:when={when}"));
            strace.arg(run.get_program()).args(run.get_args());
            strace.envs(run.get_envs().filter_map(|(name, value)| Some((name, value?))));
            let status = strace
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .status()
                .unwrap();
            let output = place.run(&["--share", "0.a", "--wait", "60s"], &["true"]);
            assert!(output.status.success(), "{calls} {when}: {}", text(&output.stderr));
            assert_eq!(place.claims(), [Value::Null; 0], "{calls} {when}");
            if let Ok(status) = fs::read(&seen) {
                let status: Value = serde_json::from_slice(&status).unwrap();
                let claim = &status["claims"][0];
                assert_eq!(
                    claim["cdi"], "nvidia.com/gpu=0.a",
                    "{calls} {when}: the program ran without its share"
                );
                assert_eq!(claim["state"], "held", "{calls} {when}");
            }
            // Without a signal it was not killed any more.
            if status.success() {
                assert!(seen.exists(), "{calls} {when}");
                break;
            }
            killed += 1;
        }
    }
    assert!(killed > 50, "killed {killed} times");
}
