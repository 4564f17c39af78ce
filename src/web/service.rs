//! The program: it reads events, and answers over its socket.

use crate::database;
use crate::intake::Intake;
use crate::report::report;
use crate::timeline::timeline;
use crate::viewer::Viewer;
use lexopt::prelude::*;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::socket::{getsockopt, sockopt};
use rusqlite::Connection;
use std::ffi::OsString;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};
use tranche_core::error::{Context, Error, Result, line};
use tranche_core::ledger::{clock, events};
use tranche_core::types::STATE_DIR;
use tranche_protocol::{HISTORY_SOCKET, HistoryAnswer, HistoryRequest};

/// How often events are read.
const LOOK: Duration = Duration::from_secs(2);

/// How often what is too old is removed.
const FORGET: Duration = Duration::from_secs(3600);

/// For how long a row is kept where the policy does not say it.
const KEEP: Duration = Duration::from_secs(90 * 86_400);

/// How long a client may take to ask, and to read the answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// The most connections at a time; a further one is closed.
const MOST_CONNECTIONS: usize = 64;

/// The longest question, in bytes.
const MOST_QUESTION: u64 = 4096;

/// What the program is started with.
#[derive(Debug, Clone)]
pub struct WebOptions {
    /// Where the ledger and its events are.
    pub state_dir: PathBuf,
    /// Where the database is.
    pub data_dir: PathBuf,
    /// The socket.
    pub socket: PathBuf,
}

impl WebOptions {
    /// Reads the words behind the program's name.
    ///
    /// # Errors
    /// Returns an error that names the word that is wrong.
    pub fn parse(words: impl IntoIterator<Item = OsString>) -> Result<Self> {
        let wrong = |error: lexopt::Error| Error::usage("tranche-web", error.to_string());
        let mut options = Self {
            state_dir: STATE_DIR.into(),
            data_dir: "/var/lib/tranche-web".into(),
            socket: HISTORY_SOCKET.into(),
        };
        let mut parser = lexopt::Parser::from_args(words);
        while let Some(argument) = parser.next().map_err(wrong)? {
            let place = match argument {
                Long("state-dir") => &mut options.state_dir,
                Long("data-dir") => &mut options.data_dir,
                Long("socket") => &mut options.socket,
                other => return Err(wrong(other.unexpected())),
            };
            *place = parser.value().map_err(wrong)?.into();
        }
        Ok(options)
    }

    /// Serves until SIGTERM, SIGINT or SIGHUP, with a log on stderr.
    ///
    /// # Errors
    /// Returns an error if the database or the socket cannot be opened.
    pub fn run(&self) -> Result<()> {
        let log = tracing_subscriber::fmt().with_writer(std::io::stderr).with_ansi(false);
        log.without_time().with_target(false).init();
        self.serve()
    }

    fn serve(&self) -> Result<()> {
        // Before a thread is started, because each inherits what is blocked.
        let mut signals = SigSet::empty();
        for signal in [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP] {
            signals.add(signal);
        }
        signals.thread_block().about("tranche-web", "cannot block signals")?;
        let stop =
            SignalFd::with_flags(&signals, SfdFlags::SFD_CLOEXEC).about("tranche-web", "cannot wait for signals")?;
        let database = Mutex::new(database::open(&self.data_dir)?);
        let listener = listen(&self.socket)?;
        let mut intake = Intake::new(&self.state_dir);
        let connections = AtomicUsize::new(0);
        let mut forgotten: Option<Instant> = None;
        thread::scope(|threads| {
            loop {
                look(&mut intake, &database);
                if forgotten.is_none_or(|then| then.elapsed() > FORGET) {
                    forgotten = Some(Instant::now());
                    forget(&lock(&database), keep(&self.state_dir));
                }
                let mut ready = [
                    PollFd::new(stop.as_fd(), PollFlags::POLLIN),
                    PollFd::new(listener.as_fd(), PollFlags::POLLIN),
                ];
                // An error ends the wait early, and then it looks once more than needed.
                let _ = poll(&mut ready, PollTimeout::try_from(LOOK).unwrap_or(PollTimeout::MAX));
                if ready.first().is_some_and(|stop| stop.any() == Some(true)) {
                    return Ok(());
                }
                if ready.last().is_some_and(|listener| listener.any() != Some(true)) {
                    continue;
                }
                let Ok((client, _)) = listener.accept() else { continue };
                if connections.fetch_add(1, Ordering::SeqCst) >= MOST_CONNECTIONS {
                    connections.fetch_sub(1, Ordering::SeqCst);
                    continue;
                }
                let (database, connections) = (&database, &connections);
                let answer = move || {
                    if let Err(error) = answer(&client, database) {
                        tracing::debug!("{}", line(&error));
                    }
                    connections.fetch_sub(1, Ordering::SeqCst);
                };
                if thread::Builder::new().spawn_scoped(threads, answer).is_err() {
                    connections.fetch_sub(1, Ordering::SeqCst);
                }
            }
        })
    }
}

