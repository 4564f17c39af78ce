//! The log: to stderr, quiet unless asked for.

use tracing_subscriber::filter::LevelFilter;

/// Starts the log: warnings and errors, with `-v` what happens, with `-vv` every step.
pub fn start(verbose: u8) {
    let level = match verbose {
        0 => LevelFilter::WARN,
        1 => LevelFilter::INFO,
        _ => LevelFilter::DEBUG,
    };
    // Started twice (by a test, say), the first log stays.
    let _ = tracing_subscriber::fmt()
        .with_max_level(level)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::IsTerminal::is_terminal(&std::io::stderr()))
        .without_time()
        .with_target(false)
        .try_init();
}
