//! Instances of MIG that are made for the start of a container: `mig-1g.10gb.any`.

use super::request::{Request, WantedDevice};
use std::path::Path;
use tranche_core::broker::MigMakeRequest;
use tranche_core::error::{Error, Result};
use tranche_core::root::is_in_user_namespace;
use tranche_core::types::{CdiKind, DevicePart, MigProfile, Part};

/// Puts instances that are made now in place of the names that ask for any one. Returns whether there was one: what is
/// known of the host is out of date then.
///
/// # Errors
/// Returns why an instance was not made.
pub(super) fn make(request: &mut Request, state_dir: &Path) -> Result<bool> {
    let mut made = false;
    for device in &mut request.devices {
        let WantedDevice::Cdi(name) = device else { continue };
        if name.kind != CdiKind::nvidia_gpu() {
            continue;
        }
        if let Some(profile) = MigProfile::of_on_demand(name.device.as_str()) {
            *device = one(profile, state_dir)?;
            made = true;
        }
    }
    Ok(made)
}

fn one(profile: MigProfile, state_dir: &Path) -> Result<WantedDevice> {
    if is_in_user_namespace() {
        let error = Error::failed(
            profile.on_demand(),
            "in a user's own engine, this runtime makes no instances",
        );
        return Err(error.hint(format!(
            "make a claim: tranche claim create --name NAME --mig {profile}, and ask for nvidia.com/claim=NAME"
        )));
    }
    Ok(WantedDevice::Part(DevicePart {
        device: MigMakeRequest { profile }.ask(state_dir)?,
        part: Part::Whole,
    }))
}
