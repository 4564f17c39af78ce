//! The program `tranche-verify` in a container: how it gets there, how it runs, and how it is removed.

use super::command::last_line;
use super::engine::{Container, ContainerEngine, PATIENCE};
use super::installed_program;
use super::report::{CudaReport, VERSION};
use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::time::Duration;
use tranche_core::error::{Error, Result};

/// The directory that the program is copied to: most images have it.
const DIRECTORY: &str = "/tmp";

/// The program in a container.
#[derive(Debug)]
pub(super) struct Copied<'a> {
    engine: &'a ContainerEngine,
    container: &'a Container,
    /// Its path there.
    path: String,
    /// How it came there, for people.
    pub(super) how: String,
    is_mounted: bool,
}

impl<'a> Copied<'a> {
    /// The program that a user has mounted at `path`.
    pub(super) fn mounted(engine: &'a ContainerEngine, container: &'a Container, path: &str) -> Self {
        Self {
            engine,
            container,
            path: path.to_owned(),
            how: format!("mounted at {path}"),
            is_mounted: true,
        }
    }

    /// Copies the program into the container with the engine's `cp`.
    ///
    /// # Errors
    /// Returns an error if the program is not found here, or cannot be copied there, or does not start there.
    pub(super) fn into(engine: &'a ContainerEngine, container: &'a Container, program: Option<&Path>) -> Result<Self> {
        let file = program.map_or_else(installed_program, |file| Ok(file.to_owned()))?;
        let copied = Self {
            engine,
            container,
            path: format!("{DIRECTORY}/tranche-verify-{}", std::process::id()),
            how: format!("copied to {DIRECTORY}"),
            is_mounted: false,
        };
        let failed = |why: String| {
            let what = format!("tranche-verify cannot be run there: {why}");
            Error::failed(format!("container {}", container.shown()), what).hint(
                "an image without glibc has no CUDA; otherwise mount tranche-verify into the container, and give --at PATH",
            )
        };
        let to = format!("{}:{}", container.id, copied.path);
        engine
            .succeed(&[OsStr::new("cp"), file.as_os_str(), to.as_ref()])
            .map_err(failed)?;
        // It does not start without the loader of glibc, or where `/tmp` is mounted with `noexec`.
        match engine.succeed(&["exec", &container.id, &copied.path, "--version"]) {
            Ok(_) => Ok(copied),
            Err(why) => Err(failed(match copied.remove() {
                Ok(()) => why,
                Err(left) => format!("{why}; {left}"),
            })),
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
        let ran = self.engine.run(&arguments, deadline + PATIENCE)?;
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

    /// Removes the program from the container. One that does not start is removed with a program of the image.
    ///
    /// # Errors
    /// Returns a line about what is left there.
    pub(super) fn remove(&self) -> Result<(), String> {
        if self.is_mounted {
            return Ok(());
        }
        let exec = ["exec", "--user=0", &self.container.id];
        let removed = self.engine.succeed(&[&exec[..], &[&self.path, "--remove"]].concat());
        match removed.or_else(|_| self.engine.succeed(&[&exec[..], &["rm", "-f", &self.path]].concat())) {
            Ok(_) => Ok(()),
            Err(why) => Err(format!("{} is left in the container: {why}", self.path)),
        }
    }
}
