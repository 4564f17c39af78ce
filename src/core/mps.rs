//! How a client of MPS connects to the daemon of a device, and how the daemons of drivers differ.

mod listening;
pub mod version;

pub use listening::check_daemon;

use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use std::path::Path;
use std::time::Duration;

/// The socket in a daemon's pipe directory that its clients connect to.
pub const CONTROL: &str = "control";

/// Connects to the daemon that listens in the pipe directory `pipe`, as a client does, and sends nothing: the daemon
/// only writes a line to its log. If the daemon's queue is full, waits at most for `patience` for a place in it
/// (unix(7), SO_SNDTIMEO); `None` does not wait.
///
/// # Errors
/// Returns `NOENT` if there is no socket, `CONNREFUSED` if no process listens on it, `AGAIN` if the queue is full, or
/// another error of the kernel.
pub fn connect_to(pipe: &Path, patience: Option<Duration>) -> rustix::io::Result<OwnedFd> {
    let address = SocketAddrUnix::new(pipe.join(CONTROL))?;
    let wait = match patience {
        Some(_) => SocketFlags::empty(),
        None => SocketFlags::NONBLOCK,
    };
    // CUDA's clients use packets. The kernel reports if the daemon's socket is of another kind, which is then tried.
    for kind in [SocketType::SEQPACKET, SocketType::STREAM] {
        let socket = socket_with(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC | wait, None)?;
        set_socket_timeout(&socket, Timeout::Send, patience)?;
        match connect(&socket, &address) {
            Err(Errno::PROTOTYPE) => {}
            connected => return connected.map(|()| socket),
        }
    }
    Err(Errno::PROTOTYPE)
}
