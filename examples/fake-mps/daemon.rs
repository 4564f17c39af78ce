//! The daemon: `nvidia-cuda-mps-control -d` and `-f`.
//!
//! Its protocol is not the real one, which is not documented. On `control_privileged` a packet is a command; the answer
//! is any number of packets of text and then [`END`]. On `control` the packet [`ATTACH`] makes the process a client;
//! the answer is `server PID percentage P UUID=SIZE…`, and the process stays a client until the connection ends.

use crate::client::pipe;
use crate::config::{Config, Fault, hang};
use crate::limits::Limits;
use crate::server;
use nix::sys::signal::{SigHandler, Signal, signal};
use rustix::fs::{FlockOperation, flock};
use rustix::net::sockopt::socket_peercred;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, Shutdown, SocketAddrUnix, SocketFlags, SocketType, accept_with, bind, listen,
    recv, send, shutdown, socket_with,
};
use serde_json::json;
use std::fs::{File, Permissions};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread;

/// The end of an answer.
pub(crate) const END: &[u8] = b"\0";

/// What a CUDA process sends.
pub(crate) const ATTACH: &str = "attach";

#[derive(Default)]
struct Daemon {
    multi_user: bool,
    defaults: Limits,
    servers: Vec<Server>,
    commands: usize,
}

struct Server {
    process: Child,
    uid: u32,
    limits: Limits,
    clients: Vec<(u32, Arc<OwnedFd>)>,
}

