//! The broker's socket: made by this process, or given to it by a service manager.

use super::activation::given_socket;
use rustix::net::sockopt::{socket_acceptconn, socket_domain, socket_type};
use rustix::net::{AddressFamily, SocketType};
use std::fs::{self, Permissions};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::Duration;
use tranche_core::broker::SOCKET;
use tranche_core::error::{Context, Error, Result};
use tranche_core::ledger::{self, LedgerDirectory, StateLock};
use tranche_core::notify::notify;
use tranche_core::root::Missing;

/// The lock that one broker of a state directory has.
const LOCK: &str = "broker.lock";

/// How long the lock is waited for: a child of a broker that was killed has it until it executes its program.
const MOMENT: Duration = Duration::from_secs(1);

/// The name of a socket whose mode is not set yet; not longer than [`SOCKET`], so that its path fits where that one
/// does.
const NEW: &str = "broker.new";

/// The most bytes of a socket's path (unix(7), `sun_path` with its end).
const LONGEST_PATH: usize = 107;

/// The socket that a broker serves, with the lock that keeps others from serving the same state directory.
#[derive(Debug)]
pub struct Socket {
    listener: UnixListener,
    /// Where this process made it; `None` for one that it was given.
    made: Option<PathBuf>,
    _lock: StateLock,
}

impl Socket {
    /// The socket that the service manager gave this process, or else a new one in `state_dir`.
    ///
    /// # Errors
    /// Returns an error if another broker serves `state_dir`, if something that is not a socket is in the socket's
    /// place, or if the path is too long for a socket.
    pub fn open(state_dir: &Path) -> Result<Self> {
        let variable = |name| std::env::var(name).ok();
        let given = given_socket(variable("LISTEN_PID").as_deref(), variable("LISTEN_FDS").as_deref());
        let given = given.about("LISTEN_FDS", "the socket that was given cannot be used")?;
        Self::with(state_dir, given)
    }

    fn with(state_dir: &Path, given: Option<OwnedFd>) -> Result<Self> {
        let path = state_dir.join(SOCKET);
        let state = LedgerDirectory::state(state_dir, Missing::Make)?;
        let state = state.ok_or_else(|| Error::failed(state_dir.display(), "was removed while it was created"))?;
        let is_served = || UnixStream::connect(&path).is_ok();
        if given.is_none() && is_served() {
            return Err(another(&path));
        }
        let lock = ledger::lock(&state, LOCK, MOMENT).map_err(|error| another(&path).from_source(error))?;
        let (listener, made) = match given {
            Some(given) => (listener_of(given)?, None),
            None => (listen(&path)?, Some(path)),
        };
        listener
            .set_nonblocking(true)
            .about("broker", "cannot use its socket")?;
        Ok(Self {
            listener,
            made,
            _lock: lock,
        })
    }

    /// Whether a service manager gave it to this process, and starts the process again when somebody connects.
    pub fn is_given(&self) -> bool {
        self.made.is_none()
    }

    /// The next connection.
    pub(super) fn accept(&self) -> io::Result<UnixStream> {
        let (stream, _) = self.listener.accept()?;
        stream.set_nonblocking(false)?;
        Ok(stream)
    }

    /// Tells the service manager that requests are served.
    pub(super) fn ready(&self) {
        report(notify("READY=1"));
    }

    /// Tells the service manager that no more requests are served.
    pub(super) fn stopping(&self) {
        report(notify("STOPPING=1"));
    }
}

fn report(notified: io::Result<()>) {
    if let Err(error) = notified {
        tracing::warn!("NOTIFY_SOCKET: the message to the service manager was not sent: {error}");
    }
}

fn another(path: &Path) -> Error {
    Error::failed(path.display(), "another broker serves it").hint("stop that one first, or give another --state-dir")
}

/// The lock of a broker in `state_dir`; `None` if a broker has it.
///
/// # Errors
/// Returns an error if the directory cannot be used.
pub(super) fn lock(state_dir: &Path) -> Result<Option<StateLock>> {
    let Some(state) = LedgerDirectory::state(state_dir, Missing::Leave)? else {
        return Ok(None);
    };
    // Whatever keeps this process from the lock, it does nothing without it.
    Ok(ledger::lock(&state, LOCK, Duration::ZERO).ok())
}

/// A given socket, if it is of the right kind.
fn listener_of(given: OwnedFd) -> Result<UnixListener> {
    let is_right = socket_domain(&given) == Ok(AddressFamily::UNIX)
        && socket_type(&given) == Ok(SocketType::STREAM)
        && socket_acceptconn(&given) == Ok(true);
    match is_right {
        true => Ok(UnixListener::from(given)),
        false => Err(Error::failed(
            "LISTEN_FDS",
            "the socket that was given is not a listening stream socket of the family unix",
        )),
    }
}

