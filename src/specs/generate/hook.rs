//! The program of a specification's hook.

use std::ffi::OsStr;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use tranche_core::error::{Error, Result};
use tranche_core::types::HostPath;
use tranche_plan::derive::HookOptions;

/// Warns if an engine on this machine could not start the hook: then no container with a device of the specification
/// starts.
pub(crate) fn warn_if_missing(hook: &HookOptions) {
    let problem = match is_program(hook.path.as_path()) {
        Ok(true) => return,
        Ok(false) => "is not an executable file".to_owned(),
        Err(e) if e.kind() == io::ErrorKind::NotFound => "does not exist".to_owned(),
        Err(e) => format!("cannot be examined: {e}"),
    };
    tracing::warn!(
        "{}: {problem}, and no container with these devices starts without this hook; install it, or use --hook-path \
         FILE or --no-hooks",
        hook.path
    );
}

/// Whether `path` is a file that can be executed.
fn is_program(path: &Path) -> io::Result<bool> {
    let data = std::fs::metadata(path)?;
    Ok(data.is_file() && data.permissions().mode() & 0o111 != 0)
}

/// The program, as an engine must name it. A bare name is looked up in the caller's `PATH`, and is in `/usr/bin` where
/// it is not found there, as for NVIDIA's generator.
///
/// # Errors
/// Returns an error for a relative path with a directory.
pub fn program(given: &OsStr, is_here: bool) -> Result<HostPath> {
    let path = Path::new(given);
    if path.is_absolute() {
        return HostPath::new(path);
    }
    if path.file_name() != Some(given) {
        let what = "is neither an absolute path nor the bare name of a program";
        return Err(Error::usage(format!("--hook-path \"{}\"", given.display()), what));
    }
    let path = std::env::var_os("PATH").filter(|_| is_here).unwrap_or_default();
    let found = std::env::split_paths(&path)
        .filter(|dir| dir.is_absolute())
        .map(|dir| dir.join(given))
        .find(|path| is_program(path).unwrap_or(false));
    HostPath::new(found.unwrap_or_else(|| Path::new("/usr/bin").join(given)))
}
