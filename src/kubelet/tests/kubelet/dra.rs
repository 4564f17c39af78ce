//! The driver for dynamic resource allocation.

mod fixtures;
mod publishing;
