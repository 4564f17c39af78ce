//! A holder that is being ended.

use super::engine::{self, PodmanContainer};
use super::rest;
use crate::serve::signals::{handle, signal};
use crate::sys::as_user::Answer;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::Signal;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::mpsc::{Receiver, TryRecvError};
use std::time::Duration;
use tranche_core::ledger::process::Machine;
use tranche_core::ledger::{Claim, InitProcess, World};

/// For how long it is waited until a process that was killed has ended.
const END: Duration = Duration::from_millis(200);

/// Where holders are ended.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place<'a> {
    pub(super) machine: &'a Machine,
    /// Where it is written down what is frozen.
    pub(super) state_dir: &'a Path,
    /// Seconds since boot.
    pub(super) uptime: u64,
}

/// The processes of a container, or of a program, that were asked to end.
///
/// What they are is looked at again before each signal: the recorded process by its number and its start, and whether
/// the user may signal it by the kernel.
#[derive(Debug)]
pub(super) struct Ending {
    record: InitProcess,
    uid: u32,
    /// When, in seconds since boot.
    asked: u64,
    /// What the engine answers, while it stops the container.
    engine: Option<Receiver<Result<(), String>>>,
    was_asked: bool,
    is_killed: bool,
    /// Why the last signal did not end it.
    stuck: Option<String>,
}

impl Ending {
    /// Asks the holder of `claim`, whose process is `record`, to end: by the user's engine if that is podman, and else
    /// by SIGTERM. Returns also what was done, for people; `None` if it cannot be ended, as [`Self::stuck`] says.
    pub(super) fn ask(
        claim: &Claim,
        record: &InitProcess,
        grace: Duration,
        place: Place<'_>,
    ) -> (Self, Option<String>) {
        let mut ending = Self::of(claim, record);
        (ending.asked, ending.was_asked) = (place.uptime, true);
        let container = PodmanContainer::of(&claim.holder);
        let is_own = || {
            let init = ending.init(place.machine);
            init.is_some_and(|init| matches!(signal(ending.uid, &init, None), Ok(Answer::Sent)))
        };
        let engine = match container.filter(|_| is_own()) {
            Some(container) => container.stop(grace),
            None => {
                let asked = ending.terminate(place.machine);
                return (ending, asked.then(|| BY_SIGTERM.to_owned()));
            }
        };
        match engine {
            Ok(result) => {
                ending.engine = Some(result);
                (ending, Some("asked to end, by podman stop".to_owned()))
            }
            Err(why) => {
                let asked = ending.terminate(place.machine);
                (
                    ending,
                    asked.then(|| format!("{BY_SIGTERM}, because of podman stop: {why}")),
                )
            }
        }
    }

    /// A holder that must not be asked to end yet, and why not.
    pub(super) fn not_yet(claim: &Claim, record: &InitProcess, why: String) -> Self {
        Self {
            stuck: Some(why),
            ..Self::of(claim, record)
        }
    }

    fn of(claim: &Claim, record: &InitProcess) -> Self {
        Self {
            record: record.clone(),
            uid: claim.uid,
            asked: 0,
            engine: None,
            was_asked: false,
            is_killed: false,
            stuck: None,
        }
    }

    /// Whether it was asked to end.
    pub(super) fn was_asked(&self) -> bool {
        self.was_asked
    }

    /// Whether it is the process of `record`.
    pub(super) fn is_of(&self, record: &InitProcess) -> bool {
        self.record == *record
    }

    /// Why it cannot be ended; `None` as long as nothing is known to keep it.
    pub(super) fn stuck(&self) -> Option<&str> {
        self.stuck.as_deref()
    }

    /// Kills it when `grace` is over, with all that is left in its cgroup, and again as long as something is left.
    /// Returns what was done, for people.
    pub(super) fn go_on(&mut self, grace: Duration, place: Place<'_>) -> Option<String> {
        let asked_for = place.uptime.saturating_sub(self.asked);
        if let Some(answer) = &self.engine {
            let why = match answer.try_recv() {
                Ok(Ok(())) => None,
                Ok(Err(why)) => Some(why),
                Err(TryRecvError::Empty) if asked_for < (grace + engine::PATIENCE).as_secs() => return None,
                Err(TryRecvError::Empty | TryRecvError::Disconnected) => Some("no answer".to_owned()),
            };
            self.engine = None;
            if let Some(why) = why {
                // The engine may have used up no time at all, so the grace begins again.
                self.asked = place.uptime;
                let asked = self.terminate(place.machine);
                return asked.then(|| format!("podman stop: {why}; {BY_SIGTERM}"));
            }
        }
        if asked_for < grace.as_secs() {
            return None;
        }
        let is_first = !std::mem::replace(&mut self.is_killed, true);
        self.stuck = self.kill(place).err();
        (is_first && self.stuck.is_none()).then(|| "killed, because it has not ended within the grace".to_owned())
    }

