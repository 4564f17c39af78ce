//! Since when something was kept free for requests that have left without being served, by user. Without it, a user who
//! hangs up and asks anew would have things kept for ever.

use std::collections::BTreeMap;
use std::time::Duration;

/// What the next requests of each account go on with.
#[derive(Debug, Clone)]
pub(super) struct GivenUp<A> {
    /// How long after a request has left it is forgotten.
    forgotten_after: Duration,
    /// Since when something was kept for it, and when the last one that went on with it has left.
    left: BTreeMap<(A, Duration), Duration>,
}

impl<A: Copy + Ord> GivenUp<A> {
    pub(super) fn new(forgotten_after: Duration) -> Self {
        Self {
            forgotten_after,
            left: BTreeMap::new(),
        }
    }

    /// Notes that a request of `account` leaves at `now`, for which something was kept since then.
    pub(super) fn add(&mut self, account: A, kept_since: Duration, now: Duration) {
        let forgotten_after = self.forgotten_after;
        self.left.retain(|_, at| now.saturating_sub(*at) < forgotten_after);
        self.left.insert((account, kept_since), now);
    }

    /// Since when something was kept for requests of `account` that have left, not counting what was kept before
    /// `from`.
    pub(super) fn since(&self, account: A, from: Duration, now: Duration) -> Option<Duration> {
        let mut left = self.left.range((account, from)..=(account, Duration::MAX));
        let found = left.find(|(_, at)| now.saturating_sub(**at) < self.forgotten_after);
        found.map(|((_, since), _)| *since)
    }
}
