//! A GPU in time, and processes of `tranche-load` that share it.

use crate::support::fake_host::fake_library::CUDA;
use crate::verify_program;
use nix::time::{ClockId, clock_gettime};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, listen, socket_with};
use serde_json::{Value, json};
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::OwnedFd;
use std::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tempfile::TempDir;

pub(crate) const GPU: &str = "GPU-11111111-2222-3333-4444-555555555555";
pub(crate) const SMS: u64 = 40;
pub(crate) const MIB: u64 = 1 << 20;
pub(crate) const MS: u64 = 1_000_000;
/// Of the memory, in bytes per nanosecond.
pub(crate) const BANDWIDTH: u64 = 400;

/// How long an iteration of a request's calculation takes on all SMs, in nanoseconds: 16 calculations in each of 128
/// threads of 16,384 blocks, by 128 lanes of each SM at 1.4 GHz.
pub(crate) const ITERATION: f64 = 16.0 * 128.0 * 16_384.0 / (128.0 * 1.4) / SMS as f64;

/// A GPU of 40 SMs and 4 GiB, with an L2 cache of 4 MiB, and a daemon of MPS that accepts connections in `mps`.
pub(crate) struct Machine {
    pub(crate) top: TempDir,
    _daemon: OwnedFd,
    /// Its times are measured, so only one machine is in use at once.
    _alone: MutexGuard<'static, ()>,
}

/// CLOCK_MONOTONIC in nanoseconds.
pub(crate) fn now() -> u64 {
    let time = Duration::from(clock_gettime(ClockId::CLOCK_MONOTONIC).unwrap());
    time.as_nanos().try_into().unwrap()
}

impl Machine {
    pub(crate) fn new() -> Self {
        Self::with(|_| {})
    }

    /// A machine whose GPU breaks a promise.
    pub(crate) fn that_cheats(cheat: &str) -> Self {
        Self::with(|config| config["gpus"][0]["model"]["cheats"] = json!([cheat]))
    }

    pub(crate) fn with(change: impl FnOnce(&mut Value)) -> Self {
        static ALONE: Mutex<()> = Mutex::new(());
        let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        let top = tempfile::tempdir().unwrap();
        CUDA.install(&top.path().join("libcuda.so.1"), &[]).unwrap();
        let model = json!({"state": top.path().join("gpu"), "l2_mib": 4, "bandwidth_gb_s": BANDWIDTH});
        let gpu = json!({"uuid": GPU, "name": "Tesla \"T4\"", "sms": SMS, "memory_mib": 4096, "model": model});
        let mut config = json!({"version": 12040, "gpus": [gpu]});
        change(&mut config);
        fs::write(top.path().join("cuda.json"), config.to_string()).unwrap();
        fs::create_dir(top.path().join("mps")).unwrap();
        let daemon = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap();
        bind(&daemon, &SocketAddrUnix::new(top.path().join("mps/control")).unwrap()).unwrap();
        listen(&daemon, 100).unwrap();
        Self {
            top,
            _daemon: daemon,
            _alone: alone,
        }
    }

    /// Starts a process with its own context.
    pub(crate) fn start(&self, arguments: &str) -> Load {
        self.start_with(arguments, &[])
    }

    /// Starts a client of MPS that may use this percentage of the SMs.
    pub(crate) fn start_client(&self, arguments: &str, percent: u32) -> Load {
        let (pipe, percent) = (self.top.path().join("mps"), percent.to_string());
        let environment = [
            ("CUDA_MPS_PIPE_DIRECTORY", pipe.to_str().unwrap()),
            ("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", &percent),
        ];
        self.start_with(arguments, &environment)
    }

    pub(crate) fn start_with(&self, arguments: &str, environment: &[(&str, &str)]) -> Load {
        let mut command = Command::new(verify_program::load());
        command.args(arguments.split_whitespace()).env_clear();
        command
            .env("LD_LIBRARY_PATH", self.top.path())
            .env("CUDA_MPS_PIPE_DIRECTORY", "/nowhere");
        command.envs(environment.iter().copied());
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        Load {
            input: child.stdin.take(),
            output: BufReader::new(child.stdout.take().unwrap()),
            error: child.stderr.take().unwrap(),
            child,
        }
    }
}

