//! The log: to stderr, quiet unless asked for.

use std::fmt;
use std::io::IsTerminal;
use tracing::{Event, Subscriber};
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;
use tranche_core::text::shown;

/// Starts the log at `level`.
pub fn start(level: LevelFilter) {
    // If a log was started before (by a test, for example), that one stays.
    let _ = tracing_subscriber::fmt()
        .with_max_level(level)
        .with_writer(std::io::stderr)
        .with_ansi(wants_colour(
            std::io::stderr().is_terminal(),
            std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty()),
            std::env::var_os("TERM").is_some_and(|term| term == "dumb"),
        ))
        .event_format(OneLine)
        .try_init();
}

/// Whether colours are used: on a terminal that knows them, unless NO_COLOR is set (no-color.org).
fn wants_colour(is_terminal: bool, no_color: bool, is_dumb: bool) -> bool {
    is_terminal && !no_color && !is_dumb
}

/// An event as one line: its level and its text, in which a terminal finds nothing to act on.
struct OneLine;

impl<S, N> FormatEvent<S, N> for OneLine
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(&self, context: &FmtContext<'_, S, N>, mut writer: Writer<'_>, event: &Event<'_>) -> fmt::Result {
        let mut text = String::new();
        context.format_fields(Writer::new(&mut text), event)?;
        let level = *event.metadata().level();
        let colour = match level {
            tracing::Level::ERROR => 31,
            tracing::Level::WARN => 33,
            _ => 32,
        };
        let text = shown(&text);
        if writer.has_ansi_escapes() {
            writeln!(writer, "\u{1b}[{colour}m{level:>5}\u{1b}[0m {text}")
        } else {
            writeln!(writer, "{level:>5} {text}")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colours_are_for_terminals_that_want_them() {
        assert!(wants_colour(true, false, false));
        assert!(!wants_colour(false, false, false));
        assert!(!wants_colour(true, true, false));
        assert!(!wants_colour(true, false, true));
    }
}
