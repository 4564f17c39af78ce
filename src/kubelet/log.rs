//! The log on stderr: one line for each event, in which a terminal finds nothing to act on.

use tracing::{Event, Level, Subscriber};
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{self, FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::layer::{Layer, SubscriberExt};
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt;
use tranche_core::text::shown;

/// Starts the log. The container runtime adds the time of each line.
pub fn start() {
    // kube logs each call that fails. What this program does about it is a line of its own, once (`said`).
    let targets = Targets::new()
        .with_default(Level::INFO)
        .with_target("kube_client", LevelFilter::OFF)
        .with_target("kube_runtime", LevelFilter::OFF);
    let lines = fmt::layer().with_writer(std::io::stderr).event_format(OneLine);
    // If a test has started a log before, that one stays.
    let _ = tracing_subscriber::registry()
        .with(lines.with_filter(targets))
        .try_init();
}

struct OneLine;

impl<S, N> FormatEvent<S, N> for OneLine
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> std::fmt::Result {
        let mut text = String::new();
        context.format_fields(Writer::new(&mut text), event)?;
        writeln!(writer, "{:>5} {}", event.metadata().level(), shown(&text))
    }
}
