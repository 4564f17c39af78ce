//! What every program of tranche shares, and all that the hooks need: types, paths inside untrusted trees, the ledger
//! with its claims, the protocol of the broker, and the formats of libraries and of the loader's cache.
//!
//! Root runs this code at every start of a container, so it has no dependency that parses YAML, TOML or a command line.
//!
//! | module | what it does |
//! |---|---|
//! | [`text`] | text for people: escaped, bounded, in lists |
//! | [`error`] | the one-line message for people, and the exit code |
//! | [`types`] | newtypes for what must not be mixed up, such as paths of the host and of a container |
//! | [`bounded`] | reads input of a limited size |
//! | [`mps`] | how a client of MPS connects to its daemon, and how daemons of drivers differ |
//! | [`personality`] | which part of `tranche-oci` runs, by the name that it was called by |
//! | [`ldcache`] | the format of the loader's cache (ld.so.cache) |
//! | [`driver_rights`] | what a process gives up before it loads a library of NVIDIA |
//! | [`elf`] | what a shared library says about itself |
//! | [`root`] | every path that is followed on behalf of an image goes through it; directories of tranche's own |
//! | [`sealed`] | JSON in files, with a checksum |
//! | [`ledger`] | the records of who holds which share |
//! | [`notify`] | messages to a service manager |
//! | [`execute`] | the one place that executes another program |
//! | [`own_programs`] | where the programs of tranche are |
//! | [`messages`] | what hooks reported, for `tranche status` |
//! | [`oci`] | the state and the configuration of a container |
//! | [`openmetrics`] | the text format of metrics |
//! | [`process_identity`] | a process that cannot be taken for another one |
//! | [`caller`] | whether the programs that started this one still wait for it |
//! | [`claims`] | enters claims and releases them, by the ledger |
//! | [`broker`] | how programs ask the broker, which changes the machine and serves users |
//! | [`call`] | the command lines of hooks: written by `derive`, read by `hook` |
//! | [`sys`] | the only `unsafe` code |

pub mod bounded;
pub mod broker;
pub mod call;
pub mod caller;
pub mod claims;
pub mod driver_rights;
pub mod elf;
pub mod error;
pub mod execute;
#[cfg(fuzzing)]
#[doc(hidden)]
pub mod fuzzing;
pub mod ldcache;
pub mod ledger;
pub mod messages;
pub mod mps;
pub mod notify;
pub mod oci;
pub mod openmetrics;
pub mod own_programs;
pub mod personality;
pub mod process_identity;
pub mod root;
pub mod sealed;
pub mod sys;
pub mod text;
pub mod types;

#[cfg(test)]
use tranche_test_support::{programs, until};
