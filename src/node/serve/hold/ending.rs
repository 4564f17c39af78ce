//! A holder that is being ended.

use crate::serve::peer::owns;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use std::os::fd::OwnedFd;
use std::time::Duration;
use tranche_core::ledger::process::Machine;
use tranche_core::ledger::{InitProcess, World};

/// The init of a container, or a program, that was asked to end.
#[derive(Debug)]
pub(super) struct Ending {
    record: InitProcess,
    /// A handle that no later process with its number gets.
    process: OwnedFd,
    /// When, in seconds since boot.
    asked: u64,
    is_killed: bool,
}

impl Ending {
    /// Asks the process of `record`, which belongs to the user `uid`, to end.
    ///
    /// # Errors
    /// Returns a line if the process is not the recorded one any more or not the user's, or if it cannot be signalled.
    pub(super) fn ask(record: &InitProcess, uid: u32, machine: &Machine, uptime: u64) -> Result<Self, String> {
        let process = open(record, uid, machine).ok_or("it is not the recorded process of the user")?;
        send(&process, Signal::TERM)?;
        Ok(Self {
            record: record.clone(),
            process,
            asked: uptime,
            is_killed: false,
        })
    }

    /// Whether it is the process of `record`.
    pub(super) fn is_of(&self, record: &InitProcess) -> bool {
        self.record == *record
    }

    /// Kills it when `grace` is over. Returns what was done, for people.
    ///
    /// # Errors
    /// Returns a line if it cannot be signalled.
    pub(super) fn go_on(&mut self, grace: Duration, uptime: u64) -> Result<Option<&'static str>, String> {
        if self.is_killed || uptime.saturating_sub(self.asked) < grace.as_secs() {
            return Ok(None);
        }
        self.is_killed = true;
        send(&self.process, Signal::KILL)?;
        Ok(Some("killed, because it has not ended within the grace"))
    }
}

/// A handle of the process that was recorded; `None` if it has ended or is not the user's.
fn open(record: &InitProcess, uid: u32, machine: &Machine) -> Option<OwnedFd> {
    let pid = Pid::from_raw(i32::try_from(record.pid).ok()?)?;
    let process = pidfd_open(pid, PidfdFlags::empty()).ok()?;
    // After it was opened: if the recorded process lives now, the handle is its own.
    let itself = InitProcess {
        cgroup: None,
        ..record.clone()
    };
    (machine.lives(&itself) && owns(uid, record.pid)).then_some(process)
}

fn send(process: &OwnedFd, signal: Signal) -> Result<(), String> {
    match pidfd_send_signal(process, signal) {
        // It has ended.
        Ok(()) | Err(rustix::io::Errno::SRCH) => Ok(()),
        Err(error) => Err(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::unistd::geteuid;
    use std::fs;
    use std::process::{Child, Command};
    use std::thread::sleep;

    fn sleeping() -> Child {
        Command::new("sleep").arg("1000").spawn().unwrap()
    }

    fn end(mut child: Child) {
        child.kill().unwrap();
        child.wait().unwrap();
    }

    #[test]
    fn another_start_another_user_and_another_namespace_are_another_process() {
        let machine = Machine::here().unwrap();
        let me = geteuid().as_raw();
        let child = sleeping();
        let record = machine.process(child.id()).unwrap();
        assert!(open(&record, me, &machine).is_some());
        let later = InitProcess {
            start: record.start + 2,
            ..record.clone()
        };
        let elsewhere = InitProcess {
            namespace: record.namespace + 1,
            ..record.clone()
        };
        for other in [&later, &elsewhere] {
            assert!(open(other, me, &machine).is_none(), "{other:?}");
        }
        if me == 0 {
            assert!(open(&record, 65533, &machine).is_none(), "root's process is no user's");
        }
        end(child);
        assert!(open(&record, me, &machine).is_none());
        assert!(Ending::ask(&record, me, &machine, 0).is_err());
    }

    /// A number is given away again by force: the kernel gives the one after `ns_last_pid` (pid_namespaces(7)).
    #[test]
    fn a_number_that_was_given_to_another_process_is_never_signalled() {
        let last = "/proc/sys/kernel/ns_last_pid";
        let test = "serve::hold::ending::a_number_that_was_given_to_another_process_is_never_signalled";
        let machine = Machine::here().unwrap();
        let child = sleeping();
        let record = machine.process(child.id()).unwrap();
        let before = (record.pid - 1).to_string();
        end(child);
        // The start of the next one differs by more than the rounding of the kernel.
        sleep(Duration::from_millis(100));
        for _ in 0..200 {
            if let Err(error) = fs::write(last, &before) {
                println!("not run: {test}: {last}: {error}");
                return;
            }
            // Other programs of the machine may take the number first.
            let mut child = sleeping();
            let has_the_number = child.id() == record.pid;
            if has_the_number {
                assert!(Ending::ask(&record, geteuid().as_raw(), &machine, 0).is_err());
                assert!(child.try_wait().unwrap().is_none(), "it was signalled");
            }
            end(child);
            if has_the_number {
                return;
            }
        }
        panic!("the number was not given to another process");
    }
}
