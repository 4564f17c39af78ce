//! The hook of a specification: its program, and the parts of its work that it does.

use super::arguments::HookArgs;
use crate::call::NvidiaHook;
use crate::derive::HookOptions;
use crate::error::Error;
use crate::types::HostPath;
use anyhow::{Result, bail};
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// The hook that was asked for; `None` for a specification without one. `is_here` says whether the host is the machine
/// that runs this program.
///
/// # Errors
/// Returns an error for a program that is neither an absolute path nor a bare name, and for `--enable-hook all`, which
/// NVIDIA's generator refuses too.
pub(super) fn options(args: &HookArgs, is_here: bool) -> Result<Option<HookOptions>> {
    if args.no_hooks {
        return Ok(None);
    }
    if args.enable_hooks.iter().any(|name| name == "all") {
        bail!(Error::usage("--enable-hook all", "is not supported").hint("name the hooks one by one"));
    }
    let mut hook = match &args.hook_path {
        Some(given) => HookOptions::at(program(given, is_here)?),
        None => hook_beside_us().map_or_else(HookOptions::default, HookOptions::at),
    };
    if args.disable_hooks.iter().any(|name| name == "all") {
        hook.disabled.extend(NvidiaHook::WRITTEN);
    }
    let disabled = args.disable_hooks.iter().filter(|name| *name != "all");
    hook.disabled.extend(known("--disable-hook", disabled));
    for part in known("--enable-hook", args.enable_hooks.iter()) {
        hook.disabled.remove(&part);
    }
    hook.ldconfig.clone_from(&args.ldconfig_path);
    Ok(Some(hook))
}

/// Warns if an engine on this machine could not start the hook: then no container with a device of the specification
/// starts.
pub(in crate::cli::cdi) fn warn_if_missing(hook: &HookOptions) {
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

/// The parts with these names. An unknown name is a warning, as it is for NVIDIA's generator: it may be of a
/// newer version, and the same script must work with both.
fn known<'a>(option: &str, names: impl Iterator<Item = &'a String>) -> BTreeSet<NvidiaHook> {
    let mut parts = BTreeSet::new();
    for name in names {
        match NvidiaHook::written(name) {
            Ok(part) => {
                parts.insert(part);
            }
            Err(error) => tracing::warn!("{option}: {error}; ignored"),
        }
    }
    parts
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
pub(in crate::cli::cdi) fn program(given: &OsStr, is_here: bool) -> Result<HostPath> {
    let path = Path::new(given);
    if path.is_absolute() {
        return Ok(HostPath::new(path)?);
    }
    if path.file_name() != Some(given) {
        let what = "is neither an absolute path nor the bare name of a program";
        bail!(Error::usage(format!("--hook-path \"{}\"", given.display()), what));
    }
    let path = std::env::var_os("PATH").filter(|_| is_here).unwrap_or_default();
    let found = std::env::split_paths(&path)
        .filter(|dir| dir.is_absolute())
        .map(|dir| dir.join(given))
        .find(|path| is_program(path).unwrap_or(false));
    Ok(HostPath::new(
        found.unwrap_or_else(|| Path::new("/usr/bin").join(given)),
    )?)
}

/// The `tranche-oci` in the directory of this program, as in a build or an unpacked archive.
pub(in crate::cli) fn hook_beside_us() -> Option<HostPath> {
    let path = std::env::current_exe().ok()?.with_file_name("tranche-oci");
    path.is_file().then(|| HostPath::new(&path).ok()).flatten()
}
