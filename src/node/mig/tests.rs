//! Layouts on a model of a GPU.

mod apply;
mod change;
pub(crate) mod model;
