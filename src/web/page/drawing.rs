//! The last day as a drawing: a lane for each part of a device, which is text and a picture as wide as the page.

use super::{DeviceNames, MOST, called, more, who};
use maud::{Markup, html};
use tranche_core::ledger::utc;
use tranche_protocol::{Lane, Timeline};

/// The width of the picture of a lane, in its own units: a minute of a day has two. Its height is 8.
const WIDTH: u64 = 2880;

/// How many times are written below the lanes.
const MARKS: u64 = 4;

/// The drawing of `day`.
pub(super) fn drawing(day: &Timeline, names: &DeviceNames<'_>) -> Markup {
    let length = day.to.saturating_sub(day.from);
    html! {
        h2 { "The last day" }
        @if day.lanes.is_empty() { p { "Nothing was held." } } @else {
            p.key {
                svg.sample viewBox="0 0 8 8" aria-hidden="true" { rect.used width="8" height="8" {} } " in use "
                svg.sample viewBox="0 0 8 8" aria-hidden="true" { rect.kept y="4" width="8" height="4" {} } " reserved "
                svg.sample viewBox="0 0 8 8" aria-hidden="true" { rect.out width="8" height="8" {} } " out of service"
            }
            @for one in day.lanes.iter().take(MOST) { (lane(one, day, names)) }
            p.marks aria-hidden="true" {
                @for mark in 0..=MARKS { span { (hour(day.from + length * mark / MARKS)) } }
            }
            (more(day.lanes.len()))
        }
    }
}

/// The hour and the minute.
fn hour(time: u64) -> String {
    utc(time)
        .chars()
        .skip("2026-11-28T".len())
        .take("14:05".len())
        .collect()
}

fn lane(lane: &Lane, day: &Timeline, names: &DeviceNames<'_>) -> Markup {
    let length = day.to.saturating_sub(day.from).max(1);
    let place = |time: u64| time.clamp(day.from, day.to).saturating_sub(day.from) * WIDTH / length;
    let part = if lane.part.is_empty() {
        "out of service"
    } else {
        &lane.part
    };
    let name = format!("{} {part}", called(&lane.device, names));
    html! {
        div.lane {
            span { (name) }
            svg viewBox=(format!("0 0 {WIDTH} 8")) preserveAspectRatio="none" role="img" aria-label=(name) {
                @for span in &lane.spans {
                    @let from = place(span.from);
                    @let width = place(span.to.unwrap_or(day.to)).saturating_sub(from).max(2);
                    @let (class, top) = match (lane.part.is_empty(), span.is_used) {
                        (true, _) => ("out", 0),
                        (false, true) => ("used", 0),
                        // Lower, for those who do not see the colour.
                        (false, false) => ("kept", 4),
                    };
                    rect class=(class) x=(from) y=(top) width=(width) height=(8 - top) {
                        title { (who(span.who.as_deref())) ", from " (utc(span.from)) }
                    }
                }
            }
        }
    }
}
