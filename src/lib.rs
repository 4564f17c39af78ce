//! tranche gives containers a GPU, or an exact slice of one, on any engine.
//!
//! ```text
//! host ──discover──▶ Inventory ──derive──▶ Edits ──build──▶ Spec ──write──▶ CDI directory
//! ```
//!
//! Only the two ends touch the world; what lies between is pure: equal hosts give equal bytes.
//!
//! The words: [`types`], [`error`] and [`text`], which use no other module.
//! The data: [`inventory`] (what a host has), [`edits`] (what is done to a container).
//! The ends: [`host`] reads a machine, [`cdi`] reads and writes specs, [`hook`] works inside a container's root,
//! which it reaches only through [`root`]. [`sys`] holds the only `unsafe`. [`cli`] is the command line; nothing
//! uses it.

pub mod call;
pub mod claims;
pub mod elf;
pub mod error;
pub mod hook;
pub mod ldcache;
pub mod ledger;
pub mod messages;
pub mod oci;
pub mod personality;
pub mod root;
pub mod sys;
pub mod text;
pub mod types;

#[cfg(feature = "cli")]
pub mod cdi;
#[cfg(feature = "cli")]
pub mod cli;
#[cfg(feature = "cli")]
pub mod derive;
#[cfg(feature = "cli")]
pub mod edits;
#[cfg(fuzzing)]
#[doc(hidden)]
pub mod fuzzing;
#[cfg(feature = "cli")]
pub mod host;
#[cfg(feature = "cli")]
pub mod inventory;
#[cfg(feature = "cli")]
pub mod policy;
#[cfg(feature = "cli")]
pub mod share;
#[cfg(feature = "cli")]
pub mod sim;
#[cfg(feature = "cli")]
pub mod sources;
#[cfg(feature = "cli")]
pub mod yaml;
