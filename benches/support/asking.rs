//! A broker with its socket, and requests of users on a connection each, without a program.
#![allow(dead_code, reason = "each benchmark uses a part")]

use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::Uid;
use rustix::thread::set_thread_res_uid;
use serde_json::Value;

/// The broker of a machine that is only described, started with a socket that listens already.
pub(crate) fn activated(inventory: &str, listener: &UnixListener, state_dir: &Path, policy: &Path) -> Child {
    activated_on(&[format!("--inventory={inventory}")], listener, state_dir, policy)
}

/// The broker of the machine that these options name.
pub(crate) fn activated_on(host: &[String], listener: &UnixListener, state_dir: &Path, policy: &Path) -> Child {
    // The shell gives the broker its own number, and the socket under the number 3.
    let script = "exec 3<&0 0</dev/null; export LISTEN_FDS=1 LISTEN_PID=$$; exec \"$@\"";
    let mut command = Command::new("/bin/sh");
    command
        .args(["-c", script, "sh", env!("CARGO_BIN_EXE_tranche"), "broker"])
        .args(host)
        .arg(format!("--state-dir={}", state_dir.display()))
        .arg(format!("--spec-dir={}", state_dir.join("cdi").display()))
        .arg(format!("--config={}", policy.display()));
    let socket = OwnedFd::from(listener.try_clone().unwrap());
    command
        .env_clear()
        .envs(of_the_unit("Environment").filter_map(|setting| setting.split_once('=')));
    command.stdin(Stdio::from(socket)).stdout(Stdio::null());
    command.spawn().unwrap()
}

/// The values of a key in the broker's unit.
pub(crate) fn of_the_unit(key: &'static str) -> impl Iterator<Item = &'static str> {
    let unit = include_str!("../../packaging/systemd/tranche-broker.service");
    let lines = unit.lines().filter_map(|line| line.split_once('='));
    lines.filter_map(move |(name, value)| (name == key).then_some(value))
}

/// A connection of the user with this request.
pub(crate) fn request(uid: u32, socket: &Path, request: &Value) -> UnixStream {
    // The kernel tells the broker who has connected.
    let connected = thread::scope(|threads| {
        let connect = || {
            let uid = Uid::from_raw(uid);
            set_thread_res_uid(uid, uid, uid).unwrap();
            UnixStream::connect(socket)
        };
        threads.spawn(connect).join().unwrap()
    });
    let mut connection = connected.unwrap();
    connection.write_all(format!("{request}\n").as_bytes()).unwrap();
    connection
}

/// How long it takes to connect, to ask and to be answered without an error.
pub(crate) fn asked(uid: u32, socket: &Path, what: &Value) -> Duration {
    let start = Instant::now();
    let mut answer = String::new();
    request(uid, socket, what).read_to_string(&mut answer).unwrap();
    let time = start.elapsed();
    assert!(answer.contains("\"ok\""), "{what}: {answer}");
    time
}
