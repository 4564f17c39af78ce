//! Layouts on a model of a GPU.

mod apply;
mod change;
mod killed;
pub(crate) mod model;
