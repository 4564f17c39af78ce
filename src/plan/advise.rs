//! From what people want of a machine to a policy for it: which way of sharing each of them gets, and why.
//!
//! [`rules::RULES`] says which ways are tried for a wish, the best first. A way is proposed only if the policy with it
//! passes the same code that `policy check`, `plan` and a claim use: what is impossible on this machine is never
//! proposed, and the note says why. Nothing here measures anything.

mod assign;
mod check;
mod draft;
mod explain;
mod machine;
pub mod observed;
mod place;
mod read;
pub mod rules;
mod way;
mod wishes;

pub use explain::{Choice, RunnerUp, WorthOf};
pub use read::read;
pub use way::Way;
pub use wishes::{Latency, Trust, Wishes, Workload, WorkloadKind};

use crate::inventory::Inventory;
use crate::mig::MigGpu;
use machine::Machine;
use serde::Serialize;
use tranche_core::error::{Error, Kind, Result};

/// A policy that satisfies wishes on a machine, and why it is this one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Advice {
    /// The text of the policy.
    pub policy: String,
    /// How GPUs have to be divided by MIG first, as `tranche mig apply --layout` takes it; also in the policy.
    pub mig_layouts: Vec<String>,
    /// What each wish gets, in the order of the wishes.
    pub choices: Vec<Choice>,
    /// The other ways that are possible for a wish, with what they give up.
    pub runners_up: Vec<RunnerUp>,
    /// Better ways that are not possible here, and why; and what else to know before the policy is used.
    pub notes: Vec<String>,
}

/// The advice for `wishes` on the machine of `inventory`. `mig` has its GPUs with MIG, as the driver describes them.
///
/// # Errors
/// Returns an error of [`Kind::Found`] with the reasons if no policy satisfies the wishes.
pub fn advise(wishes: &Wishes, inventory: &Inventory, mig: &[MigGpu]) -> Result<Advice> {
    let machine = Machine::new(inventory, mig);
    let solver = assign::Solver::new(wishes, &machine);
    let Some(found) = solver.solve(None) else {
        return Err(nothing_fits(wishes, &machine));
    };
    Ok(explain::advice(&solver, &found))
}

/// The error for wishes that no policy satisfies: the first one that is impossible alone, with the reason for each way.
fn nothing_fits(wishes: &Wishes, machine: &Machine<'_>) -> Error {
    let free = machine.unused();
    for workload in &wishes.workloads {
        let rule = rules::of(workload, wishes, machine);
        let why = |way: &Way| Some((*way, place::first(workload, *way, machine, &free).err()?));
        let reasons: Vec<(Way, String)> = rule.ways.iter().filter_map(why).collect();
        if reasons.len() == rule.ways.len() {
            let reasons: Vec<String> = reasons.iter().map(|(way, why)| format!("{way}: {why}")).collect();
            let what = format!(
                "{}: not possible on this machine: {}",
                workload.name,
                reasons.join("; ")
            );
            let error = Error::new(Kind::Found, workload.place.of(&wishes.file), what);
            return error.hint("wish for less, or for fewer containers");
        }
    }
    let names: Vec<&str> = wishes.workloads.iter().map(|workload| workload.name.as_str()).collect();
    let what = format!(
        "each wish is possible alone, and no policy gives this machine to all of them together: {}",
        names.join(", ")
    );
    Error::new(Kind::Found, &wishes.file, what).hint("wish for less, or for fewer containers")
}

#[cfg(test)]
mod tests;
