//! What changes a machine or watches it: specifications that are kept current, the broker, what is held, and what is
//! wrong. Every program that does what `tranche` does calls this crate. No type of a command line is in it.
//!
//! | module | what it does |
//! |---|---|
//! | [`digests`] | the digests of a host and of a policy |
//! | [`replace`] | replaces a file or a link as a whole |
//! | [`nvidia_config`] | the configuration file of NVIDIA's container toolkit |
//! | [`mutex`] | locks of values that each change leaves complete |
//! | [`own_cgroup`] | a cgroup for one program, below that of this process |
//! | [`accounts`] | who is counted when shares and connections are limited |
//! | [`as_user`] | runs a program as a user |
//! | [`out_of_service`] | which devices are out of service, and how they are taken out and put back |
//! | [`state_file`] | files in which the broker keeps what it has to know, with the version of their form |
//! | [`claim_spec`] | the CDI specifications of claims that are made beforehand |
//! | [`planning`] | from the policy to a plan for this host, and what the plan needs there |
//! | [`held`] | what is held, by the names that people know devices and containers by |
//! | [`overdue`] | what users of this machine hold for longer than the policy lets them |
//! | [`policy_change`] | what would change if another file became the policy |
//! | [`generate`] | specifications of a host and its policy, and whether they are stale |
//! | [`refresh`] | keeps the specifications and `host.json` current |
//! | [`facts`] | what the broker knows of the host now |
//! | [`export`] | flags and lines that give a device to programs without CDI |
//! | [`installed`] | the engines that are installed, and their versions |
//! | [`engine_config`] | the configuration files of docker, containerd, CRI-O and podman |
//! | [`peer`] | who is at the other end of a local socket |
//! | [`control`] | what changes a GPU or an MPS daemon, so that the machine agrees with the ledger |
//! | [`mig`] | layouts of MIG: what there is, changes, and what a killed process left |
//! | [`observe`] | which claim each process on a GPU belongs to |
//! | [`observed`] | the state of the shares at one moment: what is held and free, who waits, what the GPUs do |
//! | [`serve`] | the broker: answers requests of hooks and users |
//! | [`run`](mod@run) | runs a program in a share, without a container |
//! | [`verify`](mod@verify) | whether CUDA in a container gives what its share promises |
//! | [`device_files`] | the driver's device nodes and the links in `/dev/char`, and how they are made |
//! | [`doctor`] | what is wrong with a host, why it matters, and which command corrects it |
//! | [`sys`] | the only `unsafe` code |

pub mod accounts;
pub mod as_user;
pub mod claim_spec;
pub mod control;
pub mod device_files;
pub mod digests;
pub mod doctor;
pub mod engine_config;
pub mod export;
pub mod facts;
pub mod generate;
pub mod held;
pub mod installed;
pub mod mig;
pub mod mutex;
pub mod nvidia_config;
pub mod observe;
pub mod observed;
pub mod out_of_service;
pub mod overdue;
pub mod own_cgroup;
pub mod peer;
pub mod planning;
pub mod policy_change;
pub mod refresh;
pub mod replace;
pub mod run;
pub mod serve;
pub mod state_file;
pub mod sys;
pub mod verify;

#[cfg(test)]
#[path = "../../tests/support/programs.rs"]
mod programs;
#[cfg(test)]
#[path = "../../tests/support/test_cgroup.rs"]
mod test_cgroup;
#[cfg(test)]
#[path = "../../tests/support/until.rs"]
#[allow(dead_code, reason = "other tests use the rest")]
mod until;
