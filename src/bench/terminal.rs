//! Results for a terminal of 80 columns: a table, a plot of bars, and the verdicts.

use crate::cell::{Cell, Neighbour};
use crate::measured::Figures;
use crate::results::Results;
use crate::statistics::Spread;
use crate::verdict::{Outcome, Verdict};
use tranche_core::text::shown;

/// The width that every terminal has.
const WIDTH: usize = 80;

/// All that a person reads after a run.
pub fn report(results: &Results) -> String {
    let host = &results.host;
    let title = format!(
        "{}, driver {}, CUDA {}, {}",
        host.product, host.driver, host.cuda, results.date
    );
    let mut text = wrapped(&title, 0);
    if results.indicative {
        text.push_str("Indicative: each cell was measured for a short time or once.\n");
    }
    text.push('\n');
    text.push_str(&table(&results.cells));
    text.push_str(&plot(&results.cells));
    for way in &results.ways {
        for share in way.shares.iter().filter(|share| !share.verdicts.is_empty()) {
            text.push_str(&format!("\n{}, share {}\n", way.way, share.name));
            let is_said = |one: &&Verdict| one.outcome != Outcome::NotPromised || !one.figure.is_empty();
            let said = share.verdicts.iter().filter(is_said);
            let lines = said.map(|verdict| wrapped(&format!("  {verdict}"), 4));
            text.extend(lines);
        }
    }
    text.push('\n');
    let refused = results
        .refused
        .iter()
        .map(|one| format!("not possible: {}: {}", one.way, one.why));
    let left = results.leftovers.iter().map(|one| format!("not as before: {one}"));
    text.extend(refused.chain(left).map(|line| wrapped(&line, 2)));
    text
}

/// A line for each cell. Letters in the last column refer to the lines below.
fn table(cells: &[Figures]) -> String {
    let number = |spread: Option<Spread>| spread.map_or("-".to_owned(), |spread| format!("{:.2}", spread.median));
    let mut rows = vec![
        ["CELL", "P50 MS", "P99 MS", "MAX MS", "X SOLO", ""]
            .map(str::to_owned)
            .to_vec(),
    ];
    let mut notes = Vec::new();
    for one in cells {
        let (marks, why) = marks(one);
        notes.extend(why);
        let slowdown = one
            .slowdown_p99
            .map_or("-".to_owned(), |factor| format!("{:.2}x", factor.median));
        let figures = [one.p50_ms, one.p99_ms, one.max_ms].map(number);
        let row = std::iter::once(one.cell.to_string())
            .chain(figures)
            .chain([slowdown, marks]);
        rows.push(row.collect());
    }
    columns(&rows) + &notes.concat()
}

/// The letters of a cell, and what they mean.
fn marks(one: &Figures) -> (String, Vec<String>) {
    let reasons: Vec<&str> = one.clocks.throttled.iter().map(|why| why.as_str()).collect();
    let late = format!("{} of {} requests not begun before the end", one.late, one.requests);
    let ended = one.error.as_ref().map(|error| match one.died_after_ms {
        Some(after) => format!("ended {:.1} ms after the neighbour's fault: {error}", after.median),
        None => format!("ended: {error}"),
    });
    let all = [
        (
            "t",
            (!reasons.is_empty()).then(|| format!("throttled: {}", reasons.join(", "))),
        ),
        ("l", (one.late > 0).then_some(late)),
        ("e", ended),
        ("f", one.failed.as_ref().map(|why| format!("failed: {why}"))),
    ];
    let there = all.into_iter().filter_map(|(mark, why)| Some((mark, why?)));
    let lines = there.map(|(mark, why)| (mark, wrapped(&format!("{mark}  {}: {why}", one.cell), 3)));
    let (marks, lines): (Vec<&str>, Vec<String>) = lines.unzip();
    (marks.concat(), lines)
}

/// The 99th percentiles beside the neighbours that differ most, as bars. The scale is logarithmic, because cells differ
/// by orders of magnitude.
fn plot(cells: &[Figures]) -> String {
    let is_shown = |one: &&Figures| {
        let neighbours = [Neighbour::Idle, Neighbour::HogSm, Neighbour::HogDram];
        one.cell.load == 50 && neighbours.contains(&one.cell.neighbour)
    };
    let cells = cells.iter().filter(is_shown);
    let all: Vec<(Cell, f64)> = cells.filter_map(|one| Some((one.cell, one.p99_ms?.median))).collect();
    let most = all.iter().map(|(_, value)| *value).fold(0.0, f64::max);
    let least = all.iter().map(|(_, value)| *value).fold(most, f64::min);
    let rows = all.iter().map(|(cell, value)| {
        let bar = bar(*value, least, most);
        vec![cell.to_string(), format!("{value:.2}"), bar]
    });
    let head = ["P99 OF", "MS", "logarithmic"].map(str::to_owned).to_vec();
    match all.is_empty() {
        true => String::new(),
        false => format!("\n{}", columns(&std::iter::once(head).chain(rows).collect::<Vec<_>>())),
    }
}

/// A bar of a value between the least and the most of all, which has one block at the least.
pub(crate) fn bar(value: f64, least: f64, most: f64) -> String {
    const BLOCKS: f64 = 32.0;
    let part = (value / least).ln() / (most / least).ln();
    let blocks = match part.is_finite() {
        true => 1.0 + part.clamp(0.0, 1.0) * (BLOCKS - 1.0),
        false => 1.0,
    };
    "█".repeat(blocks.round() as usize)
}

/// Rows as columns: text on the left in the first and the last one, numbers on the right between them. What a terminal
/// would act on is escaped.
pub(crate) fn columns(rows: &[Vec<String>]) -> String {
    let rows: Vec<Vec<String>> = rows
        .iter()
        .map(|row| row.iter().map(|cell| shown(cell).into_owned()).collect())
        .collect();
    let count = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |at: usize| {
        rows.iter()
            .filter_map(|row| row.get(at))
            .map(|cell| cell.chars().count())
            .max()
    };
    let widths: Vec<usize> = (0..count).map(|at| width(at).unwrap_or(0)).collect();
    let line = |row: &Vec<String>| {
        let cells = row.iter().zip(&widths).enumerate().map(|(at, (cell, width))| match at {
            0 => format!("{cell:<width$}"),
            _ if at + 1 == count => cell.clone(),
            _ => format!("{cell:>width$}"),
        });
        let line = cells.collect::<Vec<_>>().join("  ");
        format!("{}\n", line.trim_end())
    };
    rows.iter().map(line).collect()
}

/// A line that continues below, `indent` columns from the left. What a terminal would act on is escaped.
pub(crate) fn wrapped(line: &str, indent: usize) -> String {
    let safe = shown(line);
    let text = safe.trim_start();
    let (mut wrapped, mut width) = (" ".repeat(safe.len() - text.len()), safe.len() - text.len());
    for (at, word) in text.split(' ').enumerate() {
        let length = word.chars().count();
        match at {
            0 => {}
            _ if width + 1 + length > WIDTH => {
                wrapped.push_str(&format!("\n{}", " ".repeat(indent)));
                width = indent;
            }
            _ => {
                wrapped.push(' ');
                width += 1;
            }
        }
        wrapped.push_str(word);
        width += length;
    }
    wrapped + "\n"
}
