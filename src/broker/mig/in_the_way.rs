//! Who uses what a change of a layout would destroy.

use std::collections::BTreeSet;
use tranche_core::error::Error;
use tranche_core::ledger::{Book, Claim};
use tranche_core::text::some;
use tranche_core::types::{ComputeInstanceId, DeviceKey, GpuInstanceId};
use tranche_plan::mig::{ExactGpu, MigClient, MigGpu};
use tranche_state::node_users::NodeUser;

/// The holders of what is destroyed on the way from `now` to `target`, each by the name that a person knows: claims of
/// the ledger, processes that NVML lists, and, where the mode of the GPU changes, processes that have the GPU open.
pub fn in_the_way<'c>(
    now: &MigGpu,
    target: &ExactGpu,
    claims: impl IntoIterator<Item = &'c Claim>,
    users: &[NodeUser],
) -> BTreeSet<String> {
    let changes_mode = now.mode.current != target.mode;
    let destroyed = target.destroyed(now);
    let is_destroyed = |instance: GpuInstanceId, compute: Option<ComputeInstanceId>| {
        let of = |(other, one): &(GpuInstanceId, Option<ComputeInstanceId>)| {
            *other == instance && (one.is_none() || compute.is_none() || *one == compute)
        };
        destroyed.iter().any(of)
    };
    let claims = claims.into_iter().filter(|claim| {
        claim.device.gpu() == &now.uuid
            && match claim.device.instance() {
                _ if changes_mode => true,
                Some((instance, compute)) => is_destroyed(instance, Some(compute)),
                // The whole GPU was claimed, and everything on it with that.
                None => !destroyed.is_empty(),
            }
    });
    let mut holders: BTreeSet<String> = claims.map(Claim::who).collect();
    let clients = now.clients.iter().filter(|client| match client.gpu_instance {
        _ if changes_mode => true,
        Some(instance) => is_destroyed(instance, client.compute_instance),
        None => !destroyed.is_empty(),
    });
    let label = |client: &MigClient| {
        let known = users.iter().find(|user| user.pid == client.pid);
        known.map_or_else(|| format!("process {}", client.pid), NodeUser::label)
    };
    holders.extend(clients.map(label));
    if changes_mode {
        holders.extend(users.iter().map(NodeUser::label));
    }
    holders
}

/// The refusal of a change of `now` because of these holders.
pub fn refusal(now: &MigGpu, holders: &BTreeSet<String>, users: &[NodeUser]) -> Error {
    let names: Vec<&str> = holders.iter().map(String::as_str).collect();
    let (uses, what) = match names.len() {
        1 => ("uses", "it"),
        _ => ("use", "them"),
    };
    let error = Error::failed(
        format!("gpu {}", now.index),
        format!("{} {uses} what would be destroyed", some(&names)),
    );
    let units: BTreeSet<&str> = users.iter().filter_map(|user| user.unit.as_deref()).collect();
    let units: Vec<&str> = units.into_iter().filter(|unit| unit.ends_with(".service")).collect();
    match units.is_empty() {
        true => error.hint(format!(
            "end {what} first, or choose a layout that keeps these instances"
        )),
        false => error.hint(format!("stop {} first, or give --stop-services", units.join(" and "))),
    }
}

/// The devices that a change destroys, as the ledger knows them. Nobody may take one of them meanwhile. `book` is that
/// of the GPU.
pub fn destroyed_devices(now: &MigGpu, target: &ExactGpu, book: &Book) -> Vec<DeviceKey> {
    if now.mode.current != target.mode {
        // What is reserved on instances that a boot has ended keeps the whole GPU from others as well.
        let is_gone = |claim: &Claim| {
            let instance = claim.device.instance().map(|(instance, _)| instance);
            instance.is_some() && now.instances.iter().all(|one| Some(one.id) != instance)
        };
        return match book.claims.iter().any(is_gone) {
            true => Vec::new(),
            false => vec![DeviceKey::whole(now.uuid.clone())],
        };
    }
    let destroyed = target.destroyed(now).into_iter();
    destroyed
        .filter_map(|(instance, compute)| Some(DeviceKey::mig(now.uuid.clone(), instance, compute?)))
        .collect()
}
