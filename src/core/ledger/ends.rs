//! Notices that a claim ends by itself: its process ends, the last process of its cgroup does, or its time is over.
//! Nothing is written then.

use super::book::World;
use super::claim::Claim;
use super::process::{EndSign, Machine};
use nix::poll::{PollFd, PollFlags};
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

/// The most descriptors: most processes may have 1,024. The other claims are looked at from time to time.
const MOST: usize = 128;

/// How often claims are looked at whose end shows nothing.
const LOOK: Duration = Duration::from_millis(100);

/// The ends of some claims.
#[derive(Debug, Default)]
pub struct Ends {
    shown: Vec<(OwnedFd, PollFlags)>,
    /// When one of the others may end.
    other: Option<Duration>,
}

impl Ends {
    /// The ends of `claims`, as they are held now.
    pub fn of<'a>(claims: impl Iterator<Item = &'a Claim>, machine: &Machine) -> Self {
        let mut ends = Self::default();
        for claim in claims {
            if let Some(until) = claim.until {
                ends.look_after(Duration::from_secs(until.saturating_sub(machine.uptime())).max(LOOK));
            }
            let Some(process) = &claim.process else { continue };
            match machine.end_of(process) {
                EndSign::Never => {}
                EndSign::Shown(sign, events) if ends.shown.len() < MOST => ends.shown.push((sign, events)),
                EndSign::Shown(..) | EndSign::Hidden => ends.look_after(LOOK),
            }
        }
        ends
    }

    fn look_after(&mut self, time: Duration) {
        self.other = Some(self.other.map_or(time, |other| other.min(time)));
    }

    /// After what time to look although no descriptor is ready.
    pub(super) fn look(&self) -> Option<Duration> {
        self.other
    }

    /// The descriptors to wait for.
    pub(super) fn descriptors(&self) -> impl Iterator<Item = PollFd<'_>> {
        self.shown
            .iter()
            .map(|(sign, events)| PollFd::new(sign.as_fd(), *events))
    }
}
