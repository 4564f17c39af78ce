//! The commands, and what the daemon answers: nothing, or lines.

use crate::daemon::{Daemon, Front, Server};
use crate::{protocol, scan};
use rustix::net::{Shutdown, shutdown};
use tranche_core::mps::version::{Commanders, MemoryLimits};

/// Whether the command is one to end that this user may give. The real daemon waits for the clients of its servers, at
/// most for the seconds of `-t`; this one does not.
pub(crate) fn is_quit(daemon: &mut Daemon, front: &Front, command: &str) -> bool {
    let mut words = command.split_whitespace();
    if words.next() != Some("quit") || !front.is_privileged {
        return false;
    }
    let timeout = (words.next() == Some("-t"))
        .then(|| words.next().and_then(scan::int))
        .flatten();
    if let Some((timeout, _)) = timeout
        && daemon.version.logs_quit_timeout
    {
        daemon
            .log
            .line(&format!("quit command issued with timeout of {timeout}"));
    }
    true
}

/// The lines of the answer.
pub(crate) fn answer(daemon: &mut Daemon, front: &Front, command: &str) -> Vec<String> {
    let command = command.trim_start();
    let (word, rest) = command.split_once(char::is_whitespace).unwrap_or((command, ""));
    let version = daemon.version;
    let form = version.memory_limits;
    let unknown = || vec![format!("Unknown command \"{word}\"")];
    match word {
        "quit" => vec!["Not enough privilege to execute quit command".to_owned()],
        "get_server_list" => numbers(daemon.servers.iter().map(|server| server.process.id())),
        "start_server" => start_server(daemon, front.uid, rest),
        "get_default_active_thread_percentage" => vec![daemon.defaults.percentage()],
        "set_default_active_thread_percentage" => {
            if let Some(refused) = refused(daemon, front) {
                return refused;
            }
            if !daemon.defaults.set_percentage(rest) {
                daemon.log.line("Invalid percentage, expected between (0.0, 100.0]");
            }
            vec![daemon.defaults.percentage()]
        }
        "get_device_client_list" if rest.trim().is_empty() || scan::int(rest).is_none() => Vec::new(),
        "get_client_list"
        | "shutdown_server"
        | "get_active_thread_percentage"
        | "set_active_thread_percentage"
        | "get_device_client_list" => of_server(daemon, word, rest),
        _ if word.contains("pinned_mem_limit") && form == MemoryLimits::None => unknown(),
        "get_default_device_pinned_mem_limit" => {
            let memory = daemon.defaults.memory(form, rest);
            if memory.is_none() {
                daemon.log.line("No default pinned memory limit set for the device!");
            }
            memory.into_iter().collect()
        }
        "set_default_device_pinned_mem_limit" => {
            if let Some(refused) = refused(daemon, front) {
                return refused;
            }
            daemon.defaults.set_memory(form, rest);
            Vec::new()
        }
        "get_device_pinned_mem_limit" | "set_device_pinned_mem_limit" => of_server(daemon, word, rest),
        "get_server_status" if version.has_server_status => match scan::int(rest) {
            Some(_) => of_server(daemon, word, rest),
            None => vec!["A server PID is required".to_owned()],
        },
        _ if !version.has_clients => unknown(),
        "get_default_client_priority" => vec![daemon.defaults.priority.to_string()],
        "set_default_client_priority" => {
            if let Some(refused) = refused(daemon, front) {
                return refused;
            }
            match scan::int(rest).map_or(0, |(priority, _)| priority) {
                priority @ (0 | 1) => daemon.defaults.priority = priority,
                _ => return vec!["Invalid priority value - must be 0 or 1!".to_owned()],
            }
            Vec::new()
        }
        "terminate_client" => terminate(daemon, rest),
        "ps" => ps(daemon, rest),
        _ => unknown(),
    }
}

/// Why this user may not change the defaults; `None` if it may.
fn refused(daemon: &Daemon, front: &Front) -> Option<Vec<String>> {
    let may = daemon.version.commanders == Commanders::AnyUser || front.is_privileged;
    let uid = front.uid;
    // 580 corrected the sentence.
    let who = if daemon.version.major >= 580 {
        "user who started"
    } else {
        "user started"
    };
    (!may).then(|| {
        vec![format!(
            "Insufficient privileges for UID {uid}. Control deamon settings can only be modified by the {who} it or by \
             the root user."
        )]
    })
}

