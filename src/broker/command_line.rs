//! The command line of the program `tranche-broker`. `tranche broker` reads what people type, and executes it with
//! these words: each option by its whole name, with its value behind `=`.

use crate::control::{Control, ControlOptions, run_daemon};
use crate::facts::HostNow;
use crate::serve::{ServeOptions, Socket, serve};
use lexopt::prelude::*;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;
use tracing::level_filters::LevelFilter;
use tranche_core::error::{Context, Error, Result};
use tranche_core::sys::terminal;
use tranche_core::types::{HostPath, PROGRAM_VERSION, WaitTime};
use tranche_state::accounts::AccountSources;
use tranche_state::held::root_only;
use tranche_state::log;
use tranche_state::planning::{PlanOptions, PolicyOptions, option};
use tranche_state::stop;

/// After how long a broker ends that a service manager starts again when it is needed.
const IDLE: Duration = Duration::from_secs(60);

/// What the broker is started with.
#[derive(Debug, Clone)]
pub struct BrokerOptions {
    /// The policy, the ledger and the host.
    pub at: PlanOptions,
    /// Where specifications of claims are written.
    pub spec_dir: PathBuf,
    /// After how long without a request it ends; zero: never; `None`: 60 seconds if systemd started it by its socket.
    pub idle: Option<WaitTime>,
    /// The level of its log.
    pub level: LevelFilter,
}

/// What the program is started for.
#[derive(Debug)]
pub enum BrokerCommand {
    /// To serve.
    Serve(Box<BrokerOptions>),
    /// To become the MPS daemon of this device: its name in the state directory.
    Daemon {
        /// The state directory.
        state_dir: PathBuf,
        /// The name.
        instance: String,
    },
}

impl BrokerOptions {
    /// The words that start the broker with these options.
    pub fn words(&self) -> Vec<OsString> {
        let mut words = Vec::new();
        let mut add = |name: &str, value: Option<&OsStr>| {
            words.extend(value.map(|value| option(name, value)));
        };
        let host = &self.at.host;
        let roots = &host.roots;
        add("config", self.at.policy.file.as_deref().map(OsStr::new));
        add("config-key", self.at.policy.key.as_deref().map(OsStr::new));
        add("state-dir", Some(self.at.state_dir.as_os_str()));
        add("spec-dir", Some(self.spec_dir.as_os_str()));
        for (name, root) in [
            ("root", &roots.root),
            ("driver-root", &roots.driver_root),
            ("dev-root", &roots.dev_root),
            ("proc-root", &roots.proc_root),
            ("sys-root", &roots.sys_root),
        ] {
            add(name, root.as_deref().map(OsStr::new));
        }
        add("inventory", host.inventory.as_deref().map(OsStr::new));
        let look = &host.discovery;
        for (name, directories) in [
            ("library-search-path", &look.library_search_paths),
            ("program-search-path", &look.program_search_paths),
            ("config-search-path", &look.config_search_paths),
            ("more-program-dir", &look.more_program_dirs),
            ("more-config-dir", &look.more_config_dirs),
        ] {
            for directory in directories {
                add(name, Some(directory.as_path().as_os_str()));
            }
        }
        add(
            "nvml-deadline",
            Some(OsStr::new(&look.deadline.as_secs_f64().to_string())),
        );
        add(
            "idle",
            self.idle.map(|idle| idle.to_string()).as_deref().map(OsStr::new),
        );
        add("log", Some(OsStr::new(&self.level.to_string())));
        for (name, is_set) in [("compat32", look.compat32), ("no-nvml", !look.nvml)] {
            words.extend(is_set.then(|| format!("--{name}").into()));
        }
        words
    }
}

