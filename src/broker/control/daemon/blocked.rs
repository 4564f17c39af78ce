//! A client that keeps the daemon from all others.
//!
//! The daemon serves its connections one after another, and waits for what a client says as long as the connection is
//! open (seen on 470 to 580). It takes commands from one connection at a time, too: while one that has said that it
//! sends commands is open, clients are served, and nobody else's command is. Which connection that is, the kernel says:
//! the system call that a thread of the daemon waits in, with the number of the descriptor, or with the descriptors
//! that it polls, to which only a connection for commands is added. The broker takes a copy of that descriptor
//! (pidfd_getfd(2)) and shuts the connection down, and the daemon goes on with the next one.

use super::process::Processes;
use crate::control::changes::ProcessRecord;
use crate::peer::Peer;
use crate::sys::peer_process;
use nix::libc;
use rustix::fs::fstat;
use rustix::io::Errno;
use rustix::net::sockopt::socket_acceptconn;
use rustix::net::{Shutdown, SocketAddrUnix, getsockname, shutdown};
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};
use std::fs;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// How long a connection may be the one that is served while others wait. A client says who it is at once.
const CONNECTION: Duration = Duration::from_millis(250);

/// The same for another connection of a client that was shut out a moment ago.
const AGAIN: Duration = Duration::from_millis(20);

/// How long the daemon may take to accept the next connection, on a busy machine.
const ACCEPTING: Duration = Duration::from_millis(50);

/// How often the daemon is looked at.
const LOOK: Duration = Duration::from_millis(5);

/// How long connections are shut down one after another.
const PATIENCE: Duration = Duration::from_secs(10);

/// Who kept the daemon from others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::control) struct Blocker {
    /// The process that had connected, in the pid namespace of the broker; `None` if it has ended or is not visible.
    pub(in crate::control) pid: Option<u32>,
    /// Its user.
    pub(in crate::control) uid: u32,
}

/// A connection that the daemon waits for.
#[derive(Debug)]
pub(in crate::control) struct ServedConnection {
    socket: OwnedFd,
    /// The inode of the daemon's end: another connection has another one.
    pub(in crate::control) inode: u64,
    peer: Peer,
}

impl ServedConnection {
    fn blocker(&self) -> Blocker {
        // The number may have been given to another process since it connected; the handle's has not.
        let pid = match peer_process::of_peer(&self.socket) {
            Ok(process) => pid_of(&process),
            Err(_) => None,
        };
        Blocker {
            pid,
            uid: self.peer.uid,
        }
    }
}

/// The connection that the daemon `process`, which works in `work`, waits for now; `None` if it waits for nobody, or
/// for a server of its own.
///
/// # Errors
/// Returns an error if the kernel does not say it.
pub(super) fn served(process: &ProcessRecord, work: &Path) -> io::Result<Option<ServedConnection>> {
    let Some(handle) = i32::try_from(process.pid).ok().and_then(Pid::from_raw) else {
        return Ok(None);
    };
    let handle = match pidfd_open(handle, PidfdFlags::empty()) {
        Err(Errno::SRCH) => return Ok(None),
        opened => opened?,
    };
    for task in fs::read_dir(format!("/proc/{}/task", process.pid))? {
        let call = fs::read_to_string(task?.path().join("syscall"))?;
        for number in waits_for(&call, process.pid)? {
            let socket = match pidfd_getfd(&handle, number, PidfdGetfdFlags::empty()) {
                // It was closed meanwhile.
                Err(Errno::BADF) => continue,
                taken => taken?,
            };
            if let Some(connection) = of_client(socket, process, work)? {
                return Ok(Some(connection));
            }
        }
    }
    Ok(None)
}

/// `socket` as a connection of a client; `None` if it is not a connection, or belongs to a server of the daemon.
fn of_client(socket: OwnedFd, process: &ProcessRecord, work: &Path) -> io::Result<Option<ServedConnection>> {
    // What it listens on is polled, too.
    if !is_in(&socket, work) || socket_acceptconn(&socket)? {
        return Ok(None);
    }
    let Ok(peer) = Peer::of(&socket) else { return Ok(None) };
    // While a client is ended, the daemon waits for the server, whose connection is one of these, too.
    if peer.pid.is_some_and(|pid| parent(pid) == Some(process.pid)) {
        return Ok(None);
    }
    let inode = fstat(&socket)?.st_ino;
    Ok(Some(ServedConnection { socket, inode, peer }))
}

/// Shuts down the connections that keep the daemon from others, until it waits for nobody. Returns whose they were.
///
/// # Errors
/// As [`served`]. What was shut down before is not returned then.
pub(super) fn free(process: &ProcessRecord, work: &Path, processes: &Processes) -> io::Result<Vec<Blocker>> {
    let until = Instant::now() + PATIENCE;
    let mut blockers: Vec<Blocker> = Vec::new();
    while processes.lives(process) && Instant::now() < until {
        let Some(connection) = next_served(process, work)? else {
            break;
        };
        let blocker = connection.blocker();
        let most = if blockers.contains(&blocker) { AGAIN } else { CONNECTION };
        let since = Instant::now();
        let is_still = |now: &Option<ServedConnection>| now.as_ref().is_some_and(|now| now.inode == connection.inode);
        let mut now = served(process, work)?;
        while is_still(&now) && since.elapsed() < most {
            sleep(LOOK);
            now = served(process, work)?;
        }
        if is_still(&now) {
            match shutdown(&connection.socket, Shutdown::Both) {
                // The client has ended it.
                Err(Errno::NOTCONN) => {}
                done => done?,
            }
            blockers.push(blocker);
        }
    }
    Ok(blockers)
}

