//! The value of `devices`.

use super::field::Fields;
use crate::error::Result;
use crate::policy::yaml::{Node, Value};
use crate::policy::{DeviceSet, Placed};
use crate::types::DeviceSelector;

/// Reads `all`, a number of devices, or a list of them.
///
/// # Errors
/// Anything else, and a device that is in the list twice.
pub(super) fn read_devices(fields: &Fields<'_>, node: &Node) -> Result<DeviceSet> {
    let wrong = |what: String| {
        fields
            .wrong(node.place, format!("devices: {what}"))
            .hint("write all, a number of devices, or a list of indices and UUIDs like [0, \"1:0\", GPU-…]")
    };
    match &node.value {
        Value::Text(all) if all == "all" => Ok(DeviceSet::All),
        Value::Number(n) => match n.parse::<u32>() {
            Ok(n) if n > 0 => Ok(DeviceSet::Count(n)),
            _ => Err(wrong(format!("{n} is not a number of devices"))),
        },
        Value::List(items) if !items.is_empty() => {
            let mut list: Vec<Placed<DeviceSelector>> = Vec::with_capacity(items.len());
            for item in items {
                let (Value::Text(text) | Value::Number(text)) = &item.value else {
                    let found = item.value.describe();
                    return Err(fields.wrong(item.place, format!("devices: expected a device, found {found}")));
                };
                let id: DeviceSelector = text
                    .parse()
                    .map_err(|e| fields.wrong(item.place, format!("devices: {e}")))?;
                if list.iter().any(|other| other.value == id) {
                    return Err(fields
                        .wrong(item.place, format!("devices: {id} is in the list twice"))
                        .hint("remove one of them"));
                }
                list.push(Placed {
                    place: item.place,
                    value: id,
                });
            }
            Ok(DeviceSet::List(list))
        }
        Value::List(_) => Err(wrong("the list is empty".to_owned())),
        other => Err(wrong(format!("found {}", other.describe()))),
    }
}
