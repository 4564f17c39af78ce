//! The program `tranche-verify` in a container: how it gets there, how it runs, and how it is removed.

use super::command::last_line;
use super::engine::{Container, ContainerEngine};
use super::installed_program;
use super::report::{CudaReport, VERSION};
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::time::Duration;
use tranche_core::error::{Error, Result};

/// Directories that the program is written to, in this order: most images have the first, and with a read-only root the
/// others may be writable.
const DIRECTORIES: [&str; 4] = ["/tmp", "/run", "/var/tmp", "/dev/shm"];

/// How long an engine may take to copy a file or to start a process.
const PATIENCE: Duration = Duration::from_secs(30);

/// The program in a container.
#[derive(Debug)]
pub(super) struct Copied<'a> {
    engine: &'a ContainerEngine,
    container: &'a Container,
    /// Its path there.
    path: String,
    /// How it came there, for people.
    pub(super) how: String,
    is_removed: bool,
}

impl<'a> Copied<'a> {
    /// The program that a user has mounted at `path`.
    pub(super) fn mounted(engine: &'a ContainerEngine, container: &'a Container, path: &str) -> Self {
        Self {
            engine,
            container,
            path: path.to_owned(),
            how: format!("mounted at {path}"),
            is_removed: true,
        }
    }

    /// Copies the program into the container: with the engine's `cp`, or if the engine refuses that, as it does for a
    /// read-only root, with a shell of the image.
    ///
    /// # Errors
    /// Returns an error if no way leads to a program that runs there.
    pub(super) fn into(engine: &'a ContainerEngine, container: &'a Container, program: Option<&Path>) -> Result<Self> {
        let file: PathBuf = match program {
            Some(file) => file.to_owned(),
            None => installed_program()?,
        };
        let mut reasons: Vec<String> = Vec::new();
        'directories: for directory in DIRECTORIES {
            let path = format!("{directory}/tranche-verify-{}", std::process::id());
            for way in [Way::Copy, Way::Shell] {
                let mut copied = Self {
                    engine,
                    container,
                    path: path.clone(),
                    how: format!("{} to {directory}", way.text()),
                    is_removed: true,
                };
                let why = match copied.write(&file, way) {
                    Err(why) => why,
                    Ok(()) => match copied.starts() {
                        Ok(()) => {
                            copied.is_removed = false;
                            return Ok(copied);
                        }
                        Err(why) => {
                            reasons.extend(copied.remove_by_image().err());
                            // A directory that is mounted with `noexec` denies it. For any other reason, such as an
                            // image without the loader of glibc, it starts nowhere.
                            if !why.to_lowercase().contains("permission denied") {
                                reasons.push(why);
                                break 'directories;
                            }
                            why
                        }
                    },
                };
                if !reasons.contains(&why) {
                    reasons.push(why);
                }
            }
        }
        Err(Error::failed(
            format!("container {}", container.shown()),
            format!("tranche-verify cannot be run there: {}", reasons.join("; ")),
        )
        .hint(
            "an image without glibc has no CUDA; otherwise mount tranche-verify into the container, and give --at PATH",
        ))
    }

    fn write(&self, file: &Path, way: Way) -> Result<(), String> {
        let ran = match way {
            Way::Copy => {
                let to = format!("{}:{}", self.container.id, self.path);
                let arguments = [OsStr::new("cp"), file.as_os_str(), to.as_ref()];
                self.engine.run(&arguments, None, PATIENCE)
            }
            Way::Shell => {
                let script = format!("cat > {0} && chmod 755 {0}", self.path);
                let arguments = ["exec", "-i", "--user=0", &self.container.id, "sh", "-c", &script];
                self.engine.run(&arguments, Some(file), PATIENCE)
            }
        };
        let ran = ran.map_err(|error| error.to_string())?;
        match ran.status.success() {
            true => Ok(()),
            false => Err(last_line(&ran)),
        }
    }

    /// Whether the program can be executed where it is: a directory may be mounted with `noexec`.
    fn starts(&self) -> Result<(), String> {
        let ran = self
            .engine
            .run(&["exec", &self.container.id, &self.path, "--version"], None, PATIENCE);
        let ran = ran.map_err(|error| error.to_string())?;
        match ran.status.success() && ran.stdout.starts_with(b"tranche-verify ") {
            true => Ok(()),
            false => Err(last_line(&ran)),
        }
    }

    /// Runs the program with these variables in addition to those that the engine sets. Returns what it reports.
    ///
    /// # Errors
    /// Returns an error if it cannot be run, or if it prints something else than a report.
    pub(super) fn ask(
        &self,
        environment: &[OsString],
        largest_allocation: bool,
        deadline: Duration,
    ) -> Result<CudaReport, Error> {
        let mut arguments: Vec<OsString> = vec!["exec".into()];
        for variable in environment {
            arguments.extend(["-e".into(), variable.clone()]);
        }
        arguments.extend([self.container.id.as_str(), &self.path, "--json"].map(OsString::from));
        let seconds = deadline.as_secs().max(1);
        arguments.extend(["--deadline".to_owned(), seconds.to_string()].map(OsString::from));
        arguments.extend(largest_allocation.then(|| "--largest-allocation".into()));
        let ran = self.engine.run(&arguments, None, deadline + PATIENCE)?;
        let about = |what: &str| Error::failed(format!("container {}", self.container.shown()), what);
        let report: CudaReport = serde_json::from_slice(&ran.stdout).map_err(|_| {
            about(&format!(
                "tranche-verify did not report ({}): {}",
                ran.status,
                last_line(&ran)
            ))
        })?;
        match report.version {
            VERSION => Ok(report),
            other => {
                let what = format!("tranche-verify reports in version {other}, and version {VERSION} is expected");
                Err(about(&what).hint("use the program that was installed with this tranche"))
            }
        }
    }

    /// Removes the program from the container.
    ///
    /// # Errors
    /// Returns a line about what is left there.
    pub(super) fn remove(mut self) -> Result<(), String> {
        self.try_remove()
    }

    /// Removes a program that does not start, and so cannot remove itself, with a program of the image.
    fn remove_by_image(&self) -> Result<(), String> {
        let arguments = ["exec", "--user=0", &self.container.id, "rm", "-f", &self.path];
        match self.engine.run(&arguments, None, PATIENCE) {
            Ok(ran) if ran.status.success() => Ok(()),
            _ => Err(format!("{} is left in the container", self.path)),
        }
    }

    fn try_remove(&mut self) -> Result<(), String> {
        if self.is_removed {
            return Ok(());
        }
        self.is_removed = true;
        let arguments = ["exec", "--user=0", &self.container.id, &self.path, "--remove"];
        match self.engine.run(&arguments, None, PATIENCE) {
            Ok(ran) if ran.status.success() => Ok(()),
            Ok(ran) => Err(format!("{} is left in the container: {}", self.path, last_line(&ran))),
            Err(error) => Err(format!("{} is left in the container: {error}", self.path)),
        }
    }
}

impl Drop for Copied<'_> {
    fn drop(&mut self) {
        // After another failure, which is reported.
        let _ = self.try_remove();
    }
}

/// A way into a container.
#[derive(Debug, Clone, Copy)]
enum Way {
    Copy,
    Shell,
}

impl Way {
    fn text(self) -> &'static str {
        match self {
            Way::Copy => "copied",
            Way::Shell => "written by a shell of the image",
        }
    }
}
