//! What one measurement of a cell shows, and the figures of a cell from all its measurements.

mod clocks;
mod service;

pub use clocks::Clocks;
pub use service::Service;

use crate::cell::Cell;
use crate::event::Event;
use crate::schedule::Window;
use crate::statistics::{Spread, jain, weighted_speed_up};
use serde::{Deserialize, Serialize};
use tranche_core::error::Result;
use tranche_driver_protocol::GpuClocks;

/// One measurement of a cell.
#[derive(Debug, Clone, PartialEq)]
pub struct Measured {
    /// How the first process served; `None` if an error of CUDA ended it.
    pub service: Option<Service>,
    /// That error.
    pub error: Option<String>,
    /// How much of its work the neighbour did in a second, in its own units.
    pub neighbour_rate: Option<f64>,
    /// The bytes that a greedy neighbour got.
    pub allocated: Option<u64>,
    /// Whether the neighbour's fault was seen.
    pub has_faulted: bool,
    /// The nanoseconds from the neighbour's fault to the first error of the process that serves.
    pub died_after: Option<u64>,
    /// What the GPU's sensors said.
    pub clocks: Clocks,
}

impl Measured {
    /// From what the two processes printed and what NVML said meanwhile. `arrivals` were given to the first process.
    ///
    /// # Errors
    /// Returns an error if the first process does not account for each of its requests: a figure without those that
    /// took long would be better than the truth.
    pub fn of(
        window: Window,
        arrivals: &[u64],
        serve: &[Event],
        neighbour: &[Event],
        samples: &[GpuClocks],
    ) -> Result<Self> {
        let faulted = neighbour.iter().find_map(|event| match event {
            Event::Faulted { at, .. } => Some(*at),
            _ => None,
        });
        let failed = serve.iter().find_map(|event| match event {
            Event::Error { at, call, name, .. } => Some((*at, format!("{call}: {name}"))),
            _ => None,
        });
        let service = match failed {
            Some(_) => None,
            None => Some(Service::of(window, arrivals, serve)?),
        };
        let allocated = neighbour.iter().filter_map(|event| match event {
            Event::Allocated { bytes, .. } => Some(*bytes),
            _ => None,
        });
        Ok(Self {
            service,
            neighbour_rate: rate(window, neighbour),
            allocated: allocated.max(),
            has_faulted: faulted.is_some(),
            died_after: faulted
                .zip(failed.as_ref())
                .map(|(faulted, (at, _))| at.saturating_sub(faulted)),
            error: failed.map(|(_, error)| error),
            clocks: Clocks::of(samples),
        })
    }
}

/// The units of work in a second; `None` if none was done. A piece that is partly in the window counts in part.
pub fn rate(window: Window, events: &[Event]) -> Option<f64> {
    let mut units = None;
    for event in events {
        if let Event::Finished {
            began,
            done,
            units: all,
        } = event
        {
            let inside = (*done).min(window.until).saturating_sub((*began).max(window.from));
            let part = inside as f64 / done.saturating_sub(*began).max(1) as f64;
            *units.get_or_insert(0.0) += part * *all as f64;
        }
    }
    Some(units? / window.seconds())
}

/// The figures of a cell. Latency counts from the intended arrival of a request, and includes requests that were late,
/// with the time that they had waited at the end.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Figures {
    /// The cell.
    pub cell: Cell,
    /// Why there are no figures: the cell could not be measured, or was interrupted.
    pub failed: Option<String>,
    /// The error of CUDA that ended the first process.
    pub error: Option<String>,
    /// How many requests counted, in all measurements together.
    pub requests: u64,
    /// How many of them were not begun before the end.
    pub late: u64,
    /// Latency in milliseconds: half of the requests took no longer.
    pub p50_ms: Option<Spread>,
    /// The same of 95 %.
    pub p95_ms: Option<Spread>,
    /// The same of 99 %.
    pub p99_ms: Option<Spread>,
    /// The longest.
    pub max_ms: Option<Spread>,
    /// How long half of the requests took at most, in milliseconds, without their wait for others.
    pub service_ms: Option<Spread>,
    /// Requests served in a second.
    pub throughput: Option<Spread>,
    /// Requests in a second whose latency was at most twice the 99th percentile of the first process alone.
    pub goodput: Option<Spread>,
    /// Latency as a multiple of that of the first process alone, at 50 %.
    pub slowdown_p50: Option<Spread>,
    /// The same at 99 %.
    pub slowdown_p99: Option<Spread>,
    /// The throughput of the first process alone as a multiple of that in this cell.
    pub slowdown_throughput: Option<Spread>,
    /// The 99th percentile as a multiple of that beside an idle neighbour in the same way.
    pub growth_p99: Option<Spread>,
    /// The same of `service_ms`.
    pub growth_service: Option<Spread>,
    /// Work of the neighbour in a second, in its own units.
    pub neighbour_rate: Option<Spread>,
    /// What the neighbour does alone as a multiple of that.
    pub neighbour_slowdown: Option<Spread>,
    /// Jain's index of the two.
    pub jain: Option<f64>,
    /// The weighted speed-up of the two.
    pub weighted_speed_up: Option<f64>,
    /// The most bytes that a greedy neighbour got.
    pub allocated: Option<u64>,
    /// After how many milliseconds the neighbour's fault ended the first process.
    pub died_after_ms: Option<Spread>,
    /// Whether the neighbour had its fault in each measurement.
    pub has_faulted: bool,
    /// Clocks, temperature, and why the GPU was slower than it can be.
    pub clocks: Clocks,
}

