//! The daemon: one thread, which serves one connection after another.

use crate::client::pipe;
use crate::commands;
use crate::config::{Config, Fault, hang};
use crate::limits::Limits;
use crate::log::Log;
use crate::{protocol, server, watch};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{SocketFlags, accept_with};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use serde_json::json;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::process::{Child, ExitCode};
use std::time::Duration;
use tranche_core::mps::version::{REMOVED_BY_QUIT, Version};

pub(crate) struct Daemon {
    pub(crate) version: &'static Version,
    multi_user: bool,
    pub(crate) log: Log,
    pub(crate) defaults: Limits,
    pub(crate) servers: Vec<Server>,
    waiting: Vec<Client>,
    fronts: Vec<Front>,
    commands: usize,
    /// What the daemon and the front ends end with: 1 after a server that failed.
    status: u8,
}

pub(crate) struct Server {
    pub(crate) process: Child,
    handle: Option<OwnedFd>,
    is_ready: bool,
    pub(crate) uid: u32,
    pub(crate) limits: Limits,
    pub(crate) clients: Vec<Client>,
}

/// A CUDA process.
pub(crate) struct Client {
    pub(crate) pid: u32,
    pub(crate) uid: u32,
    pub(crate) connection: OwnedFd,
}

/// A front end.
pub(crate) struct Front {
    pub(crate) uid: u32,
    /// Whether it came by `control_privileged`, which decides what it may do.
    pub(crate) is_privileged: bool,
    connection: OwnedFd,
}

impl Daemon {
    pub(crate) fn new(version: &'static Version, multi_user: bool, log: Log) -> Self {
        Self {
            version,
            multi_user,
            log,
            defaults: Limits::default(),
            servers: Vec::new(),
            waiting: Vec::new(),
            fronts: Vec::new(),
            commands: 0,
            status: 0,
        }
    }

    /// Serves until a front end tells it to end.
    pub(crate) fn serve(mut self, control: &OwnedFd, privileged: &OwnedFd) -> ExitCode {
        loop {
            let ready = self.ready(control, privileged);
            let is_ready = |fd: BorrowedFd<'_>| ready.contains(&std::os::fd::AsRawFd::as_raw_fd(&fd));
            let fronts: Vec<usize> = (0..self.fronts.len()).rev().collect();
            for at in fronts {
                if is_ready(self.fronts[at].connection.as_fd()) {
                    let front = self.fronts.remove(at);
                    match self.front(&front) {
                        Said::More => self.fronts.insert(at, front),
                        Said::Closed => self.log.line("UI closed"),
                        Said::Quit => return self.quit(&front),
                    }
                }
            }
            self.waiting.retain(|client| !is_ready(client.connection.as_fd()));
            for server in &mut self.servers {
                server.clients.retain(|client| !is_ready(client.connection.as_fd()));
            }
            let ended: Vec<usize> = (0..self.servers.len())
                .filter(|at| {
                    self.servers[*at]
                        .handle
                        .as_ref()
                        .is_some_and(|handle| is_ready(handle.as_fd()))
                })
                .rev()
                .collect();
            for at in ended {
                self.ended(at);
            }
            if is_ready(control.as_fd()) {
                self.accept(control, false);
            }
            if is_ready(privileged.as_fd()) {
                self.accept(privileged, true);
            }
            for client in std::mem::take(&mut self.waiting) {
                self.attach(client);
            }
        }
    }

    /// The numbers of the descriptors that can be read or were closed.
    fn ready(&self, control: &OwnedFd, privileged: &OwnedFd) -> Vec<i32> {
        let of_servers = self.servers.iter().flat_map(|server| {
            let clients = server.clients.iter().map(|client| &client.connection);
            clients.chain(&server.handle)
        });
        let waiting = self.waiting.iter().map(|client| &client.connection);
        let watched: Vec<&OwnedFd> = waiting.chain(of_servers).collect();
        let watch = watch::of(&watched);
        let own = [control, privileged, &watch].into_iter();
        let fronts = self.fronts.iter().map(|front| &front.connection);
        let all: Vec<&OwnedFd> = own.chain(fronts).collect();
        let mut fds: Vec<PollFd<'_>> = all
            .iter()
            .map(|fd| PollFd::new(fd.as_fd(), PollFlags::POLLIN))
            .collect();
        let _ = poll(&mut fds, PollTimeout::NONE);
        let ready = fds.iter().zip(&all).filter(|(polled, _)| polled.any().unwrap_or(false));
        let ready = ready.map(|(_, fd)| std::os::fd::AsRawFd::as_raw_fd(*fd));
        ready.chain(watch::ready(&watch)).collect()
    }

    /// Greets a connection, and waits until it has said what it is: for as long as it takes.
    fn accept(&mut self, socket: &OwnedFd, is_privileged: bool) {
        self.log.line("Accepting connection...");
        let Ok(connection) = accept_with(socket, SocketFlags::CLOEXEC) else {
            return;
        };
        if protocol::put(&connection, protocol::HELLO).is_err() {
            self.log.line("Unable to accept connection");
            return;
        }
        // Any packet will do: the credentials are the kernel's.
        if protocol::receive(&connection).is_none() {
            self.log.line("User did not send valid credentials");
            return;
        }
        // The number is zero for a process outside this namespace of processes, which rustix takes for impossible.
        let Ok(peer) = getsockopt(&connection, PeerCredentials) else {
            return;
        };
        let (pid, uid) = (peer.pid().cast_unsigned(), peer.uid());
        let kind = protocol::receive(&connection);
        match kind.as_deref().and_then(protocol::numbered) {
            None => self.log.line("Unable to read new connection type information"),
            // A second front end is closed without a word.
            Some((protocol::UI, _)) if !self.fronts.is_empty() => {}
            Some((protocol::UI, _)) => {
                self.log.line("NEW UI");
                self.fronts.push(Front {
                    uid,
                    is_privileged,
                    connection,
                });
            }
            Some((protocol::CLIENT, _)) => {
                // One server for all is that of root.
                let uid = if self.multi_user { 0 } else { uid };
                let text =
                    format!("NEW CLIENT {pid} from user {uid}: Server is not ready, push client to pending list");
                self.log.line(&text);
                self.waiting.push(Client { pid, uid, connection });
            }
            Some(_) => self.log.line("Unknown type of connection"),
        }
    }

