//! `tranche run`: programs that hold a share without a container.

mod killed;
mod served;

use crate::support::{rights, skip, until};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, listen, socket_with};
use serde_json::Value;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};

/// GPU 0 in two turns, GPU 1 in unequal shares.
const POLICY: &str = "\
version: v1
sharing:
  timeSlicing:
    resources:
    - {name: nvidia.com/gpu, devices: [0], shares: [{name: a}, {name: b}]}
  mps:
    daemon: external
    resources:
    - name: nvidia.com/gpu
      devices: [1]
      shares:
      - {name: big, compute: 60%, memory: 8Gi}
      - {name: mid, compute: 20%, memory: 4Gi}
      - {name: small, compute: 20%, memory: 2Gi}
";

/// A state directory of its own, with a policy for a built-in host.
struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Self {
        let top = tempfile::tempdir().unwrap();
        fs::write(top.path().join("policy.yaml"), POLICY).unwrap();
        fs::create_dir(top.path().join("specs")).unwrap();
        Self(top)
    }

    fn at(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// What clients of the MPS daemon of GPU 1 connect to.
    fn daemon(&self) -> OwnedFd {
        let pipe = self.at("state/mps/1");
        fs::create_dir_all(&pipe).unwrap();
        let daemon = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap();
        bind(&daemon, &SocketAddrUnix::new(pipe.join("control")).unwrap()).unwrap();
        listen(&daemon, 100).unwrap();
        daemon
    }

    fn tranche(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tranche"));
        command.args(arguments).env("TRANCHE_STATE_DIR", self.at("state"));
        command.env("TRANCHE_SPEC_DIR", self.at("specs"));
        command
            .env("TRANCHE_CONFIG", self.at("policy.yaml"))
            .env("TRANCHE_INVENTORY", "sim:t4x2");
        command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    /// Runs `words` in a share, with `options` of `tranche run`.
    fn command(&self, options: &[&str], words: &[&str]) -> Command {
        self.tranche(&[&["run"], options, &["--"], words].concat())
    }

    fn run(&self, options: &[&str], words: &[&str]) -> Output {
        self.command(options, words).output().unwrap()
    }

    /// A program in a share that runs until its input ends. Returns when it runs.
    fn hold(&self, options: &[&str]) -> Child {
        let ready = self.at("ready");
        let script = format!("echo > {}; exec cat", ready.display());
        let mut command = self.command(options, &["sh", "-c", &script]);
        let mut child = command.stdin(Stdio::piped()).spawn().unwrap();
        until("it is ready, or has ended", || {
            ready.exists() || child.try_wait().unwrap().is_some()
        });
        assert!(ready.exists(), "{:?}", child.wait_with_output());
        fs::remove_file(&ready).unwrap();
        child
    }

    /// The claims, as `tranche status --json` shows them.
    fn claims(&self) -> Vec<Value> {
        let output = self.tranche(&["status", "--json"]).output().unwrap();
        let status: Value = serde_json::from_slice(&output.stdout).unwrap();
        status["claims"].as_array().unwrap().clone()
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn a_program_has_its_share_and_no_other_limits() {
    let place = Place::new();
    let _daemon = place.daemon();
    let mut command = place.command(&["--share", "1.big"], &["env"]);
    command
        .env("CUDA_MPS_SM_PARTITION", "x")
        .env("CUDA_VISIBLE_DEVICES", "0");
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let environment = text(&output.stdout);
    let pipe = format!("CUDA_MPS_PIPE_DIRECTORY={}\n", place.at("state/mps/1").display());
    for set in [
        &pipe,
        "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=60\n",
        "=8192M\n",
        "NVIDIA_GPU_MEMORY_LIMIT=8192\n",
        "CUDA_VISIBLE_DEVICES=GPU-",
    ] {
        assert!(environment.contains(set), "{set} in {environment}");
    }
    assert!(
        !environment.contains("SM_PARTITION") && !environment.contains("DEVICES=0\n"),
        "{environment}"
    );
    // Two shares are one claim, with the limits of both.
    let output = place.run(&["--share", "nvidia.com/gpu=1.mid", "--share", "1.small"], &["env"]);
    let environment = text(&output.stdout);
    assert!(
        environment.contains("PERCENTAGE=40\n") && environment.contains("LIMIT=6144\n"),
        "{environment}{}",
        text(&output.stderr)
    );
    assert_eq!(place.claims(), [Value::Null; 0]);
}

#[test]
fn a_share_is_held_while_its_program_runs() {
    let place = Place::new();
    let mut child = place.hold(&["--share", "0.a"]);
    let [claim] = &place.claims()[..] else {
        panic!("one claim")
    };
    assert_eq!(
        (&claim["cdi"], &claim["state"]),
        (&"nvidia.com/gpu=0.a".into(), &"held".into())
    );
    assert_eq!(claim["process"]["program"], "sh");
    let pid = claim["process"]["pid"].as_u64().unwrap();
    let program = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap();
    assert_eq!(program, "cat\n", "the process is the program's");
    let refused = place.run(&["--share", "0.a"], &["true"]);
    assert_eq!(refused.status.code(), Some(1));
    let line = text(&refused.stderr);
    assert!(
        line.contains(&format!("held: nvidia.com/gpu=0.a by sh (process {pid}) since ")),
        "{line}"
    );
    assert_eq!(line.lines().count(), 1, "{line}");
    // One that waits gets it when the program has ended.
    let waits = place
        .command(&["--share", "0.a", "--wait", "60s"], &["echo", "mine"])
        .spawn()
        .unwrap();
    drop(child.stdin.take());
    assert_eq!(child.wait().unwrap().code(), Some(0));
    let output = waits.wait_with_output().unwrap();
    assert_eq!(
        (output.status.code(), text(&output.stdout)),
        (Some(0), "mine\n".to_owned())
    );
    assert_eq!(place.claims(), [Value::Null; 0]);
}

#[test]
fn exit_codes_and_signals_are_passed_on() {
    let place = Place::new();
    let run = |words: &[&str]| place.run(&["--share", "0.a"], words);
    assert_eq!(run(&["sh", "-c", "exit 42"]).status.code(), Some(42));
    assert_eq!(run(&["sh", "-c", "kill -KILL $$"]).status.code(), Some(137));
    let missing = run(&["/no/such/program"]);
    assert_eq!(missing.status.code(), Some(127));
    assert!(text(&missing.stderr).starts_with("tranche: /no/such/program: cannot be started: No such file"));
    assert_eq!(run(&["/"]).status.code(), Some(126));
    let script = format!(
        "trap 'echo stopped; exit 7' TERM; echo > {}; while :; do sleep 0.01; done",
        place.at("ready").display()
    );
    let child = place
        .command(&["--share", "0.a"], &["sh", "-c", &script])
        .spawn()
        .unwrap();
    until("the batch job is ready", || place.at("ready").exists());
    let pid = nix::unistd::Pid::from_raw(i32::try_from(child.id()).unwrap());
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(
        (output.status.code(), text(&output.stdout)),
        (Some(7), "stopped\n".to_owned())
    );
    assert_eq!(place.claims(), [Value::Null; 0]);
}

#[test]
fn a_claim_that_was_made_beforehand_stays_after_its_program() {
    let place = Place::new();
    let create = place
        .tranche(&["claim", "create", "--name", "train", "--share", "a", "--device", "0"])
        .output()
        .unwrap();
    assert!(create.status.success(), "{}", text(&create.stderr));
    let mut child = place.hold(&["--claim", "train"]);
    let [claim] = &place.claims()[..] else {
        panic!("one claim")
    };
    assert_eq!((&claim["name"], &claim["state"]), (&"train".into(), &"held".into()));
    let second = place.run(&["--claim", "train"], &["true"]);
    assert_eq!(second.status.code(), Some(1));
    assert!(
        text(&second.stderr).contains("claim train (program sh)"),
        "{}",
        text(&second.stderr)
    );
    drop(child.stdin.take());
    child.wait().unwrap();
    let [claim] = &place.claims()[..] else {
        panic!("one claim")
    };
    assert_eq!((&claim["name"], &claim["state"]), (&"train".into(), &"reserved".into()));
    let unknown = place.run(&["--claim", "other"], &["true"]);
    assert_eq!(unknown.status.code(), Some(2));
    assert!(
        text(&unknown.stderr).contains("claim other: not found"),
        "{}",
        text(&unknown.stderr)
    );
}

#[test]
fn what_is_no_share_is_refused_before_anything_is_held() {
    let place = Place::new();
    for (options, code, line) in [
        (
            &["--share", "0.c"][..],
            2,
            "share 0.c: not a share of this host; expected 0.a, 0.b",
        ),
        (
            &["--share", "0"],
            2,
            "share 0: not a share of this host; expected 0.a, 0.b",
        ),
        (&["--share", "0.any"], 2, "share 0.any: not a share of this host"),
        (&["--share", "7.a"], 2, "device 7: not found"),
        (&["--share", "a"], 2, "\"a\": not a valid device"),
        (
            &["--share", "0.a", "--share", "1.big"],
            2,
            "share 1.big: is of another device than the first share",
        ),
        (&["--share", "0.a", "--wait", "x"], 2, "--wait"),
        (&["--share", "1.big"], 1, "its MPS daemon was not found"),
    ] {
        let output = place.run(options, &["sh", "-c", "echo ran"]);
        let said = text(&output.stderr);
        assert_eq!(
            (output.status.code(), text(&output.stdout)),
            (Some(code), String::new()),
            "{options:?}: {said}"
        );
        assert!(said.contains(line) && said.lines().count() == 1, "{options:?}: {said}");
        assert_eq!(place.claims(), [Value::Null; 0], "{options:?}");
    }
    let output = place.tranche(&["run", "--", "true"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
}

#[test]
fn a_share_that_the_broker_serves_needs_the_broker() {
    let place = Place::new();
    let _daemon = place.daemon();
    fs::write(place.at("policy.yaml"), POLICY.replace("external", "managed")).unwrap();
    let output = place.run(&["--share", "1.big"], &["sh", "-c", "echo ran"]);
    assert_eq!((output.status.code(), text(&output.stdout)), (Some(1), String::new()));
    assert!(
        text(&output.stderr).contains("start it: systemctl start tranche-broker.socket"),
        "{}",
        text(&output.stderr)
    );
    assert_eq!(place.claims(), [Value::Null; 0]);
}

/// What a broker that gives `answer` is asked, and the output of a run that it serves.
fn with_broker(answer: &'static str) -> (Value, Output) {
    let place = Place::new();
    let _daemon = place.daemon();
    fs::write(place.at("policy.yaml"), POLICY.replace("external", "managed")).unwrap();
    let listener = UnixListener::bind(place.at("state/broker.sock")).unwrap();
    let broker = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut line = String::new();
        BufReader::new(&stream).read_line(&mut line).unwrap();
        stream.write_all(answer.as_bytes()).unwrap();
        serde_json::from_str(&line).unwrap()
    });
    let output = place.run(&["--share", "1.big"], &["sh", "-c", "echo ran"]);
    assert_eq!(place.claims(), [Value::Null; 0]);
    (broker.join().unwrap(), output)
}

#[test]
fn the_broker_prepares_the_device_before_the_program_starts() {
    let (asked, output) = with_broker("{\"version\":1,\"ok\":{}}\n");
    assert_eq!((&asked["version"], &asked["command"]), (&1.into(), &"prepare".into()));
    assert!(asked["device"].as_str().unwrap().starts_with("GPU-"), "{asked}");
    assert_eq!(
        (output.status.code(), text(&output.stdout)),
        (Some(0), "ran\n".to_owned())
    );
    let refusal = "{\"version\":1,\"error\":{\"kind\":\"failed\",\"object\":\"gpu 1\",\"what\":\"its daemon hangs\",\
                   \"hint\":\"look at its log\"}}\n";
    let (_, output) = with_broker(refusal);
    assert_eq!((output.status.code(), text(&output.stdout)), (Some(1), String::new()));
    assert_eq!(
        text(&output.stderr),
        "tranche: gpu 1: its daemon hangs; look at its log\n"
    );
}

#[test]
fn a_share_is_held_until_the_last_process_of_the_program_ends() {
    let test = "run::a_share_is_held_until_the_last_process_of_the_program_ends";
    if !rights::owns_machine(test) {
        return;
    }
    let place = Place::new();
    let (ready, end) = (place.at("ready"), place.at("end"));
    let script = format!(
        "(echo > {}; until test -e {}; do sleep 0.01; done) > /dev/null 2>&1 & until test -e {}; do sleep 0.01; done",
        ready.display(),
        end.display(),
        ready.display()
    );
    let output = place.run(&["-v", "--share", "0.a"], &["sh", "-c", &script]);
    let said = text(&output.stderr);
    assert!(output.status.success(), "{said}");
    if said.contains("the share is held by one process") || !said.contains("is held until") {
        fs::write(end, "").unwrap();
        return skip::not_run(test, "no cgroup of version 2 can be made");
    }
    let [claim] = &place.claims()[..] else {
        panic!("one claim: {said}")
    };
    assert_eq!(claim["cdi"], "nvidia.com/gpu=0.a");
    assert_eq!(place.run(&["--share", "0.a"], &["true"]).status.code(), Some(1));
    fs::write(end, "").unwrap();
    let output = place.run(&["--share", "0.a", "--wait", "60s"], &["true"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
}
