//! The shares that a person names on the command line.

use tranche_core::error::{Error, Result};
use tranche_core::types::{CdiKind, DevicePart, Selection, ShareName};
use tranche_plan::inventory::Inventory;
use tranche_plan::share::{Plan, Wish};

/// What `names` ask for: shares of one device, a dedicated device, or `any` free one of these. `select` has conditions
/// on any device.
///
/// # Errors
/// Returns an error if a name is not that of a share of this host, if they are of several devices, or if there are
/// conditions on a device that is named.
pub fn wish(names: &[String], select: &Selection, inventory: &Inventory, plan: &Plan) -> Result<Wish> {
    match names {
        [typed] if is_any(typed) => return Ok(Wish::whole(select.clone())),
        names if names.iter().any(|typed| is_any(typed)) => {
            let error = Error::usage("share any", "is a whole device, and a program runs in one device");
            return Err(error.hint("ask for any alone"));
        }
        _ if !select.is_empty() => {
            let error = Error::usage("--select", "chooses a device, but the device is named");
            return Err(error.hint("use it with any"));
        }
        _ => {}
    }
    let mut wish = Wish::default();
    for typed in names {
        let DevicePart { device, part } = typed.parse()?;
        let device = inventory.catalogue().get(&device)?;
        wish.add(plan, device, &part, format_args!("share {typed}"))?;
    }
    Ok(wish)
}

/// The CDI name of what was asked for, for people; `None` for several shares.
pub(crate) fn asked_as(names: &[String], wish: &Wish, plan: &Plan) -> Option<String> {
    let [typed] = names else { return None };
    if wish.is_whole {
        return Some(format!("{}={}", CdiKind::nvidia_gpu(), ShareName::ANY));
    }
    let split = plan.split(wish.device?)?;
    let DevicePart { part, .. } = typed.parse().ok()?;
    let device = part.name_of(split.device.cdi_name());
    Some(format!("{}={device}", split.kind))
}

/// Whether `typed` is any free device: `any`, `nvidia.com/gpu=any`.
fn is_any(typed: &str) -> bool {
    typed.split_once('=').map_or(typed, |(_, name)| name) == ShareName::ANY
}
