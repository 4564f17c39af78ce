//! The command line of a low-level runtime: what runc 1.1 to 1.5 and crun up to 1.21 accept.
//!
//! Nothing is refused here. A word that is not known passes to the low-level runtime like every other, which may be
//! newer than tranche. Both runtimes read the options in front of a command and behind it, and both end each group at
//! the first word that is not an option.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use super::flags::{self, Flags, Given};

/// What a command line asks of the low-level runtime, as far as tranche has a part in it.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct RuntimeArguments {
    /// `--root`: where the runtime keeps the states of its containers.
    pub root: Option<PathBuf>,
    /// `--log`: where the engine reads why a command failed.
    pub log: Option<OsString>,
    /// `--log-format json`.
    pub json_log: bool,
    /// `--version`.
    pub version: bool,
    /// The command, for messages.
    pub name: Option<String>,
    /// What the command does.
    pub action: Action,
}

/// The part of tranche in a command.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) enum Action {
    /// `create` and `run`: the container's configuration is edited.
    Create {
        /// The directory of the bundle; `None` is the current one.
        bundle: Option<PathBuf>,
        /// crun's `--config`: a file that is used instead of `config.json`.
        config: Option<PathBuf>,
        /// The container's id.
        id: Option<String>,
    },
    /// `exec`: the process gets the environment of the container's share.
    Exec(Exec),
    /// `kill` with KILL and `delete --force`: the container's processes end without notice.
    End {
        /// The container's id.
        id: String,
    },
    /// `restore`: the container must not have a device that needs a claim.
    Restore {
        /// The directory of the bundle; `None` is the current one.
        bundle: Option<PathBuf>,
        /// The container's id.
        id: Option<String>,
    },
    /// Every other command.
    #[default]
    Pass,
}

/// An `exec` command.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Exec {
    /// The container's id.
    pub id: String,
    /// The file with the process; `None`: it is in the arguments.
    pub process: Option<PathBuf>,
    /// The index of the first word after the command: options can be added there.
    pub at: usize,
    /// Where each `--env` option is among the arguments, as its first index and the number of its words, with its
    /// value.
    pub env: Vec<(usize, usize, OsString)>,
}

const GLOBAL: Flags = &[
    ("cgroup-manager", "", true),
    ("criu", "", true),
    ("debug", "", false),
    ("help", "h", false),
    ("log", "", true),
    ("log-format", "", true),
    ("log-level", "", true),
    ("root", "", true),
    ("rootless", "", true),
    ("systemd-cgroup", "", false),
    ("version", "vV", false),
];

/// Of `create` and `run`.
const CREATE: Flags = &[
    ("bundle", "b", true),
    ("config", "f", true),
    ("console-socket", "", true),
    ("detach", "d", false),
    ("keep", "", false),
    ("no-new-keyring", "", false),
    ("no-pivot", "", false),
    ("no-subreaper", "", false),
    ("pid-file", "", true),
    ("pidfd-socket", "", true),
    ("preserve-fds", "", true),
];

const RESTORE: Flags = &[
    ("auto-dedup", "", false),
    ("bundle", "b", true),
    ("console-socket", "", true),
    ("detach", "d", false),
    ("empty-ns", "", true),
    ("ext-unix-sk", "", false),
    ("file-locks", "", false),
    ("image-path", "", true),
    ("lazy-pages", "", false),
    ("lsm-mount-context", "", true),
    ("lsm-profile", "", true),
    ("manage-cgroups-mode", "", true),
    ("network-lock", "", true),
    ("no-pivot", "", false),
    ("no-subreaper", "", false),
    ("parent-path", "", true),
    ("pid-file", "", true),
    ("shell-job", "", false),
    ("tcp-close", "", false),
    ("tcp-established", "", false),
    ("work-path", "", true),
];

const EXEC: Flags = &[
    ("additional-gids", "g", true),
    ("apparmor", "", true),
    ("cap", "c", true),
    ("cgroup", "", true),
    ("console-socket", "", true),
    ("cwd", "", true),
    ("detach", "d", false),
    ("env", "e", true),
    ("ignore-paused", "", false),
    ("no-new-privs", "", false),
    ("no-subreaper", "", false),
    ("pid-file", "", true),
    ("pidfd-socket", "", true),
    ("preserve-fds", "", true),
    ("process", "p", true),
    ("process-label", "", true),
    ("tty", "t", false),
    ("user", "u", true),
];

const KILL: Flags = &[("all", "a", false), ("regex", "r", false)];

