//! Finds a way for each wish, so that all of them are satisfied together.

use super::check::{Checked, check};
use super::draft::Draft;
use super::machine::Machine;
use super::place::{Use, put, variants};
use super::rules::{self, Rule};
use super::way::Way;
use super::wishes::{Latency, Trust, Wishes, Workload, WorkloadKind};
use std::cell::Cell;
use tranche_core::types::MemorySize;

/// How many ways of a wish are tried at most, all together. With them, the search ends in a moment also where nothing
/// fits.
const MOST_TRIES: u32 = 3000;

/// Finds ways for wishes on a machine.
pub(super) struct Solver<'a> {
    pub(super) wishes: &'a Wishes,
    pub(super) machine: &'a Machine<'a>,
    /// The rule for each wish.
    pub(super) rules: Vec<&'static Rule>,
    /// In which order they are served: those that can give way least come first.
    order: Vec<usize>,
}

/// Ways for all wishes, and the policy for them, which passed the check.
pub(super) struct Found {
    /// The way of each wish.
    pub(super) ways: Vec<Way>,
    pub(super) draft: Draft,
    pub(super) checked: Checked,
}

impl<'a> Solver<'a> {
    pub(super) fn new(wishes: &'a Wishes, machine: &'a Machine<'a>) -> Self {
        let all = || wishes.workloads.iter();
        let mut order: Vec<usize> = (0..wishes.workloads.len()).collect();
        let urgency = |one: &Workload| {
            let needs_apart = wishes.trust == Trust::None || one.latency == Latency::Bounded;
            let kind = match one.kind {
                WorkloadKind::Training => 0,
                WorkloadKind::Service => 1,
                WorkloadKind::Notebook => 2,
            };
            (!one.whole_gpu, !needs_apart, kind, std::cmp::Reverse(one.memory))
        };
        order.sort_by_key(|at| wishes.workloads.get(*at).map(urgency));
        Self {
            wishes,
            machine,
            rules: all().map(|one| rules::of(one, wishes, machine)).collect(),
            order,
        }
    }

    /// The best ways. `forced`: this wish is served in this way.
    pub(super) fn solve(&self, forced: Option<(usize, Way)>) -> Option<Found> {
        let search = Search {
            solver: self,
            forced,
            tries: Cell::new(0),
        };
        let mut ways = vec![Way::Whole; self.order.len()];
        search.go(&self.order, &self.machine.unused(), &mut ways)
    }
}

struct Search<'s> {
    solver: &'s Solver<'s>,
    forced: Option<(usize, Way)>,
    tries: Cell<u32>,
}

impl Search<'_> {
    fn go(&self, order: &[usize], uses: &[Use], ways: &mut Vec<Way>) -> Option<Found> {
        let Some((next, rest)) = order.split_first() else {
            return self.look(uses, ways);
        };
        let (one, rule) = (self.solver.wishes.workloads.get(*next)?, self.solver.rules.get(*next)?);
        let is_meant = |way: &&Way| {
            self.forced
                .is_none_or(|(wish, forced)| wish != *next || forced == **way)
        };
        for way in rule.ways.iter().filter(is_meant) {
            let mut before = None;
            for variant in 0..variants(*way, self.solver.machine) {
                self.tries.set(self.tries.get() + 1);
                if self.tries.get() > MOST_TRIES {
                    return None;
                }
                let Ok(with_it) = put(one, *way, variant, self.solver.machine, uses) else {
                    continue;
                };
                // Two variants may be the same on this machine.
                if before.as_ref() == Some(&with_it) {
                    continue;
                }
                if let Some(set) = ways.get_mut(*next) {
                    *set = *way;
                }
                let found = self.go(rest, &with_it, ways);
                if found.is_some() {
                    return found;
                }
                before = Some(with_it);
            }
        }
        None
    }

    /// Makes the policy and checks it.
    fn look(&self, uses: &[Use], ways: &[Way]) -> Option<Found> {
        let (wishes, machine) = (self.solver.wishes, self.solver.machine);
        let mut uses = uses.to_vec();
        for (one, _) in wishes
            .workloads
            .iter()
            .zip(ways)
            .filter(|(_, way)| **way == Way::Waiting)
        {
            widen(one, machine, &mut uses);
        }
        let draft = Draft::new(wishes, machine, &uses);
        let checked = check(&draft).ok()?;
        Some(Found {
            ways: ways.to_vec(),
            draft,
            checked,
        })
    }
}

/// Gives a wish whose containers wait the GPUs that are still free, up to one for each container but one.
fn widen(one: &Workload, machine: &Machine<'_>, uses: &mut [Use]) {
    let own = |used: &&Use| matches!(used, Use::Waiting(seat) if seat.of == one.name.as_str());
    let Some(waiting) = uses.iter().find(own).cloned() else {
        return;
    };
    let count = |uses: &[Use]| uses.iter().filter(own).count();
    for (at, gpu) in machine.gpus.iter().enumerate() {
        let is_enough = gpu.has_memory(one.memory.map(MemorySize::mib));
        let is_wanted = is_enough && count(uses) + 1 < one.count as usize;
        if let Some(free) = uses.get_mut(at).filter(|used| is_wanted && **used == Use::Free) {
            *free = waiting.clone();
        }
    }
}
