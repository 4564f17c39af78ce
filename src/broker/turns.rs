//! Turns: gives a device to one holder after another, by the rule of [`tranche_plan::turns`].
//!
//! [`DeviceTurns`] decides and records, and makes every change through a [`TurnMachine`]: the driver, which suspends
//! and resumes processes; the filter of cgroups, which keeps those who are away from opening the device; and NVML. What
//! is recorded before each change is enough for the next broker to go on with it, whenever this one is killed.

mod device;
mod end;
mod filters;
mod holder;
mod host_memory;
mod machine;
mod paused;
mod real;

pub use device::{DeviceTurns, TurnNext};
pub use end::{EndTimes, end};
pub use filters::{nodes, open_all};
pub use holder::TurnHolder;
pub use host_memory::room as host_memory_room;
pub use machine::{TurnFault, TurnMachine};
pub use real::RealMachine;

#[cfg(test)]
mod tests;
