//! How soon something is sent again.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::time::{Duration, Instant};

/// How long things take at the API server.
#[derive(Debug, Clone, Copy)]
pub struct Pacing {
    /// The shortest time between two publications, and the first pause after a failure.
    pub least: Duration,
    /// The longest pause.
    pub most: Duration,
    /// How long the answer counts that the API server drops fields.
    pub probe: Duration,
    /// How long a watch lasts before it is opened again.
    pub watch: Duration,
    /// How long the API server may take for one answer. A connection can be cut without a word.
    pub answer: Duration,
}

impl Default for Pacing {
    fn default() -> Self {
        Self {
            least: Duration::from_secs(1),
            most: Duration::from_secs(60),
            probe: Duration::from_secs(3600),
            watch: Duration::from_secs(290),
            answer: Duration::from_secs(30),
        }
    }
}

/// How often the same thing was done in vain.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Repeats {
    count: u32,
    last: Option<Instant>,
}

impl Repeats {
    /// It was done again. A time without repeats that is ten times the longest pause ends the series.
    pub(super) fn again(&mut self, now: Instant, pacing: &Pacing) {
        let is_series = self
            .last
            .is_some_and(|last| now.saturating_duration_since(last) < 10 * pacing.most);
        self.count = if is_series { self.count.saturating_add(1) } else { 1 };
        self.last = Some(now);
    }

    pub(super) fn end(&mut self) {
        *self = Self::default();
    }

    /// The pause before the next time: twice the last one, up to a quarter more or less so that the nodes of a cluster
    /// do not come at once.
    pub(super) fn pause(&self, pacing: &Pacing) -> Duration {
        let factor = 1_u32.checked_shl(self.count.saturating_sub(1).min(16)).unwrap_or(1);
        let pause = pacing.least.saturating_mul(factor).min(pacing.most);
        pause.mul_f64(0.75 + 0.5 * random())
    }

    pub(super) fn is_any(&self) -> bool {
        self.count > 0
    }
}

/// A number from 0 to 1, which differs from node to node.
fn random() -> f64 {
    let bits = RandomState::new().build_hasher().finish();
    f64::from((bits & 0xffff) as u16) / f64::from(u16::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_the_longest_and_begin_anew_after_a_quiet_time() {
        let pacing = Pacing::default();
        let mut repeats = Repeats::default();
        let mut now = Instant::now();
        let seconds = |repeats: &Repeats| repeats.pause(&pacing).as_secs_f64();
        repeats.again(now, &pacing);
        assert!((0.75..=1.25).contains(&seconds(&repeats)));
        repeats.again(now, &pacing);
        assert!((1.5..=2.5).contains(&seconds(&repeats)));
        for _ in 0..40 {
            repeats.again(now, &pacing);
        }
        assert!((45.0..=75.0).contains(&seconds(&repeats)));
        now += 10 * pacing.most;
        repeats.again(now, &pacing);
        assert!((0.75..=1.25).contains(&seconds(&repeats)));
    }
}
