//! The driver for dynamic resource allocation.

mod allocating;
mod allocator;
mod checker;
mod fixtures;
mod limits;
mod mutants;
mod publishing;
mod table;
