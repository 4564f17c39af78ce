//! One MPS control daemon: started, asked, and ended.
//!
//! The daemon is `nvidia-cuda-mps-control -f` in a session of its own, so that it survives the broker. Who listens on
//! its socket says whether it runs: a daemon that was killed leaves its files, and its number may be another process's
//! by now.

mod answer;
mod blocked;
mod directories;
mod environment;
mod log;
mod options;
mod process;
mod socket;

use answer::Size;
pub(super) use answer::{Defaults, Unexpected};
pub(super) use blocked::Blocker;
pub(super) use directories::{Directories, OUTPUT, WORK};
pub(super) use environment::DaemonEnvironment;
pub(super) use options::MANY_USERS;
use options::takes_many_users;
pub(super) use process::{Processes, describe};

use super::changes::ProcessRecord;
use super::device::SeenDaemon;
use super::goal::Limits;
use super::target::ControlTarget;
use log::LastServer;
use socket::Listening;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use tranche_core::execute::Program;
use tranche_core::types::MemorySize;
use tranche_host::program::{self, ProgramError};
use tranche_plan::policy::MpsUsers;

/// How long the daemon may take to answer a command.
const PATIENCE: Duration = Duration::from_secs(2);

/// How long a daemon may take from its start until it listens.
const START: Duration = Duration::from_secs(8);

/// How long an orderly end may take: the daemon gives its servers a second.
const QUIT: Duration = Duration::from_secs(4);

/// How long a daemon that ends instead of an answer may take for it.
const ENDING: Duration = Duration::from_millis(100);

/// How long a process that was killed may keep its socket.
const CLOSING: Duration = Duration::from_secs(1);

/// How long a server may take from its start until it is ready: without persistence mode, the driver starts the GPU
/// first.
const SERVER_START: Duration = Duration::from_secs(30);

/// The command that every daemon answers, by which it is checked.
const CHECK: &str = "get_default_active_thread_percentage";

/// The index of the device among those that the daemon sees, which is one.
const ONLY_DEVICE: &str = "0";

/// The limit of memory of a client without one of its own.
const CHECK_MEMORY: &str = "get_default_device_pinned_mem_limit 0";

/// What went wrong with a daemon.
#[derive(Debug, thiserror::Error)]
pub(super) enum DaemonError {
    /// A command got no answer.
    #[error("{0}: {1}")]
    NoAnswer(String, #[source] ProgramError),
    /// A command ended, and the daemon had not taken it.
    #[error("{0}: it was not answered")]
    Unserved(String),
    /// A command got another answer than it should.
    #[error("{0}: {1}")]
    Unexpected(String, #[source] Unexpected),
    /// The host lacks the program.
    #[error("nvidia-cuda-mps-control was not found among the driver's programs")]
    NoProgram,
    /// The host lacks the program that the daemon starts.
    #[error("nvidia-cuda-mps-server, which the daemon starts, was not found among the driver's programs")]
    NoServer,
    /// The policy wants a daemon for all users, and the program cannot be one.
    #[error(
        "nvidia-cuda-mps-control does not take -multiuser-server (drivers from 555 on do), and the policy says users: many"
    )]
    OneUser,
    /// The device has no UUID to start a daemon for.
    #[error("the device has no UUID")]
    NoUuid,
    /// It could not be started.
    #[error("{0}")]
    Start(String),
    /// It could not be ended.
    #[error("{0}")]
    End(String),
    /// Its directories.
    #[error(transparent)]
    Directory(#[from] tranche_core::error::Error),
}

impl DaemonError {
    /// Whether the daemon did not answer at all.
    pub(super) fn is_silence(&self) -> bool {
        match self {
            Self::NoAnswer(_, ProgramError::Silent(_)) | Self::Unserved(_) => true,
            // While another connection for commands is open, the program for commands fails or succeeds by chance.
            Self::NoAnswer(_, ProgramError::Failed(_, line)) => {
                line.is_empty() || line.starts_with("Cannot send command")
            }
            _ => false,
        }
    }
}

/// How daemons are started.
#[derive(Debug, Clone)]
pub(super) enum Starter {
    /// This program runs `mps run`, which becomes the daemon.
    Own {
        /// `tranche`.
        program: PathBuf,
        /// The state directory, which the program is given.
        state_dir: PathBuf,
    },
    /// systemctl starts the unit of the device.
    Systemd(PathBuf),
}

/// The daemon of one device.
#[derive(Debug)]
pub(super) struct Daemon<'a> {
    pub(super) target: &'a ControlTarget,
    pub(super) starter: &'a Starter,
    pub(super) processes: &'a Processes,
}

