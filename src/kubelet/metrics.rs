//! What the driver for dynamic resource allocation counts of its own work, for a collector that reads `/metrics`.
//!
//! Nobody is named: who may reach the port is not known. docs/reference/metrics.md has the names and labels.

mod kind;
mod serve;

pub use kind::Kind;
pub use serve::{listen, serve};

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tranche_core::openmetrics::{END, Family, FamilyKind, labels};

tranche_core::types::words! {
    /// What the kubelet asks for.
    pub enum Operation {
        /// To make the devices of a claim ready.
        Prepare = "prepare",
        /// To take that back.
        Unprepare = "unprepare",
    }
}

tranche_core::types::words! {
    /// Why a claim was not prepared or unprepared. There are no others, so that a series cannot be made from outside.
    pub enum Reason {
        /// The API server did not say what is allocated to the claim.
        ApiServer = "api-server",
        /// The claim does not exist any more, or nothing is allocated to it.
        NotAllocated = "not-allocated",
        /// This version of the driver does not know what is allocated, or its configuration is wrong.
        NotUnderstood = "not-understood",
        /// Another holder had a device for as long as the call waited.
        Held = "held",
        /// The broker does not answer.
        BrokerUnreachable = "broker-unreachable",
        /// The broker refuses it.
        BrokerRefused = "broker-refused",
        /// The kubelet waited no longer.
        Abandoned = "abandoned",
    }
}

const ALLOCATIONS: Family = Family {
    name: "tranche_dra_allocations",
    kind: FamilyKind::Counter,
    labels: &["resource", "strategy"],
    help: "Devices that were prepared for resource claims; one that is prepared again counts again.",
};

const FAILURES: Family = Family {
    name: "tranche_dra_failures",
    kind: FamilyKind::Counter,
    labels: &["operation", "reason"],
    help: "Resource claims that were not prepared or unprepared when the kubelet asked.",
};

const TIMES: Family = Family {
    name: "tranche_dra_operation_seconds",
    kind: FamilyKind::Histogram,
    labels: &["operation"],
    help: "How long the kubelet waited for one resource claim, whether it succeeded or not.",
};

/// The upper limits of the histogram, in milliseconds: around the goal of 5 ms, and up to the 45 s that the kubelet
/// waits (`pkg/kubelet/cm/dra/plugin/dra_plugin.go`).
const LIMITS: [u64; 14] = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 15_000, 45_000];

/// What was counted since the start of the program. Its copies are one.
#[derive(Debug, Clone, Default)]
pub struct Metrics(Arc<Mutex<Numbers>>);

#[derive(Debug, Default)]
struct Numbers {
    allocations: BTreeMap<Kind, u64>,
    failures: BTreeMap<(Operation, Reason), u64>,
    times: BTreeMap<Operation, Times>,
}

#[derive(Debug, Default)]
struct Times {
    /// How many took at most as long as each of [`LIMITS`] and longer than the one before; the last is for the rest.
    counts: [u64; LIMITS.len() + 1],
    sum: Duration,
}

impl Metrics {
    /// Counts an operation that took `time`, and how it ended.
    pub fn ended(&self, operation: Operation, time: Duration, failure: Option<Reason>) {
        let mut numbers = self.lock();
        let times = numbers.times.entry(operation).or_default();
        let fits = |limit: &u64| time <= Duration::from_millis(*limit);
        let at = LIMITS.iter().position(fits).unwrap_or(LIMITS.len());
        if let Some(count) = times.counts.get_mut(at) {
            *count += 1;
        }
        times.sum += time;
        if let Some(reason) = failure {
            *numbers.failures.entry((operation, reason)).or_default() += 1;
        }
    }

    /// Counts devices that were prepared.
    pub fn allocated(&self, kinds: impl IntoIterator<Item = Kind>) {
        let mut numbers = self.lock();
        for kind in kinds {
            *numbers.allocations.entry(kind).or_default() += 1;
        }
    }

    /// The text. A series of failures is there before the first one, so that its increase is seen.
    pub fn text(&self) -> String {
        let numbers = self.lock();
        let mut text = ALLOCATIONS.head();
        for (kind, count) in &numbers.allocations {
            sample(&mut text, ALLOCATIONS, "_total", &[kind.resource, kind.strategy], count);
        }
        text.push_str(&FAILURES.head());
        for operation in Operation::ALL {
            for reason in Reason::ALL {
                let count = numbers.failures.get(&(*operation, *reason)).unwrap_or(&0);
                let values = [operation.as_str(), reason.as_str()];
                sample(&mut text, FAILURES, "_total", &values, count);
            }
        }
        text.push_str(&TIMES.head());
        let none = Times::default();
        for operation in Operation::ALL {
            let times = numbers.times.get(operation).unwrap_or(&none);
            times.write(&mut text, operation.as_str());
        }
        text.push_str(END);
        text
    }

    fn lock(&self) -> MutexGuard<'_, Numbers> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Times {
    fn write(&self, text: &mut String, operation: &str) {
        let limits = LIMITS.iter().map(|limit| (*limit as f64 / 1e3).to_string());
        let mut all = 0;
        for (limit, count) in limits.chain(["+Inf".to_owned()]).zip(self.counts) {
            all += count;
            let labels = labels([("operation", operation), ("le", &limit)]);
            text.push_str(&format!("{}_bucket{labels} {all}\n", TIMES.name));
        }
        sample(text, TIMES, "_count", &[operation], &all);
        let sum = self.sum.as_secs_f64();
        let labels = labels([("operation", operation)]);
        text.push_str(&format!("{}_sum{labels} {sum}\n", TIMES.name));
    }
}

fn sample(text: &mut String, family: Family, suffix: &str, values: &[&str], count: &u64) {
    let labels = labels(family.labels.iter().copied().zip(values.iter().copied()));
    text.push_str(&format!("{}{suffix}{labels} {count}\n", family.name));
}

/// An operation that is under way. One that is dropped before it has ended was abandoned.
#[derive(Debug)]
pub struct Running {
    metrics: Metrics,
    operation: Operation,
    since: Instant,
    has_ended: bool,
}

impl Running {
    /// Begins now.
    pub fn begin(metrics: &Metrics, operation: Operation) -> Self {
        Self {
            metrics: metrics.clone(),
            operation,
            since: Instant::now(),
            has_ended: false,
        }
    }

    /// Counts how it ended.
    pub fn end(mut self, failure: Option<Reason>) {
        self.has_ended = true;
        self.metrics.ended(self.operation, self.since.elapsed(), failure);
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if !self.has_ended {
            let reason = Some(Reason::Abandoned);
            self.metrics.ended(self.operation, self.since.elapsed(), reason);
        }
    }
}

#[cfg(test)]
mod tests;
