//! `tranche-oci hook prepare`: the only `createContainer` hook of tranche's specifications.
//!
//! # Arguments
//!
//! The table of arguments is in `hooks/README.md`. The common edits of a specification have them. Options may be
//! repeated, in any order, as `--option VALUE` or `--option=VALUE`. A repeated value has no further effect.
//!
//! CDI cannot merge the hooks of two devices. So a specification lists the by-path links of all its devices in its
//! common edits, and the hook makes the links of those nodes that are in config.json.
//!
//! An unknown option is ignored with its value and reported on standard error: a specification may be newer than the
//! program that it calls. An invalid value is a usage error (exit code 2), before anything is changed.
//!
//! # Steps
//!
//! 1. Parse arguments, state and config.json. Nothing is changed before all three are valid.
//! 2. Make the links of `--link`.
//! 3. Decide whether the image's CUDA compatibility libraries go before the host's.
//! 4. Add the libraries to the loader's cache. The links must exist by then.
//! 5. Mount the sockets of the driver's daemons.
//! 6. Make the links of the driver's back ends beside the image's own libraries of GBM and VDPAU.
//! 7. Make the by-path links of graphics nodes.
//! 8. Turn off the modification of device nodes.
//! 9. Write the application profile.
//!
//! # Failures
//!
//! If a link of `--link` cannot be made or a file of the loader cannot be replaced, the container does not start (exit
//! code 1), because its programs would not find the driver. New links are removed again. Any other failure is reported,
//! and the container starts. On a read-only root or mount nothing of the image changes: files of the loader are covered
//! by mounts.

use std::ffi::OsString;
use std::io::Read;
use std::path::Path;

use super::cuda_compat::{self, Host};
use super::report::HookReport;
use super::{application_profile, back_ends, by_path, container, driver_params, ldcache, links, sockets};
use tranche_core::call::{NvidiaHook, PrepareCall};
use tranche_core::error::Result;
use tranche_core::oci::State;

/// Runs the hook: `arguments` are those after the verb, `state` is the standard input.
pub(super) fn run(arguments: Vec<OsString>, state: &mut dyn Read, report: &mut HookReport<'_>) -> Result<()> {
    let call = PrepareCall::parse(arguments, &mut |unknown| report.ignored(&unknown))?;
    let state = State::read(state)?;
    report.about(&state);
    let Some(bundle) = container::open(&state, report)? else {
        return Ok(());
    };
    // The cache is made from the links that exist, so the order matters.
    let made = links::make(&call.links, &bundle, report)?;
    let compat = Path::new(cuda_compat::DIRECTORY);
    let host = Host {
        driver: call.driver_version.as_deref().and_then(|version| version.parse().ok()),
        cuda: None,
    };
    let used = cuda_compat::find(compat, &host, &bundle, report);
    let work = ldcache::LoaderWork {
        compat: used.then_some(compat),
        directories: &call.ldcache_dirs,
        links: &call.links,
        in_place: &made.in_place,
        libraries: &call.libraries,
    };
    ldcache::update(&work, &bundle, report).inspect_err(|_| links::undo(&made.new, &bundle))?;
    sockets::mount(&call.sockets, &bundle, report);
    back_ends::make(&call, &bundle, report);
    by_path::make(&call.by_path, &bundle, report);
    if !call.skip.contains(&NvidiaHook::DisableDeviceNodeModification) {
        driver_params::turn_off(&bundle, report);
    }
    if !call.skip.contains(&NvidiaHook::UpdateApplicationProfile) {
        application_profile::write(&bundle, report);
    }
    // The process ends now, and the kernel frees all of this at once.
    std::mem::forget((made, bundle));
    std::mem::forget(call);
    Ok(())
}
