//! `NVIDIA_DRIVER_CAPABILITIES`: for which uses a container gets the driver's files.

use std::collections::BTreeSet;

use super::collect::list;
use super::environment::Environment;
use crate::error::{Error, Result};
use crate::inventory::DriverCapability;
use crate::policy::RuntimeSettings;
use crate::text::some;

const VARIABLE: &str = "NVIDIA_DRIVER_CAPABILITIES";

/// The uses that the environment names.
///
/// Without the variable, or if it is empty, these are `utility` and `compute`; in a legacy image without it, all. Of both,
/// and of `all`, a container gets what the owner of the machine supports.
///
/// # Errors
/// Returns a usage error for a use that is unknown or not supported here: the container would fail later for the want of it.
/// NVIDIA's runtime hook fails for both, too.
pub(super) fn capabilities(
    environment: &Environment<'_>,
    settings: &RuntimeSettings,
) -> Result<BTreeSet<DriverCapability>> {
    let supported = &settings.supported_capabilities;
    let text = environment.get(VARIABLE);
    let names: Vec<&str> = text.into_iter().flat_map(list).collect();
    if names.contains(&"all") || text.is_none() && environment.is_legacy() {
        return Ok(supported.clone());
    }
    if names.is_empty() {
        let usual = [DriverCapability::Compute, DriverCapability::Utility];
        return Ok(usual.into_iter().filter(|usual| supported.contains(usual)).collect());
    }
    let known = supported.iter().map(|capability| capability.as_str());
    let known: Vec<&str> = known.chain(["all"]).collect();
    let capability = |name: &str| {
        let found = name.parse::<DriverCapability>();
        match found {
            Ok(found) if supported.contains(&found) => Ok(found),
            Ok(_) => Err("not supported on this host by its configuration"),
            Err(_) => Err("unknown"),
        }
        .map_err(|what| {
            let hint = format!("expected some of {}", some(&known));
            Error::usage(VARIABLE, format!("driver capability \"{name}\" is {what}")).hint(hint)
        })
    };
    names.into_iter().map(capability).collect()
}