impl BrokerCommand {
    /// Reads the words behind the program's name.
    ///
    /// # Errors
    /// Returns an error that names the word that is wrong.
    pub fn parse(words: impl IntoIterator<Item = OsString>) -> Result<Self> {
        let mut at = PlanOptions::default();
        at.host.discovery.waiting = |waiting| {
            if let Some(waiting) = waiting.filter(|waiting| waiting.is_first) {
                tracing::warn!("{waiting}");
            }
        };
        let mut options = BrokerOptions {
            at,
            spec_dir: "/var/run/cdi".into(),
            idle: None,
            level: LevelFilter::WARN,
        };
        let (mut file, mut key) = (None, None);
        let mut plain = Vec::new();
        let mut parser = lexopt::Parser::from_args(words);
        while let Some(argument) = parser.next().map_err(wrong)? {
            let look = &mut options.at.host.discovery;
            let roots = &mut options.at.host.roots;
            match argument {
                Long("config") => file = Some(PathBuf::from(value(&mut parser)?)),
                Long("config-key") => key = Some(text(&mut parser)?),
                Long("state-dir") => options.at.state_dir = value(&mut parser)?.into(),
                Long("spec-dir") => options.spec_dir = value(&mut parser)?.into(),
                Long("root") => roots.root = Some(value(&mut parser)?.into()),
                Long("driver-root") => roots.driver_root = Some(value(&mut parser)?.into()),
                Long("dev-root") => roots.dev_root = Some(value(&mut parser)?.into()),
                Long("proc-root") => roots.proc_root = Some(value(&mut parser)?.into()),
                Long("sys-root") => roots.sys_root = Some(value(&mut parser)?.into()),
                Long("inventory") => options.at.host.inventory = Some(text(&mut parser)?),
                Long("library-search-path") => look.library_search_paths.push(directory(&mut parser)?),
                Long("program-search-path") => look.program_search_paths.push(directory(&mut parser)?),
                Long("config-search-path") => look.config_search_paths.push(directory(&mut parser)?),
                Long("more-program-dir") => look.more_program_dirs.push(directory(&mut parser)?),
                Long("more-config-dir") => look.more_config_dirs.push(directory(&mut parser)?),
                Long("nvml-deadline") => look.deadline = seconds(&text(&mut parser)?)?,
                Long("idle") => options.idle = Some(text(&mut parser)?.parse()?),
                Long("log") => options.level = level(&text(&mut parser)?)?,
                Long("compat32") => look.compat32 = true,
                Long("no-nvml") => look.nvml = false,
                Value(word) => plain.push(word.string().map_err(wrong)?),
                other => return Err(wrong(other.unexpected())),
            }
        }
        let plain: Vec<&str> = plain.iter().map(String::as_str).collect();
        match plain[..] {
            [] => {
                options.at.policy = PolicyOptions::of(file, key, &options.at.state_dir);
                Ok(Self::Serve(Box::new(options)))
            }
            ["mps", "run", instance] => Ok(Self::Daemon {
                state_dir: options.at.state_dir,
                instance: instance.to_owned(),
            }),
            [first, ..] => Err(Error::usage(first, "not a command of tranche-broker")),
        }
    }

    /// Does it, until it is ended.
    ///
    /// # Errors
    /// Returns why it cannot be done.
    pub fn run(self) -> Result<ExitCode> {
        match self {
            Self::Serve(options) => {
                log::start(options.level);
                options.serve()
            }
            Self::Daemon { state_dir, instance } => {
                match run_daemon(HostPath::absolute(&state_dir)?.as_path(), &instance)? {}
            }
        }
    }
}

impl BrokerOptions {
    fn serve(self) -> Result<ExitCode> {
        let state_dir = HostPath::absolute(&self.at.state_dir)?;
        let state_dir = state_dir.as_path();
        root_only::check(state_dir)?;
        leave_terminal()?;
        let stop = stop::signals("broker")?;
        let socket = Socket::open(state_dir)?;
        let idle = match self.idle.map(WaitTime::get) {
            Some(Duration::ZERO) => None,
            None => socket.is_given().then_some(IDLE),
            idle => idle,
        };
        let options = ServeOptions {
            state_dir: state_dir.to_owned(),
            policy: self.at.policy.clone(),
            spec_dir: std::path::absolute(&self.spec_dir).about(self.spec_dir.display(), "is not valid")?,
            host: self.at.host.clone(),
            refresh: self.at.arguments(),
            accounts: AccountSources::default(),
            idle,
        };
        let host = Arc::new(HostNow::new(self.at.clone()));
        // With what an earlier broker changed. Only the owner of the socket may use it.
        let control = Control::open(ControlOptions::of(&self.at)?, host.clone())?;
        serve(&socket, &options, &control, &*host, stop.as_fd())?;
        Ok(ExitCode::SUCCESS)
    }
}