const DELETE: Flags = &[("force", "f", false), ("regex", "r", false)];

/// The commands of both runtimes. A word that follows an unknown option is a command if it is one of these, else the
/// option's value.
const COMMANDS: &[&str] = &[
    "checkpoint",
    "create",
    "delete",
    "events",
    "exec",
    "features",
    "help",
    "init",
    "kill",
    "list",
    "mounts",
    "pause",
    "ps",
    "restore",
    "resume",
    "run",
    "spec",
    "start",
    "state",
    "update",
];

impl RuntimeArguments {
    /// Reads the words after the program's name.
    pub(super) fn parse(words: &[OsString]) -> Self {
        let is_command = |word: &OsStr| COMMANDS.iter().any(|command| word == *command);
        let (options, at) = flags::read(words, 0, GLOBAL, |next| {
            !next.first().is_some_and(|next| is_command(next))
        });
        let value = |name: &str| last(&options, name).map(OsStr::to_owned);
        let name = words.get(at);
        RuntimeArguments {
            root: value("root").map(PathBuf::from),
            log: value("log"),
            json_log: value("log-format").is_some_and(|format| format == "json"),
            version: options.iter().any(|given| given.name == "version"),
            name: name.map(|name| name.to_string_lossy().into_owned()),
            action: match name.and_then(|name| name.to_str()) {
                Some("create" | "run") => create(words, at + 1),
                Some("restore") => restore(words, at + 1),
                Some("exec") => exec(words, at + 1),
                Some("kill") => kill(words, at + 1),
                Some("delete") => delete(words, at + 1),
                _ => Action::Pass,
            },
        }
    }
}

/// The last value that was given to an option, which is the one that counts.
fn last<'w>(options: &[Given<'w>], name: &str) -> Option<&'w OsStr> {
    let mut given = options.iter().rev().filter(|given| given.name == name);
    given.find_map(|given| given.value)
}

/// Reads the options of a command, and the index of its first word that is not one. An unknown option has a value,
/// unless that would be the last word: each command ends with a container's id, or with something behind it.
fn options<'w>(words: &'w [OsString], from: usize, known: Flags) -> (Vec<Given<'w>>, usize) {
    flags::read(words, from, known, |next| next.len() > 1)
}

fn id(words: &[OsString], at: usize) -> Option<String> {
    words.get(at)?.to_str().map(str::to_owned)
}

fn create(words: &[OsString], from: usize) -> Action {
    let (given, at) = options(words, from, CREATE);
    let path = |name: &str| last(&given, name).map(PathBuf::from);
    Action::Create {
        bundle: path("bundle"),
        config: path("config"),
        id: id(words, at),
    }
}

fn restore(words: &[OsString], from: usize) -> Action {
    let (given, at) = options(words, from, RESTORE);
    Action::Restore {
        bundle: last(&given, "bundle").map(PathBuf::from),
        id: id(words, at),
    }
}

fn exec(words: &[OsString], from: usize) -> Action {
    let (given, at) = options(words, from, EXEC);
    let Some(id) = id(words, at) else { return Action::Pass };
    let env = given.iter().filter(|given| given.name == "env");
    let env = env.filter_map(|given| Some((given.at, given.words, given.value?.to_owned())));
    Action::Exec(Exec {
        id,
        process: last(&given, "process").map(PathBuf::from),
        at: from,
        env: env.collect(),
    })
}

fn kill(words: &[OsString], from: usize) -> Action {
    let (_, at) = options(words, from, KILL);
    let signal = words.get(at + 1).and_then(|signal| signal.to_str()).unwrap_or_default();
    let name = signal.to_ascii_uppercase();
    match name.strip_prefix("SIG").unwrap_or(&name) {
        "KILL" | "9" => end(words, at),
        _ => Action::Pass,
    }
}

fn delete(words: &[OsString], from: usize) -> Action {
    let (given, at) = options(words, from, DELETE);
    let is_off = |value: &OsStr| matches!(value.as_bytes(), b"false" | b"0" | b"f" | b"F" | b"FALSE" | b"False");
    let force = given.iter().rev().find(|given| given.name == "force");
    match force {
        Some(force) if !force.value.is_some_and(is_off) => end(words, at),
        _ => Action::Pass,
    }
}

fn end(words: &[OsString], at: usize) -> Action {
    id(words, at).map_or(Action::Pass, |id| Action::End { id })
}

#[cfg(test)]
mod tests;
