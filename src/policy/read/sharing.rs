//! The `sharing` part of a policy.

use super::field::Fields;
use crate::error::Result;
use crate::policy::yaml::{Node, Value};
use crate::policy::{
    Amount, DeviceId, DeviceSelector, Interval, MpsComputeMode, MpsUsers, Parts, Policy, Priority, ReplicaNames,
    Resource, ShareAsk, Split, Strategy, WholeDevice,
};
use crate::types::{CdiKind, Percent, ShareName};

pub(super) fn read(file: &str, node: &Node, warnings: &mut Vec<String>) -> Result<Policy> {
    let mut policy = Policy::default();
    let mut fields = Fields::of(file, "sharing", node)?;
    if let Some(node) = fields.take("mps") {
        read_mps(file, node, &mut policy, warnings)?;
    }
    if let Some(node) = fields.take("timeSlicing") {
        read_time_slicing(file, node, &mut policy, warnings)?;
    }
    if let Some(node) = fields.take("dedicated") {
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
        line: u32::try_from(node.line).unwrap_or(u32::MAX),
    })
}

fn read_mps(file: &str, node: &Node, policy: &mut Policy, warnings: &mut Vec<String>) -> Result<()> {
    let mut fields = Fields::of(file, "sharing.mps", node)?;
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
    read_resources(file, Strategy::Mps, &mut fields, policy, warnings)?;
    fields.finish()
}

fn read_time_slicing(file: &str, node: &Node, policy: &mut Policy, warnings: &mut Vec<String>) -> Result<()> {
    let mut fields = Fields::of(file, "sharing.timeSlicing", node)?;
    let intervals = [
        ("default", Interval::Default),
        ("short", Interval::Short),
        ("medium", Interval::Medium),
        ("long", Interval::Long),
    ];
    if let Some(interval) = fields.word("interval", &intervals)? {
        policy.time_slicing.interval = interval;
    }
    read_resources(file, Strategy::TimeSlicing, &mut fields, policy, warnings)?;
    fields.finish()
}

fn read_resources(
    file: &str,
    strategy: Strategy,
    fields: &mut Fields<'_>,
    policy: &mut Policy,
    warnings: &mut Vec<String>,
) -> Result<()> {
    let rename = fields.boolean("renameByDefault")?.unwrap_or(false);
    // NVIDIA's plugin defaults to true under MPS, because there a second replica gives nothing. Here several shares of a
    // device add up in one claim, so only who says true gets a refusal.
    let fail = fields.boolean("failRequestsGreaterThanOne")?.unwrap_or(false);
    let Some((node, items)) = fields.list("resources")? else {
        // A key that is nearly right is the likelier complaint.
        fields.finish()?;
        return Err(fields.wrong_as_a_whole("resources is missing"));
    };
    if items.is_empty() {
        return Err(fields
            .wrong(node, "resources is empty")
            .hint("leave the strategy out, or say what it shares"));
    }
    for item in items {
        policy
            .splits
            .push(read_split(file, strategy, rename, fail, item, warnings)?);
    }
    Ok(())
}

fn read_split(
    file: &str,
    strategy: Strategy,
    rename_by_default: bool,
    fail: bool,
    node: &Node,
    warnings: &mut Vec<String>,
) -> Result<Split> {
    let mut fields = Fields::of(file, "an entry of resources", node)?;
    let Some(name) = fields.text("name")? else {
        return Err(fields.wrong_as_a_whole("name is missing"));
    };
    let resource = resource(name.value).map_err(|what| name.wrong(what))?;
    let rename = fields.text("rename")?;
    let kind_text = match (&rename, rename_by_default) {
        (Some(rename), _) if rename.value.contains('/') => rename.value.to_owned(),
        (Some(rename), _) => format!("nvidia.com/{}", rename.value),
        (None, true) => format!("{}.shared", name.value.replace('+', ".")),
        // MIG devices keep the names that they have: nvidia.com/gpu=0:1.
        (None, false) => "nvidia.com/gpu".to_owned(),
    };
    let kind: CdiKind = kind_text
        .parse()
        .map_err(|e| rename.as_ref().unwrap_or(&name).wrong(e))?;
    let devices = match fields.take("devices") {
        None => DeviceSelector::All,
        Some(node) => read_devices(&fields, node)?,
    };
    let replicas = fields.number("replicas")?;
    let shares = fields.list("shares")?;
    let parts = match (replicas, shares) {
        (Some(n), None) if n.value >= 2 => Parts::Equal(n.value),
        (Some(n), None) => {
            return Err(n.wrong(format!("replicas is {}, and a device is split into 2 or more", n.value)));
        }
        (None, Some((node, items))) => Parts::Named(read_shares(file, &fields, strategy, node, items, warnings)?),
        (Some(_), Some(_)) => return Err(fields.wrong_as_a_whole("has both replicas and shares; it can have one")),
        (None, None) => {
            fields.finish()?;
            return Err(fields.wrong_as_a_whole("replicas or shares is missing"));
        }
    };
    fields.finish()?;
    let line = u32::try_from(node.line).unwrap_or(u32::MAX);
    Ok(Split {
        strategy,
        resource,
        kind,
        devices,
        parts,
        fail_requests_greater_than_one: fail,
        line,
    })
}

