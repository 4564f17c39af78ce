//! What would change if another file became the policy of this machine. Nothing is written.

mod report;
mod text;

pub use report::{ChangedName, NamedOffer, PolicyChange, RefusedName};

use std::path::Path;
use tranche_core::error::{Error, Result, line};
use tranche_core::ledger::process::Machine;
use tranche_core::ledger::{Books, World};
use tranche_core::types::HostPath;
use tranche_host::examine;
use tranche_plan::difference::Host;
use tranche_plan::inventory::Inventory;
use tranche_plan::policy::read::Read;
use tranche_plan::share::{Plan, plan};
use tranche_state::held::{View, books, names::DeviceNames, root_only};
use tranche_state::out_of_service;
use tranche_state::planning::{PlanOptions, PolicyOptions, policy};

/// What would change if `new` became the policy, compared with the policy of `options`. Of a machine without a policy,
/// no device is shared. `warnings` gets what is to be said of `new`, and of what cannot be seen.
///
/// # Errors
/// Returns an error if one of the policies is invalid or cannot be applied to this host, if the host has no GPU, or if
/// the ledger cannot be listed.
pub fn of(options: &PlanOptions, new: &Path, warnings: &mut Vec<String>) -> Result<PolicyChange> {
    let inventory = examine::inventory(&options.host)?;
    if inventory.gpus.is_empty() {
        return Err(examine::no_gpu(&inventory));
    }
    let new = PolicyOptions {
        file: Some(new.to_owned()),
        ..options.policy.clone()
    };
    let (new, after) = planned(&new, &inventory)?;
    let (old, before) = planned(&options.policy, &inventory)?;
    warnings.extend(new.iter().flat_map(|read| &read.warnings).cloned());
    warnings.extend(after.warnings.iter().chain(&after.notes).cloned());
    warnings.extend(after.absent.iter().map(ToString::to_string));
    let books = held(&inventory, &options.state_dir, warnings)?;
    let world = Machine::here()?;
    let host = Host {
        inventory: &inventory,
        books: &books,
        out_of_service: &out_of_service::of_host(&inventory, &options.state_dir),
        state_dir: &HostPath::absolute(&options.state_dir)?,
    };
    let mut difference = host.difference(&before, &after, &world)?;
    difference.settings.extend(other_keys(old.as_ref(), new.as_ref()));
    let mut view = View::new(DeviceNames::new(inventory.clone(), before), world.uptime());
    Ok(PolicyChange::of(&difference, &mut view))
}

fn planned(options: &PolicyOptions, inventory: &Inventory) -> Result<(Option<Read>, Plan)> {
    let read = policy(options)?;
    let plan = read.as_ref().map(|read| plan(&read.policy, inventory)).transpose()?;
    Ok((read, plan.unwrap_or_default()))
}

/// What is held of the GPUs of `inventory`, which may be that of another machine. Only root may know it.
fn held(inventory: &Inventory, state_dir: &Path, warnings: &mut Vec<String>) -> Result<Books> {
    if root_only::check(state_dir).is_err() {
        if state_dir.join("ledger").exists() {
            warnings.push(format!(
                "{}: only root can read the ledger, so only names are compared; run this as root to see what is refused",
                state_dir.display()
            ));
        }
        return Ok(Books::default());
    }
    let unknown = |error: Error| Error::new(error.kind(), "held shares", "cannot be determined").from_source(error);
    let (mut books, _) = books(state_dir).map_err(unknown)?;
    books
        .books
        .retain(|book| inventory.gpus.iter().any(|gpu| gpu.uuid == book.gpu));
    warnings.extend(books.errors().map(|error| line(error)));
    Ok(books)
}

/// Keys of a policy that no plan has.
fn other_keys(old: Option<&Read>, new: Option<&Read>) -> impl Iterator<Item = String> {
    let runtime = |read: Option<&Read>| read.and_then(|read| read.runtime.clone());
    let layouts = |read: Option<&Read>| read.map(|read| read.policy.mig_layouts.clone()).unwrap_or_default();
    let on_demand = |read: Option<&Read>| read.and_then(|read| read.policy.mig_on_demand.clone());
    let keys = [
        ("runtime", runtime(old) == runtime(new)),
        ("mig.layout", layouts(old) == layouts(new)),
        ("mig.onDemand", on_demand(old) == on_demand(new)),
    ];
    let differ = keys.into_iter().filter(|(_, is_same)| !is_same);
    differ.map(|(key, _)| key.to_owned())
}
