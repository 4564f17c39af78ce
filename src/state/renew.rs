//! Specifications are written anew by `tranche cdi refresh`, for a program that has changed what they depend on.

use std::ffi::OsString;
use std::fs::File;
use std::path::Path;
use std::time::SystemTime;
use tranche_core::error::{Context, Error, Result};
use tranche_core::execute::Program;
use tranche_core::own_programs;
use tranche_plan::host_file::{HostFile, NAME};

/// Brings the specifications up to date, in the way in which they were written last. `first` are the arguments where no
/// refresh was made before.
///
/// # Errors
/// Returns an error if the refresh cannot be run, or what it said last.
pub fn specifications(state_dir: &Path, first: &[OsString]) -> Result<()> {
    let program = own_programs::find("tranche")?;
    let earlier = HostFile::load(state_dir).ok();
    let earlier = earlier.map(|host| host.arguments.into_iter().map(OsString::from).collect());
    let arguments: Vec<OsString> = earlier.unwrap_or_else(|| first.to_vec());
    let mut refresh = Program::new(program);
    refresh.args(["cdi", "refresh"]).args(arguments);
    let settings = std::env::vars_os().filter(|(name, _)| name.as_encoded_bytes().starts_with(b"TRANCHE_"));
    refresh.envs(settings);
    let output = refresh.output().about("tranche cdi refresh", "cannot be run")?;
    match output.status.success() {
        true => Ok(()),
        false => {
            let said = String::from_utf8_lossy(&output.stderr);
            let last = said.lines().last().unwrap_or("it failed").to_owned();
            Err(Error::failed("tranche cdi refresh", last))
        }
    }
}

/// As [`specifications`], for who has changed instances of MIG. A program that has planned with the earlier ones sees a
/// new `host.json`, also where it says the same again: what was made and destroyed since may never have been in it.
///
/// # Errors
/// As [`specifications`], and if the time of the file cannot be set.
pub fn after_change(state_dir: &Path, first: &[OsString]) -> Result<()> {
    specifications(state_dir, first)?;
    let path = state_dir.join(NAME);
    let renewed = File::open(&path).and_then(|file| file.set_modified(SystemTime::now()));
    renewed.about(path.display(), "cannot be given a new time")
}