fn start_server(daemon: &mut Daemon, by: u32, rest: &str) -> Vec<String> {
    let number = rest.trim_start().strip_prefix("-uid").and_then(scan::int);
    let Some((uid, _)) = number else {
        return vec!["A user id (UID) is required to start a new server".to_owned()];
    };
    if by != 0 && by != uid.cast_unsigned() {
        return vec![match daemon.version.commanders {
            Commanders::AnyUser => format!("Insufficient privileges for UID {by}"),
            Commanders::RootAndOwner => {
                format!("Insufficient privileges for UID {by}. Only the root user may start server for another user.")
            }
        }];
    }
    daemon.start_server(uid);
    Vec::new()
}

/// A command about one server.
fn of_server(daemon: &mut Daemon, word: &str, rest: &str) -> Vec<String> {
    let form = daemon.version.memory_limits;
    let (pid, rest) = scan::int(rest).unwrap_or((0, ""));
    let Some(server) = daemon.server(pid) else {
        return vec![format!("Server {pid} not found")];
    };
    match word {
        "get_server_status" => vec!["ACTIVE".to_owned()],
        "get_client_list" => numbers(server.clients.iter().map(|client| client.pid)),
        "get_active_thread_percentage" => vec![server.limits.percentage()],
        "set_active_thread_percentage" => {
            server.limits.set_percentage(rest);
            vec![server.limits.percentage()]
        }
        "get_device_pinned_mem_limit" => server.limits.memory(form, rest).into_iter().collect(),
        "set_device_pinned_mem_limit" => {
            server.limits.set_memory(form, rest);
            Vec::new()
        }
        "shutdown_server" => {
            let at = daemon
                .servers
                .iter()
                .position(|server| i64::from(server.process.id()) == i64::from(pid));
            if let Some(at) = at {
                crate::server::end(daemon.servers.remove(at).process);
            }
            Vec::new()
        }
        _ => Vec::new(),
    }
}

/// The answer is a number also on success: 0, or 201 if the server has no such client.
fn terminate(daemon: &mut Daemon, rest: &str) -> Vec<String> {
    let (pid, rest) = scan::int(rest).unwrap_or((0, ""));
    let client = scan::int(rest).map_or(0, |(client, _)| client);
    let Some(server) = daemon.server(pid) else {
        return vec![
            format!("Server {pid} not found"),
            format!("Server {pid} not found!"),
            "1".to_owned(),
        ];
    };
    vec![server.terminate(client).to_string()]
}

fn ps(daemon: &mut Daemon, rest: &str) -> Vec<String> {
    let selected = rest.trim_start().strip_prefix("-p");
    let pid = selected.map(|rest| scan::int(rest).map_or(0, |(pid, _)| pid));
    let servers: Vec<&Server> = daemon
        .servers
        .iter()
        .filter(|server| pid.is_none_or(|pid| i64::from(server.process.id()) == i64::from(pid)))
        .collect();
    if servers.is_empty() {
        return match pid {
            None => vec!["Server not found".to_owned()],
            Some(pid) => vec![format!("Server {pid} not found"), format!("Server {pid} not found\n")],
        };
    }
    let clients = servers.iter().flat_map(|server| {
        let pid = server.process.id();
        server.clients.iter().map(move |client| (pid, client.pid))
    });
    let rows = clients
        .enumerate()
        .map(|(at, (server, client))| format!("{client:<10}{:<10}{server}", at + 1));
    let header = "PID       ID        SERVER         DEVICE                    NAMESPACE      COMMAND        ";
    std::iter::once(header.to_owned()).chain(rows).collect()
}

/// Numbers of processes, one a line, in one piece.
fn numbers(numbers: impl Iterator<Item = u32>) -> Vec<String> {
    numbers.map(|number| number.to_string()).collect()
}

impl Server {
    /// The CUDA error of the driver that the real daemon prints: 0 is success.
    fn terminate(&mut self, client: i32) -> u32 {
        let is_it = |pid: u32| i64::from(pid) == i64::from(client);
        let Some(at) = self.clients.iter().position(|one| is_it(one.pid)) else {
            return 201;
        };
        let client = self.clients.remove(at);
        let _ = protocol::put(&client.connection, b"terminated");
        let _ = shutdown(&client.connection, Shutdown::Both);
        0
    }
}
