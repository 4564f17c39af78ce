//! Layouts of MIG on this machine.

mod apply;
mod change;
mod finish;
mod hold;
mod holders;
mod host;
mod in_the_way;
mod journal;
mod look;
mod machine;
mod on_demand;
mod policy;
mod real;
mod saved;
mod services;
mod verbs;

pub use apply::{MigOrder, MigTools};
pub use change::{Progress, Settled, Unchanged, change, settle};
pub use hold::DevicesHeld;
pub use holders::{holders, reserved};
pub use host::MigHost;
pub use in_the_way::{destroyed_devices, in_the_way, refusal};
pub use journal::{MigJournal, Record};
pub use look::{MigView, gpus};
pub use machine::{ChangeError, MigMachine};
pub use on_demand::{OnDemandInstance, OnDemandInstances};
pub use policy::check_policy;
pub use real::NvmlMachine;
pub use saved::{SavedGpu, SavedLayouts};
pub use services::KNOWN_SERVICES;
pub use verbs::{apply, restore};

#[cfg(test)]
mod tests;
