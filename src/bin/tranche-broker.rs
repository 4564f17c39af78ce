//! `tranche-broker`, the daemon that runs as root: it serves hooks and users, and keeps the machine as the claims need
//! it.

use std::io::Write;
use std::process::ExitCode;
use tranche_broker::command_line::{BrokerCommand, version};
use tranche_core::error::{Error, line_for_user};
use tranche_core::text::shown;

fn main() -> ExitCode {
    let words: Vec<_> = std::env::args_os().skip(1).collect();
    if words.first().is_some_and(|word| word == "--version") {
        // Without a reader, nobody wants to know it.
        let _ = std::io::stdout().write_all(version().as_bytes());
        return ExitCode::SUCCESS;
    }
    BrokerCommand::parse(words)
        .and_then(BrokerCommand::run)
        .unwrap_or_else(|error| complain(&error))
}

/// Prints what went wrong, in one line, and returns the exit code that says it to a program.
fn complain(error: &Error) -> ExitCode {
    let line = line_for_user(error, nix::unistd::geteuid().is_root());
    // A failure has no reader, because the line itself had none.
    let _ = writeln!(std::io::stderr().lock(), "tranche-broker: {}", shown(&line));
    ExitCode::from(error.kind().exit_code())
}
