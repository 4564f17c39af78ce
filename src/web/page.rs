//! The page: devices, what is held now, who waits, the calendar, the last day and the last week. It is one document
//! without programs, whose style is a file of its own.

mod drawing;

use crate::now::{Now, now};
use crate::public::Public;
use crate::report::report;
use crate::timeline::timeline;
use crate::viewer::Viewer;
use drawing::drawing;
use maud::{DOCTYPE, Markup, html};
use rusqlite::Connection;
use std::collections::BTreeMap;
use std::path::Path;
use tranche_core::ledger::{Calendar, utc};
use tranche_core::text::shown;
use tranche_protocol::{Report, ReportBy};
use tranche_state::device::DeviceStatus;

/// Its style.
pub(crate) const STYLE: &str = include_str!("page.css");

const DAY: u64 = 86_400;

/// The most lanes of the drawing, and the most lines of a table: a page that nobody reads to the end is slow.
const MOST: usize = 1000;

/// The names of devices, by their keys in the ledger.
type DeviceNames<'n> = BTreeMap<String, &'n str>;

/// The page, as `viewer` may see it. `state_dir` has the calendar and what the broker wrote.
///
/// # Errors
/// Returns the error of SQLite.
pub(crate) fn page(database: &Connection, state_dir: &Path, viewer: &Viewer) -> rusqlite::Result<String> {
    let public = Public::read(state_dir);
    let names = public.names();
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
                main {
                    h1 { "GPUs of this machine" }
                    p { "As of " (utc(day.to)) "." }
                    (devices(&public.devices, &now, &names))
                    (held(&now, &names))
                    (waiting(&now, &names))
                    (reserved(calendar.as_ref().ok(), day.to))
                    (drawing(&day, &names))
                    (of_week(&week))
                }
            }
        }
    };
    Ok(written.into_string())
}

/// Who it is, on one line and in one direction: users choose what their containers are called.
fn who(name: Option<&str>) -> String {
    shown(name.unwrap_or("another user")).into_owned()
}

/// The name of the device with this key; the key, if it has none.
fn called<'n>(key: &'n str, names: &DeviceNames<'n>) -> &'n str {
    names.get(key).copied().unwrap_or(key)
}

/// Says how many of `all` are not shown.
fn more(all: usize) -> Markup {
    html! { @if all > MOST { p { "Of " (all) ", " (all - MOST) " are not shown." } } }
}

fn devices(devices: &[DeviceStatus], now: &Now, names: &DeviceNames<'_>) -> Markup {
    html! {
        h2 { "Devices" }
        @if devices.is_empty() { p { "The broker has not said which devices have shares." } } @else {
            table.long {
                tr { th { "Device" } th { "Shares held" } th { "Free" } }
                @for device in devices.iter().take(MOST) {
                    tr {
                        td data-label="Device" { (device.device) }
                        td data-label="Shares held" { (device.held_text()) }
                        td data-label="Free" { (device.free_text()) }
                    }
                }
            }
            (more(devices.len()))
        }
        @for device in &now.out { p { (called(device, names)) " is out of service." } }
    }
}

fn held(now: &Now, names: &DeviceNames<'_>) -> Markup {
    html! {
        h2 { "Held now" }
        @if now.holds.is_empty() { p { "Nothing is held." } } @else {
            table.long {
                tr { th { "Device" } th { "Part" } th { "Holder" } th { "Since" } }
                @for hold in now.holds.iter().take(MOST) {
                    tr {
                        td data-label="Device" { (called(&hold.device, names)) }
                        td data-label="Part" { (hold.part) }
                        td.who data-label="Holder" { (who(hold.who.as_deref())) @if !hold.is_used { " (reserved)" } }
                        td.time data-label="Since" { (utc(hold.since)) }
                    }
                }
            }
            (more(now.holds.len()))
        }
    }
}

fn waiting(now: &Now, names: &DeviceNames<'_>) -> Markup {
    html! {
        h2 { "Waiting" }
        @if now.waits.is_empty() { p { "Nobody waits." } } @else {
            table.long {
                tr { th { "Device" } th { "User" } th { "Since" } }
                @for wait in now.waits.iter().take(MOST) {
                    tr {
                        td data-label="Device" { (called(&wait.device, names)) }
                        td.who data-label="User" { (who(wait.who.as_deref())) }
                        td.time data-label="Since" { (utc(wait.since)) }
                    }
                }
            }
            (more(now.waits.len()))
        }
    }
}

/// Everybody sees the whole calendar, as with `tranche calendar`, but no names here: a page has no user.
fn reserved(calendar: Option<&Calendar>, now: u64) -> Markup {
    let times: Option<Vec<_>> =
        calendar.map(|calendar| calendar.times.iter().filter(|time| time.until > now).collect());
    html! {
        h2 { "Reserved for later" }
        @match times.as_deref() {
            None => { p { "The calendar cannot be read." } }
            Some([]) => { p { "Nothing is reserved." } }
            Some(times) => {
                table.long {
                    tr { th { "What" } th { "From" } th { "Until" } }
                    @for time in times.iter().take(MOST) {
                        tr {
                            td.who data-label="What" { (shown(&time.label)) }
                            td.time data-label="From" { (utc(time.from)) }
                            td.time data-label="Until" { (utc(time.until)) }
                        }
                    }
                }
                (more(times.len()))
            }
        }
    }
}

fn of_week(week: &Report) -> Markup {
    let hours = |seconds: u64| format!("{}.{}", seconds / 3600, seconds % 3600 / 360);
    html! {
        h2 { "The last seven days, in hours" }
        table {
            tr { th { "User" } th.number { "Held" } th.number { "Busy" } th.number { "Waited" } }
            @for row in week.rows.iter().take(MOST) {
                tr {
                    td.who { (row.name.as_deref().unwrap_or("all others")) }
                    td.number { (hours(row.held_seconds)) }
                    td.number { (row.busy_seconds.map_or_else(|| "-".to_owned(), hours)) }
                    td.number { (hours(row.waited_seconds)) }
                }
            }
        }
        (more(week.rows.len()))
    }
}

#[cfg(test)]
mod tests;