impl Daemon<'_> {
    fn directories(&self) -> Directories {
        self.target.directories()
    }

    /// Looks at the daemon without asking it. `record` is the process that was started, if one is known; `is_begun`
    /// says that one was started, or may have been.
    pub(super) fn look(&self, record: Option<&ProcessRecord>, is_begun: bool) -> SeenDaemon {
        let directories = self.directories();
        let is_recorded = |pid: Option<u32>| record.is_some_and(|record| pid == Some(record.pid));
        let mut listening = socket::listening(&directories.work);
        // A process that is killed no longer counts as one while its threads still close its files.
        let until = Instant::now() + CLOSING;
        while matches!(&listening, Listening::Peer(peer) if is_recorded(peer.pid))
            && !record.is_some_and(|record| self.processes.lives(record))
            && Instant::now() < until
        {
            std::thread::sleep(Duration::from_millis(5));
            listening = socket::listening(&directories.work);
        }
        match (&listening, record) {
            (Listening::Peer(peer), Some(record)) if is_recorded(peer.pid) && self.processes.lives(record) => {
                return SeenDaemon::Running(record.clone());
            }
            // Clients have filled its queue, which is no fault of it: only the daemon listens in this directory.
            (Listening::Full, Some(record)) if self.processes.lives(record) => {
                return SeenDaemon::Running(record.clone());
            }
            // A process that was killed had started this one.
            (Listening::Peer(peer), None) if is_begun => {
                let own = peer.pid.filter(|pid| self.processes.is_daemon(*pid, &directories.log));
                if let Some(process) = own.and_then(|pid| self.processes.record(pid)) {
                    return SeenDaemon::Running(process);
                }
            }
            _ => {}
        }
        if record.is_some_and(|record| self.processes.lives(record)) {
            return SeenDaemon::Silent("its socket was removed".to_owned());
        }
        // The directory of the clients is the one that another program's daemon would have.
        if matches!(listening, Listening::Nobody(_)) {
            listening = socket::listening(&self.target.pipe);
        }
        match listening {
            Listening::Peer(peer) => SeenDaemon::Foreign(self.processes.name(peer)),
            Listening::Full => SeenDaemon::Foreign("one that does not answer".to_owned()),
            Listening::Nobody(_) => SeenDaemon::Absent,
        }
    }

    /// Puts back what clients need of the pipe directory and what was removed or replaced.
    ///
    /// # Errors
    /// Returns an error if an entry cannot be put back.
    pub(super) fn repair(&self) -> Result<(), DaemonError> {
        Ok(self.directories().repair()?)
    }

    /// Keeps the logs small.
    ///
    /// # Errors
    /// Returns an error if a log cannot be emptied.
    pub(super) fn bound_logs(&self) -> Result<(), DaemonError> {
        Ok(self.directories().bound_logs()?)
    }

    /// Checks that the daemon answers within `patience`. Returns its defaults; those of memory only if it has such
    /// limits.
    ///
    /// # Errors
    /// Returns an error if it does not answer, or answers as no daemon does.
    pub(super) fn check(&self, patience: Duration) -> Result<Defaults, DaemonError> {
        match self.target.limits_memory {
            true => self.ask_within(&format!("{CHECK}\n{CHECK_MEMORY}"), patience, answer::defaults),
            false => {
                let percentage = self.ask_within(CHECK, patience, answer::percentage)?;
                Ok(Defaults {
                    percentage,
                    memory: None,
                })
            }
        }
    }

    /// How long to wait for an answer: longer the more often none came, because the machine may be busy, and to replace
    /// the daemon ends the work of its clients.
    pub(super) fn patience(misses: u32) -> Duration {
        PATIENCE * (1 << misses.min(3))
    }

    /// The connection that the daemon waits for now; `None` also if that cannot be learnt.
    pub(super) fn served(&self, process: &ProcessRecord) -> Option<u64> {
        let connection = blocked::served(process, &self.directories().work).ok()??;
        Some(connection.inode)
    }

    /// Shuts down the connections that keep the daemon from others. Returns whose they were.
    ///
    /// # Errors
    /// Returns an error if the kernel does not say which they are, or does not give them to this process.
    pub(super) fn free(&self, process: &ProcessRecord) -> io::Result<Vec<Blocker>> {
        if let LastServer::Starting(server) = self.directories().last_server()
            && self.processes.started_within(server, SERVER_START)
        {
            return Ok(Vec::new());
        }
        blocked::free(process, &self.directories().work, self.processes)
    }

    /// Why the server that was started last does not serve clients, if it has failed.
    pub(super) fn server_failure(&self) -> Option<String> {
        match self.directories().last_server() {
            LastServer::Failed(why) => Some(why),
            LastServer::None | LastServer::Starting(_) | LastServer::Ready => None,
        }
    }

    /// Lets the daemon start a server again after one has failed, and waits until it is ready or has failed, too.
    ///
    /// # Errors
    /// Returns an error if the daemon does not take the command.
    pub(super) fn try_server(&self) -> Result<(), DaemonError> {
        let before = self.directories().last_server();
        self.ask("start_server -uid 0", answer::nothing)?;
        let until = Instant::now() + PATIENCE;
        let mut has_begun = false;
        while Instant::now() < until {
            let last = self.directories().last_server();
            has_begun |= last != before;
            if has_begun && !matches!(last, LastServer::Starting(_)) {
                break;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }

    /// Whether the daemon serves the processes of several users at the same time: as it was started, or as the program
    /// would start it.
    pub(super) fn serves_many(&self, process: Option<&ProcessRecord>) -> bool {
        if let Some(process) = process.filter(|process| self.processes.lives(process)) {
            return self.processes.has_argument(process.pid, MANY_USERS);
        }
        self.target.users != MpsUsers::One && self.takes_many_users()
    }

    fn takes_many_users(&self) -> bool {
        let (control, environment) = (self.target.control.as_deref(), self.target.environment());
        control
            .zip(environment)
            .is_some_and(|(control, environment)| takes_many_users(control, &environment))
    }

    /// Checks what can be known before anything is changed.
    ///
    /// # Errors
    /// Returns why no daemon can be started for this device.
    pub(super) fn check_start(&self) -> Result<(), DaemonError> {
        self.program()?;
        if self.target.server.is_none() {
            return Err(DaemonError::NoServer);
        }
        if self.target.uuid.is_none() {
            return Err(DaemonError::NoUuid);
        }
        if self.target.users == MpsUsers::Many && !self.takes_many_users() {
            return Err(DaemonError::OneUser);
        }
        Ok(self.directories().check_length()?)
    }

    /// Starts the daemon, and waits until it listens.
    ///
    /// # Errors
    /// Returns why it does not run.
    pub(super) fn start(&self) -> Result<ProcessRecord, DaemonError> {
        self.check_start()?;
        let directories = self.directories();
        // What an earlier daemon left: its servers, which would keep the device, and its sockets.
        self.processes.end_all(&directories.log).map_err(DaemonError::End)?;
        directories.prepare()?;
        let mut child = self.launch()?;
        let until = Instant::now() + START;
        loop {
            if let Listening::Peer(peer) = socket::listening(&directories.work) {
                let own = peer.pid.filter(|pid| self.processes.is_daemon(*pid, &directories.log));
                let Some(process) = own.and_then(|pid| self.processes.record(pid)) else {
                    let who = self.processes.name(peer);
                    return Err(DaemonError::Start(format!(
                        "another process ({who}) listens in its pipe directory"
                    )));
                };
                // It listens for clients before it takes commands, and before it has made all of its files.
                if self.takes_commands(&process) || Instant::now() >= until {
                    child.leave();
                    directories.open_to_clients(self.serves_many(Some(&process)))?;
                    return Ok(process);
                }
            }
            if let Some(how) = child.has_ended() {
                let said = directories.said().unwrap_or_default();
                let why = format!("nvidia-cuda-mps-control ended at its start ({how}){said}");
                return Err(DaemonError::Start(why));
            }
            if Instant::now() >= until {
                drop(child);
                self.stop_unit();
                let ended = self.processes.end_all(&directories.log);
                let why = format!("it does not listen {} s after its start", START.as_secs());
                return Err(DaemonError::Start(match ended {
                    Ok(()) => why,
                    Err(error) => format!("{why}, and cannot be ended: {error}"),
                }));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Whether the program for commands finds the daemon. What the daemon answers is checked when its limits are set;
    /// one that ends instead has not started.
    fn takes_commands(&self, process: &ProcessRecord) -> bool {
        match self.ask(CHECK, answer::percentage) {
            Ok(_) => true,
            Err(DaemonError::NoAnswer(_, ProgramError::Failed(..))) => false,
            Err(_) => !self.processes.wait(process, ENDING),
        }
    }

    fn launch(&self) -> Result<process::Starting, DaemonError> {
        let started = match self.starter {
            Starter::Own { program, state_dir } => {
                let mut command = Program::new(program);
                command
                    .args(["mps", "run", &self.target.instance(), "--state-dir"])
                    .arg(state_dir);
                command.spawn().map(process::Starting::child)
            }
            Starter::Systemd(systemctl) => {
                let unit = self.unit();
                let started = program::text_of(systemctl, &["start", &unit], &[], "", START);
                match started {
                    Ok(_) => Ok(process::Starting::unit()),
                    Err(error) => Err(io::Error::other(format!("systemctl start {unit}: {error}"))),
                }
            }
        };
        started.map_err(|error| DaemonError::Start(format!("it cannot be started: {error}")))
    }

    fn unit(&self) -> String {
        format!("tranche-mps@{}.service", self.target.instance())
    }

    /// Tells systemd that the daemon is not wanted any more, so that it ends what is left of it.
    fn stop_unit(&self) {
        if let Starter::Systemd(systemctl) = self.starter
            && let Err(error) = program::text_of(systemctl, &["stop", &self.unit()], &[], "", QUIT)
        {
            // The processes are ended one by one afterwards.
            tracing::warn!("systemctl stop {}: {error}", self.unit());
        }
    }

    /// Sets the limits of clients without limits of their own, and checks that the daemon and its servers have them.
    ///
    /// A default is what servers get that are started later. Each running server is set, too; there, clients that
    /// connect later get it (MPS documentation, "set_active_thread_percentage"). Memory is limited by the index of the
    /// only device that the daemon sees: by UUID, daemons up to 555 clear that limit and answer nothing.
    ///
    /// # Errors
    /// Returns an error if the daemon does not take a limit, or has another one afterwards.
    pub(super) fn set_limits(&self, limits: Limits) -> Result<(), DaemonError> {
        let (memory, compute) = (limits.memory.map(MemorySize::mib), limits.compute.get());
        if let Some(mib) = memory {
            let command = format!("set_default_device_pinned_mem_limit {ONLY_DEVICE} {mib}M");
            self.ask(&command, answer::accepted_size)?;
        }
        let command = format!("set_default_active_thread_percentage {compute}");
        self.ask(&command, answer::accepted_percentage)?;
        for server in self.ask("get_server_list", answer::pids)? {
            self.set_limits_of(server, limits)?;
        }
        let set = self.check(PATIENCE)?;
        if !limits.is_percentage(set.percentage) {
            return Err(Self::other(CHECK, &set.percentage.to_string(), &compute.to_string()));
        }
        Self::is_memory(CHECK_MEMORY, set.memory, memory)
    }

    fn set_limits_of(&self, server: u32, limits: Limits) -> Result<(), DaemonError> {
        if let Some(mib) = limits.memory.map(MemorySize::mib) {
            let command = format!("set_device_pinned_mem_limit {server} {ONLY_DEVICE} {mib}M");
            self.ask(&command, answer::accepted_size)?;
            let command = format!("get_device_pinned_mem_limit {server} {ONLY_DEVICE}");
            let has = self.ask(&command, answer::size)?;
            Self::is_memory(&command, has, Some(mib))?;
        }
        let compute = limits.compute.get();
        let command = format!("set_active_thread_percentage {server} {compute}");
        self.ask(&command, answer::accepted_percentage)
    }

    /// Refuses a limit of memory that is not the one that was set, in MiB.
    fn is_memory(command: &str, has: Option<Size>, set: Option<u64>) -> Result<(), DaemonError> {
        match (has, set) {
            (_, None) => Ok(()),
            (Some(size), Some(mib)) if size.may_be(mib) => Ok(()),
            (Some(size), Some(mib)) => Err(Self::other(command, &size.to_string(), &format!("{mib}M"))),
            (None, Some(mib)) => Err(Self::other(command, "", &format!("{mib}M"))),
        }
    }

    fn other(command: &str, answer: &str, expected: &str) -> DaemonError {
        DaemonError::Unexpected(command.to_owned(), Unexpected::other(answer, expected))
    }

    /// The clients of the daemon, each with its server, by their numbers in the pid namespace of the daemon.
    ///
    /// # Errors
    /// Returns an error if the daemon does not say it within `patience` in all.
    pub(super) fn clients(&self, patience: Duration) -> Result<Vec<(u32, u32)>, DaemonError> {
        let until = Instant::now() + patience;
        let left = || until.saturating_duration_since(Instant::now());
        let mut clients = Vec::new();
        for server in self.ask_within("get_server_list", left(), answer::pids)? {
            let command = format!("get_client_list {server}");
            let pids = self.ask_within(&command, left(), answer::pids)?;
            clients.extend(pids.into_iter().map(|client| (server, client)));
        }
        Ok(clients)
    }

    /// Ends clients in an orderly way: their work on the device is cancelled, and other clients are not affected.
    ///
    /// # Errors
    /// Returns an error if the daemon does not do it within `patience`.
    pub(super) fn terminate(&self, clients: &[(u32, u32)], patience: Duration) -> Result<(), DaemonError> {
        let lines: Vec<String> = clients
            .iter()
            .map(|(server, client)| format!("terminate_client {server} {client}"))
            .collect();
        match lines.is_empty() {
            true => Ok(()),
            false => self.ask_within(&lines.join("\n"), patience, answer::terminated),
        }
    }

    /// Ends the daemon and its servers: by its own command, then by signals.
    ///
    /// # Errors
    /// Returns an error if a process of it is still there at the end.
    pub(super) fn end(&self, record: Option<&ProcessRecord>) -> Result<(), DaemonError> {
        let directories = self.directories();
        if let Some(record) = record.filter(|record| self.processes.lives(record)) {
            // Seconds that its servers get. A daemon that does not answer is ended by a signal.
            // After a server that failed, the program and the daemon end with 1 all the same (550 and later).
            let asked = self.ask_within("quit -t 1", QUIT, answer::nothing);
            if matches!(asked, Ok(()) | Err(DaemonError::NoAnswer(_, ProgramError::Failed(..)))) {
                self.processes.wait(record, QUIT);
            }
        }
        self.stop_unit();
        self.processes.end_all(&directories.log).map_err(DaemonError::End)?;
        if let Some(record) = record {
            self.processes.end(record).map_err(DaemonError::End)?;
        }
        directories.forget()?;
        Ok(())
    }

    fn program(&self) -> Result<&Path, DaemonError> {
        self.target.control.as_deref().ok_or(DaemonError::NoProgram)
    }

    fn ask<T>(&self, command: &str, read: fn(&str) -> Result<T, Unexpected>) -> Result<T, DaemonError> {
        self.ask_within(command, PATIENCE, read)
    }

    /// Sends commands over the program that the driver has for this, whose environment has the pipe directory alone.
    fn ask_within<T>(
        &self,
        commands: &str,
        patience: Duration,
        read: fn(&str) -> Result<T, Unexpected>,
    ) -> Result<T, DaemonError> {
        let shown = commands.lines().next().unwrap_or_default();
        let directories = self.directories();
        let environment = [("CUDA_MPS_PIPE_DIRECTORY", directories.work.as_path())];
        let answer = program::text_of(self.program()?, &[], &environment, &format!("{commands}\n"), patience);
        let answer = answer.map_err(|error| DaemonError::NoAnswer(shown.to_owned(), error))?;
        read(&answer).map_err(|error| match answer.trim() {
            "" => DaemonError::Unserved(shown.to_owned()),
            _ => DaemonError::Unexpected(shown.to_owned(), error),
        })
    }
}
