//! The broker: a process of root that changes the machine for shares, and keeps the claims of users who cannot write
//! root's ledger. docs/reference/broker.md describes it.
//!
//! It knows nothing that is not on disk or in the kernel: who holds what is in the ledger, and [`MachineControl`] makes
//! the machine agree with it. A broker that is killed at any point loses nothing, and the next one continues.
//!
//! The kernel says who a client is (SO_PEERCRED). Users cannot hold up root or one another: each may have a few
//! connections, a connection that sends nothing is closed after two seconds, and places are reserved for root.

mod activation;
mod answer;
mod beyond;
mod commands;
mod connection;
mod entry;
mod hold;
mod kubernetes;
mod limits;
mod mig;
mod nested;
mod on_demand;
mod own;
mod peer;
mod program;
mod queue;
mod quota;
mod runs_as;
mod signals;
mod socket;
mod status;
mod ticker;
mod times;
mod turns;

pub use mig::change_without_broker;
pub use socket::Socket;

use crate::control::MachineControl;
use crate::facts::HostFacts;
use crate::mig::{MigJournal, OnDemandInstances, SavedLayouts};
use beyond::{BeyondPlaces, GivenBack};
use commands::Commands;
use limits::{ConnectionPlace, ConnectionPlaces};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use peer::BrokerClient;
use std::ffi::OsString;
use std::io::ErrorKind;
use std::net::Shutdown;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};
use tranche_core::claims::Claims;
use tranche_core::error::{Context, Result, line};
use tranche_core::ledger::Calendar;
use tranche_core::ledger::Claim;
use tranche_host::examine::HostOptions;
use tranche_protocol::Request;
use tranche_state::accounts::{AccountSources, Accounts};
use tranche_state::claim_spec;
use tranche_state::out_of_service;
use tranche_state::planning::PolicyOptions;
use tranche_state::restore_failures::RestoreFailures;
use tranche_state::state_file;

/// How a broker serves.
#[derive(Debug, Clone)]
pub struct ServeOptions {
    /// Where the ledger and the socket are.
    pub state_dir: PathBuf,
    /// Which policy counts.
    pub policy: PolicyOptions,
    /// Where the specifications of users' claims are written.
    pub spec_dir: PathBuf,
    /// The machine whose device nodes are kept.
    pub host: HostOptions,
    /// The arguments of `tranche cdi refresh`, where none was made before.
    pub refresh: Vec<OsString>,
    /// Where users and their subordinate uids are listed.
    pub accounts: AccountSources,
    /// Ends when nobody has asked for this long and nothing of the machine is changed; `None`: never.
    pub idle: Option<Duration>,
}

/// How long a failing accept(2) is left alone, for example while all file descriptors are in use.
const PAUSE: Duration = Duration::from_millis(50);

/// Gives the files of an earlier version checksums, of those that live for long. The others are soon written again.
fn add_checksums(state_dir: &Path) {
    let paths = [
        SavedLayouts::path(state_dir),
        OnDemandInstances::path(state_dir),
        MigJournal::path(state_dir),
        RestoreFailures::path(state_dir),
    ];
    let added = paths.iter().map(|path| state_file::add_checksum(path));
    for error in added
        .chain([out_of_service::add_checksum(state_dir)])
        .filter_map(Result::err)
    {
        tracing::warn!("{}", line(&error));
    }
}

/// Keeps again over a reboot what the ledger has: what was kept may be damaged since.
fn keep_again(state_dir: &Path) {
    let kept = || match Claims::existing(state_dir)? {
        None => Ok(Vec::new()),
        Some(claims) => claims.lock()?.keep(|_| false),
    };
    for error in kept().unwrap_or_else(|error| vec![error.into()]) {
        tracing::warn!("reservations over a reboot: {}", line(&error));
    }
}

/// Records what is held, for the history: lines may have been lost, and what was kept over a boot has none.
fn note_all(state_dir: &Path) {
    let noted = || -> Result<()> {
        match Claims::existing(state_dir)? {
            None => Ok(()),
            Some(claims) => Ok(claims.lock()?.ledger().note_all()?),
        }
    };
    if let Err(error) = noted() {
        tracing::warn!("history: {}", line(&error));
    }
}

