//! What the programs have in common that run inside containers: their beginning, CUDA's library, and JSON.
//!
//! They have no standard library, because that needs a newer C library than some images have. See build.rs.

#![no_std]

pub mod json;
pub mod sys;
