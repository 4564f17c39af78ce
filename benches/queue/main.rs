//! The queue of users: who waits how long on a simulated day, with the rule of the product and with others.
//!
//! The world is the one with which the rule is tested, and the invariants of the rule are checked after each step. The
//! simulation uses no clock and no other source of chance than a seed, so its numbers are the same on any machine; its
//! table and its plot are written into `docs`.
//!
//! ```text
//! cargo bench --bench queue
//! ```

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "a benchmark fails by a panic"
)]

#[path = "../support/chance.rs"]
mod chance;
mod day;
#[path = "../support/page.rs"]
mod page;
#[path = "../support/plot.rs"]
mod plot;
mod team;

use day::{Day, Order, Outcome};
use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::time::Duration;
use tranche_plan::queue::QueueTimes;
use tranche_test_support::queue::{Month, MonthOutcome, curve_of_months, months, request_for_both, table_of_months};

/// The load of the table: what would be held on average if each request were served at once, as a part of all devices.
const LOAD: f64 = 1.1;

/// The days of each number.
const DAYS: u64 = 5;

fn main() {
    // `cargo test --all-targets` runs this too, and wants no benchmark.
    if !std::env::args().any(|argument| argument == "--bench") {
        return;
    }
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs");
    let months = months(0..3);
    let table = format!(
        "{}\n{}\n{}\n{}",
        of_a_day(),
        of_a_team(),
        of_two_devices(),
        table_of_months(&months)
    );
    println!("{table}");
    page::write_table(&docs, "waiting", &table);
    let longest = plot(
        "longest wait of a request for 4 devices (minutes) by load (% of devices)",
        &[0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.1, 1.2],
        |outcome| outcome.longest_of_four / 60.0,
    );
    fs::write(docs.join("maintaining/queue-large.svg"), longest).unwrap();
    for (file, whose, of, shown) in [
        ("month-reserved.svg", "with a reservation", 0, &SHOWN[..]),
        // With `before: 8h` the others wait for days, and nothing else would be seen.
        ("month-others.svg", "of the others", 1, &SHOWN[..3]),
    ] {
        fs::write(
            docs.join("maintaining").join(file),
            of_months(&months, whose, of, shown),
        )
        .unwrap();
    }
}

fn outcome(load: f64, order: Order) -> Outcome {
    let days: Vec<Day> = (0..DAYS).map(|seed| Day { load, seed }).collect();
    day::run(&days, order)
}

/// The rows of the simulated days.
fn of_a_day() -> String {
    let mut text = "| served by | devices in use | mean wait | 99 % wait at most | longest wait | for 4 devices |\n\
                    |---|---|---|---|---|---|\n"
        .to_owned();
    for order in Order::ALL {
        let outcome = outcome(LOAD, order);
        writeln!(
            text,
            "| {} | {:.1} % | {:.0} min | {:.0} min | {:.0} min | {:.0} min |",
            order.name(),
            outcome.utilisation * 100.0,
            outcome.mean_wait / 60.0,
            outcome.wait_of_99 / 60.0,
            outcome.longest_wait / 60.0,
            outcome.longest_of_four / 60.0,
        )
        .unwrap();
    }
    text
}

/// The working days of a team, and the jobs of the sweep.
const TEAM_DAYS: u64 = 40;
const SWEEPS: [usize; 2] = [0, 12];

/// The rows of a team.
fn of_a_team() -> String {
    let mut text = "| ten developers, three GPUs: served by | GPUs in use | the nine: mean wait | 95 % wait at most | longest | for two GPUs | jobs of the sweep |\n\
                    |---|---|---|---|---|---|---|\n"
        .to_owned();
    for jobs in SWEEPS {
        for order in Order::ALL {
            let outcome = team::run(TEAM_DAYS, jobs, order);
            let sweep = match jobs {
                0 => "–".to_owned(),
                _ => format!("{:.0} min", outcome.mean_of_sweep),
            };
            writeln!(
                text,
                "| {}, a sweep of {jobs} | {:.0} % | {:.0} min | {:.0} min | {:.0} min | {:.0} min | {sweep} |",
                order.name(),
                outcome.utilisation * 100.0,
                outcome.mean_of_nine,
                outcome.wait_of_95,
                outcome.longest_of_nine,
                outcome.mean_for_two,
            )
            .unwrap();
        }
    }
    text
}

/// The rows of the case with two devices.
fn of_two_devices() -> String {
    let mut text =
        "| a request for both of two devices | served after | a device was free for |\n|---|---|---|\n".to_owned();
    let seconds = Duration::from_secs;
    for (name, reserve_for, reserve_at_most) in [
        ("kept for 10 s each time", seconds(10), seconds(10)),
        ("10 s, and doubled", seconds(10), seconds(3600)),
        ("kept until it is served", day::WEEK, day::WEEK),
    ] {
        let came = request_for_both(QueueTimes {
            reserve_for,
            reserve_at_most,
        });
        let served = came
            .served
            .map_or("not within 5,000 s".to_owned(), |at| format!("{at} s"));
        writeln!(text, "| {name} | {served} | {} s |", came.free).unwrap();
    }
    text
}

/// The months of the plots, in their order.
const SHOWN: [Month; 4] = [Month::Without, Month::Drain, Month::End, Month::Early];

/// The waits of a part of the work in these months.
fn of_months(months: &[[MonthOutcome; 4]], whose: &str, of: usize, shown: &[Month]) -> String {
    let line = |month: &Month| (month.name(), curve_of_months(months, *month, of));
    let lines: Vec<_> = shown.iter().map(line).collect();
    let title = format!("minutes waited at most by the part of the work {whose} (%)");
    // Names are Markdown, which a plot is not.
    plot::svg(&title, &lines).replace('`', "")
}

/// A number of each order, by load.
fn plot(title: &str, loads: &[f64], number: fn(&Outcome) -> f64) -> String {
    let lines = Order::ALL.map(|order| {
        let points = loads.iter().map(|load| (load * 100.0, number(&outcome(*load, order))));
        (order.name(), points.collect())
    });
    plot::svg(title, &lines)
}
