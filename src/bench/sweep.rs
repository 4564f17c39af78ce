//! The search for the best split of a GPU between two workloads: it keeps the latency of the first within a bound and
//! gives the second the most.
//!
//! The latency of the first falls as its part grows, so the search halves what is left: of n splits it tries about
//! log2(n). A run whose spread has the bound in it decides nothing, and is repeated.

mod found;

pub use found::{Found, Tried, Workloads};

use crate::statistics::Spread;
use crate::terminal::{bar, columns};
use crate::way::Split;
use std::collections::BTreeMap;
use tranche_core::error::{Error, Result};

/// How often a split is tried at most.
const MOST_RUNS: usize = 3;

/// How much a figure may vary that was seen once: a twentieth up and down.
const UNSEEN: f64 = 0.05;

/// What one run showed.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Trial {
    /// The latency of the first workload in milliseconds.
    pub latency_ms: Spread,
    /// The work of the second in a second, if it was measured.
    pub rate: Option<f64>,
}

/// A search that goes on.
#[derive(Debug, Clone)]
pub struct Sweep {
    /// From the smallest part of the first to the largest.
    splits: Vec<Split>,
    bound_ms: f64,
    /// The best split is not before this one, and if there is one, at the latest the one at `high`.
    low: usize,
    high: usize,
    trials: BTreeMap<Split, Vec<Trial>>,
}

/// A split that was tried.
#[derive(Debug, Clone, PartialEq)]
pub struct Point {
    /// The split.
    pub split: Split,
    /// The latency of the first workload in milliseconds, over all its runs.
    pub latency_ms: Spread,
    /// The work of the second in a second.
    pub rate: Option<Spread>,
    /// How often it was tried.
    pub runs: usize,
    /// Whether the latency is within the bound.
    pub is_within: bool,
}

impl Sweep {
    /// A search over the splits from 10/90 to 90/10 in steps of so many percent, for a latency of at most `bound_ms`.
    ///
    /// # Errors
    /// Returns a usage error unless the step is 5 or 10 and the bound is above 0.
    pub fn new(step: u32, bound_ms: f64) -> Result<Self> {
        if ![5, 10].contains(&step) {
            return Err(Error::usage(format!("step {step}"), "expected 5 or 10"));
        }
        if !(bound_ms.is_finite() && bound_ms > 0.0) {
            return Err(Error::usage(
                format!("bound {bound_ms}"),
                "expected milliseconds above 0",
            ));
        }
        let splits: Vec<Split> = (10..=90).step_by(step as usize).filter_map(Split::new).collect();
        Ok(Self {
            low: 0,
            high: splits.len(),
            splits,
            bound_ms,
            trials: BTreeMap::new(),
        })
    }

    /// The split to run next; `None` if the search is over. It stays the same until its [`Sweep::answer`].
    pub fn next_run(&self) -> Option<Split> {
        let middle = usize::midpoint(self.low, self.high);
        self.splits.get(middle).copied().filter(|_| self.low < self.high)
    }

    /// What the run of [`Sweep::next_run`] showed.
    pub fn answer(&mut self, trial: Trial) {
        let Some(split) = self.next_run() else { return };
        let trials = self.trials.entry(split).or_default();
        trials.push(trial);
        let Some(latency) = latency(trials) else { return };
        let is_clear = self.bound_ms < latency.least || latency.most < self.bound_ms;
        if !is_clear && trials.len() < MOST_RUNS {
            return;
        }
        let middle = usize::midpoint(self.low, self.high);
        match latency.median <= self.bound_ms {
            true => self.high = middle,
            false => self.low = middle + 1,
        }
    }

    /// How many runs may follow at most.
    pub fn most_runs_left(&self) -> usize {
        let tried = self.runs_of_next();
        let steps = (self.high - self.low + 1).next_power_of_two().trailing_zeros();
        (steps as usize * MOST_RUNS).saturating_sub(tried)
    }

    /// The best split; `None` while the search goes on, and if no split is good enough.
    pub fn best(&self) -> Option<Split> {
        let is_over = self.low >= self.high;
        self.splits.get(self.high).copied().filter(|_| is_over)
    }

    /// The splits that were tried, from the smallest part of the first to the largest.
    pub fn curve(&self) -> Vec<Point> {
        let point = |(split, trials): (&Split, &Vec<Trial>)| {
            let latency = latency(trials)?;
            Some(Point {
                split: *split,
                latency_ms: latency,
                rate: Spread::of(trials.iter().filter_map(|trial| trial.rate)),
                runs: trials.len(),
                is_within: latency.median <= self.bound_ms,
            })
        };
        self.trials.iter().filter_map(point).collect()
    }

    /// The result and the curve for a terminal of 80 columns, with a line about what the search could not decide.
    pub fn text(&self) -> String {
        let (curve, bound) = (self.curve(), self.bound_ms);
        let least = curve.iter().map(|point| point.latency_ms.median).fold(bound, f64::min);
        let most = curve.iter().map(|point| point.latency_ms.median).fold(bound, f64::max);
        let mut rows = vec![
            ["SPLIT", "FIRST MS", "SECOND /S", "RUNS", ""]
                .map(str::to_owned)
                .to_vec(),
        ];
        for point in &curve {
            let (latency, mark) = (point.latency_ms.median, if point.is_within { "" } else { " over" });
            rows.push(vec![
                point.split.to_string(),
                format!("{latency:.2}"),
                point.rate.map_or("-".to_owned(), |rate| format!("{:.1}", rate.median)),
                point.runs.to_string(),
                format!("{}{mark}", bar(latency, least, most)),
            ]);
        }
        let result = match (self.next_run(), self.best(), curve.last()) {
            (Some(next), ..) => format!("not finished: {next} is next\n"),
            (None, Some(best), _) => format!("best split: {best}, within {bound} ms\n"),
            (None, None, Some(last)) => format!(
                "no split keeps the first within {bound} ms: at {} it takes {:.2} ms\n",
                last.split, last.latency_ms.median
            ),
            (None, None, None) => String::new(),
        };
        format!("{}\n{result}{}", columns(&rows), rising(&curve).unwrap_or_default())
    }
}

/// The latency over all runs of a split. What was seen once is taken to vary a little.
fn latency(trials: &[Trial]) -> Option<Spread> {
    let medians = Spread::of(trials.iter().map(|trial| trial.latency_ms.median))?;
    let least = trials
        .iter()
        .map(|trial| trial.latency_ms.least)
        .fold(medians.least, f64::min);
    let most = trials
        .iter()
        .map(|trial| trial.latency_ms.most)
        .fold(medians.most, f64::max);
    Some(Spread {
        median: medians.median,
        least: least.min(medians.median * (1.0 - UNSEEN)),
        most: most.max(medians.median * (1.0 + UNSEEN)),
    })
}

/// A line if the first workload is slower with a larger part: then a split between those that were tried may be better.
fn rising(curve: &[Point]) -> Option<String> {
    let pairs = curve.iter().enumerate();
    let mut pairs = pairs.flat_map(|(at, one)| curve.iter().skip(at + 1).map(move |other| (one, other)));
    let (one, other) = pairs.find(|(one, other)| one.latency_ms.most < other.latency_ms.least)?;
    Some(format!(
        "the first is slower with a larger part: {:.2} ms at {}, {:.2} ms at {}; other splits may be better\n",
        one.latency_ms.median, one.split, other.latency_ms.median, other.split
    ))
}

#[cfg(test)]
mod tests;