/// Removes the specifications of claims that do not exist, because a process was killed while it made or released one.
fn remove_left(options: &ServeOptions) {
    let removed = || -> Result<()> {
        let Some(claims) = Claims::existing(&options.state_dir)? else {
            return Ok(());
        };
        let locked = claims.lock()?;
        let books = locked.books_on_disk()?;
        // A claim that cannot be read may have a specification.
        if books.damaged.is_empty() {
            let claims: Vec<&Claim> = books.claims().collect();
            // What belongs to others, or cannot be removed, is found by `tranche claim gc`.
            claim_spec::sweep(&options.spec_dir, &claims, &options.state_dir)?;
        }
        Ok(())
    };
    if let Err(error) = removed() {
        tracing::warn!("{}", line(&error));
    }
}

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
    // What an earlier broker left frozen was being ended, and is ended later.
    if let Err(error) = hold::thaw_left(&options.state_dir) {
        tracing::warn!("{}", line(&error));
    }
    add_checksums(&options.state_dir);
    // A byte wakes the thread that watches; when writing ends, the thread ends.
    let (wake, woken) = wakeful_pair()?;
    let accounts = Accounts::new(options.accounts.clone());
    let commands = Commands::new(options, control, host, &accounts, &wake)?;
    let door = Door {
        socket,
        stop,
        idle: options.idle,
        serving: ConnectionPlaces::to_serve(),
        giving_back: ConnectionPlaces::to_give_back(),
        accounts: &accounts,
        commands: &commands,
        state_dir: &options.state_dir,
        last: Mutex::new(Instant::now()),
    };
    // When it is dropped, the thread that looks at limits of time ends.
    let (serving, until) = channel();
    socket.ready();
    let served = thread::scope(|threads| {
        threads.spawn(|| ticker::run(&commands, &woken));
        threads.spawn(|| keep_again(commands.state_dir()));
        threads.spawn(|| remove_left(options));
        threads.spawn(|| note_all(commands.state_dir()));
        threads.spawn(|| mig::recover(&commands));
        threads.spawn(|| queue::run(&commands));
        threads.spawn(|| turns::run(&commands));
        threads.spawn({
            let commands = &commands;
            move || hold::run(commands, &until)
        });
        let ended = door.open(&|stream, connection| {
            let (commands, last) = (&commands, &door.last);
            let answer = move || match connection {
                Connection::Serve(peer, place) => {
                    connection::answer(&stream, &peer, commands);
                    drop(place);
                    if let Ok(mut last) = last.lock() {
                        *last = Instant::now();
                    }
                }
                Connection::GiveBack(peer, place, request) => {
                    connection::give_back(&stream, &peer, commands, request);
                    drop(place);
                }
            };
            // Without a thread, the client sees that its connection is closed.
            let _ = thread::Builder::new().spawn_scoped(threads, answer);
        });
        commands.queue.close();
        commands.turns.close();
        drop(serving);
        let closed = wake.shutdown(Shutdown::Write).about("broker", "cannot end its watch");
        ended.and(closed)
    });
    socket.stopping();
    served
}

/// Two ends, of which nobody waits for the other: a byte in the first one wakes the thread that polls the second one.
fn wakeful_pair() -> Result<(UnixStream, UnixStream)> {
    let (wake, woken) = UnixStream::pair().about("broker", "cannot make a pair of sockets")?;
    for end in [&wake, &woken] {
        end.set_nonblocking(true).about("broker", "cannot change a socket")?;
    }
    Ok((wake, woken))
}

/// Lets run again what a broker that was killed has left frozen, if no broker runs now: one that runs has done so.
///
/// # Errors
/// Returns an error if the file that names it cannot be used, or if the kernel does not do it.
pub fn thaw_left(state_dir: &Path) -> Result<()> {
    match socket::lock(state_dir)? {
        Some(_lock) => hold::thaw_left(state_dir),
        None => Ok(()),
    }
}

/// What is done with a connection.
enum Connection<'d> {
    Serve(BrokerClient, ConnectionPlace<'d>),
    /// Of a client with too many others.
    GiveBack(BrokerClient, ConnectionPlace<'d>, Request),
}

/// Where clients come in.
struct Door<'s> {
    socket: &'s Socket,
    stop: BorrowedFd<'s>,
    idle: Option<Duration>,
    serving: ConnectionPlaces,
    giving_back: ConnectionPlaces,
    accounts: &'s Accounts,
    commands: &'s Commands<'s>,
    state_dir: &'s Path,
    /// When the last request was answered.
    last: Mutex<Instant>,
}

