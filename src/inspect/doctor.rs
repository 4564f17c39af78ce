//! What is wrong with a host, why it matters, and which command corrects it.
//!
//! Each check is one small file: a function from what was gathered ([`DoctorSubject`]) to what it found. Nothing here
//! reads NVML, executes a program or changes anything.

mod apparmor;
mod broker;
mod char_links;
mod compute_mode;
mod crun;
mod driver;
mod engine_files;
mod engines;
mod fabric;
mod finding;
mod fix;
pub mod gather;
mod hooks;
mod host_file;
mod imex;
mod in_service;
mod known;
mod ledger;
mod libraries;
mod low_level;
mod mig;
mod mig_mode;
mod modules;
mod mps;
mod nodes;
mod nvidia_hook;
mod open_nodes;
mod persistence;
mod policy;
mod programs;
mod refresh_units;
mod rewrite;
mod room;
mod rootless;
mod selinux;
mod shared_use;
mod snap;
mod spec_access;
mod specifications;
mod staleness;
mod state;
mod subject;
mod suspended;
mod trust;
mod units;

pub use finding::Finding;
pub use fix::Fix;
pub use libraries::OtherLibrary;
pub use programs::{Unusable, UnusableProgram};
pub use room::{Lack, NoRoom};
pub use rootless::{IdMaps, PowerlessProgram};
pub use subject::{
    AccessFacts, BrokerCondition, DaemonCondition, DoctorSubject, FoundDaemon, FoundError, LedgerFacts, MpsFacts,
    PolicyFacts, SharedUse,
};
pub use trust::{OtherWriter, Replaceable, Trusted};

/// The programs of daemons that the checks ask for.
pub const DAEMONS: [&str; 2] = [mps::DAEMON, imex::DAEMON];

use serde::Serialize;

/// What one check found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case", tag = "result")]
pub enum Diagnosis {
    /// All is well.
    Good {
        /// What was found.
        found: String,
    },
    /// Something does not work, or will not.
    Wrong(Trouble),
    /// Everything works, and something could be better.
    Advice(Trouble),
    /// The check says nothing about this host.
    Skipped {
        /// Why.
        why: String,
    },
}

/// Something that is wrong or could be better.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Trouble {
    /// Its cause.
    pub finding: Finding,
    /// What was found.
    pub found: String,
    /// What it means for containers.
    pub why: String,
    /// What corrects it.
    #[serde(flatten)]
    pub fix: Fix,
}

impl Diagnosis {
    fn good(found: impl Into<String>) -> Self {
        Self::Good { found: found.into() }
    }

    fn skipped(why: impl Into<String>) -> Self {
        Self::Skipped { why: why.into() }
    }

    fn wrong(finding: Finding, found: impl Into<String>, why: impl Into<String>, fix: impl Into<Fix>) -> Self {
        Self::Wrong(Trouble::new(finding, found, why, fix))
    }

    fn advice(finding: Finding, found: impl Into<String>, why: impl Into<String>, fix: impl Into<Fix>) -> Self {
        Self::Advice(Trouble::new(finding, found, why, fix))
    }

    /// What is wrong, or could be better.
    pub fn fault(&self) -> Option<&Trouble> {
        match self {
            Self::Wrong(fault) | Self::Advice(fault) => Some(fault),
            Self::Good { .. } | Self::Skipped { .. } => None,
        }
    }
}

impl Trouble {
    fn new(finding: Finding, found: impl Into<String>, why: impl Into<String>, fix: impl Into<Fix>) -> Self {
        Self {
            finding,
            found: found.into(),
            why: why.into(),
            fix: fix.into(),
        }
    }
}

/// One result of a check.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CheckResult {
    /// The name of the check.
    pub check: &'static str,
    /// What it found.
    #[serde(flatten)]
    pub diagnosis: Diagnosis,
}

type Check = fn(&DoctorSubject) -> Vec<Diagnosis>;

/// The checks, in the order in which a person would look: the driver, its nodes, specifications, engines, shares.
const CHECKS: &[(&str, Check)] = &[
    ("driver", driver::check),
    ("modules", modules::check),
    ("libraries on the host", libraries::check),
    ("MIG mode", mig_mode::check),
    ("device nodes", nodes::check),
    ("links in /dev/char", char_links::check),
    ("access to device nodes", open_nodes::check),
    ("persistence mode", persistence::check),
    ("fabric manager", fabric::check),
    ("IMEX", imex::check),
    ("policy", policy::check),
    ("MIG layouts", mig::check),
    ("specifications", specifications::check),
    ("access to specifications", spec_access::check),
    ("age of specifications", staleness::check),
    ("refresh", refresh_units::check),
    ("hooks", hooks::check),
    ("programs", programs::check),
    ("who may write", trust::check),
    ("room", room::check),
    ("state directory", state::check),
    ("host.json", host_file::check),
    ("engines", engines::check),
    ("configuration of engines", engine_files::check),
    ("docker in a snap", snap::check),
    ("NVIDIA's hook", nvidia_hook::check),
    ("known faults", known::check),
    ("low-level runtime", low_level::check),
    ("messages of hooks", crun::check),
    ("SELinux", selinux::check),
    ("AppArmor", apparmor::check),
    ("rootless engines", rootless::check),
    ("ledger", ledger::check),
    ("use of shared devices", shared_use::check),
    ("compute mode", compute_mode::check),
    ("devices in service", in_service::check),
    ("suspended work", suspended::check),
    ("broker", broker::check),
    ("MPS daemons", mps::check),
];

/// The names of the checks, in the order of their results.
pub fn check_names() -> impl Iterator<Item = &'static str> {
    CHECKS.iter().map(|(name, _)| *name)
}

/// Runs every check.
pub fn examine(subject: &DoctorSubject) -> Vec<CheckResult> {
    let each = |(check, run): &(&'static str, Check)| {
        let check = *check;
        run(subject)
            .into_iter()
            .map(move |diagnosis| CheckResult { check, diagnosis })
    };
    CHECKS.iter().flat_map(each).collect()
}

#[cfg(test)]
mod tests;
