//! The `sharing` part of a policy.

use super::devices::read_devices;
use super::entry::{Around, read_split};
use super::field::Fields;
use crate::error::Result;
use crate::policy::yaml::Node;
use crate::policy::{
    Interval, MpsComputeMode, MpsUsers, Parts, Policy, ReplicaNames, Resource, Split, Strategy, WholeDevice,
};
use crate::types::CdiKind;

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
