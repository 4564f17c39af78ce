//! The broker: a process of root that changes the machine for shares, and keeps the claims of users who cannot write
//! root's ledger. docs/broker.md describes it.
//!
//! It knows nothing that is not on disk or in the kernel: who holds what is in the ledger, and [`MachineControl`] makes
//! the machine agree with it. A broker that is killed at any point loses nothing, and the next one continues.
//!
//! The kernel says who a client is (SO_PEERCRED). Users cannot hold up root or one another: each may have a few
//! connections, a connection that sends nothing is closed after two seconds, and places are reserved for root.

mod answer;
mod commands;
mod connection;
mod entry;
mod limits;
mod notify;
mod own;
mod peer;
mod refusal;
mod request;
mod socket;
mod status;
mod ticker;

#[cfg(fuzzing)]
pub(crate) use request::parse;
pub use request::speaks;
pub use socket::Socket;

use crate::claims::Claims;
use crate::control::MachineControl;
use crate::error::{Context, Result};
use crate::facts::HostFacts;
use commands::Commands;
use limits::ConnectionPlaces;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use peer::BrokerClient;
use std::io::ErrorKind;
use std::net::Shutdown;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

/// How a broker serves.
#[derive(Debug, Clone)]
pub struct ServeOptions {
    /// Where the ledger and the socket are.
    pub state_dir: PathBuf,
    /// Where the specifications of users' claims are written.
    pub spec_dir: PathBuf,
    /// Ends when nobody has asked for this long and nothing of the machine is changed; `None`: never.
    pub idle: Option<Duration>,
}

/// How long a failing accept(2) is left alone, for example while all file descriptors are in use.
const PAUSE: Duration = Duration::from_millis(50);

/// Serves requests on `socket` until `stop` can be read, or until there is nothing to do for long enough. Requests that
/// have begun are finished. What was changed of the machine stays as it is, and the next broker continues with it.
///
/// # Errors
/// Returns an error if the ledger cannot be used, or if the socket fails.
pub fn serve(
    socket: &Socket,
    options: &ServeOptions,
    control: &dyn MachineControl,
    host: &dyn HostFacts,
    stop: BorrowedFd<'_>,
) -> Result<()> {
    // The ledger is there from now on, so that its changes can be watched.
    drop(Claims::open(&options.state_dir)?);
    // A byte wakes the thread that watches; when writing ends, the thread ends.
    let (wake, woken) = UnixStream::pair().about("broker", "cannot make a pair of sockets")?;
    for end in [&wake, &woken] {
        end.set_nonblocking(true).about("broker", "cannot change a socket")?;
    }
    let commands = Commands::new(options, control, host, &wake);
    let places = ConnectionPlaces::default();
    let last = Mutex::new(Instant::now());
    socket.ready();
    let served = thread::scope(|threads| {
        threads.spawn(|| ticker::run(&commands, &woken));
        let ended = accept(
            socket,
            stop,
            options.idle,
            &places,
            &last,
            control,
            &|stream, peer, place| {
                let (commands, last) = (&commands, &last);
                let answer = move || {
                    connection::answer(&stream, &peer, commands);
                    drop(place);
                    if let Ok(mut last) = last.lock() {
                        *last = Instant::now();
                    }
                };
                // Without a thread, the client sees that its connection is closed.
                let _ = thread::Builder::new().spawn_scoped(threads, answer);
            },
        );
        let closed = wake.shutdown(Shutdown::Write).about("broker", "cannot end its watch");
        ended.and(closed)
    });
    socket.stopping();
    served
}

/// Accepts connections, and gives each to `begin` for which there is a place.
fn accept<'p>(
    socket: &Socket,
    stop: BorrowedFd<'_>,
    idle: Option<Duration>,
    places: &'p ConnectionPlaces,
    last: &Mutex<Instant>,
    control: &dyn MachineControl,
    begin: &dyn Fn(UnixStream, BrokerClient, limits::ConnectionPlace<'p>),
) -> Result<()> {
    loop {
        let timeout = match idle {
            None => None,
            Some(idle) => {
                let since = last.lock().map_or(Duration::ZERO, |last| last.elapsed());
                let left = idle.saturating_sub(since);
                if left.is_zero() && places.is_empty() {
                    match control.tick() {
                        None => return Ok(()),
                        Some(next) => Some(next.max(PAUSE)),
                    }
                } else {
                    Some(left.max(PAUSE))
                }
            }
        };
        let timeout = timeout.map_or(PollTimeout::NONE, |time| {
            PollTimeout::try_from(time).unwrap_or(PollTimeout::MAX)
        });
        let mut fds = [
            PollFd::new(socket.as_fd(), PollFlags::POLLIN),
            PollFd::new(stop, PollFlags::POLLIN),
        ];
        match poll(&mut fds, timeout) {
            Ok(_) | Err(nix::errno::Errno::EINTR) => {}
            Err(e) => return Err(e).about("broker", "cannot wait for requests"),
        }
        let [_, stopping] = fds;
        if stopping.revents().is_some_and(|events| !events.is_empty()) {
            return Ok(());
        }
        match socket.accept() {
            Ok(stream) => {
                // One whose other end is unknown gets nothing.
                let Ok(peer) = BrokerClient::of(&stream) else { continue };
                match places.take(peer.uid) {
                    Some(place) => begin(stream, peer, place),
                    None => connection::refuse(&stream),
                }
            }
            Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
            Err(e) if e.kind() == ErrorKind::ConnectionAborted => {}
            Err(e) => {
                tracing::warn!("a connection cannot be accepted: {e}");
                thread::sleep(PAUSE);
            }
        }
    }
}

#[cfg(test)]
mod tests;
