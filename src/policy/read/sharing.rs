//! The `sharing` part of a policy.

use super::field::Fields;
use crate::error::Result;
use crate::policy::yaml::{Node, Value};
use crate::policy::{
    Amount, DeviceSelector, Interval, MpsComputeMode, MpsUsers, Parts, Placed, Policy, Priority, ReplicaNames,
    Resource, ShareAsk, Split, Strategy, WholeDevice,
};
use crate::types::{CdiKind, DeviceId, MemorySize, Percent, ShareName};

/// The largest number of parts that an entry may make of a device. MPS serves far fewer (see [`crate::share`]), and under
/// time-slicing a GPU holds no thousand contexts. Every part costs memory and time while a plan is made, so the bound is
/// checked before anything is made.
pub const MOST_PARTS: u32 = 1024;

/// What an entry inherits from its surroundings.
#[derive(Clone, Copy)]
struct Around<'a> {
    file: &'a str,
    strategy: Strategy,
    /// `nvidia.com/gpu` means MIG devices too: `flags.migStrategy` is `single`.
    mig_too: bool,
    rename_by_default: bool,
    fail_requests_greater_than_one: bool,
}

/// Reads the section. `mig_too`: `nvidia.com/gpu` means MIG devices as well.
pub(super) fn read(file: &str, node: &Node, mig_too: bool, warnings: &mut Vec<String>) -> Result<Policy> {
    let mut policy = Policy {
        file: file.to_owned(),
        ..Policy::default()
    };
    let mut fields = Fields::of(file, "sharing", node)?;
    let around = |strategy| Around {
        file,
        strategy,
        mig_too,
        rename_by_default: false,
        fail_requests_greater_than_one: false,
    };
    if let Some(node) = fields.take_section("mps") {
        read_mps(around(Strategy::Mps), node, &mut policy, warnings)?;
    }
    if let Some(node) = fields.take_section("timeSlicing") {
        read_time_slicing(around(Strategy::TimeSlicing), node, &mut policy, warnings)?;
    }
    if let Some(node) = fields.take_section("dedicated") {
        policy.splits.push(read_dedicated(file, node)?);
    }
    let whole = [
        ("claim", WholeDevice::Claim),
        ("open", WholeDevice::Open),
        ("hide", WholeDevice::Hide),
    ];
    if let Some(whole) = fields.word("wholeDevice", &whole)? {
        policy.whole_device = whole;
    }
    if let Some(names) = fields.word("names", &[("any", ReplicaNames::Any), ("each", ReplicaNames::Each)])? {
        policy.names = names;
    }
    if let Some(node) = fields.take("overcommit") {
        let mut over = Fields::of(file, "overcommit", node)?;
        if let Some(memory) = over.parsed("memory")? {
            policy.overcommit_memory = memory.value;
        }
        if let Some(compute) = over.parsed("compute")? {
            policy.overcommit_compute = compute.value;
        }
        over.finish()?;
    }
    fields.finish()?;
    Ok(policy)
}

/// Devices that one container has to itself: an entry for all of them.
fn read_dedicated(file: &str, node: &Node) -> Result<Split> {
    let mut fields = Fields::of(file, "sharing.dedicated", node)?;
    let Some(devices) = fields.take("devices") else {
        // A key that is nearly right is the likelier mistake.
        fields.finish()?;
        return Err(fields.wrong_as_a_whole("devices is missing"));
    };
    let devices = read_devices(&fields, devices)?;
    fields.finish()?;
    Ok(Split {
        strategy: Strategy::Dedicated,
        resource: Resource::Every,
        kind: CdiKind::new("nvidia.com", "gpu")?,
        devices,
        parts: Parts::Whole,
        fail_requests_greater_than_one: false,
        place: node.place,
    })
}

fn read_mps(around: Around<'_>, node: &Node, policy: &mut Policy, warnings: &mut Vec<String>) -> Result<()> {
    let mut fields = Fields::of(around.file, "sharing.mps", node)?;
    if let Some(users) = fields.word("users", &[("many", MpsUsers::Many), ("one", MpsUsers::One)])? {
        policy.mps.users = users;
    }
    let modes = [("exclusive", MpsComputeMode::Exclusive), ("keep", MpsComputeMode::Keep)];
    if let Some(mode) = fields.word("computeMode", &modes)? {
        policy.mps.compute_mode = mode;
    }
    if let Some(grace) = fields.number("grace")? {
        policy.mps.grace = grace.value;
    }
    read_resources(around, &mut fields, policy, warnings)
}

fn read_time_slicing(around: Around<'_>, node: &Node, policy: &mut Policy, warnings: &mut Vec<String>) -> Result<()> {
    let mut fields = Fields::of(around.file, "sharing.timeSlicing", node)?;
    let intervals = [
        ("default", Interval::Default),
        ("short", Interval::Short),
        ("medium", Interval::Medium),
        ("long", Interval::Long),
    ];
    if let Some(interval) = fields.word("interval", &intervals)? {
        policy.time_slicing.interval = interval;
    }
    read_resources(around, &mut fields, policy, warnings)
}

fn read_resources(
    mut around: Around<'_>,
    fields: &mut Fields<'_>,
    policy: &mut Policy,
    warnings: &mut Vec<String>,
) -> Result<()> {
    around.rename_by_default = fields.boolean("renameByDefault")?.unwrap_or(false);
    // NVIDIA's plugin defaults to true under MPS, because there a second replica gives a container nothing. Here several
    // shares of a device add up in one claim, so a request for more than one is refused only where the policy says true.
    around.fail_requests_greater_than_one = fields.boolean("failRequestsGreaterThanOne")?.unwrap_or(false);
    let resources = fields.list("resources")?;
    // A key that is nearly right is the likelier mistake than one that is missing.
    fields.finish()?;
    let Some((node, items)) = resources else {
        return Err(fields
            .wrong_as_a_whole("resources is missing")
            .hint("say which devices are shared, or remove the section"));
    };
    if items.is_empty() {
        return Err(fields
            .wrong(node.place, "resources is empty")
            .hint("say which devices are shared, or remove the section"));
    }
    for item in items {
        policy.splits.push(read_split(around, item, warnings)?);
    }
    Ok(())
}

