//! Becomes the MPS daemon of a device: what `tranche mps run` does, in a unit of systemd or as a child of the broker.

use super::daemon::{MANY_USERS, OUTPUT};
use super::journal::Journals;
use std::convert::Infallible;
use std::fs::OpenOptions;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use tranche_core::driver_rights;
use tranche_core::error::{Context, Error, Result};
use tranche_core::execute::Program;

/// Executes the control program for the device whose journal is `instance` in `state_dir`. Its environment has the
/// device, its directories, and where the driver's programs and libraries are.
///
/// # Errors
/// Returns why the control program cannot be executed.
pub fn run_daemon(state_dir: &Path, instance: &str) -> Result<Infallible> {
    let nothing = || {
        let error = Error::failed(instance, "nothing of this device is changed, so it needs no MPS daemon");
        error.hint("tranche mps start DEVICE starts one")
    };
    let journal = Journals::open(state_dir)?.read(instance)?.ok_or_else(nothing)?;
    let target = &journal.target;
    let (Some(control), Some(uuid), Some(environment)) = (&target.control, &target.uuid, target.environment()) else {
        return Err(Error::failed(
            target.device,
            "its journal has no UUID or no control program",
        ));
    };
    let many_users = journal.changes.daemon.as_ref().ok_or_else(nothing)?.many_users;
    let directories = target.directories();
    // In a session of its own, what ends the broker, or its terminal, does not end the daemon.
    let mut command = Program::new(control);
    command.arg("-f").args(many_users.then_some(MANY_USERS));
    command.envs(environment.search());
    command.env("CUDA_VISIBLE_DEVICES", uuid);
    command.env("CUDA_MPS_PIPE_DIRECTORY", &directories.work);
    command.env("CUDA_MPS_LOG_DIRECTORY", &directories.log);
    // With -f, the daemon and its servers log to standard output alone.
    let output = directories.log.join(OUTPUT);
    let mut options = OpenOptions::new();
    let file = options.create(true).append(true).mode(0o600).open(&output);
    let file = file.about(output.display(), "cannot be written")?;
    file.set_len(0).about(output.display(), "cannot be emptied")?;
    command
        .stdout(file.try_clone().about(output.display(), "cannot be written")?)
        .stderr(file);
    // Its servers load CUDA.
    driver_rights::give_up().about(control.display(), "cannot be kept from making device nodes")?;
    Err(Error::failed(control.display(), "cannot be executed").from_source(command.replace_this_process()))
}
