//! A process by its number in the pid namespace of a client: an engine in a container knows its own containers by
//! numbers that mean something else outside (pid_namespaces(7)).

use super::peer::{at, namespace};
use std::fs;

/// The most processes between one and the engine that started it.
const DEEPEST: usize = 256;

/// The numbers, in this process's pid namespace, of the process that is `pid` in the pid namespace of the process
/// `client`. There is more than one only while processes end and begin.
pub(super) fn numbers_here(client: u32, pid: u32) -> Vec<u32> {
    let Some(of_client) = namespace(&at(client), "pid") else {
        return Vec::new();
    };
    // Each namespace inside another one has its own number: the client's is as deep as the client's last number.
    let Some(depth) = numbers(&status(client)).len().checked_sub(1) else {
        return Vec::new();
    };
    let Ok(entries) = fs::read_dir("/proc") else {
        return Vec::new();
    };
    let all = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    let is_meant = |here: &u32| numbers(&status(*here)).get(depth) == Some(&pid) && is_in_or_below(*here, of_client);
    all.filter(is_meant).collect()
}

/// Whether a process is in the pid namespace, or was started from it: another namespace that is as deep has the same
/// numbers.
fn is_in_or_below(pid: u32, of_client: u64) -> bool {
    let mut pid = pid;
    for _ in 0..DEEPEST {
        if namespace(&at(pid), "pid") == Some(of_client) {
            return true;
        }
        match field(&status(pid), "PPid:").and_then(|parent| parent.trim().parse().ok()) {
            None | Some(0) => return false,
            Some(parent) => pid = parent,
        }
    }
    false
}

fn status(pid: u32) -> String {
    // Of a process that has ended nothing is known.
    fs::read_to_string(at(pid).join("status")).unwrap_or_default()
}

/// The numbers of a process in the text of `/proc/PID/status`: in the pid namespace of the reader, and in each one
/// inside it.
fn numbers(status: &str) -> Vec<u32> {
    let numbers = field(status, "NSpid:").unwrap_or_default();
    numbers
        .split_ascii_whitespace()
        .filter_map(|number| number.parse().ok())
        .collect()
}

fn field<'s>(status: &'s str, name: &str) -> Option<&'s str> {
    status.lines().find_map(|line| line.strip_prefix(name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{BufRead, BufReader};
    use std::process::{Command, Stdio};

    #[test]
    fn a_number_of_this_namespace_is_itself() {
        let me = std::process::id();
        assert_eq!(numbers_here(me, me), [me]);
        assert!(numbers_here(me, 4_000_001).is_empty() && numbers_here(4_000_001, 1).is_empty());
    }

    /// Two engines, each in a pid namespace of its own with equal numbers, and each with a container below it.
    #[test]
    fn a_number_of_a_nested_namespace_is_that_of_the_clients_own() {
        let mut engines = Vec::new();
        for _ in 0..2 {
            let mut command = Command::new("unshare");
            command.args(["--pid", "--fork", "--kill-child", "sh", "-c"]);
            command.arg("unshare --pid --fork --kill-child sleep 1000 & echo; wait");
            let mut engine = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
            let mut line = String::new();
            BufReader::new(engine.stdout.take().unwrap())
                .read_line(&mut line)
                .unwrap();
            engines.push(engine);
            if line.is_empty() {
                println!(
                    "not run: serve::nested::a_number_of_a_nested_namespace_is_that_of_the_clients_own: no namespaces"
                );
                return;
            }
        }
        // The shell is 1 in its namespace; unshare is 2 there, and sleep 3, and 1 in the one below.
        let children = |pid: u32| {
            let list = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
            list.split_ascii_whitespace()
                .map(|pid| pid.parse().unwrap())
                .collect::<Vec<u32>>()
        };
        let only_child = |pid: u32| loop {
            if let [child] = children(pid)[..] {
                return child;
            }
            std::thread::sleep(std::time::Duration::from_millis(5));
        };
        let shells: Vec<u32> = engines.iter().map(|engine| only_child(engine.id())).collect();
        let sleeps: Vec<u32> = shells.iter().map(|shell| only_child(only_child(*shell))).collect();
        for (shell, sleep) in shells.iter().zip(&sleeps) {
            assert_eq!(numbers_here(*shell, 1), [*shell]);
            assert_eq!(numbers_here(*shell, 3), [*sleep]);
            assert!(numbers_here(*shell, std::process::id()).is_empty());
        }
        for mut engine in engines {
            engine.kill().unwrap();
            engine.wait().unwrap();
        }
    }
}
