//! Layouts of MIG on this machine.

mod change;
mod handles;
mod journal;
mod machine;

pub use change::{Progress, change, finish};
pub use handles::{NodeUser, users_of};
pub use journal::MigJournal;
pub use machine::{ChangeError, MigMachine};

#[cfg(test)]
mod tests;
