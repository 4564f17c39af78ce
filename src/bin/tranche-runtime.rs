//! `tranche-runtime`, the program that engines execute in the place of a low-level runtime.

use std::process::ExitCode;

fn main() -> ExitCode {
    ExitCode::from(tranche_inject::runtime::run(
        std::env::args_os(),
        &mut std::io::stderr().lock(),
    ))
}