    /// Reads one command of a front end, and answers it.
    fn front(&mut self, front: &Front) -> Said {
        let socket = &front.connection;
        let length = protocol::receive(socket).unwrap_or_default();
        if length.iter().all(|byte| *byte == 0) {
            let _ = protocol::put_numbered(socket, protocol::END, &0_u32.to_ne_bytes());
            return Said::Closed;
        }
        let Some(packet) = protocol::receive(socket) else {
            return Said::Closed;
        };
        let text = String::from_utf8_lossy(&packet);
        let command = text.trim_end_matches(['\0', '\n']);
        self.log.line(&format!("Cmd:{command}"));
        let config = Config::read();
        config.record("command", json!({"command": command, "by": front.uid}));
        let say = |text: &[u8]| protocol::put_numbered(socket, protocol::TEXT, text);
        match config.fault(command) {
            None => {}
            Some(Fault::Hung) => hang(),
            Some(Fault::Dies) => std::process::abort(),
            Some(Fault::Refuse) => {
                let _ = say(b"Failed to execute the command");
                return Said::More;
            }
            Some(Fault::Garbage) => {
                let _ = say(b"\xff\xfe\x00 garbage");
                return Said::More;
            }
            Some(Fault::Endless) => while say(&[b'x'; 4096]).is_ok() {},
        }
        self.commands += 1;
        if config.faults.dies_after.is_some_and(|most| self.commands > most) {
            std::process::abort();
        }
        if commands::is_quit(self, front, command) {
            return Said::Quit;
        }
        for line in commands::answer(self, front, command) {
            self.log.line(&line);
            let _ = say(line.as_bytes());
        }
        Said::More
    }

    /// Ends the servers and this process, and leaves the sockets and the lock as the real daemon does.
    fn quit(mut self, front: &Front) -> ExitCode {
        for server in self.servers.drain(..) {
            server::end(server.process);
        }
        self.log.line(&format!("Exit with status {}", self.status));
        for name in REMOVED_BY_QUIT {
            let _ = std::fs::remove_file(pipe().join(name));
        }
        // The log's thread writes this line.
        std::thread::sleep(Duration::from_millis(20));
        let _ = protocol::put_numbered(&front.connection, protocol::END, &u32::from(self.status).to_ne_bytes());
        // What is not read when it closes would take the last packet from the front end (ECONNRESET).
        let _ = set_socket_timeout(&front.connection, Timeout::Recv, Some(Duration::from_millis(100)));
        while protocol::receive(&front.connection).is_some() {}
        ExitCode::from(self.status)
    }

    /// A server has ended by itself.
    fn ended(&mut self, at: usize) {
        let mut server = self.servers.remove(at);
        let status = server.process.wait().ok().and_then(|status| status.code()).unwrap_or(1);
        self.log
            .line(&format!("Server {} exited with status {status}", server.process.id()));
        if status != 0 {
            self.status = 1;
        }
    }

    pub(crate) fn server(&mut self, pid: i32) -> Option<&mut Server> {
        let mut servers = self.servers.iter_mut();
        servers.find(|server| i64::from(server.process.id()) == i64::from(pid))
    }

    /// Starts the server of a user, if it does not run.
    pub(crate) fn start_server(&mut self, uid: i32) {
        let named = if self.multi_user { 0 } else { uid };
        let uid = named.cast_unsigned();
        if self.servers.iter().any(|server| server.uid == uid) {
            return;
        }
        let Ok((process, is_ready)) = server::start() else {
            self.status = 1;
            return;
        };
        self.log
            .line(&format!("Starting new server {} for user {named}", process.id()));
        let pid = Pid::from_raw(process.id().cast_signed());
        let handle = pid.and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok());
        self.servers.push(Server {
            process,
            handle,
            is_ready,
            uid,
            limits: self.defaults.clone(),
            clients: Vec::new(),
        });
    }

    /// Attaches a client to the server of its user, or lets it wait: without a server for several users, a user waits
    /// until the clients of every other user are gone.
    fn attach(&mut self, client: Client) {
        let uid = if self.multi_user { 0 } else { client.uid };
        let is_other = |server: &Server| server.uid != uid && !server.clients.is_empty();
        if self.servers.iter().any(is_other) {
            self.waiting.push(client);
            return;
        }
        self.start_server(uid.cast_signed());
        let Some(server) = self.servers.iter_mut().find(|server| server.uid == uid) else {
            return;
        };
        // The clients of a server that failed lose their connection.
        if !server.is_ready {
            return;
        }
        let text = format!(
            "server {} percentage {} {}",
            server.process.id(),
            server.limits.percentage(),
            server.limits.of_client()
        );
        let _ = protocol::put(&client.connection, text.trim_end().as_bytes());
        server.clients.push(client);
    }
}

/// What a front end said.
enum Said {
    More,
    Closed,
    Quit,
}
