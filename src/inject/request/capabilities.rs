//! `NVIDIA_DRIVER_CAPABILITIES`: for which uses a container gets the driver's files.

use std::collections::BTreeSet;

use super::collect::list;
use super::environment::Environment;
use tranche_core::error::{Error, Result};
use tranche_core::text::candidates;
use tranche_plan::inventory::DriverCapability;
use tranche_plan::policy::RuntimeSettings;

pub(super) const VARIABLE: &str = "NVIDIA_DRIVER_CAPABILITIES";

/// The uses for which a container gets the driver's files.
pub(super) struct NamedCapabilities {
    pub(super) capabilities: BTreeSet<DriverCapability>,
    /// The variable with what it names and may not, for a message.
    pub(super) refused: Option<String>,
}

/// The uses that the environment names.
///
/// Without the variable, or if it is empty, these are `utility` and `compute`; in a legacy image without it, all. Of
/// both, and of `all`, a container gets what the owner of the machine supports. An environment that is not `accepted`
/// can name fewer than the usual ones, and no other.
///
/// # Errors
/// Returns a usage error for a use that is unknown or not supported here: the container would fail later for the want
/// of it. NVIDIA's runtime hook fails for both, too. An environment that is not accepted cannot make a start fail.
pub(super) fn capabilities(
    environment: &Environment<'_>,
    settings: &RuntimeSettings,
    accepted: bool,
) -> Result<NamedCapabilities> {
    let supported = &settings.supported_capabilities;
    let text = environment.get(VARIABLE);
    let names: Vec<&str> = text.into_iter().flat_map(list).collect();
    let usual = [DriverCapability::Compute, DriverCapability::Utility];
    let usual: BTreeSet<_> = usual.into_iter().filter(|usual| supported.contains(usual)).collect();
    let all_of = |capabilities| NamedCapabilities {
        capabilities,
        refused: None,
    };
    if !accepted {
        return Ok(narrowed(usual, &names));
    }
    if names.contains(&"all") || text.is_none() && environment.is_legacy() {
        return Ok(all_of(supported.clone()));
    }
    if names.is_empty() {
        return Ok(all_of(usual));
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
            let hint = format!("expected some of {}", candidates(name, &known));
            Error::usage(VARIABLE, format!("driver capability \"{name}\" is {what}")).hint(hint)
        })
    };
    names.into_iter().map(capability).collect::<Result<_>>().map(all_of)
}

/// Those of `usual` that `names` has; all of them if it has none. The other names are refused.
fn narrowed(usual: BTreeSet<DriverCapability>, names: &[&str]) -> NamedCapabilities {
    let meant = |name: &str| name.parse().ok().filter(|capability| usual.contains(capability));
    let named: BTreeSet<DriverCapability> = names.iter().filter_map(|name| meant(name)).collect();
    let refused: Vec<&str> = names.iter().copied().filter(|name| meant(name).is_none()).collect();
    NamedCapabilities {
        refused: (!refused.is_empty()).then(|| format!("{VARIABLE}={}", refused.join(","))),
        capabilities: if named.is_empty() { usual } else { named },
    }
}
