//! How a process served.

use crate::event::Event;
use crate::schedule::Window;
use crate::statistics::percentile;
use tranche_core::error::{Error, Result};

/// How the requests of one measurement were served.
#[derive(Debug, Clone, PartialEq)]
pub struct Service {
    /// The latency of each request that counts, in nanoseconds from its intended arrival, in rising order. A late
    /// request has the time that it had waited at the end.
    latencies: Vec<u64>,
    /// The same without late requests.
    served: Vec<u64>,
    /// How long each of these took without its wait.
    times: Vec<u64>,
    /// How many requests were done while it was measured.
    done: u64,
    seconds: f64,
}

impl Service {
    /// From the events of a process. With no `arrivals`, requests were sent back to back.
    ///
    /// # Errors
    /// Returns an error if the requests of the events are not exactly `arrivals`.
    pub fn of(window: Window, arrivals: &[u64], events: &[Event]) -> Result<Self> {
        let (mut intended, mut late, mut served) = (Vec::new(), Vec::new(), Vec::new());
        let (mut times, mut done_inside) = (Vec::new(), 0);
        for event in events {
            match *event {
                Event::Served {
                    intended: at,
                    began,
                    done,
                } => {
                    intended.push(at);
                    done_inside += u64::from(window.has(done));
                    if window.has(at) {
                        served.push(done.saturating_sub(at));
                        times.push(done.saturating_sub(began));
                    }
                }
                Event::Late { intended: at } => {
                    intended.push(at);
                    late.extend(window.has(at).then(|| window.end.saturating_sub(at)));
                }
                _ => {}
            }
        }
        intended.sort_unstable();
        if !arrivals.is_empty() && intended != arrivals {
            let what = format!(
                "printed {} requests, which are not the {} it was given",
                intended.len(),
                arrivals.len()
            );
            return Err(Error::failed("serve", what).hint("this cell is not measured"));
        }
        let mut latencies = [served.as_slice(), &late].concat();
        latencies.sort_unstable();
        served.sort_unstable();
        times.sort_unstable();
        Ok(Self {
            latencies,
            served,
            times,
            done: done_inside,
            seconds: window.seconds(),
        })
    }

    /// The latency in nanoseconds that this percentage of requests does not exceed; `None` if there was no request.
    pub fn percentile(&self, percent: u32) -> Option<u64> {
        percentile(&self.latencies, percent)
    }

    /// How many requests count.
    pub fn requests(&self) -> u64 {
        u64::try_from(self.latencies.len()).unwrap_or(u64::MAX)
    }

    /// How many of them were not begun before the end.
    pub fn late(&self) -> u64 {
        u64::try_from(self.latencies.len() - self.served.len()).unwrap_or(u64::MAX)
    }

    /// How long half of the requests took at most, without their wait, in nanoseconds; `None` if none was served.
    pub fn time(&self) -> Option<u64> {
        percentile(&self.times, 50)
    }

    /// Requests done in a second.
    pub fn throughput(&self) -> f64 {
        self.done as f64 / self.seconds
    }

    /// Requests in a second that were served with a latency of at most so many nanoseconds.
    pub fn goodput(&self, bound: u64) -> f64 {
        self.served.partition_point(|one| *one <= bound) as f64 / self.seconds
    }

    /// The mean latency in nanoseconds; `None` if there was no request.
    pub fn mean(&self) -> Option<f64> {
        let sum: f64 = self.latencies.iter().map(|one| *one as f64).sum();
        (!self.latencies.is_empty()).then(|| sum / self.latencies.len() as f64)
    }
}
