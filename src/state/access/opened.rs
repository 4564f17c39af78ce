//! Processes that have a closed node open although their user may not open it: the lists say who may open a node, and a
//! descriptor that exists is asked for nothing.

use super::{KeptNodes, opener};
use crate::accounts::Account;
use crate::node_users::{NodeUser, users_of};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use tranche_core::claims::Claims;
use tranche_core::error::Result;
use tranche_core::ledger::Books;
use tranche_plan::access::{AccessList, Opener, Opening, nodes};
use tranche_plan::inventory::Inventory;
use tranche_plan::share::Plan;

/// A process that has closed nodes open which its user may not open.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Opened {
    /// The process.
    pub process: NodeUser,
    /// The nodes: `/dev/nvidia0`.
    pub nodes: Vec<String>,
}

impl KeptNodes<'_> {
    /// The processes below `proc` that have nodes open which `plan` closes to their users. A process of root may open
    /// all; a subordinate uid counts as its user.
    ///
    /// # Errors
    /// Returns an error if the ledger or `proc` cannot be read.
    pub fn opened(&self, proc: &Path, inventory: &Inventory, plan: &Plan) -> Result<Vec<Opened>> {
        let (monitors, _) = self.accounts.monitors(&plan.monitors);
        let claims = Claims::existing(self.state_dir)?;
        let (books, inits) = match &claims {
            Some(claims) => (claims.books()?, self.inits(claims)?),
            None => (Books::default(), Vec::new()),
        };
        let openers: Vec<Opener> = books.claims().filter_map(|claim| opener(claim, &inits)).collect();
        let mut closed: BTreeMap<(u64, u64), (String, AccessList)> = BTreeMap::new();
        for kept in nodes(inventory, plan, &openers, &monitors) {
            if let Opening::Listed(list) = kept.opening {
                let number = (u64::from(kept.node.major), u64::from(kept.node.minor));
                closed.insert(number, (kept.node.host.to_string(), list));
            }
        }
        let numbers: BTreeSet<(u64, u64)> = closed.keys().copied().collect();
        let found = users_of(proc, &numbers)?.into_iter().map(|process| {
            let open = closed.iter().filter(|(number, _)| process.nodes.contains(number));
            let beyond = open.filter(|(_, (_, list))| !self.allows(list, &process));
            Opened {
                nodes: beyond.map(|(_, (path, _))| path.clone()).collect(),
                process,
            }
        });
        Ok(found.filter(|opened| !opened.nodes.is_empty()).collect())
    }

    fn allows(&self, list: &AccessList, process: &NodeUser) -> bool {
        let is_users = |account: Account| matches!(account, Account::User(uid) if list.allows(uid, &process.gids));
        list.allows(process.uid, &process.gids) || is_users(self.accounts.of(process.uid))
    }
}
