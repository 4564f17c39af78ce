//! Results as one SVG: the latency of each cell, and the slowdown by neighbour. It is readable on light and on dark
//! paper, and a colour never says what a word does not.

use crate::cell::{Cell, Neighbour};
use crate::measured::Figures;
use crate::results::Results;
use crate::way::Way;
use std::fmt::Write;
use tranche_core::text::shown;

const WIDTH: f64 = 800.0;
/// Where labels end and the scale begins, and where the scale ends.
const LEFT: f64 = 200.0;
const RIGHT: f64 = 716.0;
/// The height of a row.
const ROW: f64 = 16.0;
/// From this slowdown on, the colour is the darkest.
const DARKEST: f64 = 30.0;

/// Colours for both kinds of paper, which people without one kind of cone can tell apart as well (Okabe and Ito, "Color
/// Universal Design", 2008), a little lighter.
const STYLE: &str = "<style>\
    .paper{fill:#fff}.text{fill:#1f2328}.dim{fill:#636c76}.grid{stroke:#d8dee4}.line{stroke:#8c959f}\
    .solo{fill:#8c959f}.turns{fill:#e69f00}.free{fill:#d55e00}.mps{fill:#0b8fc7}.mig{fill:#009e73}.both{fill:#b5599a}.heat{fill:#e8710a}\
    @media (prefers-color-scheme:dark){.paper{fill:#0d1117}.text{fill:#e6edf3}.dim{fill:#9198a1}.grid{stroke:#2d333b}\
    .line{stroke:#656c76}}</style>";

/// The text of the SVG.
pub fn picture(results: &Results) -> String {
    let host = &results.host;
    let mut page = Page {
        body: String::new(),
        y: 30.0,
    };
    page.text(
        16.0,
        "text",
        " font-size=\"17\"",
        &format!("{}: what sharing costs", host.product),
    );
    page.y += 20.0;
    let kind = match results.indicative {
        true => ", indicative: short or measured once",
        false => "",
    };
    let about = format!("driver {}, CUDA {}, {}{kind}", host.driver, host.cuda, results.date);
    page.text(16.0, "dim", "", &about);
    let measured = || results.cells.iter().filter(|one| one.p99_ms.is_some());

    let ways: Vec<(String, Vec<Row>)> = results
        .ways
        .iter()
        .map(|way| {
            let rows = measured().filter(|one| one.cell.way == way.way).filter_map(latency);
            (way.way.to_string(), rows.collect())
        })
        .collect();
    page.panel(
        "Latency in ms: bar from the median to the 99th percentile (the number), line to the longest",
        &ways,
    );

    page.matrix(results);

    let height = page.y + 16.0;
    let body = page.body;
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" font-family=\"sans-serif\" \
         font-size=\"12\">\n{STYLE}\n<rect class=\"paper\" width=\"{WIDTH}\" height=\"{height}\"/>\n{body}</svg>\n"
    )
}

/// A bar with a line behind it.
struct Row {
    label: String,
    class: &'static str,
    /// Where the bar begins and ends.
    bar: (f64, f64),
    /// Where the line begins and ends.
    line: (f64, f64),
    value: String,
}

fn latency(one: &Figures) -> Option<Row> {
    let (p50, p99, max) = (one.p50_ms?.median, one.p99_ms?.median, one.max_ms?.median);
    Some(Row {
        label: match one.cell.way {
            Way::Solo => format!("alone{}", load(one)),
            _ => format!("{}{}", one.cell.neighbour, load(one)),
        },
        class: class(one.cell.way),
        bar: (p50, p99),
        line: (p50, max),
        value: format!("{p99:.1}{}", mark(one)),
    })
}

fn load(one: &Figures) -> String {
    match one.cell.load {
        50 => String::new(),
        load => format!(", load {load} %"),
    }
}

/// What to know about the figures of a cell.
fn mark(one: &Figures) -> &'static str {
    match (one.clocks.throttled.is_empty(), one.late) {
        (false, _) => " throttled",
        (true, 0) => "",
        (true, _) => " late",
    }
}

fn class(way: Way) -> &'static str {
    match way {
        Way::Solo => "solo",
        Way::TimeSlicing(_) => "turns",
        Way::MpsFree => "free",
        Way::Mps(_) => "mps",
        Way::MigHalves => "mig",
        Way::MpsInMig => "both",
    }
}

/// What is drawn, from the top down.
struct Page {
    body: String,
    y: f64,
}

impl Page {
    /// Text whose left end is at `x`, unless `more` says another thing.
    fn text(&mut self, x: f64, class: &str, more: &str, text: &str) {
        let (y, text) = (self.y, escaped(text));
        let _ = writeln!(
            self.body,
            "<text class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\"{more}>{text}</text>"
        );
    }

    /// Groups of bars on one logarithmic scale. Without a bar, nothing is drawn.
    fn panel(&mut self, title: &str, groups: &[(String, Vec<Row>)]) {
        let rows = || groups.iter().flat_map(|(_, rows)| rows);
        let ends = rows().flat_map(|row| [row.bar.0, row.bar.1, row.line.0, row.line.1]);
        let ends: Vec<f64> = ends.filter(|end| *end > 0.0).collect();
        let Some(scale) = Scale::of(&ends) else { return };
        self.y += 36.0;
        self.text(16.0, "text", " font-size=\"14\"", title);
        self.y += 20.0;
        let top = self.y;
        let height =
            rows().count() as f64 * ROW + groups.iter().filter(|(_, rows)| !rows.is_empty()).count() as f64 * 8.0;
        for tick in scale.ticks() {
            let (x, bottom) = (scale.at(tick), top + height + 6.0);
            let y = top + 4.0;
            let _ = writeln!(self.body, "<path class=\"grid\" d=\"M{x:.1} {y:.1}V{bottom:.1}\"/>");
            self.text(x, "dim", " text-anchor=\"middle\" font-size=\"11\"", &tick.to_string());
        }
        for (group, rows) in groups.iter().filter(|(_, rows)| !rows.is_empty()) {
            self.y += 8.0;
            for (at, row) in rows.iter().enumerate() {
                self.y += ROW;
                if at == 0 {
                    self.text(16.0, "text", " font-weight=\"bold\"", group);
                }
                self.row(&scale, row);
            }
        }
    }

