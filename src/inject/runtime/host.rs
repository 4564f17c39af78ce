//! What the runtime knows of the host: `host.json`, which `tranche cdi refresh` writes.

use std::fs::File;
use std::io::{self, Read, Seek};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use nix::unistd::geteuid;
use rustix::fs::{MemfdFlags, memfd_create};
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::report::RuntimeReport;
use tranche_core::bounded;
use tranche_core::error::{Context, Error, Result};
use tranche_core::execute::Program;
use tranche_core::ledger::STATE_DIR;
use tranche_core::root::is_in_user_namespace;
use tranche_core::sealed::{self, SealedError};
use tranche_plan::host_file::{self, HostFile, NAME};
use tranche_plan::policy::{AcceptAnnotations, RuntimeSettings};

/// How long a refresh may take. NVML takes seconds to start GPUs without persistence mode.
const PATIENCE: Duration = Duration::from_secs(30);

/// What the owner decided about the runtime, from one reading of the first line of `host.json`: the rest of the file is
/// not read and may have any form.
#[derive(Debug)]
pub(super) struct OwnerSettings {
    /// `None` if the file does not exist.
    read: Result<Option<RuntimeSettings>>,
    runtimes: Vec<String>,
}

impl OwnerSettings {
    /// Reads them from the file in `state_dir`.
    pub(super) fn read(state_dir: &Path) -> Self {
        #[derive(Deserialize)]
        struct RuntimeNames {
            runtimes: Vec<String>,
        }
        let path = state_dir.join(NAME);
        let bytes = head(&path).about(path.display(), "cannot be used");
        let mut runtimes = None;
        let read = bytes.and_then(|bytes| {
            let Some(bytes) = bytes else { return Ok(None) };
            // Settings of another version may not parse, and their names still do.
            let settings = part::<RuntimeSettings>(&bytes);
            runtimes = match &settings {
                Ok(settings) => Some(settings.runtimes.clone()),
                Err(_) => part(&bytes).ok().map(|names: RuntimeNames| names.runtimes),
            };
            settings.map(Some).about(path.display(), "cannot be used")
        });
        Self {
            read,
            runtimes: runtimes.unwrap_or_else(|| RuntimeSettings::default().runtimes),
        }
    }

    /// The names of the low-level runtimes, which every command needs. Without a usable `host.json`, they are the
    /// defaults: a container must be stopped and removed whatever happened to that file.
    pub(super) fn runtimes(&self) -> &[String] {
        &self.runtimes
    }

    /// All of them, as [`OwnerSettings::or_default`]; but while the owner's decisions are not known, every sort of
    /// annotation and mount may ask. A container that asks needs the decisions, and they are read then:
    /// [`crate::rewrite()`] looks at its configuration again with those of [`host`].
    pub(super) fn or_provisional(self, report: &RuntimeReport<'_>) -> RuntimeSettings {
        let is_known = matches!(self.read, Ok(Some(_)));
        let settings = self.or_default(report);
        match is_known {
            true => settings,
            false => RuntimeSettings {
                accept_annotations: Some(AcceptAnnotations::Always),
                accept_volume_mounts: true,
                ..settings
            },
        }
    }

    /// All of them; the defaults if `host.json` does not exist, or if it does not have them, which is reported. A
    /// container that requests nothing must start in any case, and one that requests something needs [`host`].
    pub(super) fn or_default(self, report: &RuntimeReport<'_>) -> RuntimeSettings {
        match self.read {
            Ok(settings) => settings.unwrap_or_default(),
            Err(error) => {
                report.remark(&error.hint("run tranche cdi refresh"));
                RuntimeSettings::default()
            }
        }
    }
}

/// The first line of the `host.json` at `path` ([`host_file::head`]); `None` if it does not exist.
fn head(path: &Path) -> io::Result<Option<Vec<u8>>> {
    // Every command of the runtime comes here: none may wait for the other end of a FIFO.
    let file = match bounded::regular_file(path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        opened => opened?,
    };
    let status = file.metadata()?;
    // It names a program that is executed.
    if !is_trusted(status.uid()) || status.mode() & 0o022 != 0 {
        return Err(io::Error::new(
            io::ErrorKind::PermissionDenied,
            "another user could have written it",
        ));
    }
    host_file::head(file).map(Some)
}

