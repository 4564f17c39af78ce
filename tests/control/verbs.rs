//! `tranche mps`, over a broker; and daemons that systemd starts.

use crate::bed::{Bed, UNEQUAL};
use crate::support::programs;
use serde_json::Value;
use std::fs;
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};
use tranche_broker::control::MachineControl;

/// A broker, until it is dropped.
struct Broker(Child);

impl Broker {
    fn start(bed: &Bed) -> Self {
        fs::write(bed.at("policy.yaml"), UNEQUAL).unwrap();
        let mut command = tranche(bed, &["broker"]);
        let child = command
            .arg("--config")
            .arg(bed.at("policy.yaml"))
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        let until = Instant::now() + Duration::from_secs(60);
        while UnixStream::connect(bed.state().join("broker.sock")).is_err() {
            assert!(Instant::now() < until, "the broker does not listen");
            std::thread::sleep(Duration::from_millis(20));
        }
        Self(child)
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn tranche(bed: &Bed, words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tranche"));
    command.args(words).env_clear().env("PATH", "/usr/bin:/bin");
    command.arg("--state-dir").arg(bed.state());
    if !words.contains(&"status") {
        command.arg("--root").arg(&bed.host.root);
    }
    command
}

fn said(output: &Output) -> (i32, String) {
    let text = [&output.stdout[..], &output.stderr[..]].concat();
    (output.status.code().unwrap(), String::from_utf8(text).unwrap())
}

/// What is changed of a device whose journal is damaged is unknown, which is not the same as nothing.
#[test]
fn a_damaged_journal_is_no_unchanged_device() {
    let bed = Bed::new(UNEQUAL);
    let run = |words: &[&str]| said(&tranche(&bed, words).output().unwrap());
    drop(bed.control());
    fs::write(bed.state().join("control/0.json"), "{").unwrap();
    let removal = [
        "system",
        "prepare-removal",
        "--spec-dir=/nonexistent",
        "--tmpfiles-dir=/nonexistent",
    ];
    let says = "control/0.json: is not a valid journal: ";
    // With the broker, and without one.
    {
        let _broker = Broker::start(&bed);
        let (code, text) = run(&["mps", "status"]);
        assert!(
            code == 4 && text.contains(says) && !text.contains("no device is changed"),
            "{code}: {text}"
        );
        let output = tranche(&bed, &["mps", "status", "--json"]).output().unwrap();
        assert_eq!(output.status.code(), Some(4));
        let status: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert!(status["problems"][0].as_str().unwrap().contains(says), "{status}");
        let (code, text) = run(&removal);
        assert!(
            code == 4 && text.contains("devices: one of them may still be changed for shares: "),
            "{code}: {text}"
        );
    }
    let (code, text) = run(&removal);
    assert!(
        code == 4 && text.contains("devices: one of them may still be changed for shares: "),
        "{code}: {text}"
    );
}

#[test]
fn a_person_starts_shows_restarts_and_stops_a_daemon() {
    let bed = Bed::new(UNEQUAL);
    let run = |words: &[&str]| said(&tranche(&bed, words).output().unwrap());
    let (code, text) = run(&["mps", "start", "0"]);
    assert_eq!(code, 1);
    assert!(
        text.contains("the broker, which manages MPS daemons, cannot be reached: "),
        "{text}"
    );
    assert!(
        text.ends_with(
            "; start it: systemctl start tranche-broker.socket, or tranche broker &
"
        ),
        "{text}"
    );
    assert_eq!(text.lines().count(), 1, "{text}");
    let broker = Broker::start(&bed);
    assert_eq!(
        run(&["mps", "status"]),
        (0, "no device is changed for shares\n".to_owned())
    );
    assert_eq!(
        run(&["mps", "start", "0"]),
        (0, "0: its MPS daemon is running\n".to_owned())
    );
    let (code, text) = run(&["mps", "status"]);
    let words: Vec<&str> = text.lines().nth(1).unwrap().split_whitespace().collect();
    assert_eq!((code, words[0], words[1]), (0, "nvidia.com/gpu=0", "running"), "{text}");
    assert!(words.ends_with(&["0", "24564", "MiB", "100%"]), "{text}");
    let pid = || {
        let (_, text) = run(&["mps", "status", "--json"]);
        let status: Value = serde_json::from_str(&text).unwrap();
        status["devices"][0]["daemon"]["pid"].as_u64().unwrap()
    };
    let before = pid();
    assert_eq!(run(&["mps", "restart", &bed.uuid()]).0, 0);
    assert_ne!(pid(), before);
    bed.claim("small");
    // As before a removal of the package, with a broker that serves others.
    let (code, text) = run(&[
        "system",
        "prepare-removal",
        "--spec-dir=/nonexistent",
        "--tmpfiles-dir=/nonexistent",
    ]);
    assert_eq!(code, 4, "{text}");
    assert!(
        text.contains("nvidia.com/gpu=0: is still changed for shares: "),
        "{text}"
    );
    let (code, text) = run(&["mps", "stop", "0"]);
    assert_eq!(code, 1);
    let refused =
        "gpu 0: a container holds a share of it; stop them first, or use --force: their processes lose the device";
    assert!(text.contains(refused), "{text}");
    let (code, text) = run(&["mps", "stop", "0", "--force"]);
    assert_eq!(
        (code, text.as_str()),
        (0, "0: stopped; the device is as it was before\n")
    );
    assert_eq!(bed.daemons(), Vec::<u32>::new());
    assert_eq!(run(&["mps", "stop", "0"]).0, 3, "nothing to do");
    let (code, text) = run(&["mps", "start", "7"]);
    assert_eq!(code, 2, "{text}");
    drop(broker);
}

#[test]
fn systemd_starts_and_stops_the_unit_of_the_device() {
    let bed = Bed::new(UNEQUAL);
    let script = format!(
        "#!/bin/sh
echo \"$@\" >> {log}
case $1 in
    start)
        instance=${{2#tranche-mps@}}
        setsid {tranche} mps run \"${{instance%.service}}\" --state-dir {state} > /dev/null 2>&1 < /dev/null &
        ;;
esac
",
        log = bed.at("systemctl.log").display(),
        tranche = env!("CARGO_BIN_EXE_tranche"),
        state = bed.state().display(),
    );
    let systemctl = bed.at("systemctl");
    programs::write(&systemctl, script);
    let control = bed.control_with(Some(systemctl));
    bed.start(&control, "small");
    let log = || fs::read_to_string(bed.at("systemctl.log")).unwrap();
    assert_eq!(log(), "start tranche-mps@0.service\n");
    assert_eq!(bed.daemons(), [bed.pid(&control)]);
    bed.stop("small");
    assert_eq!(control.tick(), None);
    assert_eq!(log(), "start tranche-mps@0.service\nstop tranche-mps@0.service\n");
    bed.assert_as_it_was(&control);
    let failing = bed.at("failing");
    programs::script(&failing, "echo Unit not found.\nexit 5");
    let control = bed.control_with(Some(failing));
    let refused = bed.refused(&control, "small");
    let expected = "gpu 0: its MPS daemon could not be started: it cannot be started: \
                    systemctl start tranche-mps@0.service: Unit not found. (exit code 5)";
    assert_eq!(refused, expected);
    assert_eq!(control.tick(), None);
    bed.assert_as_it_was(&control);
}
