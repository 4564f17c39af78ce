//! The shares that a person names on the command line.

use tranche_core::error::Result;
use tranche_core::types::DevicePart;
use tranche_plan::inventory::Inventory;
use tranche_plan::share::{Plan, Wish};

/// What `names` ask for: shares of one device, or a dedicated device.
///
/// # Errors
/// Returns an error if a name is not that of a share of this host, or if they are of several devices.
pub fn wish(names: &[String], inventory: &Inventory, plan: &Plan) -> Result<Wish> {
    let mut wish = Wish::default();
    for typed in names {
        let DevicePart { device, part } = typed.parse()?;
        let device = inventory.catalogue().get(&device)?;
        wish.add(plan, device, &part, format_args!("share {typed}"))?;
    }
    Ok(wish)
}

/// The CDI name of what was asked for, for people; `None` for several shares.
pub(super) fn asked_as(names: &[String], wish: &Wish, plan: &Plan) -> Option<String> {
    let [typed] = names else { return None };
    let split = plan.split(wish.device?)?;
    let DevicePart { part, .. } = typed.parse().ok()?;
    let device = part.name_of(split.device.cdi_name());
    Some(format!("{}={device}", split.kind))
}
