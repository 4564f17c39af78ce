//! A small team on a simulated working day: ten developers, three GPUs and two busy hours, and one of the ten submits a
//! sweep of many jobs when the first busy hour begins.

use crate::chance::Chance;
use crate::day::{Order, run_requests};
use std::time::Duration;
use tranche_test_support::queue::{Wanted, user_of};

const GPUS: usize = 3;

/// The developer with the sweep is the last one.
const DEVELOPERS: u32 = 10;

/// The day, and the busy hours in it.
const HOURS: u64 = 10;
const BUSY: [u64; 2] = [2, 6];

/// How many sessions a developer begins in an hour, on average: in a busy one, and in another.
const SESSIONS: [f64; 2] = [1.5, 0.25];

/// For how many minutes a session lasts, and a job of the sweep.
const MINUTES: [u64; 4] = [5, 15, 30, 60];
const JOB: u64 = 30;

/// A tenth of the sessions is for two GPUs.
const FOR_TWO: f64 = 0.1;

/// What came of some days. Times are in minutes.
pub(crate) struct TeamOutcome {
    /// The part of the GPUs that was held within the day.
    pub(crate) utilisation: f64,
    /// Of the nine, without those who asked for two.
    pub(crate) mean_of_nine: f64,
    pub(crate) wait_of_95: f64,
    pub(crate) longest_of_nine: f64,
    /// Of the sessions for two GPUs.
    pub(crate) mean_for_two: f64,
    /// Of the jobs of the sweep.
    pub(crate) mean_of_sweep: f64,
}

/// The requests of a day, by the time at which each of them comes.
fn requests(seed: u64, jobs: usize) -> Vec<(Duration, Wanted)> {
    let mut chance = Chance(seed);
    let wanted = |user: u32, number: usize, minutes: u64| Wanted {
        requester: user_of(user),
        of: (0..GPUS).collect(),
        number,
        hold: Duration::from_secs(minutes * 60),
    };
    let mut all = Vec::new();
    for hour in 0..HOURS {
        let rate = SESSIONS[usize::from(!BUSY.contains(&hour))];
        for user in 0..DEVELOPERS - 1 {
            let mut at = chance.wait(3600.0 / rate);
            while at < 3600.0 {
                let minutes = MINUTES[(chance.next() * MINUTES.len() as f64) as usize];
                let number = if chance.next() < FOR_TWO { 2 } else { 1 };
                all.push((
                    Duration::from_secs_f64(hour as f64 * 3600.0 + at),
                    wanted(user, number, minutes),
                ));
                at += chance.wait(3600.0 / rate);
            }
        }
    }
    let begin = Duration::from_secs(BUSY[0] * 3600);
    all.extend((0..jobs).map(|_| (begin, wanted(DEVELOPERS - 1, 1, JOB))));
    all.sort_by_key(|(at, _)| *at);
    all
}

/// Runs the days, each until all of its requests are served. `jobs` are those of the sweep of each day.
pub(crate) fn run(days: u64, jobs: usize, order: Order) -> TeamOutcome {
    let (mut of_nine, mut for_two, mut of_sweep, mut held) = (Vec::new(), Vec::new(), Vec::new(), 0.0);
    let end = Duration::from_secs(HOURS * 3600);
    for seed in 0..days {
        let requests = requests(seed, jobs);
        let world = run_requests(&requests, order, GPUS, Duration::from_secs(3600));
        assert_eq!(world.served.len(), requests.len(), "each request is served");
        for served in &world.served {
            let wait = served
                .at
                .saturating_sub(requests[served.number as usize].0)
                .as_secs_f64()
                / 60.0;
            match (served.wanted.requester.user(), served.wanted.number) {
                (user, _) if user == Some(DEVELOPERS - 1) => of_sweep.push(wait),
                (_, 1) => of_nine.push(wait),
                _ => for_two.push(wait),
            }
            let until = (served.at + served.wanted.hold).min(end);
            held += until.saturating_sub(served.at).as_secs_f64() * served.wanted.number as f64;
        }
    }
    of_nine.sort_by(f64::total_cmp);
    let mean = |waits: &[f64]| waits.iter().sum::<f64>() / waits.len().max(1) as f64;
    TeamOutcome {
        utilisation: held / (days as f64 * GPUS as f64 * end.as_secs_f64()),
        mean_of_nine: mean(&of_nine),
        wait_of_95: of_nine[of_nine.len() * 95 / 100],
        longest_of_nine: of_nine.last().copied().unwrap_or(0.0),
        mean_for_two: mean(&for_two),
        mean_of_sweep: mean(&of_sweep),
    }
}