/// What a cell is compared with: measurements with the same requests.
#[derive(Debug, Clone, Copy, Default)]
pub struct Others<'a> {
    /// The first process alone.
    pub alone: &'a [Measured],
    /// The same way with an idle neighbour.
    pub idle: &'a [Measured],
    /// The work in a second of this neighbour alone, in its own units.
    pub rate: Option<f64>,
}

impl Figures {
    /// The figures of `cell` from its measurements, or why there are none.
    pub fn new(cell: Cell, measured: &Result<Vec<Measured>, String>, others: Others<'_>) -> Self {
        let (all, failed) = match measured {
            Ok(all) => (all.as_slice(), None),
            Err(why) => (&[][..], Some(why.clone())),
        };
        let ms = |ns: Option<u64>| Some(ns? as f64 / 1e6);
        let (p50, p99) = (
            |one: &Service| ms(one.percentile(50)),
            |one: &Service| ms(one.percentile(99)),
        );
        let throughput = |one: &Service| Some(one.throughput());
        let service = |one: &Service| ms(one.time());
        let sum = |count: fn(&Service) -> u64| all.iter().filter_map(|one| one.service.as_ref()).map(count).sum();
        let bound = spread(others.alone, p99).map(|p99| (p99.median * 2e6) as u64);
        let neighbour_rate = Spread::of(all.iter().filter_map(|one| one.neighbour_rate));
        let rate_alone = others.rate.and_then(|rate| Spread::of([rate]));
        let slowdown_throughput = quotient(others.alone, all, throughput);
        let neighbour_slowdown = neighbour_rate.and_then(|rate| rate_alone?.over(rate));
        let parts = [slowdown_throughput, neighbour_slowdown].map(|slowdown| Some(1.0 / slowdown?.median));
        let parts: Vec<f64> = parts.into_iter().flatten().filter(|part| part.is_finite()).collect();
        let of_both = |index: fn(&[f64]) -> Option<f64>| (parts.len() == 2).then(|| index(&parts)).flatten();
        Self {
            cell,
            failed,
            error: all.iter().find_map(|one| one.error.clone()),
            requests: sum(Service::requests),
            late: sum(Service::late),
            p50_ms: spread(all, p50),
            p95_ms: spread(all, |one| ms(one.percentile(95))),
            p99_ms: spread(all, p99),
            max_ms: spread(all, |one| ms(one.percentile(100))),
            service_ms: spread(all, service),
            throughput: spread(all, throughput),
            goodput: bound.and_then(|bound| spread(all, |one| Some(one.goodput(bound)))),
            slowdown_p50: quotient(all, others.alone, p50),
            slowdown_p99: quotient(all, others.alone, p99),
            slowdown_throughput,
            growth_p99: quotient(all, others.idle, p99),
            growth_service: quotient(all, others.idle, service),
            neighbour_rate,
            neighbour_slowdown,
            jain: of_both(jain),
            weighted_speed_up: of_both(weighted_speed_up),
            allocated: all.iter().filter_map(|one| one.allocated).max(),
            died_after_ms: Spread::of(all.iter().filter_map(|one| ms(one.died_after))),
            has_faulted: !all.is_empty() && all.iter().all(|one| one.has_faulted),
            clocks: all.iter().map(|one| &one.clocks).fold(Clocks::default(), Clocks::with),
        }
    }
}

/// A figure over all measurements.
fn spread(all: &[Measured], figure: impl Fn(&Service) -> Option<f64>) -> Option<Spread> {
    Spread::of(all.iter().filter_map(|one| figure(one.service.as_ref()?)))
}

/// A figure divided by that of other measurements. Repeats with the same number have the same requests, so that their
/// quotient varies less than the figures do.
fn quotient(all: &[Measured], others: &[Measured], figure: impl Fn(&Service) -> Option<f64>) -> Option<Spread> {
    let pairs = all.iter().zip(others);
    let quotient = |(one, other): (&Measured, &Measured)| {
        let (over, under) = (figure(one.service.as_ref()?)?, figure(other.service.as_ref()?)?);
        (under > 0.0).then(|| over / under)
    };
    Spread::of(pairs.filter_map(quotient))
}

#[cfg(test)]
pub(crate) mod tests;
