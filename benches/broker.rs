//! What the broker adds to a claim: the hook of a share alone, and the same hook when it waits for the broker.
//!
//! The broker is the real server with a machine of which nothing must be changed, so that the difference is what asking
//! and answering cost. Each round runs each program once; medians of one run are set beside each other.
//!
//! The cold claim is the same hook while no broker runs: the program `tranche broker` is started with its socket, as
//! systemd does when the hook connects, examines a built-in host and then answers.
//!
//! The claims of a user are requests on one connection each, without a program: to a broker whose policy says nothing
//! about users, to one that limits what each user may hold and for how long, and to such a one in which another user
//! waits. The base is a request that changes nothing.
//!
//! The signals that the broker sends as a user are compared with kill(2). Nothing is sent: the kernel is asked whether
//! it might be.
//!
//! ```text
//! make bench                    # builds tranche-oci as it is shipped
//! ```

#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout)]

#[path = "support/asking.rs"]
mod asking;
#[path = "support/crun.rs"]
mod crun;
use tranche_test_support as support;

use std::fs::{self, File};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use asking::{activated, asked, request};
use crun::median;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use rustix::process::{PidfdFlags, pidfd_open};
use serde_json::json;
use support::init::Init;
use tranche_broker::control::{DriverAccess, MachineControl};
use tranche_broker::facts::{Facts, HostFacts};
use tranche_broker::serve::{ServeOptions, Socket, serve};
use tranche_broker::sys::as_user::{Answer, MOST, signal};
use tranche_core::error::{Error, Result};
use tranche_core::ledger::Claim;
use tranche_core::ledger::ContainerName;
use tranche_core::types::DeviceKey;
use tranche_state::controlled::ControlledDevice;
use tranche_state::planning::PolicyOptions;

/// A machine that is always ready.
struct Ready;

impl MachineControl for Ready {
    fn prepare(&self, _: &DeviceKey) -> Result<()> {
        Ok(())
    }

    fn end_clients(&self, _: &ContainerName) -> Result<usize> {
        Ok(0)
    }

    fn tick(&self) -> Option<Duration> {
        None
    }

    fn blockers(&self) -> Vec<Claim> {
        Vec::new()
    }

    fn start(&self, _: &DeviceKey) -> Result<()> {
        Ok(())
    }

    fn stop(&self, _: &DeviceKey, _: bool) -> Result<()> {
        Ok(())
    }

    fn restart(&self, _: &DeviceKey) -> Result<()> {
        Ok(())
    }

    fn driver(&self) -> Result<DriverAccess> {
        Err(Error::failed("NVML", "is not there"))
    }

    fn unreadable(&self) -> Vec<String> {
        Vec::new()
    }

    fn devices(&self) -> Vec<ControlledDevice> {
        Vec::new()
    }
}

/// A host of which nothing is known.
struct Unknown;

impl HostFacts for Unknown {
    fn now(&self) -> Result<Arc<Facts>> {
        Err(Error::failed("host", "is not examined here"))
    }
}

fn main() {
    // `cargo test --all-targets` runs this too, and wants no benchmark.
    if !std::env::args().any(|argument| argument == "--bench") {
        return;
    }
    let rounds: usize = std::env::var("ROUNDS").ok().and_then(|n| n.parse().ok()).unwrap_or(15);
    as_users(rounds * 20);
    let Some(oci) = std::env::var_os("TRANCHE_OCI_STATIC").map(PathBuf::from) else {
        println!("not run: benches/broker: TRANCHE_OCI_STATIC is not set: run `make bench`");
        return;
    };
    if !nix::unistd::geteuid().is_root() {
        println!("not run: benches/broker: not root");
        return;
    }
    let memory = Path::new("/dev/shm");
    let top = match memory.is_dir() {
        true => tempfile::tempdir_in(memory),
        false => tempfile::tempdir(),
    };
    let top = top.unwrap();
    let state_dir = top.path().join("state");
    let options = ServeOptions {
        host: tranche_host::examine::HostOptions::default(),
        refresh: Vec::new(),
        state_dir: state_dir.clone(),
        policy: PolicyOptions::of(None, None, &state_dir),
        spec_dir: top.path().join("cdi"),
        accounts: tranche_state::accounts::AccountSources::default(),
        idle: None,
    };
    let socket = Socket::open(&state_dir).unwrap();
    let (stop, end) = UnixStream::pair().unwrap();
    thread::scope(|threads| {
        let broker = threads.spawn(|| serve(&socket, &options, &Ready, &Unknown, stop.as_fd()));
        one(&oci, top.path(), &state_dir, rounds * 20);
        many(&oci, top.path(), &state_dir, rounds);
        drop(end);
        broker.join().unwrap().unwrap();
    });
    drop(socket);
    cold(&oci, top.path(), rounds);
    of_users(top.path(), rounds * 20);
}

