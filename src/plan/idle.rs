//! Since when what users hold has done nothing.
//!
//! This is the time since the last work, and never an average: an average of a day hides the hours at its end.

use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// The longest time between two looks in which no work is missed. The driver keeps 72 samples of each GPU, and takes
/// one in each sixth of a second to a second, by GPU (ctrl2080perf.h,
/// `NV2080_CTRL_PERF_GPUMON_SAMPLE_COUNT_PERFMON_UTIL`).
const LONGEST_GAP: u64 = 11;

/// Of how many seconds a look asks for samples.
pub const SPAN: u64 = LONGEST_GAP + 1;

/// By how many seconds two clocks may differ between two looks. The driver's samples have the time of day, so after a
/// larger difference it is unknown which of them are new.
const CLOCK_ERROR: u64 = 2;

/// When a look was, in seconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Moment {
    /// Since boot, with suspended time (CLOCK_BOOTTIME).
    pub uptime: u64,
    /// Since 1970, as the machine's clock is set.
    pub clock: u64,
}

/// What a GPU did in the last [`SPAN`] seconds.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GpuWork {
    /// The processes that worked, by number. Some have ended.
    pub processes: BTreeSet<u32>,
    /// Whether it works now, for whomever.
    pub is_busy: bool,
}

/// Whether a claim has worked since the last look.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Work {
    /// It has, or that of another process cannot be told from its own.
    Done,
    /// It has not.
    Nothing,
    /// The driver does not say it; why.
    Unknown(String),
}

/// For how long a claim has done nothing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Idle {
    /// For so many seconds. A claim that is seen for the first time counts as one that works.
    Seconds(u64),
    /// The driver does not say it; why.
    Unknown(String),
}

/// For how long each claim that may not be idle for ever has done nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Idleness {
    looked: Option<Moment>,
    claims: BTreeMap<String, Idle>,
}

impl Idleness {
    /// Takes in what was found at `now` of each claim, by [`crate::hold::key`]. A time in which nobody looked, and one
    /// of which it is unknown, counts as one of work.
    pub fn look(&mut self, now: Moment, found: impl IntoIterator<Item = (String, Work)>) {
        let watched = self.looked.and_then(|looked| {
            let uptime = now.uptime.checked_sub(looked.uptime)?;
            let clock = now.clock.checked_sub(looked.clock)?;
            (uptime <= LONGEST_GAP && uptime.abs_diff(clock) <= CLOCK_ERROR).then_some(uptime)
        });
        let idle = |(key, work)| {
            let idle = match (work, self.claims.get(&key), watched) {
                (Work::Unknown(why), ..) => Idle::Unknown(why),
                (Work::Nothing, Some(Idle::Seconds(before)), Some(more)) => Idle::Seconds(before + more),
                _ => Idle::Seconds(0),
            };
            (key, idle)
        };
        self.claims = found.into_iter().map(idle).collect();
        self.looked = Some(now);
    }

    /// For how long the claim with this key had done nothing at the last look, or why that is unknown. `None` if it was
    /// not looked at, and if nobody looks any more.
    pub fn of(&self, key: &str, uptime: u64) -> Option<Result<Duration, &str>> {
        let looked = self.looked?.uptime;
        let is_old = uptime.checked_sub(looked).is_none_or(|passed| passed > 3 * LONGEST_GAP);
        match self.claims.get(key).filter(|_| !is_old)? {
            Idle::Seconds(seconds) => Some(Ok(Duration::from_secs(*seconds))),
            Idle::Unknown(why) => Some(Err(why)),
        }
    }

    /// Whether it is about no claim.
    pub fn is_empty(&self) -> bool {
        self.claims.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(uptime: u64) -> Moment {
        Moment {
            uptime,
            clock: 1_700_000_000 + uptime,
        }
    }

    fn unknown() -> Work {
        Work::Unknown("why".to_owned())
    }

    /// For how many seconds the claim has done nothing, after looks at these moments.
    fn after(looks: &[(Moment, Work)]) -> Result<u64, String> {
        let mut idleness = Idleness::default();
        for (now, work) in looks {
            idleness.look(*now, [("a".to_owned(), work.clone())]);
        }
        let (now, _) = looks.last().unwrap();
        let idle = idleness.of("a", now.uptime).unwrap();
        idle.map(|idle| idle.as_secs()).map_err(str::to_owned)
    }

    #[test]
    fn the_time_since_the_last_work_is_counted() {
        use Work::{Done, Nothing};
        assert_eq!(after(&[(at(5), Nothing)]), Ok(0), "seen for the first time");
        let quiet = [(at(5), Done), (at(10), Nothing), (at(15), Nothing)];
        assert_eq!(after(&quiet), Ok(10));
        assert_eq!(after(&[quiet[0].clone(), quiet[1].clone(), (at(15), Done)]), Ok(0));
        // An hour of work does not excuse what follows, and an hour of nothing ends with the first work.
        let day: Vec<_> = (0..720)
            .map(|n| (at(5 * n), Done))
            .chain((720..2000).map(|n| (at(5 * n), Nothing)))
            .collect();
        assert_eq!(after(&day), Ok(5 * (1999 - 719)));
    }

    #[test]
    fn what_is_unknown_is_never_idle() {
        let why = Err("why".to_owned());
        assert_eq!(after(&[(at(5), Work::Done), (at(10), unknown())]), why);
        let known_again = [(at(5), Work::Done), (at(10), unknown()), (at(15), Work::Nothing)];
        assert_eq!(after(&known_again), Ok(0));
    }

    #[test]
    fn a_time_in_which_nobody_looked_and_a_clock_that_jumps_count_as_work() {
        let year = 365 * 86_400;
        let quiet = |then: Moment| after(&[(at(100), Work::Nothing), (then, Work::Nothing)]);
        assert_eq!(quiet(at(111)), Ok(11));
        assert_eq!(
            quiet(at(112)),
            Ok(0),
            "a broker that was stopped, or a machine that slept"
        );
        for clock in [at(105).clock + year, at(105).clock - year, at(105).clock + 3] {
            let jumped = Moment { uptime: 105, clock };
            assert_eq!(quiet(jumped), Ok(0), "{clock}");
        }
        // Of an earlier boot.
        assert_eq!(quiet(at(50)), Ok(0));
    }

    #[test]
    fn what_is_not_looked_at_any_more_is_forgotten_and_what_is_old_is_not_shown() {
        let mut idleness = Idleness::default();
        idleness.look(at(5), ["a", "b"].map(|key| (key.to_owned(), Work::Nothing)));
        idleness.look(at(10), [("b".to_owned(), Work::Nothing)]);
        assert_eq!(idleness.of("a", 10), None);
        assert_eq!(idleness.of("b", 43), Some(Ok(Duration::from_secs(5))));
        for uptime in [44, 9] {
            assert_eq!(idleness.of("b", uptime), None, "{uptime}");
        }
    }
}
