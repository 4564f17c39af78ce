//! A fake `libnvidia-ml.so.1`: NVML's C symbols, answered from a JSON file.
//!
//! It lets the tests run the real path (open the library, resolve symbols, call) on a machine without a GPU, and lets
//! them see each way in which a real library fails. What it says, and how it fails, is in [`config`]; where it finds
//! its file, in [`config::find`].
//!
//! A symbol cannot be taken away by a configuration: who needs a library that lacks some renames them in a copy (the
//! `missing_symbols` of a test host do that). `errors` gives `FUNCTION_NOT_FOUND` for a symbol that stays.
#![allow(unsafe_code, unsafe_op_in_unsafe_fn)]
#![allow(missing_docs, reason = "the functions are NVML's, which documents them")]
#![allow(non_snake_case, non_upper_case_globals, reason = "the names are NVML's")]
#![allow(unreachable_pub, reason = "what is exported is what has no_mangle")]
#![allow(clippy::missing_safety_doc, reason = "the contract of each function is NVML's")]

mod answer;
mod config;
mod device;
mod instance;
mod state;
mod system;

/// Puts the name into the library's string table, where the copy in a test host points its DT_SONAME: Cargo takes no
/// linker argument for a library among the examples.
#[unsafe(export_name = "libnvidia-ml.so.1")]
static SONAME: u8 = 0;