/// Signals that are sent as a user, by a child process, beside kill(2): to one process, and to as many as one child
/// signals.
fn as_users(rounds: usize) {
    if !nix::unistd::geteuid().is_root() {
        println!("not run: benches/broker: not root");
        return;
    }
    let sleeping = |_| {
        let mut command = Command::new("sleep");
        command.arg("1000").uid(USERS[0]).gid(USERS[0]).spawn().unwrap()
    };
    let mut children: Vec<Child> = (0..MOST).map(sleeping).collect();
    let pid = |child: &Child| rustix::process::Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
    let handle = |child: &Child| pidfd_open(pid(child), PidfdFlags::empty()).unwrap();
    let handles: Vec<OwnedFd> = children.iter().map(handle).collect();
    let all: Vec<_> = handles.iter().map(AsFd::as_fd).collect();
    let mut times = [const { Vec::new() }; 3];
    for _ in 0..rounds {
        let begun = Instant::now();
        kill(Pid::from_raw(i32::try_from(children[0].id()).unwrap()), None).unwrap();
        times[0].push(begun.elapsed());
        for (times, processes) in times[1..].iter_mut().zip([&all[..1], &all]) {
            let begun = Instant::now();
            assert!(
                signal(USERS[0], processes, None)
                    .unwrap()
                    .iter()
                    .all(|answer| *answer == Answer::Sent)
            );
            times.push(begun.elapsed());
        }
    }
    let [plain, one, many] = times.map(|times| median(times).as_secs_f64() * 1e6);
    println!(
        "a signal as a user: kill(2) {plain:.1} us, one by a child {one:.0} us ({:.0} times), {MOST} by a child \
         {many:.0} us ({:.0} us each)",
        one / plain,
        many / MOST as f64
    );
    for child in &mut children {
        child.kill().unwrap();
        child.wait().unwrap();
    }
}

/// The hook `verb` of a container with one of a hundred shares.
fn hook(oci: &Path, top: &Path, state_dir: &Path, words: &[&str], id: &str, pid: u32) -> Command {
    let state = top.join(format!("{id}.state"));
    let text = json!({"ociVersion": "1.0.2", "id": id, "status": "creating", "bundle": "/b", "pid": pid});
    fs::write(&state, text.to_string()).unwrap();
    let mut command = Command::new(oci);
    command
        .arg("hook")
        .args(words)
        .arg(format!("--state-dir={}", state_dir.display()));
    command.env_clear().stdin(File::open(&state).unwrap());
    command.stdout(Stdio::null()).stderr(Stdio::null());
    command
}

const CLAIM: [&str; 5] = [
    "claim",
    "--device=GPU-11111111",
    "--share=any",
    "--size=1/100",
    "--of=100",
];
const PREPARED: [&str; 6] = [
    "claim",
    "--device=GPU-11111111",
    "--share=any",
    "--size=1/100",
    "--of=100",
    "--prepare",
];

fn time(mut command: Command) -> Duration {
    let start = Instant::now();
    assert!(command.status().unwrap().success(), "{command:?}");
    start.elapsed()
}

fn line(what: &str, alone: Duration, prepared: Duration) {
    let micros = |time: Duration| time.as_secs_f64() * 1e6;
    let ratio = prepared.as_secs_f64() / alone.as_secs_f64();
    println!(
        "{what:34} {:>8.0} us, through the broker {:>8.0} us: {:>6.0} us more, {ratio:.2} times",
        micros(alone),
        micros(prepared),
        micros(prepared) - micros(alone),
    );
}

fn one(oci: &Path, top: &Path, state_dir: &Path, rounds: usize) {
    let mut times = [Vec::new(), Vec::new()];
    for _ in 0..rounds {
        for (words, times) in [&CLAIM[..], &PREPARED].into_iter().zip(&mut times) {
            let init = Init::new();
            times.push(time(hook(oci, top, state_dir, words, "c", init.pid())));
            drop(init);
            time(hook(oci, top, state_dir, &["release"], "c", 0));
        }
    }
    let [alone, prepared] = times.map(median);
    line("hook claim", alone, prepared);
}

fn many(oci: &Path, top: &Path, state_dir: &Path, rounds: usize) {
    let mut times = [Vec::new(), Vec::new()];
    for _ in 0..rounds {
        for (words, times) in [&CLAIM[..], &PREPARED].into_iter().zip(&mut times) {
            let init = Init::new();
            let hooks = (0..100).map(|n| hook(oci, top, state_dir, words, &format!("c{n}"), init.pid()));
            let mut hooks: Vec<Command> = hooks.collect();
            let start = Instant::now();
            let children: Vec<Child> = hooks.iter_mut().map(|hook| hook.spawn().unwrap()).collect();
            for mut child in children {
                assert!(child.wait().unwrap().success());
            }
            times.push(start.elapsed() / 100);
            drop(init);
            for n in 0..100 {
                time(hook(oci, top, state_dir, &["release"], &format!("c{n}"), 0));
            }
        }
    }
    let [alone, prepared] = times.map(median);
    line("hook claim, 100 at once, each", alone, prepared);
}

