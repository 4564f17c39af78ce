//! The runtime: a program in place of runc or crun, which edits a container's configuration and then executes the
//! low-level runtime. podman's precreate hook is here too, because it does the same to the same file.
//!
//! Engines call the runtime as they call runc. For each command, this process becomes the low-level runtime by
//! `execve`, with the same arguments, environment, directory, descriptors, signals and limits. Before that,
//!
//! | command | what is done |
//! |---|---|
//! | `create`, `run` | if the container requests a GPU, `config.json` is edited ([`crate`]) |
//! | `restore` | if the container has a device that needs a claim, it is refused |
//! | `exec` | if the container holds a share, the process gets the share's environment |
//! | `kill` with KILL, `delete --force` | if the container holds a share by MPS, its clients are drained |
//! | every other command | nothing |
//!
//! A command of the last two rows needs neither a valid ledger nor `host.json`, and never fails because of tranche,
//! except if no low-level runtime is installed.

mod arguments;
mod container;
mod edit;
mod end_clients;
mod flags;
mod host;
mod low_level;
mod nvidia_hook;
mod precreate;
mod process;
mod report;
mod unknown;
mod user_namespace;

use std::convert::Infallible;
use std::ffi::OsString;
use std::io::{Write, stdout};
use std::path::{Path, PathBuf};

use crate::{CallingEngine, RewriteContext};
use arguments::{Action, Exec, RuntimeArguments, Start};
use container::HoldingContainer;
use edit::EditedFile;
use host::OwnerSettings;
use low_level::LowLevel;
use process::ShareEnvironment;
use report::RuntimeReport;
use tranche_core::broker::SOCKET;
use tranche_core::error::{Context, Error, Result};
use tranche_core::ledger::ContainerName;
use tranche_core::personality::{RuntimePersonality, nvidia_runtime_version};
use tranche_plan::host_file::{HostFile, HostFileError};
use tranche_plan::policy::RuntimeMode;

/// Runs `tranche-runtime` with these arguments, of which the first is the name that it was called by. Returns the exit
/// code; as a runtime, only if the command failed before the low-level runtime was executed. `lines` is the standard
/// error, which gets one line for each failure and each remark.
///
/// The very first argument may be `--state-dir` with the directory of the ledger and of `host.json`. No low-level
/// runtime has an option of that name.
pub fn run(arguments: impl IntoIterator<Item = OsString>, lines: &mut dyn Write) -> u8 {
    match RuntimePersonality::of(arguments) {
        RuntimePersonality::NvidiaVersion(words) => {
            // A reader that closed the pipe does not want the version.
            let _ = stdout().write_all(nvidia_runtime_version().as_bytes());
            execute(words, None, lines)
        }
        RuntimePersonality::Runtime(words) => execute(words, None, lines),
        RuntimePersonality::Cdi(words) => execute(words, Some(RuntimeMode::Cdi), lines),
        RuntimePersonality::Legacy(words) => execute(words, Some(RuntimeMode::Legacy), lines),
        RuntimePersonality::Precreate(words) => precreate::run(words, lines),
        RuntimePersonality::NvidiaHook(words) => nvidia_hook::run(words, lines),
    }
}

fn execute(words: Vec<OsString>, mode: Option<RuntimeMode>, lines: &mut dyn Write) -> u8 {
    let (state_dir, words) = state_dir(words);
    let arguments = RuntimeArguments::parse(&words);
    let report = RuntimeReport::new(&arguments, &state_dir, lines);
    let command = RuntimeCommand {
        arguments: &arguments,
        state_dir: &state_dir,
        mode,
        report: &report,
    };
    let Err(error) = command.execute(words);
    report.failure(&error);
    error.kind().exit_code()
}

/// The program that the runtime of tranche executes: the first of `names` that is installed and is not `own`, which is
/// the program of the runtime.
///
/// # Errors
/// Returns what a start of a container ends with if no such program is installed.
pub fn low_level(names: &[String], own: &Path) -> Result<PathBuf> {
    LowLevel::find_beside(names, own).map(|found| found.path)
}

/// Takes `--state-dir DIR` from the beginning of the arguments.
fn state_dir(mut arguments: Vec<OsString>) -> (PathBuf, Vec<OsString>) {
    let is_given = arguments.len() > 1 && arguments.first().is_some_and(|word| word == "--state-dir");
    match is_given {
        true => {
            let rest = arguments.split_off(2);
            (arguments.pop().unwrap_or_default().into(), rest)
        }
        false => (PathBuf::from(tranche_core::ledger::STATE_DIR), arguments),
    }
}

