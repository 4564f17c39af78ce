//! What is written and read on a node: what is held by the names that people know, specifications of claims, and the
//! files in which the broker keeps and shows what it knows. Nothing here changes a GPU, a daemon or a process.
//!
//! | module | what it does |
//! |---|---|
//! | [`replace`] | replaces a file or a link as a whole |
//! | [`node_users`] | the processes that have device nodes open |
//! | [`mutex`] | locks of values that each change leaves complete |
//! | [`access`] | the device nodes of a machine, closed but for those who hold something |
//! | [`accounts`] | who is counted when shares and connections are limited |
//! | [`calendar`] | what is reserved for later, and how that is changed |
//! | [`out_of_service`] | which devices are out of service, and how they are taken out and put back |
//! | [`history`] | whether events are recorded, from which `tranche-web` makes a history |
//! | [`state_file`] | files in which the broker keeps what it has to know, with the version of their form |
//! | [`claim_spec`] | the CDI specifications of claims that are made beforehand |
//! | [`log`] | the log of a program: to stderr, quiet unless asked for |
//! | [`stop`] | how a program that runs in the foreground is ended |
//! | [`planning`] | from the policy to a plan for this host, and what the plan needs there |
//! | [`renew`] | has the specifications written anew by `tranche cdi refresh` |
//! | [`held`] | what is held, by the names that people know devices and containers by |
//! | [`hold`] | what users of this machine hold for longer than the policy lets them |
//! | [`controlled`] | what the broker changed on a device, and the state of its MPS daemon, as it is shown |
//! | [`device`] | what is held and free of a device that is handed out with a claim |
//! | [`metrics`] | what collectors read: the metrics, their names and their text |
//! | [`public_status`] | `status.json`: what every user may know of the shares |
//! | [`turns`] | who has a device that is given by turns, and the change that is being made |
//! | [`turn_tries`] | with which driver and GPU that was tried, and how it went |
//! | [`restore_failures`] | layouts of MIG that the last boot could not make |

pub mod access;
pub mod accounts;
pub mod calendar;
pub mod claim_spec;
pub mod controlled;
pub mod device;
pub mod held;
pub mod history;
pub mod hold;
pub mod log;
pub mod metrics;
pub mod mutex;
pub mod node_users;
pub mod out_of_service;
pub mod planning;
pub mod public_status;
pub mod renew;
pub mod replace;
pub mod restore_failures;
pub mod state_file;
pub mod stop;
pub mod turn_tries;
pub mod turns;

#[cfg(test)]
use tranche_test_support::programs;