/// A process. It is killed when it is dropped.
pub(crate) struct Load {
    pub(crate) child: Child,
    pub(crate) input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
    error: ChildStderr,
}

/// What a process printed until its end.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) code: Option<i32>,
    pub(crate) events: Vec<Value>,
    pub(crate) error: String,
}

impl Load {
    /// The next event.
    pub(crate) fn event(&mut self) -> Value {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        if line.is_empty() {
            self.error.read_to_string(&mut line).unwrap();
            panic!("the output has ended: {line}");
        }
        serde_json::from_str(&line).unwrap_or_else(|e| panic!("{line}: {e}"))
    }

    /// Waits until the process is ready.
    pub(crate) fn ready(&mut self) -> Value {
        let event = self.event();
        assert_eq!(event["event"], "ready", "{event}");
        event
    }

    /// Writes lines to it, as far as it reads them.
    pub(crate) fn say(&mut self, lines: &str) {
        // It may have ended because of the first ones.
        let _ = self.input.as_mut().unwrap().write_all(lines.as_bytes());
    }

    /// Reads all that it prints, and waits for its end.
    pub(crate) fn finish(mut self) -> Ended {
        let mut lines = String::new();
        self.output.read_to_string(&mut lines).unwrap();
        let mut error = String::new();
        self.error.read_to_string(&mut error).unwrap();
        let code = self.child.wait().unwrap().code();
        let events = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        Ended { code, events, error }
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Lets processes run at the same time for `length` nanoseconds, and waits for their ends.
pub(crate) fn run<const N: usize>(mut loads: [Load; N], length: u64) -> [Ended; N] {
    for load in &mut loads {
        load.ready();
    }
    let begin = now() + 30 * MS;
    for load in &mut loads {
        load.say(&format!("start {begin} {}\n", begin + length));
    }
    loads.map(Load::finish)
}

impl Ended {
    /// The events of a run that was complete, without the last one.
    pub(crate) fn complete(&self) -> &[Value] {
        assert_eq!((self.code, self.error.as_str()), (Some(0), ""), "{self:?}");
        let (last, events) = self.events.split_last().unwrap();
        assert_eq!(last["event"], "end", "{self:?}");
        assert!(last["at"].as_u64().unwrap() <= now());
        events
    }

    /// Units for each nanosecond between the first begin and the last end.
    pub(crate) fn rate(&self) -> f64 {
        let events = self.complete();
        let sum: u64 = events.iter().map(|event| number(event, "units")).sum();
        let time = number(events.last().unwrap(), "done") - number(&events[0], "began");
        sum as f64 / time as f64
    }

    /// The times that the pieces of work took, sorted.
    pub(crate) fn times(&self, since: &str) -> Vec<u64> {
        let all = self.complete().iter();
        let mut times: Vec<u64> = all.map(|event| number(event, "done") - number(event, since)).collect();
        times.sort_unstable();
        times
    }
}

/// The time that 19 of 20 do not exceed, of times that are sorted.
pub(crate) fn most(times: &[u64]) -> u64 {
    times[times.len() * 19 / 20]
}

pub(crate) fn number(event: &Value, name: &str) -> u64 {
    event[name].as_u64().unwrap_or_else(|| panic!("{name} in {event}"))
}

/// Fails unless a rate is what the GPU can do, or somewhat less: a busy machine wakes processes late.
pub(crate) fn near(seen: f64, expected: f64) {
    let part = seen / expected;
    assert!((0.6..=1.15).contains(&part), "{seen} is not near {expected}: {part}");
}

/// Fails unless both got about the same.
pub(crate) fn equal(one: f64, other: f64) {
    let part = one / other;
    assert!((0.65..=1.5).contains(&part), "{one} is not near {other}: {part}");
}
