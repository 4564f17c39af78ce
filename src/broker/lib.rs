//! What runs as root and changes a machine: the broker, which answers hooks and users, and what it does to GPUs, MPS
//! daemons, MIG layouts and processes. No type of a command line is in it.
//!
//! | module | what it does |
//! |---|---|
//! | [`own_cgroup`] | a cgroup for one program, below that of this process |
//! | [`as_user`] | runs a program as a user |
//! | [`facts`] | what the broker knows of the host now |
//! | [`peer`] | who is at the other end of a local socket |
//! | [`control`] | what changes a GPU or an MPS daemon, so that the machine agrees with the ledger |
//! | [`mig`] | layouts of MIG: what there is, changes, and what a killed process left |
//! | [`turns`] | gives a device to one holder after another |
//! | [`serve`] | the broker: answers requests of hooks and users |
//! | [`verbs`] | the verbs about claims, for root and for users |
//! | [`run`](mod@run) | runs a program in a share, without a container |
//! | [`command_line`] | the command line of the program `tranche-broker` |
//! | [`sys`] | the only `unsafe` code |

pub mod as_user;
pub mod command_line;
pub mod control;
pub mod facts;
pub mod mig;
pub mod own_cgroup;
pub mod peer;
pub mod run;
pub mod serve;
pub mod sys;
pub mod turns;
pub mod verbs;

#[cfg(test)]
use tranche_test_support::{programs, test_cgroup, until};
