//! What users hold for longer than the policy lets them, and what they hold without using it.

use crate::policy::{AtLimit, Sourced, TimeLimit};
use std::time::Duration;
use tranche_core::ledger::{Claim, ClaimState, Holder};

/// What is done about a claim that is held for too long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Due {
    /// It is shown.
    Tell,
    /// It is released, because nobody uses it.
    Release,
    /// Its holder is ended.
    End,
}

/// Which limit of the policy is exceeded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Exceeded {
    /// `maxHold`: it has been held for longer.
    MaxHold,
    /// `idle`: it has done nothing for longer.
    Idle,
}

/// A claim that a user has held, or held without using it, for too long.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Overdue<'c> {
    /// The claim, with the user.
    pub claim: &'c Claim,
    /// Which limit is exceeded.
    pub exceeded: Exceeded,
    /// For how much longer this has lasted than the limit says.
    pub by: Duration,
    /// What is done.
    pub due: Due,
    /// The limit.
    pub limit: Sourced<TimeLimit>,
}

/// A name for a claim, as long as nobody makes it again: no two claims hold one part of a device at the same time.
pub fn key(claim: &Claim) -> String {
    format!("{} {} {:?}", claim.device, claim.part, claim.since_boot)
}

impl<'c> Overdue<'c> {
    /// Whether `claim` of a user is held for too long at `uptime` seconds since boot (CLOCK_BOOTTIME). `None` if it is
    /// not, and if it is unknown since when it is held: of an earlier version of tranche or of an earlier boot.
    ///
    /// What a container of an engine that runs as root uses is never ended.
    pub fn held(claim: &'c Claim, limit: Sourced<TimeLimit>, uptime: u64) -> Option<Self> {
        let held = Duration::from_secs(uptime.checked_sub(claim.since_boot?)?);
        Self::of(claim, Exceeded::MaxHold, held, limit)
    }

    /// Whether `claim`, which has done nothing for `idle`, has done so for too long.
    pub fn idle(claim: &'c Claim, limit: Sourced<TimeLimit>, idle: Duration) -> Option<Self> {
        Self::of(claim, Exceeded::Idle, idle, limit)
    }

    fn of(claim: &'c Claim, exceeded: Exceeded, lasted: Duration, limit: Sourced<TimeLimit>) -> Option<Self> {
        let by = lasted.checked_sub(limit.value.most.get())?;
        let is_unused = claim.holder == Holder::Person && claim.state == ClaimState::Reserved;
        let due = match (limit.value.at_limit, &claim.holder) {
            (AtLimit::Release | AtLimit::End, Holder::Person) if is_unused => Due::Release,
            (AtLimit::End, Holder::Rootless { .. } | Holder::Process { .. }) => Due::End,
            _ => Due::Tell,
        };
        Some(Self {
            claim,
            exceeded,
            by,
            due,
            limit,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tranche_core::ledger::ContainerName;
    use tranche_core::types::{HeldPart, WaitTime};

    fn claim(holder: Holder) -> Claim {
        let state = match holder {
            Holder::Person => ClaimState::Reserved,
            _ => ClaimState::Held,
        };
        Claim {
            name: Some("1000.a".to_owned()),
            device: "GPU-11111111".parse().unwrap(),
            part: HeldPart::Whole,
            asked_as: None,
            spec_file: None,
            state,
            holder,
            process: None,
            joined: false,
            once: false,
            for_root: true,
            uid: 1000,
            since: 1_700_000_000,
            since_boot: Some(100),
            ttl: None,
            until: None,
        }
    }

    fn limit(at_limit: AtLimit) -> Sourced<TimeLimit> {
        Sourced {
            value: TimeLimit {
                most: WaitTime::seconds(10),
                at_limit,
                grace: WaitTime::seconds(1),
            },
            from: "sharing.users.default".to_owned(),
        }
    }

    /// By how many seconds, and what is done.
    fn due(claim: &Claim, at_limit: AtLimit, uptime: u64) -> Option<(u64, Due)> {
        Overdue::held(claim, limit(at_limit), uptime).map(|one| (one.by.as_secs(), one.due))
    }

    #[test]
    fn what_is_done_depends_on_who_holds_it() {
        let name = ContainerName {
            bundle: "/b".to_owned(),
            id: "c".to_owned(),
        };
        let unused = claim(Holder::Person);
        let rootless = claim(Holder::Rootless {
            user: 1000,
            name: name.clone(),
        });
        let of_root = claim(Holder::Container(name));
        let done = |at_limit| [&unused, &rootless, &of_root].map(|claim| due(claim, at_limit, 115).unwrap().1);
        assert_eq!(done(AtLimit::Warn), [Due::Tell; 3]);
        assert_eq!(done(AtLimit::Release), [Due::Release, Due::Tell, Due::Tell]);
        assert_eq!(done(AtLimit::End), [Due::Release, Due::End, Due::Tell]);
        // The same is done about what is idle.
        let idle = |claim, seconds| Overdue::idle(claim, limit(AtLimit::End), Duration::from_secs(seconds));
        assert_eq!(
            [&unused, &rootless, &of_root].map(|claim| idle(claim, 10).unwrap().due),
            [Due::Release, Due::End, Due::Tell]
        );
        assert_eq!(idle(&rootless, 9), None);
    }

    #[test]
    fn time_is_counted_since_boot_and_a_clock_that_jumps_changes_nothing() {
        let mut claim = claim(Holder::Person);
        for year in [-1, 0, 1] {
            claim.since = 1_700_000_000_u64.checked_add_signed(year * 365 * 86_400).unwrap();
            assert_eq!(due(&claim, AtLimit::Warn, 109), None);
            assert_eq!(due(&claim, AtLimit::Warn, 110), Some((0, Due::Tell)));
            assert_eq!(due(&claim, AtLimit::Warn, 3710), Some((3600, Due::Tell)));
        }
        // Of an earlier boot, and of an earlier version.
        assert_eq!(due(&claim, AtLimit::End, 50), None);
        claim.since_boot = None;
        assert_eq!(due(&claim, AtLimit::End, u64::MAX), None);
    }
}
