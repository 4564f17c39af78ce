//! `tranche-driver`, the only program that loads NVIDIA's libraries.

use std::process::ExitCode;

fn main() -> ExitCode {
    tranche_driver::run(std::env::args_os().skip(1))
}