    /// How much slower the process gets: a row for each neighbour, a column for each way. The more, the darker.
    fn matrix(&mut self, results: &Results) {
        let ways: Vec<Way> = results
            .ways
            .iter()
            .map(|one| one.way)
            .filter(|way| *way != Way::Solo)
            .collect();
        self.y += 36.0;
        self.text(
            16.0,
            "text",
            " font-size=\"14\"",
            "Slowdown: the 99th percentile as a multiple of that of a process alone",
        );
        self.y += 24.0;
        let width = ((RIGHT + 68.0 - LEFT) / ways.len() as f64).min(86.0);
        let x = |at: usize| LEFT + (at as f64 + 0.5) * width;
        for (at, way) in ways.iter().enumerate() {
            self.text(
                x(at),
                "text",
                " text-anchor=\"middle\" font-weight=\"bold\"",
                &way.to_string(),
            );
        }
        for neighbour in Neighbour::ALL {
            let cell = |way: &Way| {
                let (way, neighbour) = (*way, *neighbour);
                results.cell(Cell {
                    way,
                    neighbour,
                    load: 50,
                })
            };
            if ways.iter().all(|way| cell(way).is_none()) {
                continue;
            }
            self.y += 26.0;
            self.text(
                LEFT - 8.0,
                "text",
                " text-anchor=\"end\"",
                &format!("beside {neighbour}"),
            );
            for (at, one) in ways.iter().map(cell).enumerate() {
                let factor = one.and_then(|one| one.slowdown_p99).map(|factor| factor.median);
                let (left, top, wide) = (x(at) - width / 2.0 + 1.0, self.y - 17.0, width - 2.0);
                let heat = factor.map_or(0.0, |factor| (factor.ln() / DARKEST.ln()).clamp(0.03, 1.0) * 0.8);
                let _ = writeln!(
                    self.body,
                    "<rect class=\"heat\" fill-opacity=\"{heat:.2}\" x=\"{left:.1}\" y=\"{top:.1}\" width=\"{wide:.1}\" height=\"24\"/>"
                );
                let value = match (factor, one) {
                    (Some(factor), Some(one)) if mark(one).is_empty() => format!("{factor:.2}x"),
                    (Some(factor), _) => format!("{factor:.2}x *"),
                    (None, Some(one)) if one.error.is_some() => "ended".to_owned(),
                    (None, Some(_)) => "failed".to_owned(),
                    (_, None) => "-".to_owned(),
                };
                self.text(x(at), "text", " text-anchor=\"middle\" font-size=\"11\"", &value);
            }
        }
        self.y += 26.0;
        let notes = "ended: by an error of CUDA, such as the fault of the neighbour; * the GPU was throttled, or requests were late";
        self.text(16.0, "dim", " font-size=\"11\"", notes);
    }

    fn row(&mut self, scale: &Scale, row: &Row) {
        self.text(LEFT - 8.0, "text", " text-anchor=\"end\"", &row.label);
        let middle = self.y - 4.0;
        let (from, to) = (scale.at(row.line.0), scale.at(row.line.1));
        let _ = writeln!(self.body, "<path class=\"line\" d=\"M{from:.1} {middle:.1}H{to:.1}\"/>");
        let (left, right) = (scale.at(row.bar.0), scale.at(row.bar.1));
        let (top, width, class) = (middle - 5.0, (right - left).max(3.0), row.class);
        let _ = writeln!(
            self.body,
            "<rect class=\"{class}\" x=\"{left:.1}\" y=\"{top:.1}\" width=\"{width:.1}\" height=\"10\" rx=\"1.5\"/>"
        );
        self.text(
            to.max(right).max(left + 3.0) + 6.0,
            "text",
            " font-size=\"11\"",
            &row.value,
        );
    }
}

/// A logarithmic scale.
struct Scale {
    least: f64,
    most: f64,
}

impl Scale {
    /// One with room for these values; `None` if there is no value.
    fn of(values: &[f64]) -> Option<Self> {
        let most = values.iter().copied().reduce(f64::max)?;
        let least = values.iter().copied().reduce(f64::min)?;
        Some(Self {
            least: least / 1.1,
            most: most * 1.1,
        })
    }

    fn at(&self, value: f64) -> f64 {
        let part = (value.max(self.least) / self.least).ln() / (self.most / self.least).ln();
        LEFT + part.clamp(0.0, 1.0) * (RIGHT - LEFT)
    }

    /// Round numbers on the scale; fewer if it is long.
    fn ticks(&self) -> Vec<f64> {
        let is_long = self.most / self.least > 1e3;
        let steps: &[f64] = match is_long {
            true => &[1.0],
            false => &[1.0, 2.0, 5.0],
        };
        let all = (-4..9).flat_map(|power| steps.iter().map(move |step| step * 10_f64.powi(power)));
        // A power of ten below 1 has digits behind it that no reader needs.
        let all = all.map(|tick| (tick * 1e4).round() / 1e4);
        all.filter(|tick| (self.least..=self.most).contains(tick)).collect()
    }
}

/// Text that is only text: names of products may come from anywhere.
fn escaped(text: &str) -> String {
    let text = shown(text);
    let text = text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    text.replace('"', "&quot;").replace('\'', "&#39;")
}
