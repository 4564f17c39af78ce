//! When something is done again: after a period, and soon after each reason.

use std::time::{Duration, Instant};

/// When the kubelet is asked for its pods.
#[derive(Debug)]
pub struct Schedule {
    period: Duration,
    regular: Instant,
    extra: Vec<Instant>,
}

impl Schedule {
    /// One that is due at once, and after each `period`.
    pub fn new(now: Instant, period: Duration) -> Self {
        Self {
            period,
            regular: now,
            extra: Vec::new(),
        }
    }

    /// When it is due.
    pub fn due(&self) -> Instant {
        self.extra
            .iter()
            .copied()
            .min()
            .unwrap_or(self.regular)
            .min(self.regular)
    }

    /// Adds a time at which it is due. Times that are nearly the same are one.
    pub fn at(&mut self, time: Instant) {
        let near = |other: &Instant| time.max(*other).duration_since(time.min(*other)) < NEAR;
        if !self.extra.iter().any(near) {
            self.extra.push(time);
        }
    }

    /// It was done.
    pub fn done(&mut self, now: Instant) {
        self.extra.retain(|time| *time > now);
        self.regular = now + self.period;
    }
}

const NEAR: Duration = Duration::from_millis(20);

/// When the broker is asked for its offers after a change of its files.
///
/// Its answer may itself be a reason for a change. So an answer that says nothing new lengthens the time to the next
/// one.
#[derive(Debug)]
pub struct Pace {
    last: Option<Instant>,
    gap: Duration,
    is_asked: bool,
}

impl Pace {
    /// The shortest time between two answers.
    pub const SHORTEST: Duration = Duration::from_millis(200);
    /// The longest one.
    pub const LONGEST: Duration = Duration::from_secs(5);

    /// One that has not asked yet.
    pub fn new() -> Self {
        Self {
            last: None,
            gap: Self::SHORTEST,
            is_asked: false,
        }
    }

    /// When to ask, after a change.
    pub fn changed(&mut self, now: Instant) -> Instant {
        self.is_asked = true;
        self.last.map_or(now, |last| now.max(last + self.gap))
    }

    /// The broker answered, or did not.
    pub fn answered(&mut self, now: Instant, is_new: bool) {
        self.gap = match self.is_asked && !is_new {
            true => (self.gap * 2).min(Self::LONGEST),
            false => Self::SHORTEST,
        };
        self.is_asked = false;
        self.last = Some(now);
    }
}

impl Default for Pace {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn extra_times_come_before_the_period() {
        let now = Instant::now();
        let mut schedule = Schedule::new(now, 10 * SECOND);
        assert_eq!(schedule.due(), now);
        schedule.done(now);
        assert_eq!(schedule.due(), now + 10 * SECOND);
        for _ in 0..3 {
            schedule.at(now + SECOND);
            schedule.at(now + SECOND / 10);
        }
        assert_eq!(schedule.extra.len(), 2);
        assert_eq!(schedule.due(), now + SECOND / 10);
        schedule.done(now + SECOND / 10);
        assert_eq!(schedule.due(), now + SECOND);
        schedule.done(now + SECOND);
        assert_eq!(schedule.due(), now + 11 * SECOND);
    }

    #[test]
    fn answers_that_say_nothing_new_are_asked_for_less_often() {
        let mut now = Instant::now();
        let mut pace = Pace::new();
        assert_eq!(pace.changed(now), now);
        for _ in 0..10 {
            pace.answered(now, false);
            now = pace.changed(now);
        }
        pace.answered(now, false);
        assert_eq!(pace.changed(now), now + Pace::LONGEST);
        // A change after a while is asked for at once.
        assert_eq!(pace.changed(now + 6 * SECOND), now + 6 * SECOND);
        pace.answered(now, true);
        assert_eq!(pace.changed(now), now + Pace::SHORTEST);
    }
}
