//! Who may open device nodes.

use super::super::{AccessFacts, FoundError};
use std::fs;
use std::path::Path;
use tranche_core::error::Result;
use tranche_host::Roots;
use tranche_plan::access::{MonitorIds, Opening, nodes};
use tranche_plan::inventory::Inventory;
use tranche_plan::share::Plan;
use tranche_state::access::{Enforcement, KeptNodes, ModuleOption, Opened, seat};
use tranche_state::accounts::{AccountSources, Accounts};
use tranche_state::planning::PlanOptions;

/// What is known of it. Without a plan, or of a host that is only described, nodes are open.
///
/// # Errors
/// Returns an error if the driver's parameters cannot be read.
pub(super) fn of(at: &PlanOptions, plan: Option<&Plan>, inventory: &Inventory) -> Result<AccessFacts> {
    let Some(plan) = plan.filter(|_| at.host.inventory.is_none()) else {
        return Ok(AccessFacts::default());
    };
    let root = at.host.roots.root.as_deref().unwrap_or(Path::new("/"));
    let closed = nodes(inventory, plan, &[], &MonitorIds::default()).into_iter();
    let closed = closed.filter(|kept| matches!(kept.opening, Opening::Listed(_)));
    let open = closed.filter(|kept| kept.node.mode.is_some_and(|mode| mode & 0o006 != 0));
    let enforcement = Enforcement::on(&at.host, plan.access)?;
    let opened = match enforcement {
        Enforcement::InForce => opened(at, plan, inventory),
        Enforcement::Off | Enforcement::NotInForce => Vec::new(),
    };
    Ok(AccessFacts {
        opened,
        open: open.map(|kept| kept.node.host.to_string()).collect(),
        enforcement,
        has_option: ModuleOption::below(root).is_installed(),
        seat: seat::check(inventory, root).err().map(|error| FoundError::of(&error)),
        docker: members(root, "docker"),
        sudo: ["sudo", "wheel"]
            .iter()
            .flat_map(|group| members(root, group))
            .collect(),
    })
}

/// The processes that have closed nodes open which their users may not open. A user who may not read the ledger knows
/// none.
fn opened(at: &PlanOptions, plan: &Plan, inventory: &Inventory) -> Vec<Opened> {
    let accounts = Accounts::new(AccountSources::default());
    let nodes = KeptNodes {
        host: &at.host,
        state_dir: &at.state_dir,
        accounts: &accounts,
        starting: &[],
    };
    let roots = Roots::new(&at.host.roots);
    let found = roots.and_then(|roots| nodes.opened(&roots.processes(), inventory, plan));
    found.unwrap_or_default()
}

/// The members that the file of groups names (group(5)).
fn members(root: &Path, group: &str) -> Vec<String> {
    let text = fs::read_to_string(root.join("etc/group")).unwrap_or_default();
    let line = text.lines().find(|line| line.split(':').next() == Some(group));
    let names = line.and_then(|line| line.split(':').nth(3)).unwrap_or_default();
    names
        .split(',')
        .filter(|name| !name.is_empty())
        .map(str::to_owned)
        .collect()
}
