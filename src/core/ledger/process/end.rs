//! What shows that a process that holds a claim has ended.

use super::{Machine, cgroup};
use crate::ledger::claim::InitProcess;
use nix::poll::PollFlags;
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use std::os::fd::OwnedFd;

/// What shows that an init has ended, with the last process of its cgroup.
#[derive(Debug)]
pub enum EndSign {
    /// Nothing on this machine, as seen from here.
    Never,
    /// These events of the descriptor. When they have come, it may still have to be asked for the next sign.
    Shown(OwnedFd, PollFlags),
    /// It can only be looked at again.
    Hidden,
}

impl Machine {
    /// What shows that `process` is gone, if it is not yet.
    pub fn end_of(&self, process: &InitProcess) -> EndSign {
        if process.namespace != self.namespace {
            return EndSign::Never;
        }
        let pid = i32::try_from(process.pid).ok().and_then(Pid::from_raw);
        let opened = pid.and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok());
        // After the descriptor was opened: it is of this process, and not of one that has its number now.
        match (opened, self.has_ended(process), &process.cgroup) {
            (Some(opened), false, _) => EndSign::Shown(opened, PollFlags::POLLIN),
            (_, true, Some(cgroup)) => {
                cgroup::end_of(cgroup).map_or(EndSign::Hidden, |events| EndSign::Shown(events, PollFlags::POLLPRI))
            }
            (None, false, _) | (_, true, None) => EndSign::Hidden,
        }
    }
}
