//! The engine that has a container, and what it says about the container.

use super::command;
use serde::Serialize;
use serde_json::Value;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tranche_core::error::{Error, Result};
use tranche_core::text::candidates;
use tranche_host::program::Ran;
use tranche_plan::engines::Engine;
use tranche_state::held::container_text;

/// How long an engine may take to answer, to copy a file or to start a process.
pub(super) const PATIENCE: Duration = Duration::from_secs(30);

/// An engine, by its command.
#[derive(Debug)]
pub(super) struct ContainerEngine {
    program: PathBuf,
}

/// A container that runs.
#[derive(Debug, Serialize)]
pub(super) struct Container {
    pub(super) id: String,
    pub(super) name: Option<String>,
    /// The command of its engine.
    pub(super) engine: String,
    /// Its init, as the engine sees it.
    pub(super) pid: u32,
    /// The configuration that the engine wrote for the runtime, if it says where that is.
    #[serde(skip)]
    pub(super) config: Option<PathBuf>,
}

impl Container {
    /// `train (262bf9f7e5a8)`.
    pub(super) fn shown(&self) -> String {
        container_text(&self.id, self.name.as_deref())
    }
}

impl ContainerEngine {
    /// The engine that has the container `name`, of all engines or of the one that is given.
    ///
    /// # Errors
    /// Returns an error if no engine has it or several have, and if it does not run.
    pub(super) fn with(name: &str, given: Option<&Path>) -> Result<(Self, Container)> {
        let object = format!("container {name}");
        if name.is_empty() || name.starts_with('-') {
            return Err(Error::usage(object, "not a name or id of a container"));
        }
        let programs: Vec<PathBuf> = match given {
            Some(program) => vec![program.to_owned()],
            None => commands()
                .map(PathBuf::from)
                .filter(|command| is_installed(command))
                .collect(),
        };
        if programs.is_empty() {
            return Err(Error::failed(object, "no engine found").hint(format!(
                "expected one of {}",
                candidates("", &commands().collect::<Vec<_>>())
            )));
        }
        let mut found = Vec::new();
        let mut reasons = Vec::new();
        for program in programs {
            let engine = Self { program };
            match engine.inspect(name) {
                Ok(container) => found.push((engine, container)),
                Err(why) => reasons.push(format!("{}: {why}", engine.program.display())),
            }
        }
        match <[_; 1]>::try_from(found) {
            Ok([(engine, container)]) => match container.pid {
                0 => Err(Error::failed(object, "does not run").hint("start it first")),
                _ => Ok((engine, container)),
            },
            Err(found) if found.is_empty() => Err(Error::failed(object, "not found").hint(reasons.join("; "))),
            Err(found) => {
                let engines: Vec<&str> = found.iter().map(|(_, container)| container.engine.as_str()).collect();
                Err(Error::usage(object, format!("exists in {}", engines.join(" and ")))
                    .hint("choose one with --engine"))
            }
        }
    }

    /// What the engine says about a container.
    ///
    /// # Errors
    /// Returns why it says nothing.
    fn inspect(&self, name: &str) -> Result<Container, String> {
        let ran = self.succeed(&["container", "inspect", name])?;
        let answer: Value = serde_json::from_slice(&ran.stdout).map_err(|error| error.to_string())?;
        let container = answer.get(0).unwrap_or(&Value::Null);
        let text = |field: &str| container.get(field).and_then(Value::as_str);
        // podman keeps the number of an init that has ended.
        let runs = container.pointer("/State/Running").and_then(Value::as_bool) == Some(true);
        let pid = container.pointer("/State/Pid").and_then(Value::as_u64).filter(|_| runs);
        Ok(Container {
            id: text("Id").ok_or("its answer has no id")?.to_owned(),
            name: text("Name").map(|name| name.trim_start_matches('/').to_owned()),
            engine: self.program.display().to_string(),
            pid: pid.and_then(|pid| u32::try_from(pid).ok()).unwrap_or(0),
            config: text("OCIConfigPath").filter(|path| !path.is_empty()).map(PathBuf::from),
        })
    }

    /// Runs a command of the engine.
    ///
    /// # Errors
    /// As [`command::run`].
    pub(super) fn run(&self, arguments: &[impl AsRef<OsStr>], deadline: Duration) -> Result<Ran, Error> {
        let arguments: Vec<&OsStr> = arguments.iter().map(AsRef::as_ref).collect();
        command::run(&self.program, &arguments, deadline)
    }

    /// Runs a command of the engine that must succeed.
    ///
    /// # Errors
    /// Returns why it did not.
    pub(super) fn succeed(&self, arguments: &[impl AsRef<OsStr>]) -> Result<Ran, String> {
        let ran = self.run(arguments, PATIENCE).map_err(|error| error.to_string())?;
        match ran.status.success() {
            true => Ok(ran),
            false => Err(command::last_line(&ran)),
        }
    }
}

/// The commands that are asked for a container.
fn commands() -> impl Iterator<Item = &'static str> {
    Engine::ALL.iter().flat_map(|engine| engine.facts().clients).copied()
}

/// Whether a program of this name is in a directory of `PATH`.
fn is_installed(program: &Path) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|directory| directory.is_absolute() && directory.join(program).is_file())
}