/// The state of the daemon, and what is notified when a client leaves.
struct Shared(Mutex<Daemon>, Condvar);

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Daemon> {
        self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

pub(crate) fn run(config: &Config, arguments: &[String]) -> ExitCode {
    if arguments.iter().any(|argument| argument == "-d") {
        return in_background(arguments);
    }
    let known = ["-f", "-M", "-multiuser-server"];
    if !arguments.iter().any(|a| a == "-f") || arguments.iter().any(|a| !known.contains(&a.as_str())) {
        println!("Invalid option in {arguments:?}");
        return ExitCode::FAILURE;
    }
    let session = rustix::process::getsid(None).map_or(0, |session| session.as_raw_nonzero().get());
    config.record("start", json!({"arguments": arguments, "session": session}));
    match config.start_fault() {
        None | Some(Fault::Garbage | Fault::Endless) => {}
        Some(Fault::Hung) => hang(),
        Some(Fault::Dies) => std::process::abort(),
        Some(Fault::Refuse) => {
            println!("Failed to start the MPS control daemon");
            return ExitCode::FAILURE;
        }
    }
    let multi_user = arguments
        .iter()
        .any(|a| a.starts_with("-M") || a == "-multiuser-server");
    match serve(config, multi_user) {
        Ok(code) => code,
        Err(why) => {
            println!("{why}");
            ExitCode::FAILURE
        }
    }
}

/// `-d`: returns as soon as the daemon listens.
fn in_background(arguments: &[String]) -> ExitCode {
    let arguments = arguments.iter().map(|a| if a == "-d" { "-f" } else { a });
    let own = std::env::current_exe().unwrap();
    let mut command = Command::new("setsid");
    command.arg(own).args(arguments);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let Ok(mut child) = command.spawn() else {
        return ExitCode::FAILURE;
    };
    for _ in 0..1000 {
        if pipe().join("nvidia-cuda-mps-control.pid").exists() {
            return ExitCode::SUCCESS;
        }
        if child.try_wait().is_ok_and(|ended| ended.is_some()) {
            println!("An instance of this daemon is already running");
            return ExitCode::FAILURE;
        }
        thread::sleep(std::time::Duration::from_millis(10));
    }
    ExitCode::FAILURE
}

fn serve(config: &Config, multi_user: bool) -> Result<ExitCode, String> {
    let pipe = pipe();
    let about = |e: &dyn std::fmt::Display| format!("{}: {e}", pipe.display());
    let lock = File::create(pipe.join("control_lock")).map_err(|e| about(&e))?;
    if flock(&lock, FlockOperation::NonBlockingLockExclusive).is_err() {
        return Err("An instance of this daemon is already running".to_owned());
    }
    if config.faults.stubborn {
        // SAFETY: to ignore a signal calls nothing.
        #[allow(unsafe_code)]
        unsafe { signal(Signal::SIGTERM, SigHandler::SigIgn) }.map_err(|e| about(&e))?;
    }
    let clients = socket(&pipe.join("control"), 0o666).map_err(|e| about(&e))?;
    let privileged = socket(&pipe.join("control_privileged"), 0o600).map_err(|e| about(&e))?;
    std::fs::write(pipe.join("log"), "").map_err(|e| about(&e))?;
    if let Some(log) = std::env::var_os("CUDA_MPS_LOG_DIRECTORY") {
        let log = Path::new(&log).join("control.log");
        std::fs::write(&log, "Starting control daemon\n").map_err(|e| format!("{}: {e}", log.display()))?;
    }
    let pid = pipe.join("nvidia-cuda-mps-control.pid");
    std::fs::write(pid, std::process::id().to_string()).map_err(|e| about(&e))?;
    let daemon = Daemon {
        multi_user,
        ..Daemon::default()
    };
    let shared = Arc::new(Shared(Mutex::new(daemon), Condvar::new()));
    let of_clients = Arc::clone(&shared);
    thread::spawn(move || accept_all(&clients, &of_clients, client));
    accept_all(&privileged, &shared, commands);
    Ok(ExitCode::FAILURE)
}

fn socket(path: &Path, mode: u32) -> io::Result<OwnedFd> {
    let _ = std::fs::remove_file(path);
    let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
    bind(&socket, &SocketAddrUnix::new(path)?)?;
    std::fs::set_permissions(path, Permissions::from_mode(mode))?;
    listen(&socket, 64)?;
    Ok(socket)
}

fn accept_all(socket: &OwnedFd, shared: &Arc<Shared>, serve: fn(Arc<OwnedFd>, &Shared)) {
    while let Ok(connection) = accept_with(socket, SocketFlags::CLOEXEC) {
        // A hung daemon accepts no one.
        drop(shared.lock());
        let shared = Arc::clone(shared);
        thread::spawn(move || serve(Arc::new(connection), &shared));
    }
}

fn packet(connection: &OwnedFd) -> Option<String> {
    let mut buffer = vec![0; 4096];
    match recv(connection, &mut buffer[..], RecvFlags::empty()) {
        Ok((_, read)) if read > 0 => Some(String::from_utf8_lossy(&buffer[..read]).into_owned()),
        _ => None,
    }
}

/// Serves the program that takes commands.
fn commands(connection: Arc<OwnedFd>, shared: &Shared) {
    let reply = |bytes: &[u8]| send(&*connection, bytes, SendFlags::NOSIGNAL).is_ok();
    while let Some(command) = packet(&connection) {
        let uid = socket_peercred(&*connection).map_or(u32::MAX, |peer| peer.uid.as_raw());
        let config = Config::read();
        let mut daemon = shared.lock();
        config.record("command", json!({"command": command, "by": uid}));
        match config.fault(&command) {
            None => {}
            // With the lock, so that nobody else gets an answer either.
            Some(Fault::Hung) => hang(),
            Some(Fault::Dies) => std::process::abort(),
            Some(Fault::Refuse) => {
                reply(b"Failed to execute the command\n");
                reply(END);
                continue;
            }
            Some(Fault::Garbage) => {
                reply(b"\xff\xfe\x00 garbage\n");
                reply(END);
                continue;
            }
            Some(Fault::Endless) => while reply(&[b'x'; 4096]) {},
        }
        daemon.commands += 1;
        if config.faults.dies_after.is_some_and(|most| daemon.commands > most) {
            std::process::abort();
        }
        let words: Vec<&str> = command.split_whitespace().collect();
        if words.first() == Some(&"quit") {
            quit(&mut daemon);
        }
        let mut text = answer(&mut daemon, &words);
        drop(daemon);
        if !text.is_empty() {
            text.push('\n');
            reply(text.as_bytes());
        }
        reply(END);
    }
}

/// Ends the servers and this process, and leaves the files of the pipe directory as the real daemon does, without its
/// pid.
fn quit(daemon: &mut Daemon) -> ! {
    for server in daemon.servers.drain(..) {
        server::end(server.process);
    }
    for name in ["control", "control_privileged", "nvidia-cuda-mps-control.pid"] {
        let _ = std::fs::remove_file(pipe().join(name));
    }
    std::process::exit(0)
}

fn answer(daemon: &mut Daemon, words: &[&str]) -> String {
    let lines = |numbers: &mut dyn Iterator<Item = u32>| numbers.map(|n| n.to_string()).collect::<Vec<_>>().join("\n");
    match words {
        ["get_server_list"] => lines(&mut daemon.servers.iter().map(|server| server.process.id())),
        ["get_default_active_thread_percentage"] => daemon.defaults.percentage(),
        ["set_default_active_thread_percentage", percent] => daemon.defaults.set_percentage(percent),
        ["get_default_device_pinned_mem_limit", device] => daemon.defaults.memory(device),
        ["set_default_device_pinned_mem_limit", device, size] => daemon.defaults.set_memory(device, size),
        ["start_server", "-uid", uid] => match uid.parse() {
            Ok(uid) => {
                daemon.server_of(uid);
                String::new()
            }
            Err(_) => "Invalid uid".to_owned(),
        },
        [command, server, rest @ ..] => {
            let Some(server) = server.parse().ok().and_then(|pid| daemon.server(pid)) else {
                return format!("Server {server} not found");
            };
            match (*command, rest) {
                ("get_server_status", []) => "ACTIVE".to_owned(),
                ("get_client_list", []) => lines(&mut server.clients.iter().map(|(pid, _)| *pid)),
                ("get_active_thread_percentage", []) => server.limits.percentage(),
                ("set_active_thread_percentage", [percent]) => server.limits.set_percentage(percent),
                ("get_device_pinned_mem_limit", [device]) => server.limits.memory(device),
                ("set_device_pinned_mem_limit", [device, size]) => server.limits.set_memory(device, size),
                ("terminate_client", [client]) => server.terminate(client),
                _ => "Invalid command".to_owned(),
            }
        }
        _ => "Invalid command".to_owned(),
    }
}

impl Daemon {
    fn server(&mut self, pid: u32) -> Option<&mut Server> {
        self.servers.iter_mut().find(|server| server.process.id() == pid)
    }

    /// The server of a user. It is started if it does not run.
    fn server_of(&mut self, uid: u32) -> &mut Server {
        let uid = if self.multi_user { 0 } else { uid };
        if let Some(at) = self.servers.iter().position(|server| server.uid == uid) {
            return &mut self.servers[at];
        }
        self.servers.push(Server {
            process: server::start(),
            uid,
            limits: self.defaults.clone(),
            clients: Vec::new(),
        });
        self.servers.last_mut().unwrap()
    }

    /// Without multi-user mode, a user waits until the clients of every other user are gone.
    fn must_wait(&self, uid: u32) -> bool {
        !self.multi_user
            && self
                .servers
                .iter()
                .any(|server| server.uid != uid && !server.clients.is_empty())
    }
}

impl Server {
    fn terminate(&mut self, client: &str) -> String {
        let at = self.clients.iter().position(|(pid, _)| pid.to_string() == client);
        match at {
            Some(at) => {
                let (_, connection) = self.clients.remove(at);
                let _ = send(&*connection, b"terminated", SendFlags::NOSIGNAL);
                let _ = shutdown(&*connection, Shutdown::Both);
                String::new()
            }
            None => format!("Client {client} not found"),
        }
    }
}

/// Serves a CUDA process.
fn client(connection: Arc<OwnedFd>, shared: &Shared) {
    // A connection without a packet is one that only looks whether somebody listens.
    let Some(ATTACH) = packet(&connection).as_deref() else {
        return;
    };
    let Ok(peer) = socket_peercred(&*connection) else {
        return;
    };
    let (pid, uid) = (peer.pid.as_raw_nonzero().get().cast_unsigned(), peer.uid.as_raw());
    let mut daemon = shared.lock();
    while daemon.must_wait(uid) {
        daemon = shared.1.wait(daemon).unwrap_or_else(|poisoned| poisoned.into_inner());
    }
    let server = daemon.server_of(uid);
    server.clients.push((pid, Arc::clone(&connection)));
    let memory: Vec<String> = server
        .limits
        .memory
        .iter()
        .map(|(device, mib)| format!("{device}={mib}M"))
        .collect();
    let memory = memory.join(" ");
    let text = format!(
        "server {} percentage {} {memory}",
        server.process.id(),
        server.limits.percentage()
    );
    drop(daemon);
    let _ = send(&*connection, text.trim_end().as_bytes(), SendFlags::NOSIGNAL);
    // Nothing is sent any more: this waits for the end.
    let _ = packet(&connection);
    let mut daemon = shared.lock();
    for server in &mut daemon.servers {
        server.clients.retain(|(_, other)| !Arc::ptr_eq(other, &connection));
    }
    shared.1.notify_all();
}
