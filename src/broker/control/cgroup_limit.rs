//! Limits of memory of the cgroups of containers: which are wanted, which were set, and what is to be done next.
//!
//! A limit belongs to one cgroup, and the kernel removes it together with the cgroup. A later cgroup of the same name
//! has another inode, and no limit.

use super::target::ControlTarget;
use serde::{Deserialize, Serialize};
use tranche_core::ledger::{Cgroup, Claim, ClaimState};
use tranche_core::types::{MemorySize, in_mib};

/// A limit that was set, or is about to be set or removed: an entry of the journal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct CgroupLimit {
    /// Who holds the claim, for messages.
    pub(super) holder: String,
    /// The directory of the cgroup, and its inode.
    path: String,
    inode: u64,
    /// The most memory that its processes can allocate.
    #[serde(rename = "mib", with = "in_mib")]
    pub(super) memory: MemorySize,
    /// Whether it is in effect for certain.
    pub(super) is_set: bool,
}

impl CgroupLimit {
    /// The cgroup.
    pub(super) fn cgroup(&self) -> Cgroup {
        Cgroup {
            path: self.path.clone(),
            inode: self.inode,
            top: None,
        }
    }

    /// The same limit, in effect for certain or not.
    pub(super) fn with_certainty(self, is_set: bool) -> Self {
        Self { is_set, ..self }
    }

    fn is_of(&self, cgroup: &Cgroup) -> bool {
        self.path == cgroup.path && self.inode == cgroup.inode
    }
}

/// A limit that a claim needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct WantedLimit {
    /// Who holds the claim, for messages.
    pub(super) holder: String,
    /// The cgroup of the container; `None` if it has none of its own, so that its memory cannot be limited.
    pub(super) cgroup: Option<Cgroup>,
    /// The most memory that its processes may have.
    pub(super) memory: MemorySize,
}

/// What to do next about limits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum LimitStep {
    Set(CgroupLimit),
    Remove(CgroupLimit),
    /// A limit that is needed cannot be set.
    Refuse(String),
}

/// The limit that a claim under MPS needs. A claim that no container uses yet needs none.
pub(super) fn wanted(claim: &Claim, target: &ControlTarget) -> Option<WantedLimit> {
    let memory = claim.part.promise()?.memory()?;
    let is_needed = target.limits_cgroups && claim.state == ClaimState::Held;
    is_needed.then(|| WantedLimit {
        holder: claim.who(),
        cgroup: claim.process.as_ref().and_then(|process| process.cgroup.clone()),
        // With overcommit, shares that are claimed as one are more together than the device has.
        memory: target.memory.map_or(memory, |whole| memory.min(whole)),
    })
}

/// The next limit that is to be set.
pub(super) fn next_to_set(wanted: &[WantedLimit], journal: &[CgroupLimit]) -> Option<LimitStep> {
    let lacks = |wanted: &WantedLimit| match &wanted.cgroup {
        None => Some(LimitStep::Refuse(format!(
            "the memory of {} cannot be limited: it has no cgroup of its own",
            wanted.holder
        ))),
        Some(cgroup) => {
            let limit = CgroupLimit {
                holder: wanted.holder.clone(),
                path: cgroup.path.clone(),
                inode: cgroup.inode,
                memory: wanted.memory,
                is_set: false,
            };
            let is_there = |entry: &CgroupLimit| entry.is_of(cgroup) && entry.is_set && entry.memory == wanted.memory;
            (!journal.iter().any(is_there)).then_some(LimitStep::Set(limit))
        }
    };
    wanted.iter().find_map(lacks)
}

/// The next limit that no claim needs any more.
pub(super) fn next_to_remove(wanted: &[WantedLimit], journal: &[CgroupLimit]) -> Option<LimitStep> {
    let is_wanted = |limit: &CgroupLimit| {
        let mut cgroups = wanted.iter().filter_map(|wanted| wanted.cgroup.as_ref());
        cgroups.any(|cgroup| limit.is_of(cgroup))
    };
    let unwanted = journal.iter().find(|limit| !is_wanted(limit));
    unwanted.map(|limit| LimitStep::Remove(limit.clone()))
}

/// Records `limit`, in the place of an earlier one of this cgroup.
pub(super) fn record(journal: &mut Vec<CgroupLimit>, limit: &CgroupLimit) {
    forget(journal, limit);
    journal.push(limit.clone());
}

/// Forgets the limit of this cgroup.
pub(super) fn forget(journal: &mut Vec<CgroupLimit>, limit: &CgroupLimit) {
    journal.retain(|entry| !entry.is_of(&limit.cgroup()));
}