/// Gives up the controlling terminal, and reads nothing of what is typed there. The broker keeps its number, parent and
/// process group, so that Ctrl-C, the jobs of a shell and a service manager work as before.
fn leave_terminal() -> Result<()> {
    terminal::leave().about("broker", "cannot give up its terminal")?;
    let nothing = File::open("/dev/null").about("/dev/null", "cannot be opened")?;
    nix::unistd::dup2_stdin(nothing).about("broker", "cannot close its standard input")
}

fn value(parser: &mut lexopt::Parser) -> Result<OsString> {
    parser.value().map_err(wrong)
}

fn text(parser: &mut lexopt::Parser) -> Result<String> {
    value(parser)?.string().map_err(wrong)
}

fn directory(parser: &mut lexopt::Parser) -> Result<HostPath> {
    HostPath::new(value(parser)?)
}

fn seconds(text: &str) -> Result<Duration> {
    let seconds: Option<f64> = text.parse().ok();
    seconds
        .and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
        .ok_or_else(|| Error::usage(format!("--nvml-deadline={text}"), "not a number of seconds"))
}

fn level(text: &str) -> Result<LevelFilter> {
    text.parse().map_err(|_| {
        Error::usage(
            format!("--log={text}"),
            "not a level: off, error, warn, info, debug or trace",
        )
    })
}

fn wrong(error: lexopt::Error) -> Error {
    Error::usage("command line", error.to_string()).hint("tranche broker starts it, and has help")
}

/// The line that `--version` prints.
pub fn version() -> String {
    format!("tranche-broker {PROGRAM_VERSION}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let words = [
            "--config=/c.yaml",
            "--config-key=k",
            "--state-dir=s d",
            "--spec-dir=/cdi",
            "--root=/r",
            "--driver-root=/d",
            "--dev-root=/v",
            "--proc-root=/p",
            "--sys-root=/y",
            "--inventory=sim:t4x2",
            "--library-search-path=/a",
            "--library-search-path=/b",
            "--config-search-path=/e",
            "--more-program-dir=/f",
            "--more-config-dir=/g",
            "--nvml-deadline=0.25",
            "--idle=1m30s",
            "--log=info",
            "--compat32",
            "--no-nvml",
        ];
        let BrokerCommand::Serve(options) = BrokerCommand::parse(words.map(OsString::from)).unwrap() else {
            panic!("it does not serve");
        };
        assert_eq!(options.words(), words);
        let BrokerCommand::Serve(usual) = BrokerCommand::parse([]).unwrap() else {
            panic!("it does not serve");
        };
        let again = BrokerCommand::parse(usual.words()).unwrap();
        assert!(matches!(again, BrokerCommand::Serve(again) if again.words() == usual.words()));
    }

    #[test]
    fn what_it_does_not_know_is_an_error() {
        for word in [
            "--unknown",
            "--idle=x",
            "--nvml-deadline=-1",
            "--log=loud",
            "serve",
            "--library-search-path=a",
        ] {
            assert!(BrokerCommand::parse([word.into()]).is_err(), "{word}");
        }
        let daemon = BrokerCommand::parse(["mps", "run", "0-1", "--state-dir=/s"].map(OsString::from)).unwrap();
        assert!(matches!(daemon, BrokerCommand::Daemon { instance, .. } if instance == "0-1"));
    }
}
