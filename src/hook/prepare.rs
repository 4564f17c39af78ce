//! `tranche-oci hook prepare`: the one `createContainer` hook of our specs.
//!
//! # Arguments
//!
//! What a spec says, in its common edits. Every option may be given many times, in any order, as `--option VALUE` or
//! `--option=VALUE`; the same value twice is the same as once.
//!
//! | option | value | what is done |
//! |---|---|---|
//! | `--link` | `TARGET::LINK` | `LINK`, an absolute container path, becomes a symbolic link with the text `TARGET` |
//! | `--by-path` | `NAME::/dev/dri/NODE` | `/dev/dri/by-path/NAME` becomes a link to `../NODE`, if the container has that node |
//! | `--ldcache-dir` | container directory | its libraries are made known to the image's loader |
//! | `--library` | `64::PATH::SONAME` | what the loader's cache says of the library that is mounted at `PATH` (64-bit or 32-bit; no `::SONAME` where it has none), so that it need not be opened |
//! | `--driver-version` | `580.95.05` | the host's driver, once: with it CUDA forward compatibility is looked for |
//! | `--state-dir` | directory | where messages are kept for `tranche status` [default: /run/tranche] |
//! | `--skip` | a hook of NVIDIA's | `disable-device-node-modification` or `update-application-profile` is left out |
//!
//! CDI cannot merge the hooks of two devices. So a spec lists the by-path links of all its devices once, in its common
//! edits, and which of them are made follows from the nodes in config.json.
//!
//! An option that we do not know is one line on standard error and is ignored with its value: a spec may be newer than
//! the program that it calls. A known option with a value that makes no sense is a usage error (exit code 2), before
//! anything is touched.
//!
//! # In this order
//!
//! 1. Arguments, state, config.json: nothing is touched before all are understood.
//! 2. Links of `--link`.
//! 3. Whether the image's CUDA compatibility libraries go before the host's.
//! 4. The libraries made known to the loader; they are under their links' names by now.
//! 5. By-path links of graphics nodes.
//! 6. Device-node modification off.
//! 7. The application profile.
//!
//! # What can fail
//!
//! A link of `--link` that cannot be made, and a loader's file that cannot be replaced, fail the container's start (exit
//! code 1): its programs would not find the driver. New links are then taken away again. Everything else is one line, and
//! the start goes on. So is what a read-only root or mount does not allow: there nothing of the image changes, and what
//! the loader needs is laid over its files by a mount.

use std::ffi::OsString;
use std::io::Read;
use std::path::Path;

use super::cuda_compat::{self, Host};
use super::report::HookReport;
use super::{application_profile, by_path, container, driver_params, ldcache, links};
use crate::call::{NvidiaHook, PrepareCall};
use crate::error::Result;
use crate::oci::State;

/// Runs the hook: `arguments` are those after the verb, `state` is the standard input.
pub(super) fn run(arguments: Vec<OsString>, state: &mut dyn Read, report: &mut HookReport<'_>) -> Result<()> {
    let call = PrepareCall::parse(arguments, &mut |unknown| report.ignored(&unknown))?;
    let state = State::read(state)?;
    report.about(&state);
    let Some(bundle) = container::open(&state, report)? else {
        return Ok(());
    };
    // In the order in which one step needs another: a cache is made of what links have put in place.
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
    by_path::make(&call.by_path, &bundle, report);
    if !call.skip.contains(&NvidiaHook::DisableDeviceNodeModification) {
        driver_params::turn_off(&bundle, report);
    }
    if !call.skip.contains(&NvidiaHook::UpdateApplicationProfile) {
        application_profile::write(&bundle, report);
    }
    // The process ends now, and the kernel frees and closes all of this at once.
    std::mem::forget((made, bundle));
    std::mem::forget(call);
    Ok(())
}