/// A new socket at `path`, which everybody may connect to. A socket that nobody serves is replaced.
fn listen(path: &Path) -> Result<UnixListener> {
    let about = path.display();
    if path.as_os_str().len() > LONGEST_PATH {
        let what = format!("the path of a socket has at most {LONGEST_PATH} bytes");
        return Err(Error::failed(about, what).hint("give a shorter --state-dir"));
    }
    match fs::symlink_metadata(path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => {}
        Err(e) => return Err(e).about(about, "cannot be examined"),
        Ok(found) if !found.file_type().is_socket() => {
            return Err(Error::failed(about, "is not a socket").hint("remove it if it is not needed"));
        }
        // Nobody accepted a connection before, and this process has the lock: it was left by a broker that was killed.
        Ok(_) => {}
    }
    // Between bind and chmod, only root may connect. So the socket gets its name when its mode is right, and a user who
    // comes at that moment is not refused.
    let new = path.with_file_name(NEW);
    match fs::remove_file(&new) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e).about(new.display(), "cannot be removed"),
        _ => {}
    }
    let listener = UnixListener::bind(&new).about(&about, "cannot be created")?;
    // Everybody may ask; the kernel says who asks.
    fs::set_permissions(&new, Permissions::from_mode(0o666)).about(&about, "its mode cannot be set")?;
    fs::rename(&new, path).about(&about, "cannot be created")?;
    Ok(listener)
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.listener.as_fd()
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        if let Some(path) = &self.made {
            // One that stays is replaced by the next broker.
            let _ = fs::remove_file(path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt;
    use std::os::unix::net::UnixDatagram;

    fn refused(state_dir: &Path, given: Option<OwnedFd>) -> String {
        tranche_core::error::line(&Socket::with(state_dir, given).unwrap_err())
    }

    #[test]
    fn one_broker_serves_a_state_directory_and_leaves_nothing() {
        let top = tempfile::tempdir().unwrap();
        let path = top.path().join(SOCKET);
        let socket = Socket::with(top.path(), None).unwrap();
        assert_eq!(fs::symlink_metadata(&path).unwrap().mode() & 0o777, 0o666);
        assert!(!socket.is_given());
        UnixStream::connect(&path).unwrap();
        let line = refused(top.path(), None);
        assert!(line.contains("broker.sock: another broker serves it"), "{line}");
        // The lock decides, also where the socket was removed.
        fs::remove_file(&path).unwrap();
        let line = refused(top.path(), None);
        assert!(
            line.contains("another broker serves it") && line.contains("broker.lock"),
            "{line}"
        );
        drop(socket);
        // A broker that was killed before its socket had its name.
        drop(UnixListener::bind(top.path().join(NEW)).unwrap());
        Socket::with(top.path(), None).unwrap();
        assert!(!path.exists() && !top.path().join(NEW).exists());
    }

    #[test]
    fn a_socket_that_a_killed_broker_left_is_replaced_and_nothing_else_is() {
        let top = tempfile::tempdir().unwrap();
        let path = top.path().join(SOCKET);
        drop(UnixListener::bind(&path).unwrap());
        let socket = Socket::with(top.path(), None).unwrap();
        UnixStream::connect(&path).unwrap();
        drop(socket);
        fs::write(&path, "kept").unwrap();
        let line = refused(top.path(), None);
        assert!(line.contains("broker.sock: is not a socket"), "{line}");
        assert_eq!(fs::read(&path).unwrap(), b"kept");
        let deep = top.path().join("d".repeat(100));
        let line = refused(&deep, None);
        assert!(line.contains("at most 107 bytes; give a shorter --state-dir"), "{line}");
    }

    #[test]
    fn a_given_socket_is_served_and_stays() {
        let top = tempfile::tempdir().unwrap();
        let path = top.path().join(SOCKET);
        let given = UnixListener::bind(&path).unwrap();
        let socket = Socket::with(top.path(), Some(given.try_clone().unwrap().into())).unwrap();
        assert!(socket.is_given());
        let line = refused(top.path(), Some(given.into()));
        assert!(line.contains("another broker serves it"), "{line}");
        drop(UnixStream::connect(&path).unwrap());
        socket.accept().unwrap();
        drop(socket);
        assert!(path.exists(), "it is the service manager's");
    }

    #[test]
    fn what_a_broker_before_has_started_may_have_its_lock_for_a_moment() {
        let top = tempfile::tempdir().unwrap();
        let held = lock(top.path()).unwrap().unwrap();
        let ends = std::thread::spawn(|| {
            std::thread::sleep(Duration::from_millis(100));
            drop(held);
        });
        Socket::with(top.path(), None).unwrap();
        ends.join().unwrap();
    }

    #[test]
    fn a_given_descriptor_of_another_kind_is_refused() {
        let top = tempfile::tempdir().unwrap();
        let file = fs::File::create(top.path().join("file")).unwrap();
        let (connected, _other) = UnixStream::pair().unwrap();
        for given in [file.into(), UnixDatagram::unbound().unwrap().into(), connected.into()] {
            let line = refused(top.path(), Some(given));
            assert!(line.contains("is not a listening stream socket"), "{line}");
        }
    }
}
