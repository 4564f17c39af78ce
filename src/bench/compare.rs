//! Two files of results beside each other.

use crate::cell::Cell;
use crate::results::Results;
use crate::statistics::Spread;
use crate::terminal::{columns, wrapped};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};

/// What differs between two runs.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Comparison {
    /// What is not the same of the machine, the runs and the verdicts, a line each.
    pub differences: Vec<String>,
    /// The cells of both, in their order.
    pub cells: Vec<ComparedCell>,
}

/// A cell in two runs.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ComparedCell {
    /// The cell.
    pub cell: Cell,
    /// The 99th percentile of its latency in the first run, in milliseconds; `None` if it was not measured.
    pub before: Option<Spread>,
    /// The same in the second run.
    pub after: Option<Spread>,
    /// What the change is.
    pub change: Change,
}

tranche_core::types::words! {
    /// How a cell changed.
    pub enum Change: "change" {
        /// The second run is faster, beyond what either was seen to vary.
        Faster = "faster",
        /// It is slower.
        Slower = "slower",
        /// The change is within what one of the two varies.
        Within = "within its spread",
        /// The two differ, and neither was measured often enough to say by how much each varies.
        Unknown = "spread unknown",
        /// One of the two did not measure it.
        Missing = "not in both",
    }
}
tranche_core::types::serde_as_text!(Change);

/// Compares the 99th percentile of each cell, and what else of two runs differs.
pub fn compare(before: &Results, after: &Results) -> Comparison {
    let cells: BTreeSet<Cell> = before.cells.iter().chain(&after.cells).map(|one| one.cell).collect();
    let of = |results: &Results, cell| results.cell(cell).and_then(|one| one.p99_ms);
    let compared = cells.into_iter().map(|cell| {
        let (before, after) = (of(before, cell), of(after, cell));
        ComparedCell {
            cell,
            before,
            after,
            change: change(before, after),
        }
    });
    Comparison {
        differences: differences(before, after),
        cells: compared.collect(),
    }
}

fn change(before: Option<Spread>, after: Option<Spread>) -> Change {
    let (Some(before), Some(after)) = (before, after) else {
        return Change::Missing;
    };
    match () {
        () if before.overlaps(after) => Change::Within,
        () if !before.is_wide() && !after.is_wide() => Change::Unknown,
        () if after.median < before.median => Change::Faster,
        () => Change::Slower,
    }
}

fn differences(before: &Results, after: &Results) -> Vec<String> {
    let facts = |results: &Results| {
        let (host, length) = (&results.host, results.length);
        let clocks = results.cells.iter().filter_map(|one| one.clocks.most_mhz).max();
        let known = |value: Option<String>| value.unwrap_or("unknown".to_owned());
        let facts = [
            ("product", host.product.clone()),
            ("driver", host.driver.clone()),
            ("CUDA", host.cuda.clone()),
            ("kernel", host.kernel.clone()),
            ("memory in MiB", host.memory_mib.to_string()),
            ("multiprocessors", known(host.sms.map(|sms| sms.to_string()))),
            ("compute mode", known(host.compute_mode.clone())),
            (
                "MIG",
                known(host.mig.map(|on| if on { "on" } else { "off" }.to_owned())),
            ),
            ("highest clock in MHz", known(clocks.map(|clock| clock.to_string()))),
            ("request in ms", format!("{:.1}", results.request_ms)),
            ("length", format!("{} x {} s", length.repeats, length.measure_s)),
            ("tranche", results.program.clone()),
        ];
        facts.map(|(what, value)| (what.to_owned(), value)).to_vec()
    };
    let verdicts = |results: &Results| {
        let mut all = BTreeMap::new();
        for way in &results.ways {
            for share in &way.shares {
                let of = |dimension| format!("{}, share {}, {dimension}", way.way, share.name);
                all.extend(share.verdicts.iter().map(|one| (of(one.of), one.outcome.to_string())));
            }
        }
        all
    };
    let (facts, others) = (facts(before), facts(after));
    let facts = facts.into_iter().zip(others);
    let facts = facts.map(|((what, before), (_, after))| (what, before, after));
    let others = verdicts(after);
    let verdicts = verdicts(before).into_iter();
    let verdicts = verdicts.filter_map(|(what, before)| Some((what.clone(), before, others.get(&what)?.clone())));
    facts
        .chain(verdicts)
        .filter(|(_, before, after)| before != after)
        .map(|(what, before, after)| format!("{what}: {before}, then {after}"))
        .collect()
}

impl Comparison {
    /// The text for a terminal of 80 columns.
    pub fn text(&self) -> String {
        let number = |spread: Option<Spread>| spread.map_or("-".to_owned(), |spread| format!("{:.2}", spread.median));
        let head = ["CELL", "P99 MS", "THEN", "TIMES", "CHANGE"]
            .map(str::to_owned)
            .to_vec();
        let rows = self.cells.iter().map(|one| {
            let factor = one.after.and_then(|after| after.over(one.before?));
            let factor = factor.map_or("-".to_owned(), |factor| format!("{:.2}", factor.median));
            vec![
                one.cell.to_string(),
                number(one.before),
                number(one.after),
                factor,
                one.change.to_string(),
            ]
        });
        let differences: String = self.differences.iter().map(|line| wrapped(line, 2)).collect();
        let rows: Vec<Vec<String>> = std::iter::once(head).chain(rows).collect();
        format!("{differences}\n{}", columns(&rows)).trim_start().to_owned()
    }
}