impl Door<'_> {
    /// Accepts connections, and gives each to `begin` for which there is a place.
    fn open<'d>(&'d self, begin: &dyn Fn(UnixStream, Connection<'d>)) -> Result<()> {
        let mut beyond = BeyondPlaces::default();
        loop {
            let timeout = match self.next_look() {
                Look::End => return Ok(()),
                Look::In(time) => time,
            };
            let timeout = beyond.until().map_or(timeout, |until| sooner(timeout, until));
            let mut fds = vec![
                PollFd::new(self.socket.as_fd(), PollFlags::POLLIN),
                PollFd::new(self.stop, PollFlags::POLLIN),
            ];
            fds.extend(beyond.watched());
            match poll(&mut fds, timeout) {
                Ok(_) | Err(nix::errno::Errno::EINTR) => {}
                Err(e) => return Err(e).about("broker", "cannot wait for requests"),
            }
            let ready: Vec<bool> = fds.iter().map(|fd| fd.any().unwrap_or(false)).collect();
            if ready.get(1).copied().unwrap_or(false) {
                return Ok(());
            }
            for given_back in beyond.read(ready.get(2..).unwrap_or_default()) {
                self.take_back(given_back, begin);
            }
            match self.socket.accept() {
                Ok(stream) => self.admit(stream, begin, &mut beyond),
                Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
                Err(e) if e.kind() == ErrorKind::ConnectionAborted => {}
                Err(e) => {
                    tracing::warn!("a connection cannot be accepted: {e}");
                    thread::sleep(PAUSE);
                }
            }
        }
    }

    /// When it is to be looked whether there is still something to do.
    fn next_look(&self) -> Look {
        let Some(idle) = self.idle else {
            return Look::In(PollTimeout::NONE);
        };
        let since = self.last.lock().map_or(Duration::ZERO, |last| last.elapsed());
        let left = idle.saturating_sub(since);
        let time = match left.is_zero() && self.serving.is_empty() {
            true => match self.commands.control.tick() {
                // Users may hold something for a limited time, and this process looks whether they do for longer.
                None if self.commands.limits_time() => idle,
                // It tells those who hold what is reserved, and ends them where the policy says so.
                None if Calendar::read(self.state_dir).is_ok_and(|calendar| !calendar.times.is_empty()) => idle,
                // It closes nodes again when those who hold something have ended.
                None if self.commands.nodes(&[]).has_openers() => idle,
                // It gives devices to one holder after another.
                None if self.commands.turns.has_holders() => idle,
                // Instances that were made on demand are destroyed by this process.
                None if OnDemandInstances::read(self.state_dir).is_ok_and(|all| all.made.is_empty()) => {
                    return Look::End;
                }
                None => idle,
                Some(next) => next,
            },
            false => left,
        };
        Look::In(timeout_of(time.max(PAUSE)))
    }

    fn admit<'d>(&'d self, stream: UnixStream, begin: &dyn Fn(UnixStream, Connection<'d>), beyond: &mut BeyondPlaces) {
        // One whose other end is unknown gets nothing.
        let Ok(peer) = BrokerClient::of(&stream) else { return };
        // Nothing is waited for here: a uid whose owner is still unknown has the places of all such uids.
        let account = self.accounts.already_known(peer.uid);
        match self.serving.take(account) {
            Some(place) => begin(stream, Connection::Serve(peer, place)),
            None => beyond.add(stream, peer, account),
        }
    }

    fn take_back<'d>(&'d self, given_back: GivenBack, begin: &dyn Fn(UnixStream, Connection<'d>)) {
        let GivenBack {
            stream,
            peer,
            account,
            request,
        } = given_back;
        match self.giving_back.take(account) {
            Some(place) => begin(stream, Connection::GiveBack(peer, place, request)),
            None => connection::turn_away(&stream),
        }
    }
}

/// This time, or the longest that the kernel waits.
fn timeout_of(time: Duration) -> PollTimeout {
    PollTimeout::try_from(time).unwrap_or(PollTimeout::MAX)
}

/// `timeout`, or the time to `until`, if that is sooner.
fn sooner(timeout: PollTimeout, until: Instant) -> PollTimeout {
    // The kernel counts whole milliseconds, and is not asked again before the time has come.
    let left = timeout_of(until.saturating_duration_since(Instant::now()) + Duration::from_millis(1));
    if timeout.is_none() { left } else { left.min(timeout) }
}

/// What the door does next.
enum Look {
    /// Nothing is to do any more.
    End,
    /// Waits for a connection, for this time.
    In(PollTimeout),
}

#[cfg(test)]
mod tests;