fn lock(database: &Mutex<Connection>) -> MutexGuard<'_, Connection> {
    // SQLite has undone what a thread that panicked had begun.
    database.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Reads all events that there are. In between, questions are answered.
fn look(intake: &mut Intake, database: &Mutex<Connection>) {
    loop {
        let taken = intake.look(&mut lock(database));
        match taken {
            Ok(taken) if taken.is_more => {}
            Ok(_) => return,
            Err(error) => return tracing::warn!("{}", line(&error)),
        }
    }
}

/// For how long rows are kept: as the policy said to those who made the directory of the events.
fn keep(state_dir: &Path) -> Duration {
    let file = state_dir.join(events::DIRECTORY).join(events::KEEP_FILE);
    let seconds = fs::read_to_string(file).ok().and_then(|text| text.trim().parse().ok());
    seconds.map_or(KEEP, Duration::from_secs)
}

fn forget(database: &Connection, keep: Duration) {
    match database::forget(database, clock(), keep) {
        Ok(0) => {}
        Ok(removed) => tracing::info!(
            "removed {removed} rows that are older than {} days",
            keep.as_secs() / 86_400
        ),
        Err(error) => tracing::warn!("what is too old cannot be removed: {error}"),
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

/// Answers one question.
fn answer(client: &UnixStream, database: &Mutex<Connection>) -> Result<()> {
    let about = "client";
    client
        .set_read_timeout(Some(PATIENCE))
        .about(about, "cannot be waited for")?;
    client
        .set_write_timeout(Some(PATIENCE))
        .about(about, "cannot be waited for")?;
    let peer = getsockopt(client, sockopt::PeerCredentials).about(about, "is not known")?;
    let mut question = String::new();
    let mut reader = BufReader::new(client.take(MOST_QUESTION));
    reader.read_line(&mut question).about(about, "has not asked")?;
    let answer = match serde_json::from_str(&question) {
        Ok(request) => answer_to(&request, &lock(database), &Viewer::of(peer.uid())),
        Err(error) => HistoryAnswer::Error(format!("the question is not valid: {error}")),
    };
    let mut text = serde_json::to_string(&answer).about(about, "cannot be answered")?;
    text.push('\n');
    let mut client = client;
    client
        .write_all(text.as_bytes())
        .about(about, "has not read the answer")
}

fn answer_to(request: &HistoryRequest, database: &Connection, viewer: &Viewer) -> HistoryAnswer {
    let answer = match request {
        HistoryRequest::Report { by, seconds } => report(database, *by, *seconds, viewer).map(HistoryAnswer::Report),
        HistoryRequest::Timeline { seconds } => timeline(database, *seconds, viewer).map(HistoryAnswer::Timeline),
    };
    answer.unwrap_or_else(|error| HistoryAnswer::Error(error.to_string()))
}
