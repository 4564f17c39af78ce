//! tranche gives containers a GPU, or an exact slice of one, on any engine.
//!
//! ```text
//! host ──discover──▶ Inventory ──derive──▶ Edits ──build──▶ Spec ──write──▶ CDI directory
//! ```
//!
//! Only the two ends interact with the host. The steps between them are pure: equal hosts and equal policies give equal
//! bytes.
//!
//! | module | what it does |
//! |---|---|
//! | [`text`] | text for people: escaped, bounded, in lists |
//! | [`error`] | the one-line message for people, and the exit code |
//! | [`types`] | newtypes for what must not be mixed up, such as paths of the host and of a container |
//! | [`bounded`] | reads input of a limited size |
//! | [`program`] | runs another program to its end, with a deadline |
//! | `mps` | how a client of MPS connects to its daemon |
//! | [`yaml`] | YAML files with the line and column of each value |
//! | [`personality`] | which part of `tranche-oci` runs, by the name that it was called by |
//! | [`sys`] | the only `unsafe` code |
//! | [`ldcache`] | the format of the loader's cache (ld.so.cache) |
//! | [`elf`] | what a shared library says about itself |
//! | [`digest`] | SHA-256 digests of what a specification was made from, as text |
//! | [`digests`] | the digests of a host and of a policy |
//! | [`inventory`] | what a host has, as data |
//! | [`edits`] | what is done to a container, as data |
//! | [`sim`] | the built-in inventories |
//! | [`sources`] | opens an inventory from a file, standard input or the built-in ones |
//! | [`replace`] | replaces a file or a link as a whole |
//! | [`root`] | every path that is followed on behalf of an image goes through it; directories of tranche's own |
//! | [`ledger`] | the records of who holds which share |
//! | [`messages`] | what hooks reported, for `tranche status` |
//! | [`oci`] | the state and the configuration of a container |
//! | [`host`] | discovery: reads a machine into an inventory |
//! | [`examine`] | how a program gets an inventory: it examines a host, or opens one that was saved |
//! | [`policy`] | the configuration file: how devices are shared |
//! | [`nvidia_config`] | the configuration file of NVIDIA's container toolkit |
//! | [`share`] | policy and inventory to a plan: which shares there are, and what each guarantees |
//! | [`host_file`] | what the host has and the plan for it, in a file for programs that never query the GPU |
//! | `mutex` | locks of values that each change leaves complete |
//! | [`accounts`] | who is counted when shares and connections are limited |
//! | [`claim_spec`] | the CDI specifications of claims that are made beforehand |
//! | [`planning`] | from the policy to a plan for this host, and what the plan needs there |
//! | [`held`] | what is held, by the names that people know devices and containers by |
//! | [`generate`] | specifications of a host and its policy, and whether they are stale |
//! | [`refresh`] | keeps the specifications and `host.json` current |
//! | [`facts`] | what the broker knows of the host now |
//! | [`caller`] | whether the programs that started this one still wait for it |
//! | [`claims`] | enters claims and releases them, by the ledger |
//! | [`reserve`] | reserves shares of a plan, and says what of the held shares a plan does not know |
//! | [`derive`](mod@derive) | inventory and plan to edits |
//! | [`broker`] | how programs ask the broker, which changes the machine and serves users |
//! | [`export`] | flags and lines that give a device to programs without CDI |
//! | [`call`] | the command lines of hooks: written by `derive`, read by `hook` |
//! | [`cdi`] | CDI specifications: builds, reads, checks and writes them |
//! | [`engines`] | what tranche knows of each engine |
//! | [`installed`] | the engines that are installed, and their versions |
//! | [`inject`] | what a container asks for, and how it gets it |
//! | [`engine_config`] | the configuration files of docker, containerd, CRI-O and podman |
//! | [`peer`] | who is at the other end of a local socket |
//! | [`control`] | what changes a GPU or an MPS daemon, so that the machine agrees with the ledger |
//! | [`observe`] | which claim each process on a GPU belongs to |
//! | [`observed`] | the state of the shares at one moment: what is held and free, who waits, what the GPUs do |
//! | [`serve`] | the broker: answers requests of hooks and users |
//! | [`hook`] | the hooks, which work inside a container's root |
//! | [`run`](mod@run) | runs a program in a share, without a container |
//! | [`verify`](mod@verify) | whether CUDA in a container gives what its share promises |
//! | [`runtime`] | the runtime, which edits a container's configuration and executes runc or crun |
//! | [`device_files`] | the driver's device nodes and the links in `/dev/char`, and how they are made |
//! | [`doctor`] | what is wrong with a host, why it matters, and which command corrects it |
//! | [`cli`] | the command line of `tranche`; no module uses it |
//! | `fuzzing` | entry points for the fuzz targets, in no program |

