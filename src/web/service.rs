//! The program: it reads events, and answers over its sockets.

mod doors;

use crate::database;
use crate::intake::Intake;
use doors::Door;
use lexopt::prelude::*;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use rusqlite::Connection;
use std::ffi::OsString;
use std::fs;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};
use tranche_core::error::{Context, Error, Result, line};
use tranche_core::ledger::{clock, events};
use tranche_core::types::STATE_DIR;
use tranche_protocol::HISTORY_SOCKET;

/// How often events are read.
const LOOK: Duration = Duration::from_secs(2);

/// How often what is too old is removed.
const FORGET: Duration = Duration::from_secs(3600);

/// For how long a row is kept where the policy does not say it.
const KEEP: Duration = Duration::from_secs(90 * 86_400);

/// The most connections at a time; a further one is closed.
const MOST_CONNECTIONS: usize = 64;

/// What the program is started with.
#[derive(Debug, Clone)]
pub struct WebOptions {
    /// Where the ledger and its events are.
    pub state_dir: PathBuf,
    /// Where the database is.
    pub data_dir: PathBuf,
    /// The socket for questions.
    pub socket: PathBuf,
    /// The socket for the page.
    pub page_socket: PathBuf,
    /// The address of this machine alone at which the page is, too. Who comes there has no name, and sees none.
    pub listen: Option<SocketAddr>,
    /// Further names by which browsers may ask for the page over that address.
    pub hosts: Vec<String>,
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
            page_socket: "/run/tranche-web/page.sock".into(),
            listen: None,
            hosts: Vec::new(),
        };
        let mut parser = lexopt::Parser::from_args(words);
        while let Some(argument) = parser.next().map_err(wrong)? {
            let place = match argument {
                Long("state-dir") => &mut options.state_dir,
                Long("data-dir") => &mut options.data_dir,
                Long("socket") => &mut options.socket,
                Long("page-socket") => &mut options.page_socket,
                Long("listen") => {
                    options.listen = Some(loopback(
                        &parser.value().and_then(|word| word.string()).map_err(wrong)?,
                    )?);
                    continue;
                }
                Long("host") => {
                    options
                        .hosts
                        .push(parser.value().and_then(|word| word.string()).map_err(wrong)?);
                    continue;
                }
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
        let doors = Door::open_all(self)?;
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
                let mut ready = vec![PollFd::new(stop.as_fd(), PollFlags::POLLIN)];
                ready.extend(doors.iter().map(|door| PollFd::new(door.as_fd(), PollFlags::POLLIN)));
                // An error ends the wait early, and then it looks once more than needed.
                let _ = poll(&mut ready, PollTimeout::try_from(LOOK).unwrap_or(PollTimeout::MAX));
                let mut ready = ready.iter().map(|fd| fd.any() == Some(true));
                if ready.next() == Some(true) {
                    return Ok(());
                }
                for (door, _) in doors.iter().zip(ready).filter(|(_, is_ready)| *is_ready) {
                    let Ok(client) = door.accept() else { continue };
                    if connections.fetch_add(1, Ordering::SeqCst) >= MOST_CONNECTIONS {
                        connections.fetch_sub(1, Ordering::SeqCst);
                        continue;
                    }
                    let (database, connections) = (&database, &connections);
                    let answer = move || {
                        if let Err(error) = client.answer(database, self) {
                            tracing::debug!("{}", line(&error));
                        }
                        connections.fetch_sub(1, Ordering::SeqCst);
                    };
                    if thread::Builder::new().spawn_scoped(threads, answer).is_err() {
                        connections.fetch_sub(1, Ordering::SeqCst);
                    }
                }
            }
        })
    }
}

/// The address in `text`, of this machine alone.
fn loopback(text: &str) -> Result<SocketAddr> {
    let address: Option<SocketAddr> = text.parse().ok();
    let error = || {
        Error::usage(
            "--listen",
            format!("{text:?} is not an address of this machine alone with a port"),
        )
    };
    let address = address.filter(|address| address.ip().is_loopback());
    address.ok_or_else(|| error().hint("write 127.0.0.1:PORT, and let a web server ask there or at the page's socket"))
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
