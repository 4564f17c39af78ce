//! The processes of a daemon: the control program, and the servers that it starts.

use crate::control::changes::ProcessRecord;
use crate::peer::Peer;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::unistd::{SysconfVar, sysconf};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use std::ffi::OsStr;
use std::fs;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Child, ExitStatus};
use std::time::Duration;
use tranche_core::error::Result;
use tranche_core::ledger::process::{CgroupState, Machine};
use tranche_core::ledger::{Cgroup, InitProcess};
use tranche_core::mps::version::{PROGRAM, SERVER};
use tranche_core::text::shown;

/// How long a process may take to end after SIGTERM, and then after SIGKILL.
const PATIENCE: Duration = Duration::from_secs(2);

/// The variable that only tranche's daemons have with a directory of tranche's own: root alone can enter it.
const MARK: &str = "CUDA_MPS_LOG_DIRECTORY";

/// The processes of this machine.
#[derive(Debug)]
pub(in crate::control) struct Processes {
    machine: Machine,
}

impl Processes {
    /// Looks at `/proc`.
    ///
    /// # Errors
    /// Returns an error if `/proc` is not what it should be.
    pub(in crate::control) fn here() -> Result<Self> {
        Ok(Self {
            machine: Machine::here()?,
        })
    }

    /// Whether process `pid` is one of the container with this init.
    ///
    /// # Errors
    /// Returns an error if the cgroup of the container cannot be looked at.
    pub(in crate::control) fn is_of_container(&self, init: &InitProcess, pid: u32) -> Result<bool> {
        self.machine.has_process(init, pid)
    }

    /// Whether a cgroup still exists, and of which version it is.
    ///
    /// # Errors
    /// Returns an error if its place cannot be looked at.
    pub(in crate::control) fn cgroup(&self, cgroup: &Cgroup) -> Result<CgroupState> {
        self.machine.cgroup(cgroup)
    }

    /// The process with this number, as it can be recognised later; `None` if it has ended.
    pub(super) fn record(&self, pid: u32) -> Option<ProcessRecord> {
        let process = self.machine.creator(pid).ok()?;
        Some(ProcessRecord {
            pid,
            start: process.start,
        })
    }

    /// Whether the process still runs.
    pub(in crate::control) fn lives(&self, record: &ProcessRecord) -> bool {
        // The kernel's rounding may differ by a tick.
        let now = self.record(record.pid);
        now.is_some_and(|now| now.start.abs_diff(record.start) <= 1)
    }

    /// Whether the process runs, and was started a shorter time ago.
    pub(super) fn started_within(&self, pid: u32, time: Duration) -> bool {
        let uptime = fs::read_to_string("/proc/uptime").ok();
        let uptime = uptime.and_then(|text| text.split_whitespace().next()?.parse::<f64>().ok());
        let ticks = sysconf(SysconfVar::CLK_TCK).ok().flatten();
        let (Some(process), Some(uptime), Some(ticks)) = (self.record(pid), uptime, ticks) else {
            return false;
        };
        #[allow(clippy::cast_precision_loss, reason = "ticks since boot are far below 2^52")]
        let started = process.start as f64 / ticks as f64;
        uptime - started < time.as_secs_f64()
    }

    /// Whether the process was started with this argument.
    pub(super) fn has_argument(&self, pid: u32, argument: &str) -> bool {
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        line.split(|byte| *byte == 0).any(|word| word == argument.as_bytes())
    }

    /// Whether the process was started as a daemon with this directory for its log, or is a server of it. Servers may
    /// run as the user of their clients. Its environment alone does not say it: a user chooses that of a setuid
    /// program.
    pub(super) fn is_daemon(&self, pid: u32, log: &Path) -> bool {
        let is_root = fs::metadata(format!("/proc/{pid}")).is_ok_and(|process| process.uid() == 0);
        let exe = fs::read_link(format!("/proc/{pid}/exe")).unwrap_or_default();
        let name = exe.file_name().unwrap_or_default().to_string_lossy();
        // A package may have replaced the file since (proc(5)).
        match name.strip_suffix(" (deleted)").unwrap_or(&name) {
            SERVER => {}
            PROGRAM if is_root => {}
            _ => return false,
        }
        let mark = [MARK.as_bytes(), b"=", log.as_os_str().as_bytes()].concat();
        let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        environment.split(|byte| *byte == 0).any(|entry| entry == mark) && sees(pid, log)
    }

    /// A process for a message: its number, its program and its user.
    pub(super) fn name(&self, peer: Peer) -> String {
        let Some(pid) = peer.pid else {
            return format!("a process of another pid namespace, uid {}", peer.uid);
        };
        format!("process {}, uid {}", describe(pid), peer.uid)
    }

    /// Waits until the process has ended, at most for `patience`. Returns whether it has.
    pub(super) fn wait(&self, record: &ProcessRecord, patience: Duration) -> bool {
        match self.open(record) {
            Some(process) => has_ended(&process, patience),
            None => true,
        }
    }

