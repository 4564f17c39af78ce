//! The hooks of NVIDIA's `nvidia-cdi-hook` (1.18 to 1.20) with the same names and arguments, so that a specification of
//! NVIDIA's generator runs with tranche-oci.
//!
//! The table of verbs and options is in `hooks/README.md`.
//!
//! Each hook also takes `--container-spec FILE`, which has the state instead of standard input, and tranche's own
//! `--state-dir DIR`, in which messages are kept for `tranche status`.

use std::ffi::OsString;
use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::str::FromStr;

use super::cuda_compat::{self, Host};
use super::report::HookReport;
use super::{application_profile, chmod, container, driver_params, ldcache, links};
use tranche_core::call::{NvidiaCall, NvidiaHook};
use tranche_core::error::{Context, Error, Result};
use tranche_core::oci::{Bundle, State};
use tranche_core::types::ContainerPath;

/// The variables in a container's environment that limit its memory.
const LIMITS: [&str; 2] = ["NVIDIA_GPU_MEMORY_LIMIT=", "NVIDIA_GPU_MEMORY_REQUEST="];

/// Runs `hook`.
pub(super) fn run(
    hook: NvidiaHook,
    arguments: Vec<OsString>,
    state: &mut dyn Read,
    report: &mut HookReport<'_>,
) -> Result<()> {
    let call = match hook {
        NvidiaHook::Noop | NvidiaHook::CreateSonameSymlinks => return Ok(()),
        // This hook does not use its options yet, so they are not parsed.
        NvidiaHook::ApplyCudaMemoryLimits => NvidiaCall::of(hook),
        _ => NvidiaCall::parse(hook, arguments, &mut |unknown| report.ignored(&unknown))?,
    };
    let host = Host {
        driver: version("host-driver-version", call.driver_version.as_deref(), report),
        cuda: version("host-cuda-version", call.cuda_version.as_deref(), report),
    };
    let state = match &call.state_file {
        None => State::read(state)?,
        Some(path) => State::read(File::open(path).about(path, "cannot open")?)?,
    };
    report.about(&state);
    let Some(bundle) = container::open(&state, report)? else {
        return Ok(());
    };
    match hook {
        NvidiaHook::CreateSymlinks => links::make(&call.links, &bundle, report).map(drop),
        NvidiaHook::UpdateLdcache => ldcache::update(
            &ldcache::LoaderWork {
                compat: ldcache::recorded_compat(&bundle, report).as_deref(),
                directories: &call.folders,
                links: &[],
                in_place: &[],
                libraries: &[],
            },
            &bundle,
            report,
        ),
        NvidiaHook::EnableCudaCompat => {
            let directory = call.compat.as_ref().map(ContainerPath::as_path);
            let directory = directory.unwrap_or(Path::new(cuda_compat::DIRECTORY));
            let used = cuda_compat::find(directory, &host, &bundle, report);
            ldcache::record_compat(used.then_some(directory), &bundle, report);
            Ok(())
        }
        NvidiaHook::DisableDeviceNodeModification => {
            driver_params::turn_off(&bundle, report);
            Ok(())
        }
        NvidiaHook::UpdateApplicationProfile => {
            application_profile::write(&bundle, report);
            Ok(())
        }
        NvidiaHook::Chmod => {
            let mode = call.mode.ok_or_else(|| Error::usage("chmod", "--mode is missing"))?;
            chmod::change(&call.paths, mode, &bundle, report);
            Ok(())
        }
        NvidiaHook::ApplyCudaMemoryLimits if !bundle.is_configured => {
            report.note(
                hook,
                "not checked: the container's environment cannot be read, so a limit in it is unknown",
            );
            Ok(())
        }
        NvidiaHook::ApplyCudaMemoryLimits => no_limits(&bundle),
        NvidiaHook::CreateSonameSymlinks | NvidiaHook::Noop => Ok(()),
    }
}

/// A version of the host. One that is not valid counts as unknown.
fn version<T: FromStr>(option: &str, text: Option<&str>, report: &mut HookReport<'_>) -> Option<T> {
    let text = text?;
    let version = text.parse().ok();
    if version.is_none() {
        report.note(format!("--{option} {text}"), "not a version, ignored");
    }
    version
}

/// Refuses a container with a limit of GPU memory: without the limit, it could take memory that is promised to another.
fn no_limits(bundle: &Bundle) -> Result<()> {
    let environment = &bundle.config.environment;
    match environment
        .iter()
        .find(|entry| LIMITS.iter().any(|limit| entry.starts_with(limit)))
    {
        None => Ok(()),
        Some(entry) => Err(
            Error::failed(entry, "limits of GPU memory by cgroup are not supported yet")
                .hint("take it out of the container's environment"),
        ),
    }
}
