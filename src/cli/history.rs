//! `tranche history`: who held what when, as a timeline.

use super::out;
use super::past::PastArgs;
use anyhow::{Result, bail};
use std::fmt::Write;
use std::process::ExitCode;
use tranche_core::error::Error;
use tranche_core::ledger::utc;
use tranche_core::text::shown;
use tranche_protocol::{HistoryAnswer, HistoryRequest, Lane, Span, Timeline};

/// How many characters a line of time has: a line fits into 80 columns with what is before it.
const WIDTH: u64 = 56;

/// Show a timeline of each device: which part was held when, and by whom
///
/// Users see the names of what they held themselves.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Print JSON; docs/reference/history.md describes the fields
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    past: PastArgs,
}

pub(super) fn run(args: &Args) -> Result<ExitCode> {
    let seconds = args.past.seconds();
    let HistoryAnswer::Timeline(timeline) = args.past.ask(&HistoryRequest::Timeline { seconds })? else {
        bail!(Error::failed("tranche-web", "has answered another question"));
    };
    match args.json {
        true => out::json(&timeline)?,
        false => out::result(&text(&timeline))?,
    }
    Ok(ExitCode::SUCCESS)
}

fn text(timeline: &Timeline) -> String {
    let mut text = format!(
        "{} to {}\n# used, - reserved, x out of service\n",
        utc(timeline.from),
        utc(timeline.to)
    );
    let mut device = "";
    for lane in &timeline.lanes {
        if lane.device != device {
            device = &lane.device;
            let _ = writeln!(text, "{}", shown(device));
        }
        let part = if lane.part.is_empty() {
            "out of service"
        } else {
            &lane.part
        };
        let _ = writeln!(text, "  {:<17}|{}|", shown(part), line(lane, timeline));
        for span in lane
            .spans
            .iter()
            .rev()
            .filter(|span| !lane.part.is_empty() && span.who.is_some())
            .take(5)
        {
            let _ = writeln!(text, "    {}", held(span));
        }
    }
    text
}

/// A span as a line: `2026-11-28 10:00:00 UTC, 90 min: ann: container 0123`.
fn held(span: &Span) -> String {
    let how_long = match span.to {
        Some(to) => format!("{} min", to.saturating_sub(span.from) / 60),
        None => "until now".to_owned(),
    };
    let end = if span.is_limited { " (ended at its limit)" } else { "" };
    let who = shown(span.who.as_deref().unwrap_or_default());
    format!("{}, {how_long}: {who}{end}", utc(span.from))
}

/// The characters of a lane. A character shows that the part was used if it was at any time in it.
fn line(lane: &Lane, timeline: &Timeline) -> String {
    let length = timeline.to.saturating_sub(timeline.from).max(1);
    let place = |time: u64| time.clamp(timeline.from, timeline.to) - timeline.from;
    let mut cells = vec![' '; usize::try_from(WIDTH).unwrap_or_default()];
    for span in &lane.spans {
        let first = (place(span.from) * WIDTH / length).min(WIDTH - 1);
        let last = (place(span.to.unwrap_or(timeline.to)) * WIDTH).div_ceil(length);
        let sign = match (lane.part.is_empty(), span.is_used) {
            (true, _) => 'x',
            (false, true) => '#',
            (false, false) => '-',
        };
        let range = usize::try_from(first).unwrap_or(0)..usize::try_from(last.max(first + 1)).unwrap_or(0);
        for cell in cells.get_mut(range).unwrap_or_default() {
            *cell = if *cell == '#' { '#' } else { sign };
        }
    }
    cells.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lane_shows_when_it_was_used_and_reserved() {
        let span = |from, to, is_used| Span {
            from,
            to,
            who: Some("ann: claim \u{1b}train".into()),
            is_used,
            is_limited: to.is_some(),
        };
        let lane = Lane {
            device: "GPU-1".into(),
            part: "share 3".into(),
            spans: vec![
                span(0, Some(280), false),
                span(280, Some(281), true),
                span(420, None, true),
            ],
        };
        let out = Lane {
            part: String::new(),
            spans: vec![span(0, None, false)],
            ..lane.clone()
        };
        let timeline = Timeline {
            from: 0,
            to: 560,
            lanes: vec![lane, out],
        };
        let bar = format!("{}#{}{}", "-".repeat(28), " ".repeat(13), "#".repeat(14));
        assert_eq!(line(&timeline.lanes[0], &timeline), bar);
        let text = text(&timeline);
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        assert!(text.contains(&bar) && text.contains(&"x".repeat(56)), "{text}");
        assert!(
            text.contains("until now: ann: claim") && text.contains("(ended at its limit)"),
            "{text}"
        );
        assert!(!text.contains('\u{1b}'), "{text}");
    }
}