    /// Ends a process, by SIGTERM and then by SIGKILL.
    ///
    /// # Errors
    /// Returns a line if it does not end.
    pub(super) fn end(&self, record: &ProcessRecord) -> Result<(), String> {
        let Some(process) = self.open(record) else {
            return Ok(());
        };
        for signal in [Signal::TERM, Signal::KILL] {
            match pidfd_send_signal(&process, signal) {
                Err(rustix::io::Errno::SRCH) => return Ok(()),
                sent => sent.map_err(|e| format!("process {} cannot be ended: {e}", record.pid))?,
            }
            if has_ended(&process, PATIENCE) {
                return Ok(());
            }
        }
        Err(format!("process {} does not end after SIGKILL", describe(record.pid)))
    }

    /// Ends every process of the daemon with this log, also those that another broker started: a control daemon that
    /// was killed leaves its servers, which keep the device.
    ///
    /// # Errors
    /// Returns a line about a process that does not end.
    pub(super) fn end_all(&self, log: &Path) -> Result<(), String> {
        for pid in pids().filter(|pid| self.is_daemon(*pid, log)) {
            if let Some(record) = self.record(pid) {
                self.end(&record)?;
            }
        }
        Ok(())
    }

    /// A handle of the process, which no later process with its number gets.
    fn open(&self, record: &ProcessRecord) -> Option<OwnedFd> {
        let process = open(record.pid)?;
        // After it was opened: the number was not given away meanwhile.
        self.lives(record).then_some(process)
    }
}

/// Whether the directory `log` of the process `pid` is this one: a process with another root or in another mount
/// namespace, such as the daemon of an engine in a container, may have a directory of that name too.
fn sees(pid: u32, log: &Path) -> bool {
    let relative = log.strip_prefix("/").unwrap_or(log);
    let of_process = fs::metadata(Path::new("/proc").join(pid.to_string()).join("root").join(relative));
    let own = fs::metadata(log);
    matches!((of_process, own), (Ok(a), Ok(b)) if (a.dev(), a.ino()) == (b.dev(), b.ino()))
}

fn open(pid: u32) -> Option<OwnedFd> {
    let pid = Pid::from_raw(i32::try_from(pid).ok()?)?;
    pidfd_open(pid, PidfdFlags::empty()).ok()
}

fn has_ended(process: &OwnedFd, patience: Duration) -> bool {
    let timeout = PollTimeout::try_from(patience).unwrap_or(PollTimeout::MAX);
    let mut fds = [PollFd::new(process.as_fd(), PollFlags::POLLIN)];
    matches!(poll(&mut fds, timeout), Ok(1..))
}

/// The numbers of all processes.
fn pids() -> impl Iterator<Item = u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

/// A process for a message: `4711 (python3)`.
pub(in crate::control) fn describe(pid: u32) -> String {
    let name = fs::read(format!("/proc/{pid}/comm")).unwrap_or_default();
    match OsStr::from_bytes(name.trim_ascii_end()).to_string_lossy() {
        name if name.is_empty() => pid.to_string(),
        name => format!("{pid} ({})", shown(&name)),
    }
}

/// A daemon until it listens.
#[derive(Debug)]
pub(super) struct Starting(Option<Child>);

impl Starting {
    /// One that this process started.
    pub(super) fn child(child: Child) -> Self {
        Self(Some(child))
    }

    /// One that systemd started.
    pub(super) fn unit() -> Self {
        Self(None)
    }

    /// How it ended, if it did.
    pub(super) fn has_ended(&mut self) -> Option<ExitStatus> {
        self.0.as_mut()?.try_wait().ok().flatten()
    }

    /// Lets it run. A thread waits for its end, because a process that nobody waits for stays in the list of processes.
    pub(super) fn leave(mut self) {
        if let Some(mut child) = self.0.take() {
            std::thread::spawn(move || child.wait());
        }
    }
}

impl Drop for Starting {
    fn drop(&mut self) {
        if let Some(child) = &mut self.0 {
            // It may have ended by itself.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::CommandExt;
    use std::process::Command;

    /// A user chooses the environment of a setuid program, and the kernel its user.
    #[test]
    fn a_program_that_only_has_the_variable_is_no_daemon() {
        if !nix::unistd::geteuid().is_root() {
            println!("not run: process: not root");
            return;
        }
        let top = tempfile::tempdir().unwrap();
        let processes = Processes::here().unwrap();
        let is_daemon = |name: &str, uid: u32| {
            let program = top.path().join(name);
            let copied = Command::new("install")
                .args(["-m", "755", "/bin/sleep"])
                .arg(&program)
                .status();
            assert!(copied.unwrap().success());
            let mut child = Command::new(program);
            child.arg("1000").env(MARK, top.path()).uid(uid);
            let mut child = child.spawn().unwrap();
            let is_daemon = processes.is_daemon(child.id(), top.path());
            child.kill().unwrap();
            child.wait().unwrap();
            is_daemon
        };
        fs::set_permissions(top.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        assert!(is_daemon(PROGRAM, 0) && is_daemon(SERVER, 0) && is_daemon(SERVER, 65_533));
        for (name, uid) in [("passwd", 0), ("sudo", 65_533), (PROGRAM, 65_533)] {
            assert!(!is_daemon(name, uid), "{name} of user {uid}");
        }
    }
}