/// As [`served`], and waits a moment for the daemon to accept the next connection.
fn next_served(process: &ProcessRecord, work: &Path) -> io::Result<Option<ServedConnection>> {
    let until = Instant::now() + ACCEPTING;
    loop {
        let connection = served(process, work)?;
        if connection.is_some() || Instant::now() >= until {
            return Ok(connection);
        }
        sleep(LOOK);
    }
}

/// The descriptors that a thread of process `pid` waits for, by its line in `/proc/PID/task/TID/syscall` (proc(5)): the
/// number of the call, and its arguments.
///
/// # Errors
/// Returns an error if the memory of the process cannot be read.
fn waits_for(line: &str, pid: u32) -> io::Result<Vec<RawFd>> {
    let mut words = line.split_whitespace();
    let Some(call) = words.next().and_then(|word| word.parse::<i64>().ok()) else {
        return Ok(Vec::new());
    };
    let mut argument = || u64::from_str_radix(words.next()?.strip_prefix("0x")?, 16).ok();
    let arguments = (argument(), argument());
    match arguments {
        (Some(first), _) if [libc::SYS_recvmsg, libc::SYS_recvfrom, libc::SYS_read].contains(&call) => {
            Ok(RawFd::try_from(first).into_iter().collect())
        }
        (Some(list), Some(length)) if POLLS.contains(&call) => polled(pid, list, length),
        _ => Ok(Vec::new()),
    }
}

/// The calls that wait for a list of descriptors: its address, and its length.
#[cfg(target_arch = "x86_64")]
const POLLS: [i64; 2] = [libc::SYS_poll, libc::SYS_ppoll];
#[cfg(not(target_arch = "x86_64"))]
const POLLS: [i64; 1] = [libc::SYS_ppoll];

/// The most descriptors of a list that are looked at. The daemon polls three, and one connection.
const MOST_POLLED: u64 = 64;

/// The descriptors in the list of `length` structures at `address` (poll(2)).
fn polled(pid: u32, address: u64, length: u64) -> io::Result<Vec<RawFd>> {
    const SIZE: usize = size_of::<libc::pollfd>();
    let length = usize::try_from(length.min(MOST_POLLED)).unwrap_or_default();
    let mut bytes = vec![0; length * SIZE];
    fs::File::open(format!("/proc/{pid}/mem"))?.read_exact_at(&mut bytes, address)?;
    // The number of the descriptor comes first.
    let numbers = bytes.chunks_exact(SIZE).filter_map(|one| one.first_chunk());
    Ok(numbers.map(|number| RawFd::from_ne_bytes(*number)).collect())
}

/// Whether the socket has its name in this directory.
fn is_in(socket: &OwnedFd, directory: &Path) -> bool {
    let name = getsockname(socket)
        .ok()
        .and_then(|name| SocketAddrUnix::try_from(name).ok());
    let path = name.as_ref().and_then(SocketAddrUnix::path_bytes);
    path.is_some_and(|path| Path::new(std::ffi::OsStr::from_bytes(path)).parent() == Some(directory))
}

/// The number of the process of a handle (pidfd_open(2)): in `/proc/self/fdinfo`, -1 if it has ended.
fn pid_of(process: &OwnedFd) -> Option<u32> {
    let text = fs::read_to_string(format!("/proc/self/fdinfo/{}", process.as_raw_fd())).ok()?;
    let pid = text.lines().find_map(|line| line.strip_prefix("Pid:"))?;
    pid.trim().parse().ok().filter(|pid| *pid != 0)
}

/// The number of the process that started `pid`.
fn parent(pid: u32) -> Option<u32> {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    text.lines()
        .find_map(|line| line.strip_prefix("PPid:"))?
        .trim()
        .parse()
        .ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(target_arch = "x86_64")]
    fn a_thread_waits_for_the_descriptor_of_its_call() {
        // Of 550.163.01 that a client blocks, and the same daemon before.
        let blocked = "47 0x4 0x7fffb2dfdd30 0x40000000 0x7fa83c9ecfc8 0x0 0x640 0x7fffb2dfdd00 0x7fa83cae4ae7";
        assert_eq!(waits_for(blocked, 0).unwrap(), [4]);
        let idle = "7 0x196a6080 0x3 0xffffffff 0x7f86960ec8d0 0x0 0x40 0x7ffd1abc7f90 0x7f86961da26f";
        for other in ["running", "-1 0x7ffd 0x7f86", ""] {
            assert!(waits_for(other, 0).unwrap().is_empty(), "{other}");
        }
        // A list of two, of this process.
        let list = [(7, 1_i16, 0_i16), (9, 1, 0)].map(|(fd, events, revents)| libc::pollfd { fd, events, revents });
        let idle = idle.replace("0x196a6080 0x3", &format!("{:p} 0x2", list.as_ptr()));
        assert_eq!(waits_for(&idle, std::process::id()).unwrap(), [7, 9]);
    }

    #[test]
    fn the_handle_of_a_process_has_its_number() {
        let own = std::process::id();
        let handle = pidfd_open(Pid::from_raw(own.cast_signed()).unwrap(), PidfdFlags::empty()).unwrap();
        assert_eq!(pid_of(&handle), Some(own));
        assert_eq!(parent(own), Some(std::os::unix::process::parent_id()));
        let file = OwnedFd::from(fs::File::open("/dev/null").unwrap());
        assert_eq!(pid_of(&file), None);
    }
}
