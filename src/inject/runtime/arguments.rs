//! The command line of a low-level runtime: what runc 1.1 to 1.5 and crun up to 1.21 accept.
//!
//! Nothing is refused here. A word that is not known passes to the low-level runtime like every other, which may be
//! newer than tranche. Both runtimes read the options in front of a command up to the command. Behind it, runc reads
//! options anywhere among the other words, except for `exec`, whose last words are a program's (urfave/cli,
//! `reorderArgs`); crun refuses one behind the first other word.
//!
//! What is no complete start passes: a request for help, and a command without a container's id.

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
    Create(Start),
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
        id: String,
        /// The values of options that are not known.
        unknown: Vec<OsString>,
    },
    /// Every other command.
    #[default]
    Pass,
}

/// A `create` or `run` command.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Start {
    /// The directory of the bundle; `None` is the current one.
    pub bundle: Option<PathBuf>,
    /// crun's `--config`: a file that is used instead of `config.json`.
    pub config: Option<PathBuf>,
    /// The container's id.
    pub id: String,
    /// The values of options that are not known: one may name what is started.
    pub unknown: Vec<OsString>,
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
    ("help", "h", false),
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
    ("help", "h", false),
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
    ("help", "h", false),
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

const KILL: Flags = &[("all", "a", false), ("help", "h", false), ("regex", "r", false)];

const DELETE: Flags = &[("force", "f", false), ("help", "h", false), ("regex", "r", false)];

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

/// The words of a command: its options, wherever they are, and the others.
struct CommandWords<'w> {
    options: Vec<Given<'w>>,
    others: Vec<&'w OsStr>,
    unknown: Vec<OsString>,
}

impl<'w> CommandWords<'w> {
    /// Reads the words from the index `from` on, of a command that has at least so many words that are no options.
    fn read(words: &'w [OsString], from: usize, known: Flags, least: usize) -> Self {
        let read = |least| flags::read_anywhere(words, from, known, least);
        let mut found = read(least);
        if found.others.is_empty() {
            // Rather a start that is looked at than one without an id.
            found = read(usize::MAX);
        }
        Self {
            options: found.given,
            others: found.others,
            unknown: found.unknown.into_iter().map(OsStr::to_owned).collect(),
        }
    }

    fn is_for_help(&self) -> bool {
        self.options.iter().any(|given| given.name == "help")
    }

    /// The container's id; `None` if nothing is to be done for the command.
    fn id(&self) -> Option<String> {
        let id = self.others.first()?.to_str()?;
        (!self.is_for_help()).then(|| id.to_owned())
    }

    fn path(&self, name: &str) -> Option<PathBuf> {
        last(&self.options, name).map(PathBuf::from)
    }
}

fn create(words: &[OsString], from: usize) -> Action {
    let words = CommandWords::read(words, from, CREATE, 1);
    match words.id() {
        Some(id) => Action::Create(Start {
            bundle: words.path("bundle"),
            config: words.path("config"),
            id,
            unknown: words.unknown,
        }),
        None => Action::Pass,
    }
}

fn restore(words: &[OsString], from: usize) -> Action {
    let words = CommandWords::read(words, from, RESTORE, 1);
    match words.id() {
        Some(id) => Action::Restore {
            bundle: words.path("bundle"),
            id,
            unknown: words.unknown,
        },
        None => Action::Pass,
    }
}

fn exec(words: &[OsString], from: usize) -> Action {
    // An unknown option has a value, unless that would be the last word.
    let (given, at) = flags::read(words, from, EXEC, |next| next.len() > 1);
    let id = words.get(at).and_then(|id| id.to_str());
    let Some(id) = id.filter(|_| given.iter().all(|given| given.name != "help")) else {
        return Action::Pass;
    };
    let env = given.iter().filter(|given| given.name == "env");
    let env = env.filter_map(|given| Some((given.at, given.words, given.value?.to_owned())));
    Action::Exec(Exec {
        id: id.to_owned(),
        process: last(&given, "process").map(PathBuf::from),
        at: from,
        env: env.collect(),
    })
}

fn kill(words: &[OsString], from: usize) -> Action {
    let words = CommandWords::read(words, from, KILL, 2);
    let signal = words
        .others
        .get(1)
        .and_then(|signal| signal.to_str())
        .unwrap_or_default();
    let name = signal.to_ascii_uppercase();
    match (name.strip_prefix("SIG").unwrap_or(&name), words.id()) {
        ("KILL" | "9", Some(id)) => Action::End { id },
        _ => Action::Pass,
    }
}

fn delete(words: &[OsString], from: usize) -> Action {
    let words = CommandWords::read(words, from, DELETE, 1);
    let is_off = |value: &OsStr| matches!(value.as_bytes(), b"false" | b"0" | b"f" | b"F" | b"FALSE" | b"False");
    let mut options = words.options.iter().rev();
    let force = options.find(|given| given.name == "force");
    let is_forced = force.is_some_and(|force| !force.value.is_some_and(is_off));
    match words.id().filter(|_| is_forced) {
        Some(id) => Action::End { id },
        None => Action::Pass,
    }
}

#[cfg(test)]
mod tests;
