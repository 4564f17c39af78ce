//! A fake `libcuda.so.1`: the functions of CUDA's driver API that `tranche-verify` and `tranche-load` call, answered
//! from a JSON file.
//!
//! It lets the tests run the real path (a program in a container opens the library by name and calls it) on a machine
//! without a GPU. [`config`] has the form of the file and the places where it may be. [`limits`] applies the limits of
//! MPS as the real library does. [`model`] is a GPU in time, which processes share through a file ([`shared`]): its
//! kernels and copies take their time without being done. With [`turns`], a process can be suspended by another one,
//! and its memory has content.
#![allow(unsafe_code, unsafe_op_in_unsafe_fn)]
#![allow(missing_docs, reason = "the functions are CUDA's, which documents them")]
#![allow(non_snake_case, non_upper_case_globals, reason = "the names are CUDA's")]
#![allow(unreachable_pub, reason = "what is exported is what has no_mangle")]
#![allow(clippy::missing_safety_doc, reason = "the contract of each function is CUDA's")]

mod config;
#[path = "../fake-library/config_file.rs"]
mod config_file;
mod driver;
mod limits;
mod model;
mod shared;
mod turns;
mod work;

/// Puts the name into the library's string table. The DT_SONAME of the copy in a test host points there, because Cargo
/// has no linker arguments for a library among the examples.
#[unsafe(export_name = "libcuda.so.1")]
static SONAME: u8 = 0;
