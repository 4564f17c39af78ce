//! The other end of a connection, as the kernel knows it.

use super::nested::numbers_here;
use super::signals::{handle, signal};
use crate::peer::Peer;
use crate::sys::as_user::Answer;
use crate::verbs::Caller;
use std::fs;
use std::io;
use std::os::linux::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use tranche_core::error::{Context, Error, Result};
use tranche_core::ledger::InitProcess;
use tranche_core::ledger::process::Machine;

/// The most processes that are looked at because the client may mean them by a number.
const MOST_NUMBERS: usize = 16;

/// Who asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct BrokerClient {
    /// The user, by the user namespace of the broker: root of a rootless engine is that engine's user.
    pub(super) uid: u32,
    /// The process that connected, by the pid namespace of the broker; `None` if it cannot be seen from there.
    pid: Option<u32>,
}

impl BrokerClient {
    /// Who made this connection (unix(7), SO_PEERCRED).
    pub(super) fn of(stream: &UnixStream) -> io::Result<Self> {
        let Peer { pid, uid } = Peer::of(stream)?;
        Ok(Self { uid, pid })
    }

    /// Whether it is the user of the broker, to whom the ledger belongs: root, outside of tests.
    pub(super) fn is_owner(self) -> bool {
        self.uid == nix::unistd::geteuid().as_raw()
    }

    /// For whom a verb is done that the client asks for.
    pub(super) fn caller(self) -> Caller {
        match self.is_owner() {
            true => Caller::Root,
            false => Caller::User(self.uid),
        }
    }

    /// The init of a container of this user, whose number is `pid` in the pid namespace of the process that asks.
    ///
    /// # Errors
    /// Returns an error if the process does not exist or is not the user's, or if it cannot be seen from here. Without
    /// a process whose end is seen, a claim would last for ever.
    pub(super) fn init(self, pid: u32, machine: &Machine) -> Result<InitProcess> {
        let Some(client) = self.pid else {
            let what = "cannot be seen by the broker, which runs in another pid namespace";
            return Err(
                Error::failed(format!("process {pid}"), what).hint("run the broker in the host's pid namespace")
            );
        };
        let is_here = namespace(&at(client), "pid") == namespace(Path::new("/proc/self"), "pid");
        let numbers = if is_here { vec![pid] } else { numbers_here(client, pid) };
        for number in numbers.iter().take(MOST_NUMBERS) {
            if let Some(init) = self.own(*number, machine)? {
                return Ok(init);
            }
        }
        match numbers.is_empty() {
            true => Err(Error::failed(
                format!("process {pid}"),
                "has ended or does not exist in the pid namespace of the client",
            )),
            false => {
                // One that does not exist is nobody's, and that is the better reason.
                numbers
                    .iter()
                    .try_for_each(|number| machine.process(*number).map(drop))?;
                let what = format!("does not belong to user {}", self.uid);
                Err(Error::failed(format!("process {pid}"), what))
            }
        }
    }

    /// Process `pid`, if the user may signal it. The kernel says whether.
    fn own(self, pid: u32, machine: &Machine) -> Result<Option<InitProcess>> {
        if self.is_owner() {
            return machine.process(pid).map(Some);
        }
        // One that has ended is nobody's.
        let (Some(process), Ok(record)) = (handle(pid), machine.process(pid)) else {
            return Ok(None);
        };
        // After it was recorded: while the process of the handle has not ended, no other one has its number.
        let answer = signal(self.uid, &process, None).about(format!("process {pid}"), "cannot be asked about")?;
        Ok((answer == Answer::Sent).then_some(record))
    }
}

pub(super) fn at(pid: u32) -> PathBuf {
    Path::new("/proc").join(pid.to_string())
}

/// The number of a namespace of the process in `directory`; `None` if the process has ended.
pub(super) fn namespace(directory: &Path, kind: &str) -> Option<u64> {
    let file = directory.join("ns").join(kind);
    Some(fs::metadata(file).ok()?.st_ino())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Child, Command};

    /// A process of `uid` that sleeps.
    fn sleeping(uid: u32) -> Child {
        let mut command = Command::new("setpriv");
        command.args([format!("--reuid={uid}"), format!("--regid={uid}")]);
        command.args(["--clear-groups", "sleep", "1000"]).spawn().unwrap()
    }

    #[test]
    fn the_kernel_says_who_asks() {
        let (one, _other) = UnixStream::pair().unwrap();
        let peer = BrokerClient::of(&one).unwrap();
        let me = nix::unistd::geteuid().as_raw();
        assert_eq!((peer.uid, peer.pid), (me, Some(std::process::id())));
        assert!(peer.is_owner() && !BrokerClient { uid: me + 1, ..peer }.is_owner());
    }

    #[test]
    fn only_a_process_of_the_user_is_taken_for_an_init() {
        if !nix::unistd::geteuid().is_root() {
            println!("not run: serve::peer::only_a_process_of_the_user_is_taken_for_an_init: not root");
            return;
        }
        let machine = Machine::here().unwrap();
        let mut other = sleeping(65533);
        let of = |uid| BrokerClient {
            uid,
            pid: Some(std::process::id()),
        };
        // setpriv changes its user before it becomes sleep.
        let comm = at(other.id()).join("comm");
        while fs::read_to_string(&comm).unwrap().trim_end() != "sleep" {
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        let init = of(65533).init(other.id(), &machine).unwrap();
        assert_eq!(init, machine.process(other.id()).unwrap());
        let line = of(65534).init(other.id(), &machine).unwrap_err().to_string();
        assert!(line.ends_with("does not belong to user 65534"), "{line}");
        assert!(of(65534).init(std::process::id(), &machine).is_err(), "root's");
        other.kill().unwrap();
        other.wait().unwrap();
        assert!(of(65533).init(other.id(), &machine).is_err(), "it has ended");
    }

    #[test]
    fn the_process_of_a_client_that_cannot_be_seen_is_refused() {
        let machine = Machine::here().unwrap();
        let unseen = BrokerClient { uid: 65533, pid: None };
        let line = tranche_core::error::line(&unseen.init(1, &machine).unwrap_err());
        assert!(line.contains("process 1: cannot be seen by the broker"), "{line}");
    }
}