fn read_split(around: Around<'_>, node: &Node, warnings: &mut Vec<String>) -> Result<Split> {
    let mut fields = Fields::of(around.file, "an entry of resources", node)?;
    let name = fields.text("name")?;
    let rename = fields.text("rename")?.filter(|rename| !rename.value.is_empty());
    let devices = match fields.take("devices") {
        None => DeviceSelector::All,
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

fn read_devices(fields: &Fields<'_>, node: &Node) -> Result<DeviceSelector> {
    let wrong = |what: String| {
        fields
            .wrong(node.place, format!("devices: {what}"))
            .hint("write all, a number of devices, or a list of indices and UUIDs like [0, \"1:0\", GPU-…]")
    };
    match &node.value {
        Value::Text(all) if all == "all" => Ok(DeviceSelector::All),
        Value::Number(n) => match n.parse::<u32>() {
            Ok(n) if n > 0 => Ok(DeviceSelector::Count(n)),
            _ => Err(wrong(format!("{n} is not a number of devices"))),
        },
        Value::List(items) if !items.is_empty() => {
            let mut list: Vec<Placed<DeviceId>> = Vec::with_capacity(items.len());
            for item in items {
                let (Value::Text(text) | Value::Number(text)) = &item.value else {
                    let found = item.value.describe();
                    return Err(fields.wrong(item.place, format!("devices: expected a device, found {found}")));
                };
                let id: DeviceId = text
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
            Ok(DeviceSelector::List(list))
        }
        Value::List(_) => Err(wrong("the list is empty".to_owned())),
        other => Err(wrong(format!("found {}", other.describe()))),
    }
}

/// Names that no share may have: `0.any` is any replica, and `all` and `none` are devices.
const RESERVED: [&str; 3] = [ShareName::ANY, "all", "none"];

fn read_shares(
    around: Around<'_>,
    fields: &Fields<'_>,
    node: &Node,
    items: &[Node],
    warnings: &mut Vec<String>,
) -> Result<Vec<ShareAsk>> {
    if items.is_empty() {
        return Err(fields
            .wrong(node.place, "shares is empty")
            .hint("write at least one, like {name: big, compute: 80%}"));
    }
    if items.len() > MOST_PARTS as usize {
        return Err(fields
            .wrong(node.place, format!("shares: {} are too many", items.len()))
            .hint(format!("a device is split into at most {MOST_PARTS}")));
    }
    let mut shares: Vec<ShareAsk> = Vec::with_capacity(items.len());
    for item in items {
        let mut share = Fields::of(around.file, "a share", item)?;
        let name = share.parsed::<ShareName>("name")?;
        let compute = share.parsed::<Percent>("compute")?;
        let memory = read_memory(&mut share)?;
        let words = [("normal", Priority::Normal), ("below-normal", Priority::BelowNormal)];
        let priority = share.word("priority", &words)?;
        share.finish()?;
        let Some(name) = name else {
            return Err(share.wrong_as_a_whole("name is missing").hint("write name: big"));
        };
        if name.value.number().is_some() {
            // 0.3 is replica 3 of a device in equal parts: a name must not look like one.
            return Err(share
                .wrong(name.place, format!("name: \"{}\" is a number", name.value))
                .hint("put a letter into the name of a share"));
        }
        if RESERVED
            .iter()
            .any(|word| name.value.as_str().eq_ignore_ascii_case(word))
        {
            return Err(share
                .wrong(
                    name.place,
                    format!("name: \"{}\" has a meaning of its own in device names", name.value),
                )
                .hint("choose another name"));
        }
        if shares.iter().any(|s| s.name == name.value) {
            return Err(share
                .wrong(name.place, format!("name: there are two shares called {}", name.value))
                .hint("choose another name for one of them"));
        }
        if around.strategy == Strategy::TimeSlicing && priority.is_some() {
            warnings.push(format!(
                "{}: share {}: priority has a meaning under MPS only, and is ignored under time-slicing",
                item.place.of(around.file),
                name.value
            ));
        }
        shares.push(ShareAsk {
            place: item.place,
            name: name.value,
            compute: compute.map(|c| c.value),
            memory,
            priority: priority.unwrap_or_default(),
        });
    }
    Ok(shares)
}

fn read_memory(share: &mut Fields<'_>) -> Result<Option<Amount>> {
    let Some(text) = share.text("memory")? else {
        return Ok(None);
    };
    let wrong = |e| share.wrong(text.place, format!("memory: {e}"));
    if text.value.ends_with('%') {
        return Ok(Some(Amount::Percent(text.value.parse().map_err(wrong)?)));
    }
    let size: MemorySize = text.value.parse().map_err(wrong)?;
    if size.mib() == 0 {
        let what = if text.value.bytes().all(|b| b.is_ascii_digit()) {
            format!(
                "memory: {} has no unit, so it is in bytes, which is less than 1 MiB",
                text.value
            )
        } else {
            format!("memory: {} is less than 1 MiB", text.value)
        };
        return Err(share
            .wrong(text.place, what)
            .hint("write a size like 7000Mi or 7Gi, or a percentage like 30%"));
    }
    Ok(Some(Amount::Size(size)))
}
