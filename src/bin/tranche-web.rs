//! `tranche-web`, which keeps the history of who held which device, and answers questions about it.

use std::io::Write;
use std::process::ExitCode;
use tranche_core::error::line;
use tranche_core::text::shown;
use tranche_core::types::PROGRAM_VERSION;
use tranche_web::service::WebOptions;

fn main() -> ExitCode {
    let words: Vec<_> = std::env::args_os().skip(1).collect();
    if words.first().is_some_and(|word| word == "--version") {
        // Without a reader, nobody wants to know it.
        let _ = writeln!(std::io::stdout(), "tranche-web {PROGRAM_VERSION}");
        return ExitCode::SUCCESS;
    }
    match WebOptions::parse(words).and_then(|options| options.run()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let line = line(&error);
            // A failure has no reader, because the line itself had none.
            let _ = writeln!(std::io::stderr().lock(), "tranche-web: {}", shown(&line));
            ExitCode::from(error.kind().exit_code())
        }
    }
}
