//! What a request of a user costs the broker while others hold ten, a thousand and ten thousand claims, and while as
//! many wait as it lets wait: latency, processor time, memory and descriptors, in one run.
//!
//! ```text
//! make bench
//! ```

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a benchmark fails by a panic"
)]

use std::fs;
use std::io::Read;
use std::os::fd::AsFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{Signal, kill};
use nix::time::ClockId;
use nix::unistd::Pid;
use serde_json::{Value, json};
use tranche_core::ledger::process::Machine;
use tranche_core::ledger::{Ask, Bounds, Change, ClaimState, HeldPart, Holder, Ledger};
use tranche_core::types::DeviceKey;

#[path = "support/asking.rs"]
mod asking;
#[path = "support/crun.rs"]
mod crun;
#[path = "support/runner.rs"]
mod runner;

use asking::{activated, asked, of_the_unit, request};
use crun::median;

const TRANCHE: &str = env!("CARGO_BIN_EXE_tranche");

/// A host with eight GPUs: seven in shares, and the last whole.
const HOST: &str = "sim:hgx-h200";

const POLICY: &str = "\
version: v1
sharing:
  timeSlicing: {resources: [{name: nvidia.com/gpu, devices: [0, 1, 2, 3, 4, 5, 6], replicas: 1500}]}
  dedicated: {devices: [7]}
  quota: {shares: 100}
";

/// How many GPUs are in shares, and in how many each.
const SPLIT: usize = 7;
const SHARES: usize = 1_500;

/// How many claims are held.
const HELD: [usize; 3] = [10, 1_000, 10_000];

/// How many users wait for one GPU. All users together have 192 connections to the broker.
const WAITING: u32 = 180;

/// The first of the users who hold and wait. The one who measures is the one before.
const FIRST: u32 = 40_000;

