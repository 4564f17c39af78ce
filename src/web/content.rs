//! What is at each path: the page, its style, and the metrics.

use crate::http::Content;
use crate::metrics::metrics;
use crate::page::{STYLE, page};
use crate::viewer::Viewer;
use rusqlite::Connection;
use std::path::Path;
use tranche_state::metrics::Names;

/// The content of `target`, a path with its query, as `viewer` may see it; `None` for any other path. `state_dir`
/// has what the broker wrote and the calendar.
pub(crate) fn found(target: &str, database: &Connection, state_dir: &Path, viewer: &Viewer) -> Option<Content> {
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let (kind, text) = match path {
        "/" => ("text/html; charset=utf-8", page(database, state_dir, viewer)),
        "/style.css" => ("text/css; charset=utf-8", Ok(STYLE.to_owned())),
        "/metrics" => {
            let names = names(query)?;
            // OpenMetrics 1.0, "Protocol Negotiation".
            let kind = tranche_core::openmetrics::CONTENT_TYPE;
            (kind, metrics(database, state_dir, names))
        }
        _ => return None,
    };
    match text {
        Ok(text) => Some(Content { kind, text }),
        Err(error) => {
            tracing::warn!("{path}: {error}");
            None
        }
    }
}

/// Whose names a query wants: `names=otel`.
fn names(query: &str) -> Option<Names> {
    match query {
        "" => Some(Names::Tranche),
        query => query.strip_prefix("names=")?.parse().ok(),
    }
}