/// The settings in the first line of `host.json`, or a part of them.
fn part<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, SealedError> {
    #[derive(Deserialize)]
    struct Part<T> {
        runtime: T,
    }
    sealed::parse(bytes).map(|part: Part<T>| part.runtime)
}

/// Whether this user is root or the user of this process. A rootless engine runs in a user namespace, in which every
/// user of the host but its own has the number of the kernel for unknown users. There, only root can have made
/// `/run/tranche`.
fn is_trusted(uid: u32) -> bool {
    const UNKNOWN: u32 = 65534; // /proc/sys/kernel/overflowuid
    uid == 0 || uid == geteuid().as_raw() || (uid == UNKNOWN && is_in_user_namespace())
}

/// What the host has and what the policy makes of it. A file that is missing or out of date is written anew, once,
/// unless this is the runtime of a rootless engine.
///
/// # Errors
/// Returns why the file cannot be used, and why it could not be written anew.
pub(super) fn host(state_dir: &Path) -> Result<HostFile> {
    let error = match HostFile::read(state_dir) {
        Ok(host) => return Ok(host),
        Err(error) => error,
    };
    let refreshed = match error.repaired_by() {
        // Only root of the machine may write it, and the error names the command.
        _ if is_in_user_namespace() => Ok(()),
        Some(arguments) => refresh(state_dir, arguments),
        None => Ok(()),
    };
    HostFile::read(state_dir).map_err(|error| match refreshed {
        Err(why) => why,
        Ok(()) => Error::failed("host", "is not known").from_source(error),
    })
}

/// Writes `host.json` anew with the `arguments` that it records, unless this is the runtime of a rootless engine.
///
/// # Errors
/// Returns why it could not be written.
pub(super) fn refresh_once(state_dir: &Path, arguments: &[String]) -> Result<()> {
    match is_in_user_namespace() {
        true => Ok(()),
        false => refresh(state_dir, arguments),
    }
}

/// Runs `tranche cdi refresh` beside this program, without an environment, and waits for its end.
fn refresh(state_dir: &Path, arguments: &[String]) -> Result<()> {
    let path = std::env::current_exe()
        .about("tranche", "cannot be found")?
        .with_file_name("tranche");
    let mut command = Program::new(&path);
    command.ends_with_caller().args(["cdi", "refresh"]).args(arguments);
    if state_dir != Path::new(STATE_DIR) && arguments.is_empty() {
        command.arg("--state-dir").arg(state_dir);
    }
    let object = format!("{} cdi refresh", path.display());
    // A file and not a pipe: nobody has to read while it is written, and no process that is left behind can be waited
    // for.
    let said = memfd_create("said", MemfdFlags::CLOEXEC).about(&object, "cannot be run")?;
    let stderr = said.try_clone().about(&object, "cannot be run")?;
    command.stderr(stderr);
    let mut child = command.spawn().about(&object, "cannot be run")?;
    let until = Instant::now() + PATIENCE;
    let status = loop {
        match child.try_wait().about(&object, "cannot be waited for")? {
            Some(status) => break status,
            None if Instant::now() < until => thread::sleep(Duration::from_millis(2)),
            None => {
                let _ = child.kill();
                let _ = child.wait();
                let what = format!("did not end within {} seconds", PATIENCE.as_secs());
                return Err(Error::failed(object, what).hint("run it by hand to see why"));
            }
        }
    };
    if status.success() {
        return Ok(());
    }
    let mut text = String::new();
    let mut said = File::from(said);
    let read = said.rewind().and_then(|()| said.take(4096).read_to_string(&mut text));
    let last = read.ok().and_then(|_| text.lines().next_back()).unwrap_or_default();
    let last = last.strip_prefix("tranche: ").unwrap_or(last).to_owned();
    Err(
        Error::failed(object, format!("failed ({status})")).hint(match last.is_empty() {
            true => "run it by hand to see why".to_owned(),
            false => last,
        }),
    )
}
