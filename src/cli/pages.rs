//! Pages that follow one another: `--watch`.

use super::{look, out};
use crate::window::{self, Keys, Pressed};
use anyhow::Result;
use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;
use std::time::{Duration, Instant};
use tranche_core::error::Error;
use tranche_core::ledger::{clock, utc};
use tranche_core::text::counted;

/// How often a page can be shown again: more often, the driver would be busy with nothing else.
const SHORTEST: Duration = Duration::from_millis(200);

/// A page, and what could not be read for it.
pub(super) struct Page {
    text: String,
    problems: Vec<String>,
    code: ExitCode,
}

impl Page {
    /// `text` as [`out::result`] or [`out::json`] would write it, and a line for each of `problems`.
    pub(super) fn new<'a>(text: String, problems: impl IntoIterator<Item = &'a Error>) -> Self {
        let (problems, code) = out::complaints(problems);
        Self { text, problems, code }
    }

    /// Shows it once. What could not be read is said on stderr.
    ///
    /// # Errors
    /// As [`out::written`].
    pub(super) fn show(&self) -> Result<ExitCode> {
        out::written(&self.text)?;
        self.problems.iter().for_each(out::say);
        Ok(self.code)
    }
}

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

/// Shows `page` now and after each `period`, until nobody reads any more. On a terminal, a page replaces the one
/// before, and `q` ends the verb; elsewhere, with `separate`, a line with the time precedes each.
///
/// # Errors
/// Returns the error of `page`, and one of standard output.
pub(super) fn each(period: Duration, separate: bool, mut page: impl FnMut() -> Result<Page>) -> Result<ExitCode> {
    if io::stdout().is_terminal() {
        return each_in_window(period, page);
    }
    loop {
        let begin = format!("--- {}\n", now());
        let mut stdout = io::stdout().lock();
        let begin = if separate { begin.as_str() } else { "" };
        let written = stdout.write_all(begin.as_bytes()).and_then(|()| stdout.flush());
        drop(stdout);
        // A page without a beginning writes into a closed pipe without an error, so its reader is looked for here.
        if written.is_err() || !out::has_reader() {
            return Ok(ExitCode::SUCCESS);
        }
        page()?.show()?;
        std::thread::sleep(period);
    }
}

fn each_in_window(period: Duration, mut page: impl FnMut() -> Result<Page>) -> Result<ExitCode> {
    loop {
        // Made before anything is erased: it may take seconds, in which the page before can be read.
        let made = page()?;
        let until = Instant::now() + period;
        let time = now();
        let mut keys = Keys::take()?;
        loop {
            let size = window::size();
            if !draw(&made, &time, size)? {
                return Ok(ExitCode::SUCCESS);
            }
            match keys.wait(until, || window::size() != size)? {
                Pressed::Quit => return Ok(made.code),
                Pressed::Resized => {}
                Pressed::Nothing => break,
            }
        }
    }
}

/// Draws what fits into a window of this many columns and rows. Returns whether somebody reads.
fn draw(page: &Page, time: &str, size: Option<(usize, usize)>) -> Result<bool> {
    const HOME: &str = "\x1b[H";
    const REST_OF_LINE: &str = "\x1b[K";
    const REST_OF_WINDOW: &str = "\x1b[J";
    let (columns, rows) = size.unwrap_or((usize::MAX, usize::MAX));
    let text = format!("{time}\n\n{}{}", page.text, page.problems.join("\n"));
    let lines = cut(&text, columns, rows).join(&format!("{REST_OF_LINE}\r\n"));
    let mut stdout = io::stdout().lock();
    let drawn = format!("{HOME}{lines}{REST_OF_LINE}{REST_OF_WINDOW}");
    let written = stdout.write_all(drawn.as_bytes()).and_then(|()| stdout.flush());
    drop(stdout);
    Ok(written.is_ok() && out::has_reader())
}

/// The head of `text` in lines that fit, and how many lines do not.
fn cut(text: &str, columns: usize, rows: usize) -> Vec<String> {
    let fitted = out::fitted(text, columns, 0);
    let mut lines: Vec<String> = fitted
        .lines()
        .map(|line| line.chars().take(columns).collect())
        .collect();
    if lines.len() > rows {
        lines.truncate(rows.saturating_sub(1));
        let more = fitted.lines().count() - lines.len();
        lines.push(format!("{} below the window; q ends", counted(more, "line")));
    }
    lines
}

fn now() -> String {
    utc(clock())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_shows_the_head_and_says_how_many_lines_follow() {
        let text: String = (0..30).map(|line| format!("line {line}\n")).collect();
        let shown = cut(&text, 80, 24);
        assert_eq!((shown.len(), shown[0].as_str()), (24, "line 0"));
        assert_eq!(shown[23], "7 lines below the window; q ends");
        assert_eq!(cut(&text, 80, 30).len(), 30);
        assert!(cut(&"x".repeat(200), 80, 24).iter().all(|line| line.len() <= 80));
        assert_eq!(cut(&text, 80, 1).len(), 1);
    }
}
