//! The log: to stderr, quiet unless asked for.

use std::sync::atomic::{AtomicBool, Ordering};
use tracing_subscriber::filter::LevelFilter;

/// How much is said on stderr.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Level {
    /// Errors alone.
    Errors,
    /// Warnings and notes too.
    Warnings,
    /// What was looked for and not found, too.
    Steps,
    /// Everything.
    Everything,
}

/// Whether notes are left out. A note may be made anywhere, so this cannot be handed to everybody who makes one.
static IS_QUIET: AtomicBool = AtomicBool::new(false);

/// Whether only errors are said.
pub(super) fn is_quiet() -> bool {
    IS_QUIET.load(Ordering::Relaxed)
}

/// Starts the log at that level.
pub fn start(level: Level) {
    IS_QUIET.store(level == Level::Errors, Ordering::Relaxed);
    let filter = match level {
        Level::Errors => LevelFilter::ERROR,
        Level::Warnings => LevelFilter::WARN,
        Level::Steps => LevelFilter::INFO,
        Level::Everything => LevelFilter::DEBUG,
    };
    // If a log was started before (by a test, for example), that one stays.
    let _ = tracing_subscriber::fmt()
        .with_max_level(filter)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::IsTerminal::is_terminal(&std::io::stderr()))
        .without_time()
        .with_target(false)
        .try_init();
}
