//! A developer's day: runs of a few minutes, with time to think between them.

use crate::chance::Chance;

/// The hours of a day.
pub(crate) const HOURS: u64 = 10;

/// For how many minutes a run computes.
const MINUTES: [f64; 5] = [2.0, 5.0, 10.0, 20.0, 40.0];

pub(crate) struct Developer {
    chance: Chance,
    /// The seconds that this day's runs still have, but for the one that is at work.
    left: f64,
    /// The mean time between two runs, in seconds.
    thinks: f64,
    state: State,
    /// How many seconds runs took longer than they would have on a GPU of their own.
    pub(crate) waited: f64,
    /// After how many seconds each run began to compute.
    pub(crate) begins: Vec<f64>,
}

enum State {
    /// Until that second.
    Thinks(u64),
    /// A run that has so many seconds left, since when it is at work, and whether it has begun.
    Works { left: f64, since: u64, has_begun: bool },
}

impl Developer {
    /// One who computes for so many hours.
    pub(crate) fn new(seed: u64, busy: f64) -> Self {
        let mut chance = Chance(seed);
        let mean = MINUTES.iter().sum::<f64>() / MINUTES.len() as f64 * 60.0;
        let runs = busy * 3600.0 / mean;
        let first = chance.next() * 3600.0;
        Self {
            chance,
            left: busy * 3600.0,
            // One hour is before the first run.
            thinks: (HOURS as f64 - 1.0 - busy) * 3600.0 / runs,
            state: State::Thinks(first as u64),
            waited: 0.0,
            begins: Vec::new(),
        }
    }

    /// Begins a run if it is time, and if any is left for the day.
    pub(crate) fn think(&mut self, second: u64) {
        if matches!(self.state, State::Thinks(until) if until <= second) && self.left > 0.0 {
            let minutes = MINUTES[(self.chance.next() * MINUTES.len() as f64) as usize];
            let run = (minutes * 60.0).min(self.left);
            self.left -= run;
            self.state = State::Works {
                left: run,
                since: second,
                has_begun: false,
            };
        }
    }

    pub(crate) fn is_at_work(&self) -> bool {
        matches!(self.state, State::Works { .. })
    }

    /// Computes on a part of a GPU for a second.
    pub(crate) fn compute(&mut self, second: u64, share: f64) {
        let State::Works { left, since, has_begun } = &mut self.state else {
            return;
        };
        if share > 0.0 && !*has_begun {
            *has_begun = true;
            self.begins.push((second - *since) as f64);
        }
        *left -= share;
        self.waited += 1.0 - share;
        if *left <= 0.0 {
            let thinks = self.chance.wait(self.thinks);
            self.state = State::Thinks(second + 1 + thinks as u64);
        }
    }
}
