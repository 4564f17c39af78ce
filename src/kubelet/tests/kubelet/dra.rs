//! The ResourceSlices of the driver for dynamic resource allocation.

mod allocating;
pub(crate) mod allocator;
mod checker;
mod divided;
pub(crate) mod fixtures;
mod keys;
mod limits;
mod mutants;
mod publishing;
mod table;
