//! The rules by which a way is chosen. docs/explanation/advice.md has the same table, and a test compares the two.

use super::machine::Machine;
use super::way::Way;
use super::wishes::{Latency, Trust, Wishes, Workload, WorkloadKind};

/// One rule. The first one that applies to a wish counts.
#[derive(Debug, Clone, Copy)]
pub struct Rule {
    /// Its name.
    pub id: &'static str,
    /// To which wishes it applies, in words.
    pub when: &'static str,
    applies: fn(&Workload, &Wishes, &Machine<'_>) -> bool,
    /// The ways that are tried, the best one first. A way that is not in the list is never proposed.
    pub ways: &'static [Way],
    /// Why, in one sentence.
    pub reason: &'static str,
    /// What the reason rests on.
    pub basis: Basis,
}

tranche_core::types::words! {
    /// What a rule rests on.
    pub enum Basis {
        /// The grades of the ways.
        Grades = "grades",
        /// Measurements that others have published.
        Talk = "talk",
    }
}

impl Basis {
    /// Where to read it.
    pub fn text(self) -> &'static str {
        match self {
            Self::Grades => "the grades of each way (guarantees.md)",
            Self::Talk => "measurements by Klues and Chen, KubeCon 2024, on an A100 (guarantees.md)",
        }
    }
}

/// Every rule, in the order in which they are looked at.
pub const RULES: &[Rule] = &[
    Rule {
        id: "tenants",
        when: "`trust: none`",
        applies: |_, all, _| all.trust == Trust::None,
        ways: &[Way::Mig, Way::Whole, Way::Waiting],
        reason: "nothing but MIG or a device of its own holds against tenants who try to break out",
        basis: Basis::Grades,
    },
    Rule {
        id: "single",
        when: "one container in all",
        applies: |_, all, _| all.containers() == 1,
        ways: &[Way::Whole, Way::Mig],
        reason: "with one container, nothing is gained by sharing",
        basis: Basis::Grades,
    },
    Rule {
        id: "whole-gpu",
        when: "`wholeGpu: true`",
        applies: |one, _, _| one.whole_gpu,
        ways: &[Way::Whole, Way::Waiting],
        reason: "GPUs go to one container at a time, with limits of time if others wait",
        basis: Basis::Grades,
    },
    Rule {
        id: "bounded-latency",
        when: "`latency: bounded`",
        applies: |one, _, _| one.latency == Latency::Bounded,
        ways: &[Way::Mig, Way::Whole, Way::Mps],
        reason: "MIG divides compute and bandwidth in hardware; the bound of MPS is soft at best",
        basis: Basis::Grades,
    },
    Rule {
        id: "training",
        when: "training",
        applies: |one, _, _| one.kind == WorkloadKind::Training,
        ways: &[Way::Whole, Way::Mig, Way::Waiting, Way::Mps, Way::Turns],
        reason: "training fills a GPU, so a neighbour slows both down",
        basis: Basis::Talk,
    },
    Rule {
        id: "vgpu",
        when: "every GPU is a vGPU",
        applies: |one, _, machine| one.compute.is_none() && machine.is_vgpu(),
        ways: &[Way::Turns, Way::Mps, Way::Whole, Way::Waiting],
        reason: "a guest cannot set EXCLUSIVE_PROCESS, so limits of MPS are advisory",
        basis: Basis::Grades,
    },
    Rule {
        id: "sized-service",
        when: "service of known size",
        applies: |one, _, _| is_service(one) && (one.memory.is_some() || one.compute.is_some()),
        ways: &[Way::Mps, Way::Mig, Way::Whole, Way::Turns],
        reason: "small kernels of several processes fill a GPU, and each has its own limit",
        basis: Basis::Talk,
    },
    Rule {
        id: "light-service",
        when: "other service",
        applies: |one, _, _| is_service(one),
        ways: &[Way::Turns, Way::Mps, Way::Mig, Way::Whole],
        reason: "there is no size to limit, and at low rates time-slicing loses nothing",
        basis: Basis::Talk,
    },
    Rule {
        id: "large-notebook",
        when: "notebook with over half of a GPU's memory",
        applies: |one, _, machine| one.memory.is_some_and(|memory| machine.is_more_than_half(memory)),
        ways: &[Way::Whole, Way::Waiting],
        reason: "two do not fit on one GPU",
        basis: Basis::Grades,
    },
    Rule {
        id: "notebook",
        when: "other notebook",
        applies: |_, _, _| true,
        ways: &[Way::Turns, Way::Mps, Way::Pool, Way::Mig, Way::Whole, Way::Waiting],
        reason: "idle neighbours cost only memory, and all trust one another",
        basis: Basis::Talk,
    },
];

fn is_service(one: &Workload) -> bool {
    one.kind == WorkloadKind::Service
}

/// The rule for a wish. The last one applies to every wish.
pub(super) fn of(one: &Workload, all: &Wishes, machine: &Machine<'_>) -> &'static Rule {
    let mut rules = RULES.iter();
    let found = rules.find(|rule| (rule.applies)(one, all, machine));
    found.unwrap_or(&RULES[RULES.len() - 1])
}

/// The table of the rules, for the documentation.
pub fn table() -> String {
    let mut table = String::from("| rule | applies to | ways, the best first | why | basis |\n|---|---|---|---|---|\n");
    for rule in RULES {
        let ways: Vec<&str> = rule.ways.iter().map(|way| way.as_str()).collect();
        let (id, when, reason, basis) = (rule.id, rule.when, rule.reason, rule.basis);
        table.push_str(&format!(
            "| {id} | {when} | {} | {reason} | {basis} |\n",
            ways.join(", ")
        ));
    }
    table
}
