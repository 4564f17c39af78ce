//! What closed device nodes and reservations for later add to a user's claim: four brokers of one host, asked in turns.
//!
//! The nodes are those of a test host, on which the kernel keeps access lists as on a real one. The calendar has a
//! hundred reservations, of which none is near: what is read at each claim.
//!
//! ```text
//! cargo bench --bench access
//! ```

#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout)]

#[path = "support/asking.rs"]
mod asking;
#[path = "support/crun.rs"]
mod crun;
use tranche_test_support as support;

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::time::{SystemTime, UNIX_EPOCH};

use asking::{activated_on, asked};
use crun::median;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::json;
use tranche_core::ledger::{Calendar, ReservedTime};
use tranche_core::types::HeldPart;

const USER: u32 = 65_533;

const POLICY: &str = "version: v1\nsharing:\n  dedicated: {devices: [0, 1]}\n  quota: {shares: 2}\n";
const ACCESS: &str = "  access: enforce\n";
const CALENDAR: &str = "  calendar: {before: 30m}\n";

/// The key of GPU 1 of the host, which is reserved.
const RESERVED: &str = "GPU-a1b03828-f799-fc30-d8ce-9f496f164106";

/// How many reservations there are.
const TIMES: u64 = 100;

/// The four, and what each policy says more.
const BROKERS: [(&str, &[&str]); 4] = [
    ("a user's claim of a device", &[]),
    ("with closed nodes", &[ACCESS]),
    ("with a calendar", &[CALENDAR]),
    ("with both", &[ACCESS, CALENDAR]),
];

fn main() {
    // `cargo test --all-targets` runs this too, and wants no benchmark.
    if !std::env::args().any(|argument| argument == "--bench") {
        return;
    }
    if !nix::unistd::geteuid().is_root() {
        println!("not run: benches/access: not root");
        return;
    }
    let rounds: usize = std::env::var("ROUNDS").ok().and_then(|n| n.parse().ok()).unwrap_or(300);
    let top = tempfile::tempdir().unwrap();
    fs::set_permissions(top.path(), Permissions::from_mode(0o755)).unwrap();
    let brokers: Vec<(Child, PathBuf)> = BROKERS
        .iter()
        .enumerate()
        .map(|(number, (_, more))| broker(&top.path().join(number.to_string()), more))
        .collect();
    let list = json!({"version": 1, "command": "list"});
    let claim = json!({"version": 1, "command": "claim", "name": "a", "device": "0"});
    let release = json!({"version": 1, "command": "release", "what": "a"});
    let mut base = Vec::new();
    let mut times = [const { Vec::new() }; 4];
    for _ in 0..rounds {
        base.push(asked(USER, &brokers[0].1, &list));
        for ((_, socket), times) in brokers.iter().zip(&mut times) {
            times.push(asked(USER, socket, &claim));
            asked(USER, socket, &release);
        }
    }
    for (mut broker, _) in brokers {
        kill(Pid::from_raw(broker.id().try_into().unwrap()), Signal::SIGTERM).unwrap();
        broker.wait().unwrap();
    }
    let micros = |time: std::time::Duration| time.as_secs_f64() * 1e6;
    println!("a user's request that changes nothing: {:.0} us", micros(median(base)));
    let times = times.map(median);
    for ((what, _), time) in BROKERS.iter().zip(times) {
        let ratio = time.as_secs_f64() / times[0].as_secs_f64();
        println!("{what:36} {:>8.0} us, {ratio:.2} times", micros(time));
    }
}

/// A broker with a host, a ledger and a policy of its own in `place`, and its socket.
fn broker(place: &Path, more: &[&str]) -> (Child, PathBuf) {
    let (host, state) = (place.join("host"), place.join("state"));
    fs::create_dir_all(&state).unwrap();
    let built = support::fake_host::build("t4x2-old-driver", &host).unwrap();
    assert!(built.not_made.is_empty(), "{}", built.not_made[0].why);
    fs::write(host.join("proc/driver/nvidia/params"), "ModifyDeviceFiles: 0\n").unwrap();
    let policy = place.join("policy.yaml");
    fs::write(&policy, [&[POLICY], more].concat().concat()).unwrap();
    if more.contains(&CALENDAR) {
        reserve(&state);
    }
    let socket = state.join("broker.sock");
    let listener = UnixListener::bind(&socket).unwrap();
    fs::set_permissions(&socket, Permissions::from_mode(0o666)).unwrap();
    let at = |option: &str, path: &str| format!("--{option}={}", host.join(path).display());
    let options = [
        at("driver-root", ""),
        at("dev-root", ""),
        at("proc-root", "proc"),
        at("sys-root", "sys"),
    ];
    let broker = activated_on(&options, &listener, &state, &policy);
    // The first look at the host is none of a claim.
    let claim = json!({"version": 1, "command": "claim", "name": "first", "device": "0"});
    asked(USER, &socket, &claim);
    asked(
        USER,
        &socket,
        &json!({"version": 1, "command": "release", "what": "first"}),
    );
    (broker, socket)
}

/// A hundred reservations of GPU 1, from a day from now on.
fn reserve(state: &Path) {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    let mut calendar = Calendar::default();
    for number in 0..TIMES {
        let from = now + 86_400 + number * 7200;
        calendar.add(ReservedTime {
            id: 0,
            uid: 1000,
            who: "ann".into(),
            device: RESERVED.parse().unwrap(),
            part: HeldPart::Whole,
            label: "gpu 1".into(),
            from,
            until: from + 3600,
            before: 1800,
            no_show: 900,
            made: now,
            zone: "Europe/Berlin".into(),
            offsets: [3600, 3600],
            reason: Some("a demonstration".into()),
        });
    }
    let file = Calendar::file(state);
    let directory = file.parent().unwrap();
    fs::create_dir_all(directory).unwrap();
    fs::set_permissions(directory, Permissions::from_mode(0o700)).unwrap();
    fs::write(&file, calendar.text(now).unwrap()).unwrap();
}
