//! The program of the runtime, as an engine must name it.

use anyhow::{Result, bail};
use std::path::Path;
use tranche_core::error::{Context, Error};
use tranche_inspect::engine_config::check::{find, is_program};
use tranche_plan::engines::Engine;

/// The name by which `tranche-oci` is called as a runtime. Engines can only name a program, so its name decides.
const OWN: &str = "tranche-runtime";

/// The name of NVIDIA's runtime.
const NVIDIA: &str = "nvidia-container-runtime";

/// Whether this program was called as `nvidia-ctk`, which has NVIDIA's defaults.
pub(super) fn is_called_as_nvidia() -> bool {
    let called = std::env::args_os().next().unwrap_or_default();
    Path::new(&called).file_name().is_some_and(|name| name == "nvidia-ctk")
}

/// The program that was given, or the default one.
///
/// # Errors
/// Returns an error if it is missing: with such a configuration no container of this runtime would start.
pub(super) fn path(given: Option<&Path>, engine: Engine, is_nvidia: bool) -> Result<String> {
    let (option, path) = match given {
        Some(path) => ("--runtime-path ", path.to_owned()),
        None if is_nvidia => ("", Path::new(NVIDIA).to_owned()),
        None => {
            let own = std::env::current_exe().about("tranche", "cannot be found")?;
            ("", own.with_file_name(OWN))
        }
    };
    let object = || format!("{option}{}", path.display());
    if path == Path::new(NVIDIA) {
        // NVIDIA's default has no directory. docker finds it in its PATH, which other engines do not search.
        let found = Some(Path::new("/usr/bin").join(&path)).filter(|path| is_program(path));
        let Some(found) = found.or_else(|| find(NVIDIA)) else {
            bail!(
                Error::failed(
                    object(),
                    "not found in PATH, and an engine must not be configured with a missing runtime"
                )
                .hint("install the links of NVIDIA's names (docs/how-to/engines.md), or give --runtime-path FILE")
            );
        };
        let found = if engine == Engine::Docker { path } else { found };
        return Ok(found.display().to_string());
    }
    if !path.is_absolute() {
        bail!(Error::usage(object(), "path is not absolute"));
    }
    let Some(text) = path.to_str() else {
        bail!(Error::usage(object(), "path is not valid UTF-8"));
    };
    if !is_program(&path) {
        bail!(
            Error::failed(
                object(),
                "is not an executable file, and an engine must not be configured with a missing runtime"
            )
            .hint("install tranche completely (make install), or give --runtime-path FILE")
        );
    }
    Ok(text.to_owned())
}
