//! The device nodes of a machine that closes them to users without a claim.

use super::options::{RefreshOptions, RefreshPlace};
use crate::device_files::{NodeSet, make_missing};
use tranche_core::error::{Result, line};
use tranche_plan::derive::Sharing;
use tranche_plan::inventory::Inventory;
use tranche_plan::share::Plan;
use tranche_state::access::{self, Enforcement, KeptNodes};
use tranche_state::accounts::{AccountSources, Accounts};

/// Makes the nodes that are missing, of MIG instances for example, where the driver does not make them any more; and
/// opens and closes all as the policy and the ledger say. Returns a line for each that is not as it should be: the
/// specifications are written all the same.
pub(super) fn keep(
    inventory: &Inventory,
    sharing: Option<&Sharing>,
    options: &RefreshOptions,
    place: &RefreshPlace,
) -> Vec<String> {
    let kept = || -> Result<_> {
        let none = Plan::default();
        let plan = sharing.map_or(&none, |sharing| &sharing.plan);
        let accounts = Accounts::new(AccountSources::default());
        let nodes = KeptNodes {
            host: &options.at.host,
            state_dir: &place.state_dir,
            accounts: &accounts,
            starting: &[],
        };
        let mut wrong = Vec::new();
        if options.at.host.is_here() && Enforcement::on(&options.at.host, plan.access)? == Enforcement::InForce {
            wrong = make_missing(inventory, NodeSet::All, access::params(&options.at.host)?, true).1;
        }
        wrong.extend(nodes.keep(inventory, plan)?);
        Ok(wrong)
    };
    let wrong = kept().unwrap_or_else(|error| vec![error]);
    wrong.iter().map(|error| line(error)).collect()
}
