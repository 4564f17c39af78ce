//! Layouts of MIG on this machine.

mod change;
mod handles;
mod hold;
mod journal;
mod machine;
mod saved;

pub use change::{Progress, change, finish};
pub use handles::{NodeUser, users_of};
pub use hold::DevicesHeld;
pub use journal::MigJournal;
pub use machine::{ChangeError, MigMachine};
pub use saved::{SavedGpu, SavedLayouts};

#[cfg(test)]
mod tests;
