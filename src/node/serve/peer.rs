//! The other end of a connection, as the kernel knows it.

use super::nested::numbers_here;
use crate::peer::Peer;
use std::fs;
use std::io;
use std::os::linux::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use tranche_core::error::{Error, Result};
use tranche_core::ledger::InitProcess;
use tranche_core::ledger::process::Machine;

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
        match numbers
            .iter()
            .find(|number| self.is_owner() || owns(self.uid, **number))
        {
            Some(number) => machine.process(*number),
            None if numbers.is_empty() => Err(Error::failed(
                format!("process {pid}"),
                "has ended or does not exist in the pid namespace of the client",
            )),
            None => {
                // One that does not exist is nobody's, and that is the better reason.
                numbers
                    .iter()
                    .try_for_each(|number| machine.process(*number).map(drop))?;
                let what = format!("does not belong to user {}", self.uid);
                Err(Error::failed(format!("process {pid}"), what))
            }
        }
    }
}

/// Whether the user `uid` may end the process `pid`: it runs as the user, or in a user namespace in which the user is
/// mapped.
pub(super) fn owns(uid: u32, pid: u32) -> bool {
    let directory = at(pid);
    let status = fs::read_to_string(directory.join("status")).unwrap_or_default();
    if real_uid(&status) == Some(uid) {
        return true;
    }
    let own = namespace(Path::new("/proc/self"), "user");
    let is_below = namespace(&directory, "user").is_some_and(|of_client| Some(of_client) != own);
    let map = fs::read_to_string(directory.join("uid_map")).unwrap_or_default();
    is_below && maps(&map, uid)
}

pub(super) fn at(pid: u32) -> PathBuf {
    Path::new("/proc").join(pid.to_string())
}

/// The number of a namespace of the process in `directory`; `None` if the process has ended.
pub(super) fn namespace(directory: &Path, kind: &str) -> Option<u64> {
    let file = directory.join("ns").join(kind);
    Some(fs::metadata(file).ok()?.st_ino())
}

/// The real user in the text of `/proc/PID/status` (proc(5)).
fn real_uid(status: &str) -> Option<u32> {
    let line = status.lines().find_map(|line| line.strip_prefix("Uid:"))?;
    line.split_ascii_whitespace().next()?.parse().ok()
}

/// Whether `uid` is one of the outer users in the text of `/proc/PID/uid_map` (user_namespaces(7)): each line has the
/// first inner id, the first outer id and their number.
fn maps(map: &str, uid: u32) -> bool {
    map.lines().any(|line| {
        let numbers: Vec<u64> = line
            .split_ascii_whitespace()
            .filter_map(|word| word.parse().ok())
            .collect();
        match numbers[..] {
            [_, first, count] => (first..first.saturating_add(count)).contains(&u64::from(uid)),
            _ => false,
        }
    })
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

    #[test]
    fn a_map_has_ranges_of_outer_users() {
        // podman: root is the user, and the rest are subordinate ids.
        let map = "         0       1000          1\n         1     100000      65536\n";
        for (uid, is_in) in [
            (1000, true),
            (1001, false),
            (100_000, true),
            (165_536, false),
            (0, false),
        ] {
            assert_eq!(maps(map, uid), is_in, "{uid}");
        }
        assert!(!maps("0 x 4294967295\n", 1) && !maps("", 0));
    }
}