    /// Sends SIGTERM to the init, or to what is left if the init is not or is not the user's. Returns whether all is
    /// the user's.
    fn terminate(&mut self, machine: &Machine) -> bool {
        let sent = match self.to_init(machine, Signal::SIGTERM) {
            Ok(true) => Ok(()),
            of_init => match self
                .record
                .cgroup
                .as_ref()
                .map(|cgroup| rest::terminate(cgroup, self.uid))
            {
                Some(Err(why)) => Err(why),
                Some(Ok(1..)) => of_init.map(drop),
                Some(Ok(0)) | None => of_init.and_then(|_| Err("it is not the recorded process any more".to_owned())),
            },
        };
        self.stuck = sent.err();
        self.stuck.is_none()
    }

    /// Kills the init and everything in its cgroup.
    fn kill(&self, place: Place<'_>) -> Result<(), String> {
        // What is left is killed even if the init cannot be.
        let of_init = self.to_init(place.machine, Signal::SIGKILL);
        let cgroup = self.record.cgroup.as_ref();
        let of_rest = cgroup.map_or(Ok(()), |cgroup| rest::kill(cgroup, self.uid, place.state_dir));
        of_init.and(of_rest)?;
        match self.init(place.machine) {
            Some(init) if !has_ended(&init) => Err(format!("process {} has not ended after SIGKILL", self.record.pid)),
            _ => Ok(()),
        }
    }

    /// Sends a signal to the init as the user. Returns whether there still is one.
    fn to_init(&self, machine: &Machine, what: Signal) -> Result<bool, String> {
        let Some(init) = self.init(machine) else {
            return Ok(false);
        };
        match signal(self.uid, &init, Some(what)) {
            Ok(Answer::Sent) => Ok(true),
            Ok(Answer::Ended) => Ok(false),
            Ok(Answer::Refused) => Err(rest::foreign(self.record.pid)),
            Err(error) => Err(format!("cannot act as user {}: {error}", self.uid)),
        }
    }

    /// A handle of the process that was recorded; `None` if it has ended.
    fn init(&self, machine: &Machine) -> Option<OwnedFd> {
        let process = handle(self.record.pid)?;
        // After it was opened: if the recorded process lives now, the handle is its own.
        let itself = InitProcess {
            cgroup: None,
            ..self.record.clone()
        };
        machine.lives(&itself).then_some(process)
    }
}

/// What is done without an engine, for people.
const BY_SIGTERM: &str = "asked to end, by SIGTERM";

fn has_ended(process: &OwnedFd) -> bool {
    let timeout = PollTimeout::try_from(END).unwrap_or(PollTimeout::ZERO);
    matches!(
        poll(&mut [PollFd::new(process.as_fd(), PollFlags::POLLIN)], timeout),
        Ok(1..)
    )
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

    /// A machine and a state directory of its own.
    pub(in crate::serve::hold) struct TestPlace {
        pub(in crate::serve::hold) machine: Machine,
        pub(in crate::serve::hold) state: tempfile::TempDir,
    }

    impl TestPlace {
        pub(in crate::serve::hold) fn new() -> Self {
            Self {
                machine: Machine::here().unwrap(),
                state: tempfile::tempdir().unwrap(),
            }
        }

        pub(in crate::serve::hold) fn at(&self, uptime: u64) -> Place<'_> {
            Place {
                machine: &self.machine,
                state_dir: self.state.path(),
                uptime,
            }
        }

        /// Asks a program of `uid` to end, 1000 seconds after boot.
        pub(in crate::serve::hold) fn ask(&self, record: &InitProcess, uid: u32) -> (Ending, Option<String>) {
            Ending::ask(&claim(record, uid), record, GRACE, self.at(1000))
        }
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
        let place = TestPlace::new();
        let me = geteuid().as_raw();
        let mut child = sleeping();
        let record = place.machine.process(child.id()).unwrap();
        let later = InitProcess {
            start: record.start + 2,
            ..record.clone()
        };
        let elsewhere = InitProcess {
            namespace: record.namespace + 1,
            ..record.clone()
        };
        let refused = |record: &InitProcess, uid| place.ask(record, uid).0.stuck().unwrap().to_owned();
        for other in [&later, &elsewhere] {
            assert_eq!(
                refused(other, me),
                "it is not the recorded process any more",
                "{other:?}"
            );
        }
        if me == 0 {
            let why = refused(&record, 65533);
            assert!(why.ends_with("(sleep), of user 0, is not the user's to end"), "{why}");
        } else {
            assert!(
                refused(&record, me).contains("cannot act as user"),
                "only root becomes a user"
            );
        }
        assert!(child.try_wait().unwrap().is_none(), "it was signalled");
        end(child);
        assert_eq!(refused(&record, me), "it is not the recorded process any more");
    }

    /// A number is given away again by force: the kernel gives the one after `ns_last_pid` (pid_namespaces(7)).
    #[test]
    fn a_number_that_was_given_to_another_process_is_never_signalled() {
        let last = "/proc/sys/kernel/ns_last_pid";
        let test = "serve::hold::ending::a_number_that_was_given_to_another_process_is_never_signalled";
        let place = TestPlace::new();
        let child = sleeping();
        let record = place.machine.process(child.id()).unwrap();
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
                assert!(place.ask(&record, geteuid().as_raw()).0.stuck().is_some());
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
