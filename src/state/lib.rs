//! What is written and read on a node: the specifications and `host.json`, what is held by the names that people know,
//! and the files in which the broker keeps and shows what it knows. Nothing here changes a GPU, a daemon or a process.
//!
//! | module | what it does |
//! |---|---|
//! | [`digests`] | the digests of a host and of a policy |
//! | [`replace`] | replaces a file or a link as a whole |
//! | [`nvidia_config`] | the configuration file of NVIDIA's container toolkit |
//! | [`mutex`] | locks of values that each change leaves complete |
//! | [`accounts`] | who is counted when shares and connections are limited |
//! | [`out_of_service`] | which devices are out of service, and how they are taken out and put back |
//! | [`state_file`] | files in which the broker keeps what it has to know, with the version of their form |
//! | [`claim_spec`] | the CDI specifications of claims that are made beforehand |
//! | [`planning`] | from the policy to a plan for this host, and what the plan needs there |
//! | [`held`] | what is held, by the names that people know devices and containers by |
//! | [`overdue`] | what users of this machine hold for longer than the policy lets them |
//! | [`generate`] | specifications of a host and its policy, and whether they are stale |
//! | [`refresh`] | keeps the specifications and `host.json` current |
//! | [`installed`] | the engines that are installed, and their versions |
//! | [`device_files`] | the driver's device nodes and the links in `/dev/char`, and how they are made |
//! | [`controlled`] | what the broker changed on a device, and the state of its MPS daemon, as it is shown |
//! | [`public_status`] | `status.json`: what every user may know of the shares |
//! | [`restore_failures`] | layouts of MIG that the last boot could not make |

pub mod accounts;
pub mod claim_spec;
pub mod controlled;
pub mod device_files;
pub mod digests;
pub mod generate;
pub mod held;
pub mod installed;
pub mod mutex;
pub mod nvidia_config;
pub mod out_of_service;
pub mod overdue;
pub mod planning;
pub mod public_status;
pub mod refresh;
pub mod replace;
pub mod restore_failures;
pub mod state_file;

#[cfg(test)]
#[path = "../../tests/support/programs.rs"]
mod programs;
