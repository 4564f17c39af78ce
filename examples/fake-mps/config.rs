//! What the programs record, and how they fail: `fake-mps.json` in the nearest directory above the program. A process
//! reads it anew before each command, so that a test can change it while a daemon runs.
//!
//! ```json
//! {
//!   "record": "/tmp/x/record",
//!   "version": 550,
//!   "faults": {
//!     "start": "slow:500",
//!     "commands": {"quit": "hung", "get_server_list": "garbage"},
//!     "dies_after": 3,
//!     "stubborn": true,
//!     "policy": "refuse"
//!   }
//! }
//! ```
//!
//! `version` is the branch of the driver that the programs are of; without it, they are of the newest one that was
//! seen. The variable FAKE_MPS_VERSION wins.
//!
//! A fault is `hung` (the whole daemon never answers again), `refuse` (a line that is an error), `garbage` (bytes that
//! are not text), `endless`, `slow:MS`, or `dies` (the process ends at once, without an answer). `start` is what
//! happens before the daemon listens. `*` among `commands` means every command, and `front` one that the program which
//! takes the commands makes of every command itself. `server` is what a server does: `refuse` is that it ends at once.
//! With `stubborn`, the daemon ignores SIGTERM. After `dies_after` commands the daemon ends.

use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;
use tranche_core::mps::version::{VERSIONS, Version};

/// The name of the file.
const NAME: &str = "fake-mps.json";

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Config {
    /// Where each start and each command is appended, one JSON object a line.
    pub(crate) record: Option<PathBuf>,
    version: Option<u32>,
    #[serde(default)]
    pub(crate) faults: Faults,
    /// The directory of the file.
    #[serde(skip)]
    pub(crate) directory: PathBuf,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Faults {
    start: Option<String>,
    server: Option<String>,
    commands: BTreeMap<String, String>,
    pub(crate) dies_after: Option<usize>,
    pub(crate) stubborn: bool,
    pub(crate) policy: Option<String>,
}

/// What goes wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Fault {
    Hung,
    Refuse,
    Garbage,
    Endless,
    Dies,
}

impl Config {
    /// The configuration as it is now; the default if there is no file.
    pub(crate) fn read() -> Self {
        let program = std::env::current_exe().unwrap_or_default();
        let file = program
            .ancestors()
            .skip(1)
            .map(|above| above.join(NAME))
            .find(|file| file.is_file());
        let Some(file) = file else { return Self::default() };
        let text = std::fs::read(&file).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
        let mut config: Self = serde_json::from_slice(&text).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
        config.directory = file.parent().unwrap_or(&file).to_owned();
        config
    }

    /// The version that the programs are of.
    pub(crate) fn version(&self) -> &'static Version {
        let newest = VERSIONS[VERSIONS.len() - 1].major;
        let major = from_environment().or(self.version).unwrap_or(newest);
        Version::of_driver(major).unwrap_or_else(|| panic!("{NAME}: no version {major}"))
    }

    /// Whether a server ends at once.
    pub(crate) fn server_fails(&self) -> bool {
        self.faults.server.as_deref().and_then(fault).is_some()
    }

    /// Appends an event. The fields that every event has: the process, its user, and its environment.
    pub(crate) fn record(&self, event: &str, fields: Value) {
        let Some(record) = &self.record else { return };
        let environment: BTreeMap<String, String> = std::env::vars().collect();
        let mut line = json!({
            "event": event,
            "pid": std::process::id(),
            "uid": rustix::process::getuid().as_raw(),
            "environment": environment,
        });
        line.as_object_mut()
            .unwrap()
            .extend(fields.as_object().cloned().unwrap_or_default());
        let file = OpenOptions::new().append(true).create(true).open(record);
        let mut file = file.unwrap_or_else(|e| panic!("{}: {e}", record.display()));
        // One write, so that lines of several processes do not mix.
        file.write_all(format!("{line}\n").as_bytes()).unwrap();
    }

    /// What goes wrong at the start of the daemon.
    pub(crate) fn start_fault(&self) -> Option<Fault> {
        self.faults.start.as_deref().and_then(fault)
    }

    /// What goes wrong with a command.
    pub(crate) fn fault(&self, command: &str) -> Option<Fault> {
        let word = command.split_whitespace().next().unwrap_or_default();
        let commands = &self.faults.commands;
        commands
            .get(word)
            .or_else(|| commands.get("*"))
            .and_then(|text| fault(text))
    }

    /// What the program that takes the commands does instead of sending one.
    pub(crate) fn front_fault(&self) -> Option<Fault> {
        self.faults.commands.get("front").and_then(|text| fault(text))
    }

    pub(crate) fn policy_fault(&self) -> Option<Fault> {
        self.faults.policy.as_deref().and_then(fault)
    }
}

fn from_environment() -> Option<u32> {
    std::env::var("FAKE_MPS_VERSION").ok()?.parse().ok()
}

/// The fault of this name; waits for one that is only slow.
fn fault(text: &str) -> Option<Fault> {
    if let Some(time) = text.strip_prefix("slow:") {
        std::thread::sleep(Duration::from_millis(time.parse().expect("slow:MILLISECONDS")));
        return None;
    }
    Some(match text {
        "hung" => Fault::Hung,
        "refuse" => Fault::Refuse,
        "garbage" => Fault::Garbage,
        "endless" => Fault::Endless,
        "dies" => Fault::Dies,
        other => panic!("{NAME}: unknown fault {other}"),
    })
}

/// Never returns.
pub(crate) fn hang() -> ! {
    loop {
        std::thread::sleep(Duration::from_secs(3600));
    }
}
