//! Where a failure is reported: on standard error, in the engine's log, and for `tranche status`.
//!
//! docker and containerd show the last error of the file that `--log` names, podman shows standard error.

use std::cell::{OnceCell, RefCell};
use std::ffi::OsStr;
use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use nix::fcntl::OFlag;
use serde_json::json;

use super::arguments::{Action, RuntimeArguments};
use tranche_core::error::{Error, line};
use tranche_core::ledger::utc;
use tranche_core::messages::{Message, Messages, Severity};
use tranche_core::text::{cut, shown};
use tranche_core::types::PROGRAM_VERSION;

/// The most bytes of a message. A container's variable may have a megabyte, and what is wrong with it is said with it.
const LONGEST: usize = 4096;

/// The messages of one command.
pub(super) struct RuntimeReport<'a> {
    arguments: &'a RuntimeArguments,
    state_dir: &'a Path,
    lines: RefCell<&'a mut dyn Write>,
    /// The configuration that podman's precreate hook got: it names the container, which no argument does.
    config: OnceCell<Vec<u8>>,
}

impl<'a> RuntimeReport<'a> {
    /// `lines` is the standard error.
    pub(super) fn new(arguments: &'a RuntimeArguments, state_dir: &'a Path, lines: &'a mut dyn Write) -> Self {
        let lines = RefCell::new(lines);
        RuntimeReport {
            arguments,
            state_dir,
            lines,
            config: OnceCell::new(),
        }
    }

    /// Sets the configuration of the container.
    pub(super) fn about(&self, config: &[u8]) {
        // It is read once.
        let _ = self.config.set(config.to_vec());
    }

    /// Reports the error that ends this command.
    pub(super) fn failure(&self, error: &Error) {
        let text = self.say(error, Severity::Failure);
        if let Some(path) = log_file(self.arguments) {
            // The line on standard error is what is left if the engine's log cannot be written.
            let _ = append(&path, &entry(&text, now(), self.arguments.json_log));
        }
    }

    /// Reports something that was not done, although the command goes on.
    pub(super) fn remark(&self, error: &Error) {
        self.say(error, Severity::Remark);
    }

    /// Prints the version of this program. Engines parse the runtime's version on standard output, where the first line
    /// must be the low-level runtime's own (go-runc), so this goes to standard error.
    pub(super) fn version(&self) {
        self.print(&format!("tranche-runtime {PROGRAM_VERSION}\n"));
    }

    fn say(&self, error: &Error, severity: Severity) -> String {
        let text = cut(&line(error), LONGEST);
        let command = self.arguments.name.as_deref().unwrap_or("runtime");
        self.print(&format!("tranche-runtime: {}: {text}\n", shown(command)));
        let message = Message {
            at: now(),
            container: self.container(),
            hook: command.to_owned(),
            severity,
            text: text.clone(),
        };
        // A message that cannot be kept was still printed.
        let _ = Messages::open(self.state_dir).and_then(|messages| messages.remember(&[message]));
        text
    }

    fn container(&self) -> String {
        match id(self.arguments) {
            "" => self.config.get().and_then(|config| id_in(config)).unwrap_or_default(),
            id => id.to_owned(),
        }
    }

    fn print(&self, text: &str) {
        // Standard error may be closed.
        let _ = self.lines.borrow_mut().write_all(text.as_bytes());
    }
}

fn id(arguments: &RuntimeArguments) -> &str {
    match &arguments.action {
        Action::Create(start) => &start.id,
        Action::Restore { id, .. } | Action::End { id } => id,
        Action::Exec(exec) => &exec.id,
        Action::Pass => "",
    }
}

