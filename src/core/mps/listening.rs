//! Whether the MPS daemon of a device is running.
//!
//! A CUDA program that cannot connect to its daemon runs without MPS and without any limit, and prints nothing (MPS
//! documentation, "Client Attach"). So a claim is refused while the daemon of its share is not running.
//!
//! The check connects to the daemon's socket, as a client does. That succeeds only while the process that made the
//! socket listens on it. Files prove nothing: a daemon that is killed leaves its files, and the number in its pid file
//! may belong to another process by now.

use super::connect_to;
use crate::error::{Error, Result};
use rustix::io::Errno;
use std::path::Path;
use std::time::Duration;

/// How long to wait while the daemon's queue of clients is full. This is less than the time that the engine gives the
/// hook; a client would wait for ever.
const PATIENCE: Duration = Duration::from_secs(3);

/// Refuses a share whose daemon does not answer in `directory`.
///
/// # Errors
/// Returns an error about `label`, such as `gpu 0 share big`, if no process accepts a connection there.
pub fn check_daemon(directory: &Path, label: &str) -> Result<()> {
    let why = match connect_to(directory, Some(PATIENCE)) {
        Ok(_) => return Ok(()),
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

#[cfg(test)]
mod tests {
    use super::super::CONTROL;
    use super::*;
    use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, listen, socket_with};

    #[test]
    fn somebody_listens_or_nobody_does() {
        let dir = tempfile::tempdir().unwrap();
        let says = |says: &str| {
            let line = check_daemon(dir.path(), "gpu 0").unwrap_err().to_string();
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
            check_daemon(dir.path(), "gpu 0").unwrap();
        }
        let deep = dir.path().join("d".repeat(100));
        assert!(
            check_daemon(&deep, "gpu 0")
                .unwrap_err()
                .to_string()
                .contains("cannot be reached")
        );
    }
}
