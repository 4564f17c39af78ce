//! Becomes the MPS daemon of a device: what `tranche mps run` does, in a unit of systemd or as a child of the broker.

use super::daemon::{Directories, OUTPUT};
use super::journal::Journals;
use super::target::ControlTarget;
use std::convert::Infallible;
use std::fs::OpenOptions;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use tranche_core::error::{Context, Error, Result};
use tranche_core::execute::Program;

/// Executes the control program for the device whose journal is `instance` in `state_dir`. Its environment has the
/// device and its directories alone.
///
/// # Errors
/// Returns why the control program cannot be executed.
pub fn run_daemon(state_dir: &Path, instance: &str) -> Result<Infallible> {
    let nothing = || {
        let error = Error::failed(instance, "nothing of this device is changed, so it needs no MPS daemon");
        error.hint("tranche mps start DEVICE starts one")
    };
    let journal = Journals::open(state_dir)?.read(instance)?.ok_or_else(nothing)?;
    let ControlTarget {
        control: Some(control),
        uuid: Some(uuid),
        pipe,
        multi_user,
        ..
    } = &journal.target
    else {
        return Err(Error::failed(
            journal.target.device,
            "its journal has no UUID or no control program",
        ));
    };
    journal.changes.daemon.as_ref().ok_or_else(nothing)?;
    let log = Directories::of(pipe).log;
    // In a session of its own, what ends the broker, or its terminal, does not end the daemon.
    let mut command = Program::new(control);
    command.arg("-f").args(multi_user.then_some("-multiuser-server"));
    command.env("CUDA_VISIBLE_DEVICES", uuid);
    command.env("CUDA_MPS_PIPE_DIRECTORY", pipe);
    command.env("CUDA_MPS_LOG_DIRECTORY", &log);
    let output = log.join(OUTPUT);
    let mut options = OpenOptions::new();
    let file = options
        .create(true)
        .write(true)
        .truncate(true)
        .mode(0o600)
        .open(&output);
    let file = file.about(output.display(), "cannot be written")?;
    command
        .stdout(file.try_clone().about(output.display(), "cannot be written")?)
        .stderr(file);
    Err(Error::failed(control.display(), "cannot be executed").from_source(command.replace_this_process()))
}
