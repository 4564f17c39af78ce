//! Starts the process that asks NVML, and ends it together with everything that the library started.
//!
//! As root, the process runs in a pid namespace of its own (see [`crate::sys::nursery`]). No process can leave it, and
//! it ends with the parent even if the parent is killed. Only root may make such a namespace, and a question about
//! processes cannot be asked in one (`Question::has_processes`). For other users and for that question, the process
//! gets a process group and a mark in its environment. Both are inherited, and every process that has one of them is
//! killed. A process that leaves the group and clears its environment is missed then, and so is one whose starter was
//! killed together with the parent.

use crate::sys::nursery::Nursery;
use nix::errno::Errno;
use nix::sys::signal::{Signal, kill, killpg};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid};
use nix::unistd::Pid;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, ExitStatus, Stdio};
use std::sync::mpsc::{self, Sender};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tranche_core::execute::Program;

/// The environment variable that marks the processes that the library starts.
const MARK: &str = "TRANCHE_NVML_CHILD";

/// How long a killed process may take to end. A process that is stuck in the driver ends when the driver returns.
const PATIENCE: Duration = Duration::from_secs(2);

/// The process, until it is dropped.
pub struct NvmlProcess {
    child: Child,
    group: Pid,
    mark: String,
    is_reaped: bool,
    /// Whether the child has a pid namespace, so that all its processes end with it.
    in_nursery: bool,
    /// When this is dropped, the thread that started the child ends, and the namespace with it.
    hold: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// What the thread that starts the child returns: the child, and whether it has a namespace.
type Started = io::Result<(Child, bool)>;

/// A process that answers, where its questions are written, and where its answers are read.
pub type Answering = (NvmlProcess, ChildStdin, ChildStdout);

impl NvmlProcess {
    /// Starts `program` with these arguments. Returns the process, its standard input and its standard output.
    /// With `sees_processes`, it has no pid namespace of its own, in which the driver would show it no process.
    ///
    /// # Errors
    /// Returns an error if the program cannot be started.
    pub fn start(program: &Path, arguments: &[&OsStr], sees_processes: bool) -> io::Result<Answering> {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let mark = format!("{}-{}", std::process::id(), since.as_nanos());
        let program = program.to_owned();
        let arguments: Vec<OsString> = arguments.iter().map(|argument| (*argument).to_owned()).collect();
        let (to_us, from_thread) = mpsc::channel::<Started>();
        let (hold, held) = mpsc::channel::<()>();
        let of_thread = mark.clone();
        // The namespace belongs to a thread, and PR_SET_PDEATHSIG kills the child when that thread ends.
        let thread = thread::Builder::new().name("nvml".to_owned()).spawn(move || {
            let nursery = match sees_processes {
                true => None,
                false => Nursery::of_this_thread().ok(),
            };
            let child = spawn(&program, &arguments, &of_thread);
            let _ = to_us.send(child.map(|child| (child, nursery.is_some())));
            // Nothing is ever sent, so this waits until `hold` is dropped.
            let _ = held.recv();
        })?;
        let (mut child, in_nursery) = from_thread.recv().map_err(|_| io::Error::other("its thread ended"))??;
        let pipes = child.stdin.take().zip(child.stdout.take());
        let (questions, answers) = pipes.ok_or_else(|| io::Error::other("no pipe"))?;
        let group = Pid::from_raw(child.id().cast_signed());
        let process = Self {
            child,
            group,
            mark,
            is_reaped: false,
            in_nursery,
            hold: Some(hold),
            thread: Some(thread),
        };
        Ok((process, questions, answers))
    }

    /// Its number.
    pub fn pid(&self) -> i32 {
        self.group.as_raw()
    }

    /// Whether the process has ended. It is not reaped yet, so no other process can have its number.
    pub fn has_ended(&self) -> bool {
        let flags = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
        self.is_reaped || !matches!(waitid(Id::Pid(self.group), flags), Ok(WaitStatus::StillAlive))
    }

    /// Waits for `patience`, then kills the process. A process that ended by itself keeps its status, because a signal
    /// to a dead process has no effect.
    ///
    /// # Errors
    /// Returns an error if the process does not die because it is stuck in the driver.
    pub fn end(&mut self, patience: Duration) -> io::Result<ExitStatus> {
        wait_until(patience, || self.has_ended());
        if !self.is_reaped {
            // Before the process is reaped: afterwards another process may have the number.
            let _ = killpg(self.group, Signal::SIGKILL);
            self.child.kill()?;
            self.is_reaped = wait_until(PATIENCE, || self.has_ended());
        }
        match self.is_reaped {
            true => self.child.wait(),
            false => Err(io::Error::other(
                "it does not end after SIGKILL; it is stuck in the driver",
            )),
        }
    }
}

impl Drop for NvmlProcess {
    fn drop(&mut self) {
        // After an earlier `end`, this has no effect. A process that does not die is not waited for any longer.
        let _ = self.end(Duration::ZERO);
        drop(self.hold.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        if !self.in_nursery {
            end_marked(&self.mark);
        }
    }
}

fn spawn(program: &Path, arguments: &[OsString], mark: &str) -> io::Result<Child> {
    // The caller's environment must not affect the library: it may preload a library or write a trace to a file. The
    // process leads a session, and so also a group.
    let mut child = Program::new(program);
    child.args(arguments).env(MARK, mark);
    child.stdin(Stdio::piped()).stdout(Stdio::piped());
    child.spawn()
}

/// Waits until `is_so`, at most for `limit`. Returns whether it is so.
fn wait_until(limit: Duration, is_so: impl Fn() -> bool) -> bool {
    let until = Instant::now() + limit;
    loop {
        if is_so() {
            return true;
        }
        if Instant::now() >= until {
            return false;
        }
        thread::sleep(Duration::from_micros(100));
    }
}

/// Kills every process of this user that has `mark` in its environment. Repeats this until no process has it: a process
/// that is forked meanwhile is found in the next round.
fn end_marked(mark: &str) {
    const ROUNDS: usize = 20;
    let wanted = format!("{MARK}={mark}");
    for _ in 0..ROUNDS {
        let found: Vec<Pid> = pids()
            .into_iter()
            .filter(|(_, dir)| has(&dir.join("environ"), &wanted))
            .map(|(pid, _)| pid)
            .collect();
        let killed = found
            .iter()
            .filter(|pid| kill(**pid, Signal::SIGKILL) != Err(Errno::ESRCH));
        if killed.count() == 0 {
            return;
        }
        thread::sleep(Duration::from_millis(1));
    }
}

/// Every process, with its directory.
fn pids() -> Vec<(Pid, PathBuf)> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries
        .filter_map(|entry| {
            let pid: i32 = entry.file_name().to_str()?.parse().ok()?;
            Some((Pid::from_raw(pid), entry.path()))
        })
        .collect()
}

/// Whether an environment has this entry. The environments of other users and of ended processes cannot be read and do
/// not have it.
fn has(environ: &Path, wanted: &str) -> bool {
    fs::read(environ).is_ok_and(|bytes| bytes.split(|b| *b == 0).any(|entry| entry == wanted.as_bytes()))
}
