//! The page: what is held now, who waits, the calendar, the last day and the last week. It is one document without
//! programs, whose style is a file of its own.

use crate::now::{Now, now};
use crate::report::report;
use crate::timeline::timeline;
use crate::viewer::Viewer;
use maud::{DOCTYPE, Markup, html};
use rusqlite::Connection;
use std::path::Path;
use tranche_core::ledger::{Calendar, utc};
use tranche_protocol::{Lane, Report, ReportBy, Timeline};

/// Its style.
pub(crate) const STYLE: &str = include_str!("page.css");

const DAY: u64 = 86_400;

/// The width of the drawing of a day, in its own units, and the height of a lane.
const WIDTH: u64 = 720;
const HEIGHT: usize = 14;

/// The most lanes of the drawing, and the most lines of a table: a page that nobody reads to the end is slow.
const MOST: usize = 1000;

/// The page, as `viewer` may see it. `state_dir` has the calendar.
///
/// # Errors
/// Returns the error of SQLite.
pub(crate) fn page(database: &Connection, state_dir: &Path, viewer: &Viewer) -> rusqlite::Result<String> {
    let now = now(database, viewer)?;
    let day = timeline(database, DAY, viewer)?;
    let week = report(database, ReportBy::User, 7 * DAY, viewer)?;
    let calendar = Calendar::read(state_dir);
    let written = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta http-equiv="refresh" content="60";
                title { "GPUs of this machine" }
                link rel="stylesheet" href="/style.css";
            }
            body {
                h1 { "GPUs of this machine" }
                p { "As of " (utc(day.to)) "." }
                (held(&now))
                (waiting(&now))
                (reserved(calendar.as_ref().ok(), day.to))
                (drawing(&day))
                (of_week(&week))
            }
        }
    };
    Ok(written.into_string())
}

fn who(name: Option<&str>) -> &str {
    name.unwrap_or("another user")
}

fn held(now: &Now) -> Markup {
    html! {
        h2 { "Held now" }
        @if now.holds.is_empty() { p { "Nothing is held." } } @else {
            div.wide { table {
                tr { th { "Device" } th { "Part" } th { "Holder" } th { "Since" } }
                @for hold in now.holds.iter().take(MOST) {
                    tr {
                        td { (hold.device) }
                        td { (hold.part) }
                        td { (who(hold.who.as_deref())) @if !hold.is_used { " (reserved)" } }
                        td { (utc(hold.since)) }
                    }
                }
            } }
        }
        @for device in &now.out { p { (device) " is out of service." } }
    }
}

fn waiting(now: &Now) -> Markup {
    html! {
        h2 { "Waiting" }
        @if now.waits.is_empty() { p { "Nobody waits." } } @else {
            div.wide { table {
                tr { th { "Device" } th { "User" } th { "Since" } }
                @for wait in now.waits.iter().take(MOST) {
                    tr { td { (wait.device) } td { (who(wait.who.as_deref())) } td { (utc(wait.since)) } }
                }
            } }
        }
    }
}

/// Everybody sees the whole calendar, as with `tranche calendar`, but no names here: a page has no user.
fn reserved(calendar: Option<&Calendar>, now: u64) -> Markup {
    let times = calendar.map(|calendar| calendar.times.iter().filter(|time| time.until > now));
    html! {
        h2 { "Reserved for later" }
        @match times {
            None => { p { "The calendar cannot be read." } }
            Some(times) => {
                div.wide { table {
                    tr { th { "What" } th { "From" } th { "Until" } }
                    @for time in times.take(MOST) {
                        tr { td { (time.label) } td { (utc(time.from)) } td { (utc(time.until)) } }
                    }
                } }
            }
        }
    }
}

fn drawing(day: &Timeline) -> Markup {
    let lanes: Vec<&Lane> = day.lanes.iter().take(MOST).collect();
    let height = lanes.len() * HEIGHT * 2;
    let length = day.to.saturating_sub(day.from).max(1);
    let place = |time: u64| time.clamp(day.from, day.to).saturating_sub(day.from) * WIDTH / length;
    html! {
        h2 { "The last day" }
        @if lanes.is_empty() { p { "Nothing was held." } } @else {
            svg viewBox=(format!("0 0 {WIDTH} {height}")) role="img" aria-label="who held which part in the last day" {
                @for (at, lane) in lanes.iter().enumerate() {
                    @let top = at * HEIGHT * 2;
                    text x="0" y=(top + HEIGHT - 4) {
                        (lane.device) " " @if lane.part.is_empty() { "out of service" } @else { (lane.part) }
                    }
                    rect.lane x="0" y=(top + HEIGHT) width=(WIDTH) height=(HEIGHT - 4) {}
                    @for span in &lane.spans {
                        @let from = place(span.from);
                        @let width = (place(span.to.unwrap_or(day.to)) - from).max(1);
                        @let class = match (lane.part.is_empty(), span.is_used) {
                            (true, _) => "out",
                            (false, true) => "used",
                            (false, false) => "kept",
                        };
                        rect class=(class) x=(from) y=(top + HEIGHT) width=(width) height=(HEIGHT - 4) {
                            title { (who(span.who.as_deref())) ", from " (utc(span.from)) }
                        }
                    }
                }
            }
        }
    }
}

fn of_week(week: &Report) -> Markup {
    let hours = |seconds: u64| format!("{}.{}", seconds / 3600, seconds % 3600 / 360);
    html! {
        h2 { "The last seven days, in hours" }
        div.wide { table {
            tr { th { "User" } th.number { "Held" } th.number { "Busy" } th.number { "Waited" } }
            @for row in week.rows.iter().take(MOST) {
                tr {
                    td { (row.name.as_deref().unwrap_or("all others")) }
                    td.number { (hours(row.held_seconds)) }
                    td.number { (row.busy_seconds.map_or_else(|| "-".to_owned(), hours)) }
                    td.number { (hours(row.waited_seconds)) }
                }
            }
        } }
    }
}

#[cfg(test)]
mod tests;
