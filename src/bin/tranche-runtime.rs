//! `tranche-runtime`, the program that engines execute in the place of a low-level runtime.

use std::process::ExitCode;

fn main() -> ExitCode {
    ExitCode::FAILURE
}
