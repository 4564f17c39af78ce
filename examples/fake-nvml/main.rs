//! A fake `libnvidia-ml.so.1`: NVML's C symbols, answered from a JSON file.
//!
//! It lets the tests run the real path (open the library, resolve symbols, call) on a machine without a GPU, and lets
//! them see each way in which a real library fails. [`config`] has the form of the file, and [`config::find`] the
//! places where it may be.
//!
//! The file cannot remove a symbol. A test host that needs a library without some symbols lists them in
//! `missing_symbols`, and they are renamed in its copy of the library. With `errors`, a symbol stays and returns
//! `FUNCTION_NOT_FOUND`.
#![allow(unsafe_code, unsafe_op_in_unsafe_fn)]
#![allow(missing_docs, reason = "the functions are NVML's, which documents them")]
#![allow(non_snake_case, non_upper_case_globals, reason = "the names are NVML's")]
#![allow(unreachable_pub, reason = "what is exported is what has no_mangle")]
#![allow(clippy::missing_safety_doc, reason = "the contract of each function is NVML's")]

mod answer;
mod cgroup;
mod config;
#[path = "../fake-library/config_file.rs"]
mod config_file;
mod device;
mod instance;
mod mig;
mod mode;
mod state;
mod system;
mod turns;
mod usage;

/// Puts the name into the library's string table. The DT_SONAME of the copy in a test host points there, because Cargo
/// has no linker arguments for a library among the examples.
#[unsafe(export_name = "libnvidia-ml.so.1")]
static SONAME: u8 = 0;
