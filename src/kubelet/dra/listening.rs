//! One socket, which is made anew when it is gone.

use crate::socket::{Presence, Socket};
use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt};
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tracing::info;

/// Of directories that do not exist yet; the kubelet makes its own with it, too.
const DIR_MODE: u32 = 0o750;

/// How long to wait after a connection that could not be accepted: there may be no file descriptor left.
const PAUSE: Duration = Duration::from_millis(100);

/// Where a server gets its connections from. They stay when the socket is made anew.
#[derive(Debug)]
pub(super) struct Listening {
    path: PathBuf,
    connections: mpsc::Sender<io::Result<UnixStream>>,
    open: Option<Open>,
    /// Another process has taken its place.
    is_replaced: bool,
}

#[derive(Debug)]
struct Open {
    socket: Socket,
    task: JoinHandle<()>,
}

impl Listening {
    /// One that passes its connections on. It does not listen yet.
    pub(super) fn new(path: PathBuf, connections: mpsc::Sender<io::Result<UnixStream>>) -> Self {
        Self {
            path,
            connections,
            open: None,
            is_replaced: false,
        }
    }

    /// Listens, if it does not. At the first time, it takes the place of a process that listens there; later, another
    /// process that has taken its place keeps it.
    ///
    /// # Errors
    /// Returns an error if a file that is not a socket is there, or if the directory cannot be written.
    pub(super) fn check(&mut self) -> io::Result<()> {
        let presence = self.open.as_ref().map(|open| open.socket.presence());
        let was_replaced = std::mem::replace(&mut self.is_replaced, presence == Some(Presence::Taken));
        if self.is_replaced && !was_replaced {
            // As the new one does in an upgrade.
            info!("{}: another process serves it now", self.path.display());
        }
        match presence {
            Some(Presence::Own | Presence::Taken) => Ok(()),
            None | Some(Presence::Missing | Presence::Stale) => self.listen(),
        }
        .map_err(|e| io::Error::new(e.kind(), format!("{}: cannot listen: {e}", self.path.display())))
    }

    fn listen(&mut self) -> io::Result<()> {
        if let Some(dir) = self.path.parent() {
            fs::DirBuilder::new().recursive(true).mode(DIR_MODE).create(dir)?;
        }
        if fs::symlink_metadata(&self.path).is_ok_and(|found| !found.file_type().is_socket()) {
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, "it is not a socket"));
        }
        let (socket, listener) = Socket::replace_private(self.path.clone())?;
        let listener = UnixListener::from_std(listener)?;
        let task = tokio::spawn(accept(listener, self.connections.clone()));
        if let Some(before) = self.open.replace(Open { socket, task }) {
            before.task.abort();
        }
        Ok(())
    }

    /// Ends to listen, and removes the socket if it is its own. Connections that were accepted stay.
    pub(super) fn end(self) {
        if let Some(open) = self.open {
            open.socket.remove();
            open.task.abort();
        }
    }
}

async fn accept(listener: UnixListener, connections: mpsc::Sender<io::Result<UnixStream>>) {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                if connections.send(Ok(stream)).await.is_err() {
                    return;
                }
            }
            Err(_) => tokio::time::sleep(PAUSE).await,
        }
    }
}

/// Removes the sockets in `dir` on which nobody listens, and whose names `is_own`. Files of other types stay.
pub(super) fn remove_stale(dir: &Path, is_own: impl Fn(&str) -> bool) {
    let Ok(entries) = fs::read_dir(dir) else {
        return;
    };
    for entry in entries.flatten() {
        let is_socket = entry.file_type().is_ok_and(|kind| kind.is_socket());
        let is_named = entry.file_name().to_str().is_some_and(&is_own);
        let is_refused = |path: &Path| {
            std::os::unix::net::UnixStream::connect(path).is_err_and(|e| e.kind() == io::ErrorKind::ConnectionRefused)
        };
        if is_socket && is_named && is_refused(&entry.path()) {
            let _ = fs::remove_file(entry.path());
        }
    }
}