fn main() {
    // `cargo test --all-targets` runs this too, and wants no benchmark.
    if !std::env::args().any(|argument| argument == "--bench") {
        return;
    }
    if !nix::unistd::geteuid().is_root() {
        println!("not run: benches/growth: not root");
        return;
    }
    let scene = runner::scene();
    // Users go through it.
    fs::set_permissions(scene.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let broker = Broker::start(scene.path());
    println!(
        "{:>6} held {:>6} waiting {:>12} {:>12} {:>14} {:>14} {:>9} {:>6}",
        "", "", "claim", "of it CPU", "claim list", "status", "memory", "files"
    );
    let mut held = 0;
    for goal in HELD {
        broker.fill(held, goal);
        held = goal;
        broker.row(held, 0);
        broker.crowd(held);
    }
}

/// A broker with the limits of its unit.
struct Broker {
    process: Child,
    socket: PathBuf,
    state_dir: PathBuf,
}

impl Broker {
    fn start(top: &Path) -> Broker {
        let state_dir = top.join("state");
        fs::create_dir(&state_dir).unwrap();
        let policy = top.join("policy.yaml");
        fs::write(&policy, POLICY).unwrap();
        let socket = state_dir.join("broker.sock");
        let listener = UnixListener::bind(&socket).unwrap();
        fs::set_permissions(&socket, fs::Permissions::from_mode(0o666)).unwrap();
        let process = activated(HOST, &listener, &state_dir, &policy);
        let limit = format!("--nofile={}", limit_of_the_unit());
        let mut prlimit = Command::new("prlimit");
        prlimit.arg(format!("--pid={}", process.id())).arg(limit);
        assert!(prlimit.status().unwrap().success());
        Broker {
            process,
            socket,
            state_dir,
        }
    }

    /// The processor time of the broker until now.
    fn processor_time(&self) -> Duration {
        let pid = Pid::from_raw(self.process.id().try_into().unwrap());
        let clock = ClockId::pid_cpu_clock_id(pid).unwrap();
        clock.now().unwrap().into()
    }

    /// Its memory in MiB.
    fn memory(&self) -> f64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.process.id())).unwrap();
        let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
        let kib: f64 = line.split_whitespace().nth(1).unwrap().parse().unwrap();
        kib / 1024.0
    }

    /// Waits until the broker has had nothing to do for a while.
    fn until_quiet(&self) {
        let mut used = self.processor_time();
        loop {
            std::thread::sleep(Duration::from_secs(1));
            let now = self.processor_time();
            if now.saturating_sub(used) < Duration::from_millis(20) {
                return;
            }
            used = now;
        }
    }

    fn files(&self) -> usize {
        fs::read_dir(format!("/proc/{}/fd", self.process.id())).unwrap().count()
    }

    /// Has users hold the shares of these numbers, without asking the broker for each.
    fn fill(&self, from: usize, to: usize) {
        let machine = Machine::here().unwrap();
        let ledger = Ledger::open(&self.state_dir).unwrap();
        let locked = ledger.lock().unwrap();
        for (number, gpu) in gpus().iter().take(SPLIT).enumerate() {
            let filled = locked.change(gpu, |book| {
                for share in (from..to).filter(|share| share % SPLIT == number) {
                    let part = HeldPart::share(
                        (share / SPLIT).to_string().parse().unwrap(),
                        format!("1/{SHARES}").parse().unwrap(),
                    );
                    let ask = Ask {
                        device: gpu.clone(),
                        part,
                        bounds: Bounds::default(),
                        asked_as: None,
                        name: Some(format!("c{share}")),
                        holder: Holder::Person,
                        process: None,
                        state: ClaimState::Reserved,
                        once: false,
                        for_root: false,
                        alone: false,
                        uid: FIRST + u32::try_from(share % 1_000).unwrap(),
                        ttl: None,
                        spec_file: None,
                    };
                    book.take(&ask, &machine).unwrap();
                }
                Ok(((), Change::Made))
            });
            filled.unwrap();
        }
    }

    /// One line: a claim of another user, and what root's commands take.
    fn row(&self, held: usize, waiting: u32) {
        let claim = json!({"version": 1, "command": "claim", "name": "a", "device": "0", "shares": 1});
        let release = json!({"version": 1, "command": "release", "what": "a"});
        let mut times = Vec::new();
        let rounds = runner::rounds(50);
        let before = self.processor_time();
        for _ in 0..rounds {
            times.push(asked(FIRST - 1, &self.socket, &claim));
            asked(FIRST - 1, &self.socket, &release);
        }
        let both = (self.processor_time() - before) / u32::try_from(rounds).unwrap();
        let millis = |time: Duration| time.as_secs_f64() * 1e3;
        println!(
            "{held:>6} held {waiting:>6} waiting {:>9.2} ms {:>9.2} ms {:>11.1} ms {:>11.1} ms {:>5.1} MiB {:>6}",
            millis(median(times)),
            millis(both),
            millis(self.command(&["claim", "list"])),
            millis(self.command(&["status"])),
            self.memory(),
            self.files()
        );
    }

    /// The median time of a command of root.
    fn command(&self, words: &[&str]) -> Duration {
        let time = || {
            let mut command = Command::new(TRANCHE);
            command.args(words).arg("--state-dir").arg(&self.state_dir);
            let start = Instant::now();
            let output = command.output().unwrap();
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            start.elapsed()
        };
        median((0..5).map(|_| time()).collect())
    }

    /// A thousand users wait for the last GPU, which goes from one to the next.
    fn crowd(&self, held: usize) {
        let whole = |name: &str| json!({"version": 1, "command": "claim", "name": name, "device": "7", "wait": "1h"});
        let before = self.memory();
        asked(FIRST, &self.socket, &whole("first"));
        let mut waiting: Vec<(u32, UnixStream)> = (FIRST + 1..=FIRST + WAITING)
            .map(|user| (user, request(user, &self.socket, &whole("whole"))))
            .collect();
        self.until_quiet();
        let each = (self.memory() - before) * 1024.0 / f64::from(WAITING);
        self.row(held, WAITING);
        let (mut times, mut cpu) = (Vec::new(), Vec::new());
        let mut holder = (FIRST, "first");
        for _ in 0..10 {
            let release = json!({"version": 1, "command": "release", "what": holder.1});
            let (start, used) = (Instant::now(), self.processor_time());
            asked(holder.0, &self.socket, &release);
            let next = answered(&waiting);
            times.push(start.elapsed());
            cpu.push(self.processor_time() - used);
            let (user, mut stream) = waiting.swap_remove(next);
            let mut answer = String::new();
            stream.read_to_string(&mut answer).unwrap();
            assert!(answer.contains("\"ok\""), "{answer}");
            holder = (user, "whole");
        }
        drop(waiting);
        let release = json!({"version": 1, "command": "release", "what": holder.1});
        asked(holder.0, &self.socket, &release);
        let millis = |times| median(times).as_secs_f64() * 1e3;
        println!(
            "a waiting user takes {each:.0} KiB; the GPU is handed to the next one in {:.2} ms, {:.2} ms of processor time",
            millis(times),
            millis(cpu)
        );
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        let _ = kill(Pid::from_raw(self.process.id().try_into().unwrap()), Signal::SIGTERM);
        let _ = self.process.wait();
    }
}

/// The GPUs of [`HOST`].
fn gpus() -> Vec<DeviceKey> {
    let mut inventory = Command::new(TRANCHE);
    inventory.args(["inventory", "--inventory", HOST]);
    let host: Value = serde_json::from_slice(&inventory.output().unwrap().stdout).unwrap();
    let gpus = host["gpus"].as_array().unwrap().iter();
    gpus.map(|gpu| gpu["uuid"].as_str().unwrap().parse().unwrap()).collect()
}

/// The one of these who has an answer, after waiting for it.
fn answered(waiting: &[(u32, UnixStream)]) -> usize {
    let streams = waiting.iter().map(|(_, stream)| stream.as_fd());
    let mut watched: Vec<PollFd<'_>> = streams.map(|stream| PollFd::new(stream, PollFlags::POLLIN)).collect();
    assert!(poll(&mut watched, PollTimeout::from(60_000_u16)).unwrap() > 0);
    watched.iter().position(|one| one.any() == Some(true)).unwrap()
}

/// The limit of open files that the unit of the broker has.
fn limit_of_the_unit() -> u32 {
    of_the_unit("LimitNOFILE").next().unwrap().parse().unwrap()
}
