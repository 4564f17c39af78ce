//! The end of a container that holds a share by MPS: before it is killed, the broker drains its clients.
//!
//! A client that is killed while it uses the device can make the MPS daemon, and with it every other client of the
//! device, fail. The broker gets one line and answers with one. Whatever happens, the container is killed.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use serde_json::json;

use super::container::HoldingContainer;
use crate::error::{Context, Result};
use crate::ledger::Strategy;

/// The broker's socket in the state directory.
pub(super) const SOCKET: &str = "broker.sock";

/// How long the broker may take in all.
const PATIENCE: Duration = Duration::from_millis(500);

/// The most bytes of an answer.
const ANSWER: usize = 4096;

/// Drains the clients of `container` by the broker with this socket, if the container holds a share by MPS.
///
/// # Errors
/// Returns an error if the broker does not answer in time.
pub(super) fn drain(container: &HoldingContainer, socket: &Path) -> Result<()> {
    let is_mps = |promise: crate::ledger::Promise| promise.strategy() == Strategy::Mps;
    if !container
        .claims
        .iter()
        .any(|claim| claim.part.promise().is_some_and(is_mps))
    {
        return Ok(());
    }
    let name = &container.name;
    let line = json!({"version": 1, "command": "drain", "container": {"id": name.id, "bundle": name.bundle}});
    ask(socket, &format!("{line}\n"), PATIENCE).about(socket.display(), "the MPS clients were not drained")
}

/// Sends a line and waits for the line that answers it.
fn ask(path: &Path, line: &str, patience: Duration) -> io::Result<()> {
    let until = Instant::now() + patience;
    let left = || match until.saturating_duration_since(Instant::now()) {
        Duration::ZERO => Err(io::Error::from(io::ErrorKind::TimedOut)),
        left => Ok(left),
    };
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    // This also limits how long a connection waits for a broker that accepts none.
    set_socket_timeout(&socket, Timeout::Send, Some(left()?))?;
    connect(&socket, &SocketAddrUnix::new(path)?)?;
    let mut stream = UnixStream::from(socket);
    stream.write_all(line.as_bytes())?;
    let mut answer = [0; ANSWER];
    let mut length = 0;
    loop {
        stream.set_read_timeout(Some(left()?))?;
        match stream.read(answer.get_mut(length..).unwrap_or_default())? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            read => length += read,
        }
        if answer.get(..length).is_some_and(|read| read.contains(&b'\n')) {
            return Ok(());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::net::{bind, listen};
    use std::io::{BufRead, BufReader};
    use std::os::unix::net::UnixListener;
    use std::thread;

    const SHORT: Duration = Duration::from_millis(50);

    #[test]
    fn a_broker_that_answers_has_read_the_line() {
        let top = tempfile::tempdir().unwrap();
        let path = top.path().join(SOCKET);
        let listener = UnixListener::bind(&path).unwrap();
        let broker = thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut line = String::new();
            BufReader::new(&stream).read_line(&mut line).unwrap();
            stream.write_all(b"{\"ver").unwrap();
            stream.write_all(b"sion\":1}\n").unwrap();
            line
        });
        ask(&path, "hello\n", Duration::from_secs(60)).unwrap();
        assert_eq!(broker.join().unwrap(), "hello\n");
    }

    #[test]
    fn a_broker_that_does_not_answer_is_not_waited_for() {
        let top = tempfile::tempdir().unwrap();
        let path = top.path().join(SOCKET);
        assert_eq!(ask(&path, "x\n", SHORT).unwrap_err().kind(), io::ErrorKind::NotFound);
        // Of the connections that nobody accepts, one waits.
        let address = SocketAddrUnix::new(&path).unwrap();
        let stream = || socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::NONBLOCK, None).unwrap();
        let listener = stream();
        bind(&listener, &address).unwrap();
        listen(&listener, 0).unwrap();
        let silent = ask(&path, "x\n", SHORT).unwrap_err();
        assert!(
            matches!(silent.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut),
            "{silent}"
        );
        let waiting = [stream(), stream(), stream()];
        let refused = waiting.iter().filter(|socket| connect(socket, &address).is_err());
        assert!(refused.count() > 0, "the queue is not full");
        let full = ask(&path, "x\n", SHORT).unwrap_err();
        assert!(
            matches!(full.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut),
            "{full}"
        );
        drop(listener);
        assert_eq!(
            ask(&path, "x\n", SHORT).unwrap_err().kind(),
            io::ErrorKind::ConnectionRefused
        );
    }
}