/// `nvidia.com/` may be left out, as in NVIDIA's files.
fn resource(name: &str) -> std::result::Result<Resource, String> {
    let class = name.strip_prefix("nvidia.com/").unwrap_or(name);
    if class == "gpu" {
        return Ok(Resource::Gpu);
    }
    // Kubernetes knows no `+`: mig-1g.10gb.me is 1g.10gb+me.
    class
        .strip_prefix("mig-")
        .and_then(|profile| {
            let plain = profile.parse().ok();
            plain.or_else(|| {
                let at = profile.find("gb.")?;
                format!("{}+{}", &profile[..at + 2], &profile[at + 3..]).parse().ok()
            })
        })
        .map(Resource::Mig)
        .ok_or_else(|| format!("\"{name}\" is neither nvidia.com/gpu nor nvidia.com/mig-PROFILE"))
}

fn read_devices(fields: &Fields<'_>, node: &Node) -> Result<DeviceSelector> {
    match &node.value {
        Value::Text(all) if all == "all" => Ok(DeviceSelector::All),
        Value::Number(n) => match n.parse::<u32>() {
            Ok(n) if n > 0 => Ok(DeviceSelector::Count(n)),
            _ => Err(fields.wrong(node, format!("devices: {n} is no number of devices"))),
        },
        Value::List(items) if !items.is_empty() => {
            let mut list: Vec<DeviceId> = Vec::with_capacity(items.len());
            for item in items {
                let (Value::Text(text) | Value::Number(text)) = &item.value else {
                    return Err(fields.wrong(item, format!("{} is no device", item.value.describe())));
                };
                let id = text.parse().map_err(|e| fields.wrong(item, e))?;
                if list.contains(&id) {
                    return Err(fields.wrong(item, format!("device {id} stands here twice")));
                }
                list.push(id);
            }
            Ok(DeviceSelector::List(list))
        }
        other => Err(fields
            .wrong(node, format!("devices is {}", other.describe()))
            .hint("write all, a number of devices, or a list of indices and UUIDs")),
    }
}

/// Names that no share may have: `0.any` is any replica, and `all` and `none` are devices.
const RESERVED: [&str; 3] = [ShareName::ANY, "all", "none"];

fn read_shares(
    file: &str,
    fields: &Fields<'_>,
    strategy: Strategy,
    node: &Node,
    items: &[Node],
    warnings: &mut Vec<String>,
) -> Result<Vec<ShareAsk>> {
    if items.is_empty() {
        return Err(fields.wrong(node, "shares is empty"));
    }
    let mut shares: Vec<ShareAsk> = Vec::with_capacity(items.len());
    for item in items {
        let mut share = Fields::of(file, "a share", item)?;
        let Some(name) = share.parsed::<ShareName>("name")? else {
            return Err(share.wrong_as_a_whole("name is missing"));
        };
        if name.value.as_str().bytes().all(|b| b.is_ascii_digit()) {
            // 0.3 is replica 3 of a device in equal parts: a name must not look like one.
            return Err(name.wrong(format!(
                "\"{}\" is a number; a share's name has a letter in it",
                name.value
            )));
        }
        if RESERVED.contains(&name.value.as_str().to_ascii_lowercase().as_str()) {
            return Err(name.wrong(format!(
                "a share cannot be called \"{}\", which has a meaning of its own in device names; choose another name",
                name.value
            )));
        }
        if shares.iter().any(|s| s.name == name.value) {
            return Err(name.wrong(format!("share {} stands here twice", name.value)));
        }
        let compute = share.parsed::<Percent>("compute")?;
        let memory = match share.text("memory")? {
            None => None,
            Some(text) if text.value.ends_with('%') => Some(Amount::Percent(
                text.value.parse().map_err(|e| text.wrong(format!("memory: {e}")))?,
            )),
            Some(text) => Some(Amount::Size(
                text.value.parse().map_err(|e| text.wrong(format!("memory: {e}")))?,
            )),
        };
        if let Some(Amount::Size(size)) = memory
            && size.mib() == 0
        {
            return Err(share.wrong_as_a_whole("memory is less than 1 MiB"));
        }
        let words = [("normal", Priority::Normal), ("below-normal", Priority::BelowNormal)];
        let priority = share.word("priority", &words)?;
        if strategy == Strategy::TimeSlicing && priority.is_some() {
            warnings.push(format!(
                "{}: priority is MPS's; time-slicing has none",
                share.place(item)
            ));
        }
        share.finish()?;
        shares.push(ShareAsk {
            name: name.value,
            compute: compute.map(|c| c.value),
            memory,
            priority: priority.unwrap_or_default(),
        });
    }
    Ok(shares)
}
