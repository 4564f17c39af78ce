//! What the daemon and its servers say in their log. `-f` writes all of it to standard output, one line each:
//! `[2026-11-26 03:43:21.907 Control   633] Server 845 exited with status 0`. A line before the daemon has its log,
//! such as why it does not start, has no bracket.

use tranche_core::text::shown;

/// The most characters of a line that are quoted.
const MOST: usize = 200;

/// What a daemon logs in the ordinary course of things: not a reason.
const ROUTINE: [&str; 12] = [
    "Starting control daemon",
    "To connect CUDA applications",
    "CUDA MPS Control binary version",
    "CUDA MPS Control for ",
    "Copyright ",
    "Accepting connection",
    "NEW UI",
    "UI closed",
    "Cmd:",
    "Removed Shm file",
    "Exit with status",
    "Warning: Failed writing log files",
];

/// The last line that is a reason, for a message.
pub(super) fn reason(log: &str) -> Option<String> {
    let lines = log.lines().rev().map(|line| Line::of(line).text);
    let mut lines = lines.filter(|text| !text.is_empty() && !ROUTINE.iter().any(|routine| text.starts_with(routine)));
    lines.next().map(quoted)
}

/// What became of the server that was started last.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum LastServer {
    /// No client has asked for one.
    None,
    /// The process is starting.
    Starting(u32),
    /// It serves, or has served, clients.
    Ready,
    /// It has ended before it was ready: why.
    Failed(String),
}

/// What the log says of the server that was started last.
pub(super) fn last_server(log: &str) -> LastServer {
    let mut last = LastServer::None;
    let mut said: Option<&str> = None;
    for line in log.lines().map(Line::of) {
        if let Some(pid) = number_after(line.text, "Starting new server ") {
            (last, said) = (LastServer::Starting(pid), None);
            continue;
        }
        let LastServer::Starting(pid) = last else { continue };
        if line.text.starts_with("NEW SERVER ") && line.text.ends_with("Ready") {
            last = LastServer::Ready;
        } else if line.is_of_server && line.pid == Some(pid) {
            said = Some(line.text);
        } else if number_after(line.text, "Server ") == Some(pid)
            && let Some((_, status)) = line.text.split_once(" exited with ")
        {
            let how = format!("exited with {}", quoted(status));
            last = LastServer::Failed(said.map_or(how.clone(), |said| format!("{} ({how})", quoted(said))));
        }
    }
    last
}

fn number_after(text: &str, words: &str) -> Option<u32> {
    let rest = text.strip_prefix(words)?;
    rest.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
}

fn quoted(text: &str) -> String {
    shown(text.trim()).chars().take(MOST).collect()
}

struct Line<'a> {
    text: &'a str,
    pid: Option<u32>,
    is_of_server: bool,
}

impl<'a> Line<'a> {
    fn of(line: &'a str) -> Self {
        let Some((head, text)) = line.strip_prefix('[').and_then(|line| line.split_once("] ")) else {
            return Self {
                text: line.trim(),
                pid: None,
                is_of_server: false,
            };
        };
        let mut words = head.split_whitespace().rev();
        let pid = words.next().and_then(|pid| pid.parse().ok());
        Self {
            text: text.trim(),
            pid,
            is_of_server: matches!(words.next(), Some("Server" | "Other")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of 550.163.01 without a GPU.
    const FAILED: &str = "[2026-11-26 03:45:40.796 Control  4116] Starting control daemon using socket /p/control
[2026-11-26 03:45:41.508 Control  4116] Cmd:start_server -uid 1000
[2026-11-26 03:45:41.514 Control  4155] Starting new server 4155 for user 1000
[2026-11-26 03:45:41.516 Other    4155] Startup
[2026-11-26 03:45:41.520 Other    4155] Driver initialization failed with: no CUDA-capable device is detected
[2026-11-26 03:45:41.523 Control  4116] Server 4155 exited with status 1
[2026-11-26 03:45:41.523 Control  4116] Removed Shm file at ";

    #[test]
    fn a_server_that_ends_before_it_is_ready_has_failed() {
        let why = "Driver initialization failed with: no CUDA-capable device is detected (exited with status 1)";
        assert_eq!(last_server(FAILED), LastServer::Failed(why.to_owned()));
        let mute = FAILED
            .lines()
            .filter(|line| !line.contains("Other"))
            .collect::<Vec<_>>()
            .join("\n");
        assert_eq!(
            last_server(&mute),
            LastServer::Failed("exited with status 1".to_owned())
        );
        let starting = FAILED.split_once("[2026-11-26 03:45:41.523").unwrap().0;
        assert_eq!(last_server(starting), LastServer::Starting(4155));
        assert_eq!(last_server(""), LastServer::None);
        // Of 580.159.04 on an H200: one that served and was ended.
        let served = "[2026-11-26 03:43:21.553 Control   845] Starting new server 845 for user 1000
[2026-11-26 03:43:21.802 Control   633] NEW SERVER 845: Ready
[2026-11-26 03:43:21.907 Control   633] Server 845 exited with status 0";
        assert_eq!(last_server(served), LastServer::Ready);
        let again = format!("{FAILED}\n{served}");
        assert_eq!(last_server(&again), LastServer::Ready);
        let next = "[2026-11-26 03:44:00.000 Control   900] Starting new server 900 for user 0";
        assert_eq!(last_server(&format!("{served}\n{next}")), LastServer::Starting(900));
    }

    #[test]
    fn a_line_that_is_no_reason_is_not_quoted() {
        assert_eq!(
            reason("Cannot find MPS control daemon process\n").unwrap(),
            "Cannot find MPS control daemon process"
        );
        let routine = "[2026-11-26 03:43:18.923 Control 28387] Starting control daemon using socket /p/control
[2026-11-26 03:43:18.923 Control 28387] To connect CUDA applications to this daemon, set env CUDA_MPS_PIPE_DIRECTORY=/p";
        assert_eq!(reason(routine), None);
        let failed = reason(FAILED).unwrap();
        assert_eq!(failed, "Server 4155 exited with status 1");
        let warned = "Warning: Failed writing log files to directory [/x]. No logs will be available.\n\
                      Cannot access CUDA_MPS_PIPE_DIRECTORY=/x";
        assert_eq!(reason(warned).unwrap(), "Cannot access CUDA_MPS_PIPE_DIRECTORY=/x");
        assert!(!reason("a\u{1b}[2Jb").unwrap().contains('\u{1b}'));
    }
}
