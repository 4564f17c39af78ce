//! An entry of `resources`: which devices are shared, into which parts, and under which kind.

use super::devices::read_devices;
use super::field::Fields;
use super::shares::read_shares;
use crate::error::Result;
use crate::policy::yaml::Node;
use crate::policy::{DeviceSet, Parts, Placed, Resource, Split, Strategy};
use crate::types::CdiKind;

/// The largest number of parts that an entry may make of a device. MPS serves far fewer (see [`crate::share`]), and under
/// time-slicing a GPU holds no thousand contexts. Every part costs memory and time while a plan is made, so the bound is
/// checked before anything is made.
pub const MOST_PARTS: u32 = 1024;

/// What an entry inherits from its surroundings.
#[derive(Clone, Copy)]
pub(super) struct Around<'a> {
    pub(super) file: &'a str,
    pub(super) strategy: Strategy,
    /// `nvidia.com/gpu` means MIG devices too: `flags.migStrategy` is `single`.
    pub(super) mig_too: bool,
    pub(super) rename_by_default: bool,
    pub(super) fail_requests_greater_than_one: bool,
}

pub(super) fn read_split(around: Around<'_>, node: &Node, warnings: &mut Vec<String>) -> Result<Split> {
    let mut fields = Fields::of(around.file, "an entry of resources", node)?;
    let name = fields.text("name")?;
    let rename = fields.text("rename")?.filter(|rename| !rename.value.is_empty());
    let devices = match fields.take("devices") {
        None => DeviceSet::All,
        Some(node) => read_devices(&fields, node)?,
    };
    let replicas = fields.number("replicas")?;
    let shares = fields.list("shares")?;
    fields.finish()?;
    let Some(name) = name else {
        return Err(fields
            .wrong_as_a_whole("name is missing")
            .hint("write name: nvidia.com/gpu"));
    };
    let resource = match resource(name.value) {
        Some(Resource::Gpu) if around.mig_too => Resource::Every,
        Some(resource) => resource,
        None => {
            return Err(fields
                .wrong(name.place, format!("name: \"{}\" is unknown", name.value))
                .hint("write nvidia.com/gpu, or nvidia.com/mig-PROFILE for MIG devices of one profile"));
        }
    };
    let parts = match (replicas, shares) {
        (Some(n), None) if (2..=MOST_PARTS).contains(&n.value) => Parts::Equal(n.value),
        (Some(n), None) => {
            let what = if n.value < 2 { "too few" } else { "too many" };
            return Err(fields
                .wrong(n.place, format!("replicas: {what}"))
                .hint(format!("a device is split into 2 to {MOST_PARTS}")));
        }
        (None, Some((node, items))) => Parts::Named(read_shares(around, &fields, node, items, warnings)?),
        (Some(_), Some(_)) => {
            return Err(fields
                .wrong_as_a_whole("it has both replicas and shares")
                .hint("keep replicas for equal parts, or shares for unequal ones"));
        }
        (None, None) => {
            return Err(fields
                .wrong_as_a_whole("replicas or shares is missing")
                .hint("write replicas: 4 for four equal parts, or shares for unequal ones"));
        }
    };
    Ok(Split {
        strategy: around.strategy,
        resource,
        kind: kind(around, &fields, &name, rename.as_ref())?,
        devices,
        parts,
        fail_requests_greater_than_one: around.fail_requests_greater_than_one,
        place: node.place,
    })
}

/// The kind under which the shares of an entry are offered.
fn kind(
    around: Around<'_>,
    fields: &Fields<'_>,
    name: &Placed<&str>,
    rename: Option<&Placed<&str>>,
) -> Result<CdiKind> {
    let text = match rename {
        Some(rename) if rename.value.contains('/') => rename.value.to_owned(),
        Some(rename) => format!("nvidia.com/{}", rename.value),
        None if around.rename_by_default => {
            let class = name.value.strip_prefix("nvidia.com/").unwrap_or(name.value);
            format!("nvidia.com/{}.shared", class.replace('+', "."))
        }
        // MIG devices keep the names that they have: nvidia.com/gpu=0:1.
        None => "nvidia.com/gpu".to_owned(),
    };
    let place = rename.unwrap_or(name).place;
    let kind: CdiKind = text.parse().map_err(|e| fields.wrong(place, format!("rename: {e}")))?;
    if kind == CdiKind::new("nvidia.com", "claim")? {
        return Err(fields
            .wrong(
                place,
                "rename: nvidia.com/claim is the kind of claims that were made beforehand",
            )
            .hint("choose another name, like nvidia.com/gpu.shared"));
    }
    Ok(kind)
}

/// `nvidia.com/` may be left out, as in NVIDIA's files.
fn resource(name: &str) -> Option<Resource> {
    let class = name.strip_prefix("nvidia.com/").unwrap_or(name);
    if class == "gpu" {
        return Some(Resource::Gpu);
    }
    // Kubernetes allows no `+` in a name: mig-1g.10gb.me is 1g.10gb+me.
    let profile = class.strip_prefix("mig-")?;
    let plain = profile.parse().ok();
    let profile = plain.or_else(|| {
        let at = profile.find("gb.")?;
        format!("{}+{}", &profile[..at + 2], &profile[at + 3..]).parse().ok()
    });
    profile.map(Resource::Mig)
}
