//! `tranche-oci hook in-service`: refuses the start of a container with a device that is out of service.
//!
//! It is a `createRuntime` hook of devices that are handed out without a claim. It reads two small files, which every
//! user may read, so it works in a rootless engine and needs no broker.

use super::report::HookReport;
use std::ffi::OsString;
use std::io::Read;
use tranche_core::call::InServiceCall;
use tranche_core::error::{Error, Result};
use tranche_core::ledger::OutOfService;
use tranche_core::oci::State;

/// Runs the hook.
pub(super) fn run(arguments: Vec<OsString>, state: &mut dyn Read, report: &mut HookReport<'_>) -> Result<()> {
    // An unknown option of a later version cannot make the device more available.
    let call = InServiceCall::parse(arguments, &mut |unknown| report.ignored(&unknown))?;
    report.about(&State::read(state)?);
    match OutOfService::read(call.state_dir.as_path()).why(&call.device) {
        None => Ok(()),
        Some(why) => Err(Error::failed(call.label, why).hint(
            "ask for another device: tranche list shows them; `all` leaves this one out after tranche cdi refresh",
        )),
    }
}
