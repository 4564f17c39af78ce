//! How a device goes from one holder to the next: the next step, from what the driver says of every process.
//!
//! ```text
//! close ─▶ lock all ─▶ checkpoint all ─▶ memory is free ─▶ open ─▶ restore all ─▶ unlock all
//!              └──────────────┴─ a step failed: open, restore and unlock the one that gives way
//! ```
//!
//! Only [`Change`] is kept between two steps. Each step is found anew from the states of the processes, so a program
//! that is killed between two steps, or within one, goes on where it was; a process that has begun or ended meanwhile
//! counts.
//!
//! - All processes are locked before the first is checkpointed: a lock waits for submitted work, and can fail.
//! - Nothing is restored before the driver shows that the memory is free. A restore into too little memory fails for
//!   ever, even if memory is freed later (cuda-checkpoint issue 44), so a failed restore ends the claim.
//! - The one that gives way cannot open the device from the first step on. The next one can as soon as the memory is
//!   free: a checkpoint closes the device (gVisor issue 12144), and a restore opens it again in the process, and fails
//!   without it (ai-dynamo/snapshot issue 379).

use nix::unistd::Pid;
use serde::{Deserialize, Serialize};

/// What the driver says of a process of a claim (`CUprocessState`). Processes without a context are not among them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CudaState {
    /// It runs.
    Running,
    /// Its calls wait. Its memory is on the device.
    Locked,
    /// Its calls wait. Its memory is in host memory.
    Checkpointed,
    /// The driver cannot go on with it.
    Failed,
}

/// What is seen of a claim.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ClaimSeen {
    /// Its processes that have a context, each with its state.
    pub processes: Vec<(Pid, CudaState)>,
    /// Whether its processes can open the device.
    pub is_open: bool,
}

/// What is seen before a step.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ChangeSeen {
    /// The claim that gives way; `None` if nobody was resident or it has ended.
    pub from: Option<ClaimSeen>,
    /// The claim that becomes resident; `None` if nobody wants the device or it has ended.
    pub to: Option<ClaimSeen>,
    /// Whether all memory of the device is free, but for that of those of these processes that are not checkpointed.
    pub is_memory_free: bool,
}

/// One of the two claims.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// The one that gives way.
    From,
    /// The one that becomes resident.
    To,
}

/// A step. Each can be repeated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Keeps the processes of the claim from opening the device.
    Close(Side),
    /// Lets them open it.
    Open(Side),
    /// Locks a process, with a timeout.
    Lock(Pid),
    /// Copies the memory of a locked process to the host and frees the device.
    Checkpoint(Pid),
    /// Waits until the driver shows that the memory is free.
    AwaitMemory,
    /// Copies the memory of a process back.
    Restore(Side, Pid),
    /// Lets the calls of a process go on.
    Unlock(Side, Pid),
    /// Ends the claim, of which a process cannot be had back.
    End(Side),
    /// Nothing is left to do.
    Done,
    /// Nothing is left to do, and the one that was to give way is resident as before.
    GivenUp,
}

impl Step {
    /// Whose step it is; `None` if it is about the device.
    pub fn side(self) -> Option<Side> {
        match self {
            Self::Close(side) | Self::Open(side) | Self::Restore(side, _) | Self::Unlock(side, _) | Self::End(side) => {
                Some(side)
            }
            Self::Lock(_) | Self::Checkpoint(_) => Some(Side::From),
            Self::AwaitMemory | Self::Done | Self::GivenUp => None,
        }
    }
}

/// A change that is being made. It is recorded before its first step, and whenever [`Change::fail`] changes it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Change {
    /// A step failed, and the one that was to give way becomes resident again.
    pub is_back: bool,
    /// A process of these can be neither restored nor unlocked.
    pub lost: Lost,
}

/// Which claims cannot be had back.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Lost {
    /// The one that gives way.
    pub from: bool,
    /// The one that becomes resident.
    pub to: bool,
}

impl Change {
    /// The next step.
    pub fn next(self, seen: &ChangeSeen) -> Step {
        let end = |side: Side, is_lost: bool| {
            let is_to_end = |claim: &ClaimSeen| is_lost || claim.has(CudaState::Failed);
            seen.of(side).is_some_and(is_to_end).then_some(Step::End(side))
        };
        let goes_back = self.is_back && seen.from.is_some();
        let forth = || {
            seen.from
                .as_ref()
                .and_then(suspended)
                .or_else(|| resident(Side::To, seen))
        };
        end(Side::From, self.lost.from)
            .or_else(|| end(Side::To, self.lost.to))
            .or_else(|| if goes_back { resident(Side::From, seen) } else { forth() })
            .unwrap_or(if goes_back { Step::GivenUp } else { Step::Done })
    }

    /// Takes in that the processes of a lost claim have ended.
    #[must_use]
    pub fn ended(mut self, side: Side) -> Self {
        match side {
            Side::From => self.lost.from = false,
            Side::To => self.lost.to = false,
        }
        self
    }

    /// Lets the one that was to give way be resident again: what the next one needs is not to be had.
    #[must_use]
    pub fn go_back(mut self) -> Self {
        self.is_back = true;
        self
    }

    /// Takes in that a step failed.
    #[must_use]
    pub fn fail(mut self, step: Step) -> Self {
        match step {
            Step::Close(Side::From) | Step::Lock(_) | Step::Checkpoint(_) => self.is_back = true,
            Step::Restore(side, _) | Step::Unlock(side, _) => match side {
                Side::From => self.lost.from = true,
                Side::To => self.lost.to = true,
            },
            // Tried again: nothing of a tenant depends on it.
            Step::Close(Side::To) | Step::Open(_) | Step::AwaitMemory | Step::End(_) | Step::Done | Step::GivenUp => {}
        }
        self
    }
}

impl ChangeSeen {
    fn of(&self, side: Side) -> Option<&ClaimSeen> {
        match side {
            Side::From => self.from.as_ref(),
            Side::To => self.to.as_ref(),
        }
    }
}

impl ClaimSeen {
    fn has(&self, state: CudaState) -> bool {
        self.first(state).is_some()
    }

    fn first(&self, state: CudaState) -> Option<Pid> {
        let is_so = |(pid, of): &(Pid, CudaState)| (*of == state).then_some(*pid);
        self.processes.iter().find_map(is_so)
    }
}

/// The next step towards a claim all of whose memory is in host memory.
fn suspended(claim: &ClaimSeen) -> Option<Step> {
    let close = claim.is_open.then_some(Step::Close(Side::From));
    let lock = || claim.first(CudaState::Running).map(Step::Lock);
    let checkpoint = || claim.first(CudaState::Locked).map(Step::Checkpoint);
    close.or_else(lock).or_else(checkpoint)
}

/// The next step towards a claim that has the device. The other one has nothing on it, or never had.
fn resident(side: Side, seen: &ChangeSeen) -> Option<Step> {
    let claim = seen.of(side)?;
    let restore = |pid| match seen.is_memory_free {
        false => Step::AwaitMemory,
        true if !claim.is_open => Step::Open(side),
        true => Step::Restore(side, pid),
    };
    let restore = claim.first(CudaState::Checkpointed).map(restore);
    let unlock = || claim.first(CudaState::Locked).map(|pid| Step::Unlock(side, pid));
    let open = || (!claim.is_open).then_some(Step::Open(side));
    restore.or_else(unlock).or_else(open)
}

#[cfg(test)]
mod tests;