pub mod bounded;
pub mod broker;
pub mod call;
pub mod caller;
pub mod claims;
pub mod elf;
pub mod error;
pub mod hook;
pub mod ldcache;
pub mod ledger;
pub mod messages;
mod mps;
pub mod oci;
pub mod personality;
pub mod root;
pub mod sys;
pub mod text;
pub mod types;

#[cfg(test)]
#[path = "../tests/support/programs.rs"]
mod programs;

#[cfg(feature = "runtime")]
pub mod cdi;
#[cfg(feature = "runtime")]
pub mod derive;
#[cfg(feature = "runtime")]
pub mod digest;
#[cfg(feature = "runtime")]
pub mod edits;
#[cfg(feature = "runtime")]
pub mod engines;
#[cfg(feature = "runtime")]
pub mod host_file;
#[cfg(feature = "runtime")]
pub mod inject;
#[cfg(feature = "runtime")]
pub mod inventory;
#[cfg(feature = "runtime")]
pub mod policy;
#[cfg(feature = "runtime")]
pub mod reserve;
#[cfg(feature = "runtime")]
pub mod runtime;
#[cfg(feature = "runtime")]
pub mod share;
#[cfg(feature = "runtime")]
pub mod yaml;

#[cfg(feature = "cli")]
pub mod accounts;
#[cfg(feature = "cli")]
pub mod claim_spec;
#[cfg(feature = "cli")]
pub mod cli;
#[cfg(feature = "cli")]
pub mod control;
#[cfg(feature = "cli")]
pub mod device_files;
#[cfg(feature = "cli")]
pub mod digests;
#[cfg(feature = "cli")]
pub mod doctor;
#[cfg(feature = "cli")]
pub mod engine_config;
#[cfg(feature = "cli")]
pub mod examine;
#[cfg(feature = "cli")]
pub mod export;
#[cfg(feature = "cli")]
pub mod facts;
#[cfg(fuzzing)]
#[doc(hidden)]
pub mod fuzzing;
#[cfg(feature = "cli")]
pub mod generate;
#[cfg(feature = "cli")]
pub mod held;
#[cfg(feature = "cli")]
pub mod host;
#[cfg(feature = "cli")]
pub mod installed;
#[cfg(feature = "cli")]
mod mutex;
#[cfg(feature = "cli")]
pub mod nvidia_config;
#[cfg(feature = "cli")]
pub mod observe;
#[cfg(feature = "cli")]
pub mod observed;
#[cfg(feature = "cli")]
pub mod peer;
#[cfg(feature = "cli")]
pub mod planning;
#[cfg(feature = "cli")]
pub mod program;
#[cfg(feature = "cli")]
pub mod refresh;
#[cfg(feature = "cli")]
pub mod replace;
#[cfg(feature = "cli")]
pub mod run;
#[cfg(feature = "cli")]
pub mod serve;
#[cfg(feature = "cli")]
pub mod sim;
#[cfg(feature = "cli")]
pub mod sources;
#[cfg(feature = "cli")]
pub mod verify;
