//! Where clients come in, and how each is answered.

use super::{WebOptions, lock};
use crate::content::found;
use crate::http;
use crate::report::report;
use crate::timeline::timeline;
use crate::viewer::Viewer;
use nix::sys::socket::{getsockopt, sockopt};
use rusqlite::Connection;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::Mutex;
use std::time::Duration;
use tranche_core::error::{Context, Result};
use tranche_protocol::{HistoryAnswer, HistoryRequest};

/// How long a client may take to ask, and to read the answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// The longest question, in bytes.
const MOST_QUESTION: u64 = 4096;

/// The name of a client in errors.
const ABOUT: &str = "client";

/// Where clients come in.
pub(super) enum Door {
    /// Questions of `tranche`.
    Questions(UnixListener),
    /// The page, for a user whom the kernel names.
    Page(UnixListener),
    /// The page, for anybody on this machine.
    Open(TcpListener),
}

/// Somebody who has come in.
pub(super) enum Client {
    Questions(UnixStream),
    Page(UnixStream),
    Open(TcpStream),
}

impl Door {
    /// All doors of `options`: the address first, because it can be in use, and who finds a socket finds all.
    ///
    /// # Errors
    /// Returns an error if a socket cannot be made.
    pub(super) fn open_all(options: &WebOptions) -> Result<Vec<Self>> {
        let mut doors = Vec::new();
        if let Some(address) = options.listen {
            let listener = TcpListener::bind(address).about(address, "cannot be listened at")?;
            listener.set_nonblocking(true).about(address, "cannot be listened at")?;
            doors.push(Self::Open(listener));
        }
        doors.push(Self::Page(listen(&options.page_socket)?));
        doors.push(Self::Questions(listen(&options.socket)?));
        Ok(doors)
    }

    pub(super) fn accept(&self) -> std::io::Result<Client> {
        match self {
            Self::Questions(listener) => Ok(Client::Questions(listener.accept()?.0)),
            Self::Page(listener) => Ok(Client::Page(listener.accept()?.0)),
            Self::Open(listener) => {
                let client = listener.accept()?.0;
                client.set_nonblocking(false)?;
                Ok(Client::Open(client))
            }
        }
    }
}

impl AsFd for Door {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Questions(listener) | Self::Page(listener) => listener.as_fd(),
            Self::Open(listener) => listener.as_fd(),
        }
    }
}

impl Client {
    /// Answers one question.
    ///
    /// # Errors
    /// Returns an error if the client does not ask or does not read.
    pub(super) fn answer(&self, database: &Mutex<Connection>, options: &WebOptions) -> Result<()> {
        let show = |path: &str, viewer: &Viewer| found(path, &lock(database), &options.state_dir, viewer);
        match self {
            Self::Questions(stream) => answer_question(stream, database),
            Self::Page(stream) => {
                let viewer = viewer(stream)?;
                let answered = http::answer(&mut &*stream, |_| true, |path| show(path, &viewer));
                answered.about(ABOUT, "was not answered")
            }
            Self::Open(stream) => {
                let is_host = |host: Option<&str>| host.is_some_and(|host| is_own_name(host, options));
                let answered = http::answer(&mut &*stream, is_host, |path| {
                    show(path, &Viewer::anybody(&options.state_dir))
                });
                answered.about(ABOUT, "was not answered")
            }
        }
    }
}

/// Listens at `path` for every user, in the place of the socket of a program that has ended. The database is locked, so
/// no other one runs.
fn listen(path: &Path) -> Result<UnixListener> {
    match fs::remove_file(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
        removed => removed.about(path.display(), "cannot be removed")?,
    }
    let listener = UnixListener::bind(path).about(path.display(), "cannot be made")?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o666)).about(path.display(), "cannot be opened to users")?;
    Ok(listener)
}

/// The user at the other end.
fn viewer(stream: &UnixStream) -> Result<Viewer> {
    let peer = getsockopt(stream, sockopt::PeerCredentials).about(ABOUT, "is not known")?;
    Ok(Viewer::of(peer.uid()))
}

/// Whether a browser may call this program by the name in `host`: another page could have any other name mean this
/// address, and read what is for the user of the browser.
fn is_own_name(host: &str, options: &WebOptions) -> bool {
    let port = options.listen.map_or(0, |address| address.port());
    let name = host.strip_suffix(&format!(":{port}")).unwrap_or(host);
    let is_listed = options.hosts.iter().any(|own| own.eq_ignore_ascii_case(name));
    let own = options.listen.map(|address| match address {
        SocketAddr::V4(address) => address.ip().to_string(),
        SocketAddr::V6(address) => format!("[{}]", address.ip()),
    });
    is_listed || name.eq_ignore_ascii_case("localhost") || own.as_deref() == Some(name)
}

fn answer_question(client: &UnixStream, database: &Mutex<Connection>) -> Result<()> {
    client
        .set_read_timeout(Some(PATIENCE))
        .about(ABOUT, "cannot be waited for")?;
    client
        .set_write_timeout(Some(PATIENCE))
        .about(ABOUT, "cannot be waited for")?;
    let viewer = viewer(client)?;
    let mut question = String::new();
    let mut reader = BufReader::new(client.take(MOST_QUESTION));
    reader.read_line(&mut question).about(ABOUT, "has not asked")?;
    let answer = match serde_json::from_str(&question) {
        Ok(request) => answer_to(&request, &lock(database), &viewer),
        Err(error) => HistoryAnswer::Error(format!("the question is not valid: {error}")),
    };
    let mut text = serde_json::to_string(&answer).about(ABOUT, "cannot be answered")?;
    text.push('\n');
    let mut client = client;
    client
        .write_all(text.as_bytes())
        .about(ABOUT, "has not read the answer")
}

fn answer_to(request: &HistoryRequest, database: &Connection, viewer: &Viewer) -> HistoryAnswer {
    let answer = match request {
        HistoryRequest::Report { by, seconds } => report(database, *by, *seconds, viewer).map(HistoryAnswer::Report),
        HistoryRequest::Timeline { seconds } => timeline(database, *seconds, viewer).map(HistoryAnswer::Timeline),
    };
    answer.unwrap_or_else(|error| HistoryAnswer::Error(error.to_string()))
}