/// A command of an engine, until the low-level runtime takes it over.
struct RuntimeCommand<'a> {
    arguments: &'a RuntimeArguments,
    state_dir: &'a Path,
    /// The mode that the name of this program demands.
    mode: Option<RuntimeMode>,
    report: &'a RuntimeReport<'a>,
}

impl RuntimeCommand<'_> {
    fn execute(&self, mut words: Vec<OsString>) -> Result<Infallible> {
        let settings = OwnerSettings::read(self.state_dir);
        let low_level = LowLevel::find(settings.runtimes())?;
        match &self.arguments.action {
            Action::Create(start) => self.create(settings, start, &low_level)?,
            Action::Restore { bundle, unknown, .. } => {
                self.restore(bundle.as_deref().unwrap_or(Path::new(".")))?;
                // What an option means that is not known may be restored instead.
                unknown::bundles(unknown).try_for_each(|bundle| self.restore(bundle))?
            }
            Action::Exec(exec) => self.exec(exec, &low_level, &mut words)?,
            Action::End { id } => self.end(id, &low_level),
            Action::Pass if self.arguments.version => self.report.version(),
            Action::Pass => {}
        }
        Err(low_level.execute(&words))
    }

    fn create(&self, settings: OwnerSettings, start: &Start, low_level: &LowLevel) -> Result<()> {
        let file = EditedFile::config(start.bundle.as_deref(), start.config.as_deref())?;
        let bundle = start.bundle.as_deref().unwrap_or(Path::new("."));
        let caller = CallingEngine::of(self.arguments.root.as_deref(), bundle, &start.id);
        let mut settings = settings.or_provisional(self.report);
        settings.mode = self.mode.unwrap_or(settings.mode);
        unknown::refuse_requests(&start.unknown, &file, &settings, caller)?;
        let context = RewriteContext {
            settings: &settings,
            state_dir: self.state_dir,
            host: &|| host::host(self.state_dir),
            caller,
            container: Some(ContainerName::at(bundle, &start.id)?),
            // This process becomes the low-level runtime, and lives until the container is created.
            process: Some(std::process::id()),
            refresh: &|arguments| host::refresh_once(self.state_dir, arguments),
            remark: &|remark| self.report.remark(&remark),
        };
        file.edit(|bytes| {
            let new = crate::rewrite(bytes, &context)?;
            let config = new.as_deref().unwrap_or(bytes);
            if let Some(why) = user_namespace::starts_no_hook(config, bundle, &low_level.path) {
                self.report.remark(&why);
            }
            Ok(new)
        })
        .map(drop)
    }

    /// Without `host.json` there is no plan, so that no device needs a claim.
    fn restore(&self, bundle: &Path) -> Result<()> {
        let host = match HostFile::load(self.state_dir) {
            Err(HostFileError::Missing { .. }) => return Ok(()),
            loaded => loaded.about("host", "is not known")?,
        };
        let config = EditedFile::config(Some(bundle), None)?.read()?;
        crate::refuse_restored_devices(&config, bundle, self.state_dir, &host)
    }

    fn exec(&self, exec: &Exec, low_level: &LowLevel, words: &mut Vec<OsString>) -> Result<()> {
        let Some(container) = self.container(&exec.id, low_level)? else {
            return Ok(());
        };
        let Some(share) = ShareEnvironment::of(Path::new(&container.name.bundle))? else {
            return Ok(());
        };
        match &exec.process {
            Some(path) => EditedFile::at(path)?
                .edit(|bytes| share.put_into(bytes).map(Some))
                .map(drop),
            None => {
                share.put_into_arguments(exec, words);
                Ok(())
            }
        }
    }

    fn end(&self, id: &str, low_level: &LowLevel) {
        if !self.state_dir.join(SOCKET).exists() {
            return;
        }
        let drained = match self.container(id, low_level) {
            Ok(Some(container)) => end_clients::end_clients(&container, self.state_dir),
            Ok(None) => Ok(()),
            Err(error) => Err(error),
        };
        if let Err(error) = drained {
            self.report.remark(&error);
        }
    }

    fn container(&self, id: &str, low_level: &LowLevel) -> Result<Option<HoldingContainer>> {
        let found = container::find(id, self.arguments.root.as_deref(), &low_level.path, self.state_dir);
        found.map_err(Error::from)
    }
}
