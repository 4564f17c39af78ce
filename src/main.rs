//! `tranche`, the command line.

use std::process::ExitCode;

fn main() -> ExitCode {
    // Before anything else: this process may be the one that is going to be the program of `tranche run`.
    if let Some(code) = tranche_cli::run_if_waiting() {
        return code;
    }
    if let Some(code) = tranche_cli::run_if_called(std::env::args_os()) {
        return code;
    }
    let (arguments, level) = match tranche_cli::parse(std::env::args_os()) {
        Ok(parsed) => parsed,
        Err(code) => return code,
    };
    tranche_state::log::start(level);
    match tranche_cli::run(arguments) {
        Ok(code) => code,
        Err(error) => tranche_cli::out::complain(error),
    }
}
