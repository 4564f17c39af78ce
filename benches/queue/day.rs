//! Simulated days: what users ask for, and what comes of it.

use crate::chance::Chance;
use std::time::Duration;
use tranche_plan::policy::QueueSettings;
use tranche_plan::queue::{FairQueue, QueueTimes, RequestNumber, UsedLately};
use tranche_test_support::queue::{Wanted, Watch, World, user_of};

const DEVICES: usize = 8;
const USERS: u32 = 500;
const DAY: Duration = Duration::from_secs(24 * 3600);
pub(crate) const WEEK: Duration = Duration::from_secs(7 * 24 * 3600);

/// How exact time is: each time is a multiple of this.
const STEP: Duration = Duration::from_secs(10);

/// How many devices a request is for, and the part of the requests.
const SIZES: [(usize, f64); 3] = [(1, 0.75), (2, 0.15), (4, 0.1)];

/// For how many minutes they are held, and the part of the requests.
const HOLDS: [(u64, f64); 4] = [(2, 0.5), (10, 0.3), (30, 0.15), (60, 0.05)];

/// By what the queue is served.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Order {
    /// The rule of the product with its defaults.
    HeldLately,
    /// By arrival. What is free goes to the first one whom it serves.
    FirstCome,
    /// By arrival. What is free is kept for the first one that it does not serve for as long as the product keeps it.
    OneReservation,
    /// By arrival. What is free is kept for the first one until that one is served.
    KeptUntilServed,
}

impl Order {
    pub(crate) const ALL: [Self; 4] = [
        Self::HeldLately,
        Self::FirstCome,
        Self::OneReservation,
        Self::KeptUntilServed,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::HeldLately => "tranche",
            Self::FirstCome => "arrival, nothing kept free",
            Self::OneReservation => "arrival, kept free as tranche does",
            Self::KeptUntilServed => "arrival, kept free until served",
        }
    }

    fn times(self) -> QueueTimes {
        let both = |time| QueueTimes {
            reserve_for: time,
            reserve_at_most: time,
        };
        match self {
            Self::HeldLately | Self::OneReservation => QueueSettings::default().times(),
            Self::FirstCome => both(Duration::ZERO),
            Self::KeptUntilServed => both(WEEK),
        }
    }

    /// Whether what users have held counts.
    fn counts(self) -> bool {
        self == Self::HeldLately
    }
}

/// A day.
pub(crate) struct Day {
    /// The devices that would be held on average if each request were served at once, as a part of all.
    pub(crate) load: f64,
    /// Where chance begins.
    pub(crate) seed: u64,
}

/// What came of some days. Times are in seconds.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Outcome {
    /// The part of the devices that was held, on average.
    pub(crate) utilisation: f64,
    pub(crate) mean_wait: f64,
    /// Of 100 requests, 99 waited for no longer.
    pub(crate) wait_of_99: f64,
    pub(crate) longest_wait: f64,
    /// Of the requests for four devices.
    pub(crate) longest_of_four: f64,
}

/// One of `values`, by their parts.
fn one_of<T: Copy>(values: &[(T, f64)], chance: &mut Chance) -> T {
    let mut left = chance.next();
    let found = values.iter().find(|(_, part)| {
        left -= part;
        left < 0.0
    });
    // The parts make 1, but for rounding.
    found.or(values.last()).unwrap().0
}

impl Day {
    /// The requests, with the time at which each of them comes.
    fn requests(&self) -> Vec<(Duration, Wanted)> {
        let mut chance = Chance(self.seed);
        let mean = |values: &[(f64, f64)]| values.iter().map(|(value, part)| value * part).sum::<f64>();
        let devices = mean(&SIZES.map(|(devices, part)| (devices as f64, part)));
        let held = mean(&HOLDS.map(|(minutes, part)| (minutes as f64 * 60.0, part)));
        let between = devices * held / (self.load * DEVICES as f64);
        let mut requests = Vec::new();
        let mut at = 0.0;
        loop {
            at += chance.wait(between);
            if at >= DAY.as_secs_f64() {
                return requests;
            }
            // Some users ask more often than others: a quarter of them makes half of the requests.
            let user = (chance.next().powi(2) * f64::from(USERS)) as u32;
            let wanted = Wanted {
                requester: user_of(user),
                of: (0..DEVICES).collect(),
                number: one_of(&SIZES, &mut chance),
                hold: Duration::from_secs(one_of(&HOLDS, &mut chance) * 60),
            };
            requests.push((Duration::from_secs_f64(at), wanted));
        }
    }
}

/// Runs the days, each until all of its requests are served.
pub(crate) fn run(days: &[Day], order: Order) -> Outcome {
    let mut waits: Vec<(f64, usize)> = Vec::new();
    let mut held = 0.0;
    let longest_hold = HOLDS.map(|(minutes, _)| Duration::from_secs(minutes * 60));
    let longest_hold = longest_hold.into_iter().max().unwrap();
    for day in days {
        let requests = day.requests();
        let world = run_requests(&requests, order, DEVICES, longest_hold);
        assert_eq!(world.served.len(), requests.len(), "each request is served");
        for served in &world.served {
            let asked = requests[served.number as usize].0;
            let wanted = &served.wanted;
            waits.push((served.at.saturating_sub(asked).as_secs_f64(), wanted.number));
            let until = (served.at + wanted.hold).min(DAY);
            held += until.saturating_sub(served.at).as_secs_f64() * wanted.number as f64;
        }
    }
    waits.sort_by(|(one, _), (other, _)| one.total_cmp(other));
    let longest = |of: &[(f64, usize)]| of.last().map_or(0.0, |(wait, _)| *wait);
    let of_four: Vec<(f64, usize)> = waits.iter().copied().filter(|(_, number)| *number == 4).collect();
    Outcome {
        utilisation: held / (days.len() as f64 * DEVICES as f64 * DAY.as_secs_f64()),
        mean_wait: waits.iter().map(|(wait, _)| wait).sum::<f64>() / waits.len() as f64,
        wait_of_99: waits[waits.len() * 99 / 100].0,
        longest_wait: longest(&waits),
        longest_of_four: longest(&of_four),
    }
}

/// Serves all requests in this order, on a host with so many devices. No request is for a longer time than
/// `longest_hold`.
pub(crate) fn run_requests(
    requests: &[(Duration, Wanted)],
    order: Order,
    devices: usize,
    longest_hold: Duration,
) -> World {
    let times = order.times();
    let mut world = World::new(devices);
    let mut queue = FairQueue::new(times, devices, false);
    let mut used = UsedLately::new(QueueSettings::default().half_life.get());
    let mut watch = Watch::new(times, longest_hold);
    let mut left = (0..).zip(requests).peekable();
    while left.peek().is_some() || !world.waiting.is_empty() {
        let next = world.now + STEP;
        let mut arrivals: Vec<(RequestNumber, Wanted)> = Vec::new();
        while let Some((number, (_, wanted))) = left.next_if(|(_, (at, _))| *at <= next) {
            arrivals.push((number, wanted.clone()));
        }
        world.step(STEP, &mut queue, &mut used, arrivals, order.counts());
        watch.look(STEP, &queue, &used, &world);
    }
    world
}
