//! A plot of some lines, as an SVG file without scripts and fonts of its own.

use std::fmt::Write as _;

const WIDTH: f64 = 640.0;
const HEIGHT: f64 = 400.0;
/// The room around the lines, for numbers and the title.
const EDGE: f64 = 48.0;

/// Colours that can be distinguished on a light and a dark background, and by people with colour blindness (the palette
/// of Okabe and Ito).
const COLOURS: [&str; 4] = ["#0072b2", "#cc79a7", "#d55e00", "#009e73"];

/// The distances between lines of the grid, and at most how many lines there are.
const GRID: [f64; 6] = [10.0, 20.0, 50.0, 100.0, 200.0, 500.0];
const MOST_LINES: f64 = 10.0;

/// Lines by name, each of points from the left to the right.
pub(crate) fn svg(title: &str, lines: &[(&str, Vec<(f64, f64)>)]) -> String {
    let points = || lines.iter().flat_map(|(_, points)| points.iter().copied());
    let axis = |number: fn((f64, f64)) -> f64| {
        let least = points().map(number).fold(f64::INFINITY, f64::min);
        let most = points().map(number).fold(f64::NEG_INFINITY, f64::max);
        let step = GRID.into_iter().find(|step| (most - least) / step <= MOST_LINES);
        let step = step.unwrap_or(1000.0);
        ((least / step).floor() * step, (most / step).ceil() * step, step)
    };
    let ((left, right, across), (low, high, up)) = (axis(|point| point.0), axis(|point| point.1));
    let x = |value: f64| EDGE + (value - left) / (right - left) * (WIDTH - 2.0 * EDGE);
    let y = |value: f64| HEIGHT - EDGE - (value - low) / (high - low) * (HEIGHT - 2.0 * EDGE);
    let mut text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" font-family=\"sans-serif\" \
         font-size=\"12\" fill=\"#777\">\n<text x=\"{EDGE}\" y=\"24\">{title}</text>\n"
    );
    let grid = |from: f64, to: f64, step: f64| {
        (0..=((to - from) / step) as u32).map(move |line| from + f64::from(line) * step)
    };
    for value in grid(low, high, up) {
        let (at, end) = (y(value), WIDTH - EDGE);
        writeln!(text, "<path d=\"M{EDGE} {at:.1}H{end}\" stroke=\"#ccc\"/>").unwrap();
        writeln!(
            text,
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{value}</text>",
            EDGE - 6.0,
            at + 4.0
        )
        .unwrap();
    }
    for value in grid(left, right, across) {
        let (at, below) = (x(value), HEIGHT - EDGE + 18.0);
        writeln!(
            text,
            "<text x=\"{at:.1}\" y=\"{below}\" text-anchor=\"middle\">{value}</text>"
        )
        .unwrap();
    }
    // Where no line is: above lines that rise, below those that fall.
    let rises = lines
        .iter()
        .any(|(_, points)| points.last().map(|point| point.1) > points.first().map(|point| point.1));
    let names = if rises { EDGE + 24.0 } else { HEIGHT - EDGE - 78.0 };
    for (((name, points), colour), row) in lines.iter().zip(COLOURS).zip(0_u8..) {
        let path: Vec<String> = points
            .iter()
            .map(|point| format!("{:.1},{:.1}", x(point.0), y(point.1)))
            .collect();
        writeln!(
            text,
            "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"/>",
            path.join(" ")
        )
        .unwrap();
        let at = names + f64::from(row) * 18.0;
        writeln!(
            text,
            "<text x=\"{}\" y=\"{at}\" fill=\"{colour}\">{name}</text>",
            EDGE + 12.0
        )
        .unwrap();
    }
    text.push_str("</svg>\n");
    text
}