/// The built-in host.
const HOST: &str = "sim:t4x2";

/// Its GPU 0.
const GPU_0: &str = "--device=GPU-da1435d3-36d6-f363-f134-290ab6a9a640";

const POLICY: &str = "\
version: v1
sharing:
  timeSlicing:
    resources:
    - {name: nvidia.com/gpu, devices: [0], replicas: 100}
";

fn cold(oci: &Path, top: &Path, rounds: usize) {
    let state_dir = top.join("cold");
    fs::create_dir(&state_dir).unwrap();
    let policy = top.join("policy.yaml");
    fs::write(&policy, POLICY).unwrap();
    let listener = UnixListener::bind(state_dir.join("broker.sock")).unwrap();
    let claim: Vec<&str> = [&["claim", GPU_0], &CLAIM[2..]].concat();
    let prepared: Vec<&str> = [&["claim", GPU_0], &PREPARED[2..]].concat();
    let mut times = [Vec::new(), Vec::new()];
    for _ in 0..rounds {
        for (words, times) in [&claim, &prepared].into_iter().zip(&mut times) {
            let init = Init::new();
            let hook = hook(oci, top, &state_dir, words, "c", init.pid());
            let start = Instant::now();
            // A claim that asks nobody starts no broker.
            let broker = std::ptr::eq(words, &prepared).then(|| activated(HOST, &listener, &state_dir, &policy));
            time(hook);
            times.push(start.elapsed());
            drop(init);
            if let Some(mut broker) = broker {
                kill(Pid::from_raw(broker.id().try_into().unwrap()), Signal::SIGTERM).unwrap();
                assert!(broker.wait().unwrap().success());
            }
            time(self::hook(oci, top, &state_dir, &["release"], "c", 0));
        }
    }
    let [alone, prepared] = times.map(median);
    line("hook claim, the broker is started", alone, prepared);
}

/// What the policy says about users, in the broker that limits them.
const LIMITS: &str = "  queue: {reserveFor: 30s}
  users: {default: {maxShares: 60, maxDevices: 1, maxHold: 8h, waits: 2}}
";

/// Two users.
const USERS: [u32; 2] = [65_532, 65_533];

fn of_users(top: &Path, rounds: usize) {
    let dedicated = "  dedicated: {devices: [1]}\n  quota: {shares: 60}\n";
    let policies = [
        format!("{POLICY}{dedicated}"),
        format!("{POLICY}{dedicated}{LIMITS}"),
        format!("{POLICY}{dedicated}{LIMITS}"),
    ];
    // Users go through it.
    fs::set_permissions(top, fs::Permissions::from_mode(0o755)).unwrap();
    let mut brokers = Vec::new();
    for (number, policy) in policies.iter().enumerate() {
        let state_dir = top.join(format!("users-{number}"));
        fs::create_dir(&state_dir).unwrap();
        let file = top.join(format!("users-{number}.yaml"));
        fs::write(&file, policy).unwrap();
        let socket = state_dir.join("broker.sock");
        let listener = UnixListener::bind(&socket).unwrap();
        fs::set_permissions(&socket, fs::Permissions::from_mode(0o666)).unwrap();
        brokers.push((activated(HOST, &listener, &state_dir, &file), socket));
    }
    let whole = json!({"version": 1, "command": "claim", "name": "whole", "device": "1", "wait": "1h"});
    asked(USERS[0], &brokers[2].1, &whole);
    let waits = request(USERS[1], &brokers[2].1, &whole);
    let list = json!({"version": 1, "command": "list"});
    let claim = json!({"version": 1, "command": "claim", "name": "a", "device": "0", "shares": 1});
    let release = json!({"version": 1, "command": "release", "what": "a"});
    let sockets = [0, 0, 1, 2].map(|number: usize| &brokers[number].1);
    let mut times = [const { Vec::new() }; 4];
    for _ in 0..rounds {
        for (number, times) in times.iter_mut().enumerate() {
            let is_base = number == 0;
            times.push(asked(USERS[1], sockets[number], if is_base { &list } else { &claim }));
            if !is_base {
                asked(USERS[1], sockets[number], &release);
            }
        }
    }
    drop(waits);
    for (mut broker, _) in brokers {
        kill(Pid::from_raw(broker.id().try_into().unwrap()), Signal::SIGTERM).unwrap();
        broker.wait().unwrap();
    }
    let [base, plain, limited, waiting] = times.map(median);
    println!(
        "a user's request that changes nothing: {:.0} us",
        base.as_secs_f64() * 1e6
    );
    for (what, time) in [
        ("a user's claim", plain),
        ("with limits and a queue", limited),
        ("the same, while another user waits", waiting),
    ] {
        println!(
            "{what:36} {:>8.0} us, {:.2} times the claim without limits",
            time.as_secs_f64() * 1e6,
            time.as_secs_f64() / plain.as_secs_f64()
        );
    }
}
