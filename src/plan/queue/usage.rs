//! What each user has held lately, in device-seconds that lose half of their value in a given time.

use std::collections::BTreeMap;
use std::time::Duration;

/// What each account has held lately. An amount decays exactly: when it is looked at makes no difference.
#[derive(Debug, Clone, PartialEq)]
pub struct UsedLately<A> {
    half_life: Duration,
    used: BTreeMap<A, Used>,
}

#[derive(Debug, Clone, Copy, PartialEq)]
struct Used {
    /// Device-seconds, as they counted at `at`.
    amount: f64,
    /// Time since boot.
    at: Duration,
}

/// An amount that does not count any more: a second of one device.
const NOTHING: f64 = 1.0;

impl<A: Copy + Ord> UsedLately<A> {
    /// Nobody has held anything.
    pub fn new(half_life: Duration) -> Self {
        Self {
            half_life,
            used: BTreeMap::new(),
        }
    }

    /// What `account` has held lately, in device-seconds.
    pub fn of(&self, account: A, now: Duration) -> f64 {
        self.used.get(&account).map_or(0.0, |used| self.decayed(*used, now))
    }

    /// Adds what `account` has held until `now`.
    pub fn add(&mut self, account: A, device_seconds: f64, now: Duration) {
        let amount = self.of(account, now) + device_seconds.max(0.0);
        self.used.insert(account, Used { amount, at: now });
    }

    /// Forgets accounts whose amount counts no more, and returns the others with what counts at `now`.
    pub fn amounts(&mut self, now: Duration) -> Vec<(A, f64)> {
        let half_life = self.half_life;
        self.used.retain(|_, used| decayed(*used, half_life, now) >= NOTHING);
        self.used
            .iter()
            .map(|(account, used)| (*account, self.decayed(*used, now)))
            .collect()
    }

    fn decayed(&self, used: Used, now: Duration) -> f64 {
        decayed(used, self.half_life, now)
    }
}

/// A clock that goes backwards takes nothing away and adds nothing.
fn decayed(used: Used, half_life: Duration, now: Duration) -> f64 {
    let passed = now.saturating_sub(used.at).as_secs_f64();
    used.amount * (-passed / half_life.as_secs_f64().max(1.0)).exp2()
}
