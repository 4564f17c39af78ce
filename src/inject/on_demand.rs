//! Instances of MIG that are made for the start of a container: `mig-1g.10gb.any`.

use super::request::{Request, WantedDevice};
use std::path::Path;
use std::time::Duration;
use tranche_core::broker::{self, BrokerError, MigMakeAnswer, MigMakeRequest};
use tranche_core::error::{Error, Result};
use tranche_core::root::is_in_user_namespace;
use tranche_core::types::{CdiKind, DevicePart, MigProfile, Part};

/// How long the broker may take to make an instance and to bring the specifications up to date.
const PATIENCE: Duration = Duration::from_secs(60);

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
    let name = profile.on_demand();
    if is_in_user_namespace() {
        let error = Error::failed(name, "in a user's own engine, this runtime makes no instances");
        return Err(error.hint(format!(
            "make a claim: tranche claim create --name NAME --mig {profile}, and ask for nvidia.com/claim=NAME"
        )));
    }
    let request = MigMakeRequest { profile };
    match broker::ask::<MigMakeAnswer>(&state_dir.join(broker::SOCKET), &request, PATIENCE) {
        Ok(answer) => Ok(WantedDevice::Part(DevicePart {
            device: answer.device,
            part: Part::Whole,
        })),
        Err(BrokerError::Refused(error)) => Err(error),
        Err(BrokerError::Unreachable(error)) => {
            let what = "the broker, which makes instances, cannot be reached";
            Err(Error::failed(name, what)
                .from_source(error)
                .hint("start it: systemctl start tranche-broker.socket"))
        }
    }
}