/// The id of podman's container with this configuration. podman mounts files of the container's own directory,
/// `STORE/DRIVER-containers/ID/userdata`, whose name nothing in an image can be.
fn id_in(config: &[u8]) -> Option<String> {
    #[derive(serde::Deserialize)]
    struct Mounts {
        mounts: Vec<Mount>,
    }
    #[derive(serde::Deserialize)]
    struct Mount {
        source: Option<PathBuf>,
    }
    let Mounts { mounts } = serde_json::from_slice(config).ok()?;
    mounts.into_iter().find_map(|mount| {
        let source = mount.source?;
        let directory = source
            .ancestors()
            .find(|at| at.file_name().is_some_and(|name| name == "userdata"))?;
        let id = directory.parent()?.file_name()?.to_str()?;
        let kind = directory.parent()?.parent()?.file_name()?.to_str()?;
        let is_id = id.len() == 64 && id.bytes().all(|byte| byte.is_ascii_hexdigit());
        (is_id && kind.ends_with("-containers")).then(|| id.to_owned())
    })
}

/// The file that the engine reads; `None` for standard error, which has the line already, and for a log that is not a
/// file (crun's `journald:` and `syslog:`).
fn log_file(arguments: &RuntimeArguments) -> Option<PathBuf> {
    let path = arguments.log.as_deref()?.as_bytes();
    let path = path.strip_prefix(b"file:").unwrap_or(path);
    let other = [&b"/dev/stderr"[..], b"/dev/stdout", b""].contains(&path)
        || [&b"journald:"[..], b"syslog:"]
            .iter()
            .any(|kind| path.starts_with(kind));
    (!other).then(|| PathBuf::from(OsStr::from_bytes(path)))
}

/// An entry in the form of runc's logger, which engines parse.
fn entry(text: &str, seconds: u64, is_json: bool) -> String {
    // 2026-11-21 02:30:00 UTC
    let time = utc(seconds).replacen(' ', "T", 1).replace(" UTC", "Z");
    match is_json {
        true => format!("{}\n", json!({"level": "error", "msg": text, "time": time})),
        false => format!("time=\"{time}\" level=error msg={text:?}\n"),
    }
}

fn append(path: &Path, entry: &str) -> std::io::Result<()> {
    let mut options = OpenOptions::new();
    options.append(true).create(true).mode(0o644);
    // An engine may read from a FIFO. Without a reader, nobody waits for the entry.
    options.custom_flags((OFlag::O_NONBLOCK | OFlag::O_NOCTTY).bits());
    options.open(path)?.write_all(entry.as_bytes())
}

fn now() -> u64 {
    // A clock before 1970 is not set.
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    now.as_secs()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_has_the_form_that_engines_parse() {
        let json: serde_json::Value = serde_json::from_str(&entry("a \"b\"", 0, true)).unwrap();
        assert_eq!(
            json,
            json!({"level": "error", "msg": "a \"b\"", "time": "1970-01-01T00:00:00Z"})
        );
        assert_eq!(
            entry("a \"b\"", 0, false),
            "time=\"1970-01-01T00:00:00Z\" level=error msg=\"a \\\"b\\\"\"\n"
        );
    }

    #[test]
    fn a_container_of_podman_is_known_by_its_own_files() {
        let id = "f11eb08cfaee85c6037309e58fdb8ee2beb713ad1b0f904b757615568a452b9b";
        let with = |source: String| {
            let mounts = [
                json!({"destination": "/proc", "source": "proc"}),
                json!({"source": source}),
            ];
            id_in(json!({"mounts": mounts}).to_string().as_bytes())
        };
        let store = "/var/lib/containers/storage/overlay-containers";
        assert_eq!(
            with(format!("{store}/{id}/userdata/.containerenv")).as_deref(),
            Some(id)
        );
        assert_eq!(with(format!("/srv/{id}/userdata/x")), None);
        assert_eq!(with(format!("{store}/short/userdata/x")), None);
        assert_eq!(id_in(b"{"), None);
    }

    #[test]
    fn a_log_that_is_not_a_file_is_left_alone() {
        let file = |log: &str| {
            let arguments = RuntimeArguments {
                log: Some(log.into()),
                ..RuntimeArguments::default()
            };
            log_file(&arguments)
        };
        assert_eq!(file("/l"), Some(PathBuf::from("/l")));
        assert_eq!(file("file:/l"), Some(PathBuf::from("/l")));
        for other in ["", "/dev/stderr", "journald:x", "syslog:x"] {
            assert_eq!(file(other), None, "{other}");
        }
    }
}
