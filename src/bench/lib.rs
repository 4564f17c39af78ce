//! What `tranche bench` measures, what its figures mean, and how they are shown. Nothing here starts a process, reads a
//! clock or a file, or asks a GPU: the caller runs the cells and hands over what it saw.
//!
//! ```text
//! setup ──▶ shares ─┐
//! Agenda ─▶ arrivals ─▶ (the runner) ─▶ Event ─▶ Measured ─▶ Recorded ─▶ Results ─▶ report, picture, compare
//! ```
//!
//! | module | what it does |
//! |---|---|
//! | [`way`] | the ways of sharing that are compared: the policy of each, and why one is not possible |
//! | [`schedule`] | when requests arrive, and when a cell is measured |
//! | [`cell`] | which cells a run measures, and how long it takes |
//! | [`progress`](mod@progress) | what a person sees while a run goes on |
//! | [`event`] | reads what `tranche-load` prints |
//! | [`statistics`] | percentiles, spreads and fairness |
//! | [`measured`] | from events to the figures of a cell |
//! | [`verdict`] | what the plan promised of a share, beside what was measured |
//! | [`results`] | the file of a run |
//! | [`kept`] | what is kept of runs on a machine, and which of it says something of the present shares |
//! | [`terminal`] | the report of a run for a terminal |
//! | [`picture`](mod@picture) | the same as an SVG |
//! | [`compare`](mod@compare) | two runs beside each other |
//! | [`sweep`] | the search for the best split between two workloads |
//! | [`latency`] | figures of a user's own program, from its output |

pub mod cell;
pub mod compare;
pub mod event;
pub mod kept;
pub mod latency;
pub mod measured;
pub mod picture;
pub mod progress;
pub mod results;
pub mod schedule;
pub mod statistics;
pub mod sweep;
pub mod terminal;
pub mod verdict;
pub mod way;

#[cfg(test)]
mod tests;
