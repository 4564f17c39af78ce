//! A holder that is being ended.

use super::engine::{self, PodmanContainer};
use super::rest;
use crate::serve::peer::owns;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use std::os::fd::OwnedFd;
use std::sync::mpsc::{Receiver, TryRecvError};
use std::time::Duration;
use tranche_core::ledger::process::Machine;
use tranche_core::ledger::{Claim, InitProcess, World};

/// The processes of a container, or of a program, that were asked to end.
#[derive(Debug)]
pub(super) struct Ending {
    record: InitProcess,
    uid: u32,
    /// A handle of the init, or of the program, that no later process with its number gets; `None` if it had ended, and
    /// others are left in its cgroup.
    init: Option<OwnedFd>,
    /// When, in seconds since boot.
    asked: u64,
    /// What the engine answers, while it stops the container.
    engine: Option<Receiver<Result<(), String>>>,
    is_killed: bool,
}

impl Ending {
    /// Asks the holder of `claim`, whose process is `record`, to end: by the user's engine if that is podman, and else
    /// by SIGTERM. Returns also what was done, for people.
    ///
    /// # Errors
    /// Returns a line if nothing of the user's is left of the recorded process, or if it cannot be signalled.
    pub(super) fn ask(
        claim: &Claim,
        record: &InitProcess,
        grace: Duration,
        machine: &Machine,
        uptime: u64,
    ) -> Result<(Self, String), String> {
        let mut ending = Self {
            record: record.clone(),
            uid: claim.uid,
            init: open(record, claim.uid, machine),
            asked: uptime,
            engine: None,
            is_killed: false,
        };
        let engine = match PodmanContainer::of(&claim.holder).filter(|_| ending.init.is_some()) {
            Some(container) => container.stop(grace),
            None => return Ok((ending.by_signal(machine)?, BY_SIGTERM.to_owned())),
        };
        match engine {
            Ok(result) => {
                ending.engine = Some(result);
                Ok((ending, "asked to end, by podman stop".to_owned()))
            }
            Err(why) => Ok((
                ending.by_signal(machine)?,
                format!("{BY_SIGTERM}, because of podman stop: {why}"),
            )),
        }
    }

    fn by_signal(self, machine: &Machine) -> Result<Self, String> {
        self.terminate(machine).map(|()| self)
    }

    /// Sends SIGTERM to the init, or to what it left.
    fn terminate(&self, machine: &Machine) -> Result<(), String> {
        match &self.init {
            Some(init) => send(init, Signal::TERM),
            None => match rest::signal(&self.record, self.uid, machine, Signal::TERM)? {
                0 => Err("it is not the recorded process of the user".to_owned()),
                _ => Ok(()),
            },
        }
    }

    /// Whether it is the process of `record`.
    pub(super) fn is_of(&self, record: &InitProcess) -> bool {
        self.record == *record
    }

    /// Kills it when `grace` is over, with all that is left in its cgroup, and again as long as something is left.
    /// Returns what was done, for people.
    ///
    /// # Errors
    /// Returns a line if it cannot be signalled.
    pub(super) fn go_on(&mut self, grace: Duration, machine: &Machine, uptime: u64) -> Result<Option<String>, String> {
        let asked_for = uptime.saturating_sub(self.asked);
        if let Some(answer) = &self.engine {
            let why = match answer.try_recv() {
                Ok(Ok(())) => None,
                Ok(Err(why)) => Some(why),
                Err(TryRecvError::Empty) if asked_for < (grace + engine::PATIENCE).as_secs() => return Ok(None),
                Err(TryRecvError::Empty | TryRecvError::Disconnected) => Some("no answer".to_owned()),
            };
            self.engine = None;
            if let Some(why) = why {
                // The engine may have used up no time at all, so the grace begins again.
                self.asked = uptime;
                self.terminate(machine)?;
                return Ok(Some(format!("podman stop: {why}; {BY_SIGTERM}")));
            }
        }
        if asked_for < grace.as_secs() {
            return Ok(None);
        }
        let is_first = !std::mem::replace(&mut self.is_killed, true);
        // What is left is killed even if the init cannot be.
        let of_init = self.init.as_ref().map_or(Ok(()), |init| send(init, Signal::KILL));
        let rest = rest::signal(&self.record, self.uid, machine, Signal::KILL);
        match of_init.and(rest) {
            Ok(_) => Ok(is_first.then(|| "killed, because it has not ended within the grace".to_owned())),
            Err(why) if is_first => Err(why),
            // It was told.
            Err(_) => Ok(None),
        }
    }
}

/// What is done without an engine, for people.
const BY_SIGTERM: &str = "asked to end, by SIGTERM";

/// A handle of the process that was recorded; `None` if it has ended or is not the user's.
fn open(record: &InitProcess, uid: u32, machine: &Machine) -> Option<OwnedFd> {
    let process = handle(record.pid)?;
    // After it was opened: if the recorded process lives now, the handle is its own.
    let itself = InitProcess {
        cgroup: None,
        ..record.clone()
    };
    (machine.lives(&itself) && owns(uid, record.pid)).then_some(process)
}

/// A handle of the process that has this number now.
pub(super) fn handle(pid: u32) -> Option<OwnedFd> {
    let pid = Pid::from_raw(i32::try_from(pid).ok()?)?;
    pidfd_open(pid, PidfdFlags::empty()).ok()
}

pub(super) fn send(process: &OwnedFd, signal: Signal) -> Result<(), String> {
    match pidfd_send_signal(process, signal) {
        // It has ended.
        Ok(()) | Err(rustix::io::Errno::SRCH) => Ok(()),
        Err(error) => Err(error.to_string()),
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use nix::unistd::geteuid;
    use std::fs;
    use std::process::{Child, Command};
    use std::thread::sleep;
    use tranche_core::ledger::{ClaimState, Holder};
    use tranche_core::types::HeldPart;

    const GRACE: Duration = Duration::from_secs(10);

    /// The claim of a program of `uid`.
    pub(in crate::serve::hold) fn claim(record: &InitProcess, uid: u32) -> Claim {
        Claim {
            name: None,
            device: "GPU-11111111".parse().unwrap(),
            part: HeldPart::Whole,
            asked_as: None,
            spec_file: None,
            state: ClaimState::Held,
            holder: Holder::Process {
                program: "train".to_owned(),
                id: "1".to_owned(),
            },
            process: Some(record.clone()),
            joined: false,
            once: false,
            for_root: true,
            uid,
            since: 1_700_000_000,
            since_boot: Some(100),
            ttl: None,
            until: None,
        }
    }

    fn ask(record: &InitProcess, uid: u32, machine: &Machine) -> Result<(Ending, String), String> {
        Ending::ask(&claim(record, uid), record, GRACE, machine, 1000)
    }

    /// Asks a program of `uid` to end, 1000 seconds after boot.
    pub(in crate::serve::hold) fn begin(record: &InitProcess, uid: u32, machine: &Machine) -> (Ending, String) {
        ask(record, uid, machine).unwrap()
    }

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
        assert!(ask(&record, me, &machine).is_err());
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
                assert!(ask(&record, geteuid().as_raw(), &machine).is_err());
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
