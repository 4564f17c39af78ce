//! What a search has found, for people and for programs.

use super::Sweep;
use crate::cell::clock;
use crate::statistics::Spread;
use serde::Serialize;
use tranche_core::text::{counted, shown};

/// The two workloads of a search.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Workloads {
    /// The first, in words: a command is as a person typed it.
    pub first: String,
    /// The second.
    pub second: String,
    /// The latency of the first alone, in milliseconds, if it was measured.
    pub alone_ms: Option<f64>,
}

/// The result of a search.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Found {
    /// The workloads.
    #[serde(flatten)]
    pub workloads: Workloads,
    /// The bound of the first one's latency in milliseconds.
    pub bound_ms: f64,
    /// The split that keeps it and gives the second the most: `80/20`. `None` if none does.
    pub best: Option<String>,
    /// The splits that were tried, from the smallest part of the first to the largest.
    pub splits: Vec<Tried>,
    #[serde(skip)]
    text: String,
}

/// A split that was tried.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Tried {
    /// `80/20`
    pub split: String,
    /// The latency of the first in milliseconds.
    pub latency_ms: Spread,
    /// The work of the second in a second.
    pub rate: Option<Spread>,
    /// How often it was tried.
    pub runs: usize,
    /// Whether the latency is within the bound.
    pub is_within: bool,
}

impl Found {
    /// What `sweep` has found.
    pub fn new(workloads: Workloads, sweep: &Sweep) -> Self {
        let tried = |point: super::Point| Tried {
            split: point.split.to_string(),
            latency_ms: point.latency_ms,
            rate: point.rate,
            runs: point.runs,
            is_within: point.is_within,
        };
        Self {
            bound_ms: sweep.bound_ms,
            best: sweep.best().map(|split| split.to_string()),
            splits: sweep.curve().into_iter().map(tried).collect(),
            text: sweep.text(),
            workloads,
        }
    }

    /// The result and the curve for a terminal.
    pub fn text(&self) -> String {
        let Workloads {
            first,
            second,
            alone_ms,
        } = &self.workloads;
        let alone = alone_ms.map_or(String::new(), |ms| format!(", {ms:.2} ms alone"));
        let (first, second) = (shown(first), shown(second));
        format!("first:  {first}{alone}\nsecond: {second}\n\n{}", self.text)
    }
}

impl Sweep {
    /// What a person sees before the run of [`Sweep::next_run`], if a run takes so many seconds: `50/50: at most 12
    /// runs left, 2:36`.
    pub fn progress(&self, seconds: u32) -> String {
        let Some(split) = self.next_run() else {
            return "the search is over".to_owned();
        };
        let runs = self.most_runs_left();
        let left = u64::try_from(runs)
            .unwrap_or(u64::MAX)
            .saturating_mul(u64::from(seconds));
        format!("{split}: at most {} left, {}", counted(runs, "run"), clock(left))
    }

    /// How often the split of [`Sweep::next_run`] was tried.
    pub fn runs_of_next(&self) -> usize {
        let next = self.next_run();
        next.and_then(|split| self.trials.get(&split)).map_or(0, Vec::len)
    }
}
