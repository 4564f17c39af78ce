//! Pages that follow one another: `--watch`.

use super::{look, out};
use anyhow::Result;
use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;
use std::time::{Duration, UNIX_EPOCH};
use tranche_core::ledger::utc;

/// How often a page can be shown again: more often, the driver would be busy with nothing else.
const SHORTEST: Duration = Duration::from_millis(200);

/// Reads the value of `--watch`.
///
/// # Errors
/// Returns what is wrong with the number.
pub(super) fn seconds_of_watch(text: &str) -> Result<Duration, String> {
    let period = look::seconds(text)?;
    if period < SHORTEST {
        return Err(format!("shorter than {} seconds", SHORTEST.as_secs_f32()));
    }
    Ok(period)
}

/// Shows `page` now and after each `period`, until nobody reads any more. A terminal is cleared before each page;
/// elsewhere, with `separate`, a line with the time precedes each.
///
/// # Errors
/// Returns the error of `page`, and one of standard output.
pub(super) fn each(period: Duration, separate: bool, mut page: impl FnMut() -> Result<ExitCode>) -> Result<ExitCode> {
    loop {
        if !begin(separate)? {
            return Ok(ExitCode::SUCCESS);
        }
        page()?;
        std::thread::sleep(period);
    }
}

/// Returns whether somebody reads.
fn begin(separate: bool) -> Result<bool> {
    const CLEAR: &str = "\x1b[H\x1b[2J\x1b[3J";
    let time = utc(UNIX_EPOCH.elapsed().map_or(0, |since| since.as_secs()));
    let begin = match (io::stdout().is_terminal(), separate) {
        (true, _) => format!("{CLEAR}{time}\n\n"),
        (false, true) => format!("--- {time}\n"),
        (false, false) => String::new(),
    };
    let mut stdout = io::stdout().lock();
    let written = stdout.write_all(begin.as_bytes()).and_then(|()| stdout.flush());
    // A page without a beginning writes into a closed pipe without an error, so its reader is looked for here.
    Ok(written.is_ok() && out::has_reader())
}
