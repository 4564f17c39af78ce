//! What collectors read of the shares: OpenMetrics text. docs/reference/metrics.md documents the names and labels.
//!
//! `tranche metrics` writes it of all that root sees, and `tranche-web` of what every user may know.

pub mod catalogue;
mod exposition;
mod names;
mod samples;

pub use exposition::Exposition;
pub use names::{Identity, Names, Naming};
pub use samples::{bytes, count, of_daemon, of_devices, of_turns, ratio, truth};

#[cfg(test)]
mod tests;
