//! Whether the MPS daemon of a device is running.
//!
//! A CUDA program that cannot connect to its daemon runs without MPS and without any limit, and prints nothing (MPS
//! documentation, "Client Attach"). So a claim is refused while the daemon of its share is not running.
//!
//! The check connects to the daemon's socket, as a client does. That succeeds only while the process that made the socket
//! listens on it. Files prove nothing: a daemon that is killed leaves its files, and the number in its pid file may belong to
//! another process by now.

use crate::error::{Error, Result};
use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use std::path::Path;
use std::time::Duration;

/// The socket in the daemon's pipe directory that clients connect to.
const CONTROL: &str = "control";

/// How long to wait while the daemon's queue of clients is full. This is less than the time that the engine gives the hook;
/// a client would wait for ever.
const PATIENCE: Duration = Duration::from_secs(3);

/// Refuses a share whose daemon does not answer in `directory`.
pub(super) fn check(directory: &Path, label: &str) -> Result<()> {
    let why = match connects(&directory.join(CONTROL)) {
        Ok(()) => return Ok(()),
        Err(Errno::NOENT) => "its MPS daemon was not found".to_owned(),
        // A socket whose process has ended, or a file that is not a socket.
        Err(Errno::CONNREFUSED) => "its MPS daemon is not running".to_owned(),
        Err(Errno::AGAIN) => "its MPS daemon does not answer".to_owned(),
        Err(e) => format!("its MPS daemon cannot be reached: {e}"),
    };
    let why = format!("{why}, and without one a share has no limit");
    Err(Error::failed(format!("{label} {}", directory.display()), why)
        .hint("start its MPS control daemon; tranche plan says how"))
}

/// Connects and disconnects, as a client without requests does: the daemon only writes a line to its log.
fn connects(socket: &Path) -> rustix::io::Result<()> {
    let address = SocketAddrUnix::new(socket)?;
    // CUDA's clients use packets. The kernel reports if the daemon's socket is of another kind, which is then tried.
    for kind in [SocketType::SEQPACKET, SocketType::STREAM] {
        let asking = socket_with(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None)?;
        // How long the connection waits for a place in the queue (unix(7), SO_SNDTIMEO).
        set_socket_timeout(&asking, Timeout::Send, Some(PATIENCE))?;
        match connect(&asking, &address) {
            Err(Errno::PROTOTYPE) => {}
            answer => return answer,
        }
    }
    Err(Errno::PROTOTYPE)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::net::{bind, listen};

    #[test]
    fn somebody_listens_or_nobody_does() {
        let dir = tempfile::tempdir().unwrap();
        let says = |says: &str| {
            let line = check(dir.path(), "gpu 0").unwrap_err().to_string();
            assert!(line.contains(says), "{line}");
        };
        says("its MPS daemon was not found");
        let control = dir.path().join(CONTROL);
        std::fs::write(&control, "").unwrap();
        says("is not running");
        for kind in [SocketType::SEQPACKET, SocketType::STREAM] {
            std::fs::remove_file(&control).unwrap();
            let daemon = socket_with(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None).unwrap();
            bind(&daemon, &SocketAddrUnix::new(&control).unwrap()).unwrap();
            says("is not running");
            listen(&daemon, 8).unwrap();
            check(dir.path(), "gpu 0").unwrap();
        }
        let deep = dir.path().join("d".repeat(100));
        assert!(
            check(&deep, "gpu 0")
                .unwrap_err()
                .to_string()
                .contains("cannot be reached")
        );
    }
}
