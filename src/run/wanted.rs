//! The shares that a person names on the command line.

use crate::error::{Error, Result};
use crate::inventory::Inventory;
use crate::share::{Plan, SplitDevice, Wish};
use crate::text::some;
use crate::types::{DeviceSelector, ShareName};

/// What `names` ask for: shares of one device, or a dedicated device.
///
/// # Errors
/// Returns an error if a name is not that of a share of this host, or if they are of several devices.
pub(crate) fn wish(names: &[String], inventory: &Inventory, plan: &Plan) -> Result<Wish> {
    let mut wish = Wish::default();
    for typed in names {
        let object = format!("share {typed}");
        let (device, share) = parts(typed)?;
        let device = inventory.catalogue().get(&device)?.device();
        let split = plan.split(device);
        let split = split.ok_or_else(|| {
            let shared: Vec<String> = plan.devices.iter().map(|split| split.device.cdi_name()).collect();
            Error::usage(&object, "the policy does not share this device")
                .hint(format!("the policy shares {}", some(&shared)))
        })?;
        if wish.device.is_some_and(|first| first != device) {
            return Err(Error::usage(&object, "is of another device than the first share")
                .hint("a program gets shares of one device"));
        }
        wish.device = Some(device);
        match share {
            None if split.method.is_whole() => wish.shares = Some(1),
            Some(ShareName::ANY) if split.replica().is_some() => wish.shares = Some(wish.shares.unwrap_or(0) + 1),
            Some(share) if named(split, share).is_some() => wish.names.extend(named(split, share)),
            _ => {
                let names: Vec<String> = split
                    .shares
                    .iter()
                    .map(|share| format!("{}.{}", device.cdi_name(), share.name))
                    .collect();
                let names = if split.method.is_whole() {
                    vec![device.cdi_name()]
                } else {
                    names
                };
                return Err(Error::usage(object, "not a share of this host").hint(format!("expected {}", some(&names))));
            }
        }
    }
    Ok(wish)
}

/// The device and the share in `0.big` or `nvidia.com/gpu=0.big`. A name without a share means a whole device.
pub(crate) fn parts(typed: &str) -> Result<(DeviceSelector, Option<&str>)> {
    let name = typed.split_once('=').map_or(typed, |(_, name)| name);
    // A PCI address has a dot, too.
    if let Ok(device) = name.parse() {
        return Ok((device, None));
    }
    match name.rsplit_once('.') {
        Some((device, share)) => Ok((device.parse()?, Some(share))),
        None => Ok((name.parse()?, None)),
    }
}

fn named(split: &SplitDevice, share: &str) -> Option<ShareName> {
    let known = split.shares.iter().find(|known| known.name.as_str() == share);
    known
        .filter(|_| !split.method.is_whole())
        .map(|share| share.name.clone())
}

/// The CDI name of what was asked for, for people; `None` for several shares.
pub(super) fn asked_as(names: &[String], wish: &Wish, plan: &Plan) -> Option<String> {
    let [typed] = names else { return None };
    let split = plan.split(wish.device?)?;
    let (_, share) = parts(typed).ok()?;
    let device = split.device.cdi_name();
    Some(match share {
        Some(share) => format!("{}={device}.{share}", split.kind),
        None => format!("{}={device}", split.kind),
    })
}
