//! Which holders have kept the MPS daemon of a device from others.

use super::daemon::{Blocker, Processes};
use std::collections::BTreeMap;
use tranche_core::ledger::{Claim, utc};

/// A holder that blocked the daemon so often has not done it by accident.
const REPEATED: u32 = 2;

/// How long it is shown, in seconds.
const SHOWN: u64 = 3600;

/// Who blocked a daemon, by the holder of the claim.
#[derive(Debug, Default)]
pub(super) struct Blocked(BTreeMap<String, Times>);

#[derive(Debug)]
struct Times {
    count: u32,
    last: u64,
    /// Whether it has a claim that can be ended.
    holder: Option<Claim>,
}

impl Blocked {
    /// Records `blockers`, which were shut out at `now`, in seconds since 1970. `claims` are those on the device.
    pub(super) fn add(&mut self, blockers: Vec<Blocker>, claims: &[Claim], processes: &Processes, now: u64) {
        // Several connections of one look are one time.
        let mut of_this_look: BTreeMap<String, Option<Claim>> = BTreeMap::new();
        for blocker in blockers {
            let is_of = |claim: &&Claim| {
                let pair = claim.process.as_ref().zip(blocker.pid);
                pair.is_some_and(|(init, pid)| processes.is_of_container(init, pid).unwrap_or(false))
            };
            let claim = claims.iter().find(is_of);
            let who = match (claim, blocker.pid) {
                (Some(claim), _) => claim.who(),
                (None, Some(pid)) => format!("process {}, uid {}", super::daemon::describe(pid), blocker.uid),
                (None, None) => format!("a process that has ended, uid {}", blocker.uid),
            };
            of_this_look.insert(who, claim.cloned());
        }
        for (who, holder) in of_this_look {
            tracing::warn!("{who}: kept a connection to the MPS daemon open without using it; it was closed");
            let times = self.0.entry(who).or_insert(Times {
                count: 0,
                last: now,
                holder: None,
            });
            (times.count, times.last) = (times.count.saturating_add(1), now);
            times.holder = holder;
        }
        self.0.retain(|_, times| now.saturating_sub(times.last) < SHOWN);
    }

    /// A line for each, for people.
    pub(super) fn lines(&self) -> impl Iterator<Item = String> + '_ {
        self.0.iter().map(|(who, times)| {
            let (count, last) = (
                tranche_core::text::counted(times.count as usize, "time"),
                utc(times.last),
            );
            format!("{who} has kept the MPS daemon from others {count}, last at {last}; its connection was closed")
        })
    }

    /// The claims of those who did it repeatedly.
    pub(super) fn repeated(&self) -> impl Iterator<Item = &Claim> {
        let repeated = self.0.values().filter(|times| times.count >= REPEATED);
        repeated.filter_map(|times| times.holder.as_ref())
    }
}
