//! When requests arrive: a Poisson process that its seed repeats exactly, on every machine.

use fastrand::Rng;
use tranche_core::error::{Error, Result};

/// The most requests of one cell that `tranche-load` takes.
pub const MOST_REQUESTS: usize = 200_000;

/// When a cell is measured, in nanoseconds after its processes began.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Window {
    /// The end of the warm-up: what arrived before does not count.
    pub from: u64,
    /// After it, no request arrives.
    pub until: u64,
    /// When the processes end. A request that has waited since `until` at the least is late.
    pub end: u64,
}

impl Window {
    /// For a warm-up and a measurement of so many seconds. Requests have a second more to be served.
    pub fn new(warm_up_s: u32, measure_s: u32) -> Self {
        const SECOND: u64 = 1_000_000_000;
        let from = u64::from(warm_up_s) * SECOND;
        let until = from + u64::from(measure_s) * SECOND;
        Self {
            from,
            until,
            end: until + SECOND,
        }
    }

    /// Whether something at this time counts.
    pub fn has(self, at: u64) -> bool {
        (self.from..self.until).contains(&at)
    }

    /// How long is measured, in seconds.
    pub fn seconds(self) -> f64 {
        self.until.saturating_sub(self.from) as f64 / 1e9
    }
}

/// When requests arrive in the nanoseconds from 0 to `until`, in rising order, if the mean time between two is
/// `mean_gap` nanoseconds. The repeats of a cell have different seeds, and all cells have the same: then they differ by
/// what is measured, and not by chance.
///
/// # Errors
/// Returns an error if there would be more than [`MOST_REQUESTS`], or if `mean_gap` is 0.
pub fn arrivals(seed: u64, mean_gap: u64, until: u64) -> Result<Vec<u64>> {
    let mut rng = Rng::with_seed(seed);
    let (mut now, mut arrivals) = (0.0, Vec::new());
    loop {
        now += exponential(&mut rng) * mean_gap as f64;
        // A cast of a float saturates, and rounds down.
        let at = now as u64;
        if mean_gap == 0 || arrivals.len() == MOST_REQUESTS {
            let what = format!("more than {MOST_REQUESTS} requests in {} s", until / 1_000_000_000);
            return Err(Error::failed("serve", what).hint("calibrate longer requests"));
        }
        if at >= until {
            return Ok(arrivals);
        }
        arrivals.push(at);
    }
}

/// A number of the exponential distribution with mean 1, by von Neumann's method ("Various techniques used in
/// connection with random digits", 1951): it compares and adds, so that every processor computes the same number. A
/// logarithm may differ in its last bit.
fn exponential(rng: &mut Rng) -> f64 {
    let mut whole = 0.0;
    loop {
        let first = rng.f64();
        let (mut last, mut falling) = (first, 1);
        loop {
            let next = rng.f64();
            if next >= last {
                break;
            }
            (last, falling) = (next, falling + 1);
        }
        if falling % 2 == 1 {
            return whole + first;
        }
        whole += 1.0;
    }
}

/// The rate of requests in percent of a capacity: the mean time between two, in nanoseconds, if one takes `service`
/// nanoseconds.
pub fn mean_gap(service: u64, load_percent: u32) -> u64 {
    service.saturating_mul(100) / u64::from(load_percent.max(1))
}

/// What `tranche-load serve` reads: the requests, then when it begins and ends, by `CLOCK_MONOTONIC` in nanoseconds.
/// For every other role `arrivals` is empty.
pub fn input(arrivals: &[u64], begin: u64, end: u64) -> String {
    let mut text: String = arrivals.iter().map(|at| format!("at {at}\n")).collect();
    text.push_str(&format!("start {begin} {end}\n"));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_gives_the_same_requests_for_ever() {
        // Files of results have the seed: another version of the generator would change what they mean.
        let first: Vec<u64> = arrivals(42, 1_000_000, 10_000_000_000).unwrap()[..4].to_vec();
        assert_eq!(first, [1_039_919, 1_495_739, 1_884_201, 5_130_552]);
        assert_eq!(input(&[1, 20], 5, 9), "at 1\nat 20\nstart 5 9\n");
    }

    #[test]
    fn the_times_between_requests_are_exponential() {
        let mut rng = Rng::with_seed(7);
        let numbers: Vec<f64> = (0..400_000).map(|_| exponential(&mut rng)).collect();
        let count = numbers.len() as f64;
        let mean = numbers.iter().sum::<f64>() / count;
        let variance = numbers.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / count;
        assert!(
            (mean - 1.0).abs() < 0.01 && (variance - 1.0).abs() < 0.02,
            "{mean} {variance}"
        );
        for x in [0.1, 0.5, 1.0, 2.0, 4.0] {
            let above = numbers.iter().filter(|one| **one > x).count() as f64 / count;
            assert!((above - (-x).exp()).abs() < 0.005, "{x}: {above}");
        }
    }

    #[test]
    fn there_are_as_many_as_the_rate_says_and_never_too_many() {
        let count = arrivals(1, mean_gap(2_000_000, 50), 100_000_000_000).unwrap().len();
        assert!((24_500..25_500).contains(&count), "{count}");
        assert!(arrivals(1, 1, u64::MAX).is_err());
        assert!(arrivals(1, 0, 1).is_err());
        assert!(arrivals(1, 1_000, 0).unwrap().is_empty());
        let rising = arrivals(3, 5, 100_000).unwrap();
        assert!(rising.is_sorted() && rising.iter().all(|at| *at < 100_000));
    }
}
