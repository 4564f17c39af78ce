//! A week of ten developers who compute two hours a day, with GPUs that they have by turns and in other ways.
//!
//! The rule is that of the product ([`tranche_plan::turns`]). The simulation uses no clock and no other source of
//! chance than a seed, so its numbers are the same on any machine; its table and its plot are written into `docs`.
//!
//! ```text
//! cargo bench --bench turns
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
mod developer;
#[path = "../support/page.rs"]
mod page;
#[path = "../support/plot.rs"]
mod plot;
mod way;

use developer::{Developer, HOURS};
use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use way::{Way, World};

/// The weeks of each number.
const WEEKS: u64 = 4;
const DAYS: u64 = 5;
const DEVELOPERS: usize = 10;

/// For how many hours each of them computes on a day, in the table.
const BUSY: f64 = 2.0;

fn main() {
    // `cargo test --all-targets` runs this too, and wants no benchmark.
    if !std::env::args().any(|argument| argument == "--bench") {
        return;
    }
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs");
    let table = table();
    println!("{table}");
    page::write_table(&docs, "turns", &table);
    let lines = Way::ON_THREE.map(|way| {
        let hours = [0.5, 1.0, 1.5, 2.0, 2.5, 3.0];
        let points = hours.map(|busy| (busy * 60.0, simulate(way, busy).waited * 60.0));
        (way.name().replace('`', ""), points.to_vec())
    });
    let lines: Vec<(&str, Vec<(f64, f64)>)> = lines
        .iter()
        .map(|(name, points)| (name.as_str(), points.clone()))
        .collect();
    let plot = plot::svg(
        "minutes waited for a day by each, by the minutes that each computes",
        &lines,
    );
    fs::write(docs.join("maintaining/turns.svg"), plot).unwrap();
}

/// What came of some weeks.
struct Outcome {
    /// Of the hours of the day, the part in which a GPU computes.
    utilisation: f64,
    /// For how many hours of a day a developer waits, on average.
    waited: f64,
    /// For how many minutes a run waits before it begins, at most in 95 of 100 cases, and at most.
    begin_of_95: f64,
    longest_begin: f64,
    /// How many changes of the resident there were in a day on a GPU.
    changes: f64,
    /// How many holders were in host memory at most at one time.
    away: usize,
}

fn simulate(way: Way, busy: f64) -> Outcome {
    let (mut begins, mut waited, mut computed, mut changes, mut away) = (Vec::new(), 0.0, 0.0, 0, 0);
    for day in 0..WEEKS * DAYS {
        let mut world = World::new(way, DEVELOPERS);
        let mut all: Vec<Developer> = (0..DEVELOPERS as u64)
            .map(|number| Developer::new(day * 1000 + number, busy))
            .collect();
        let mut second = 0;
        while second < HOURS * 3600 || all.iter().any(Developer::is_at_work) {
            all.iter_mut().for_each(|developer| developer.think(second));
            let wants: Vec<bool> = all.iter().map(Developer::is_at_work).collect();
            for (developer, share) in all.iter_mut().zip(world.second(second, &wants)) {
                computed += if second < HOURS * 3600 { share } else { 0.0 };
                developer.compute(second, share);
            }
            second += 1;
        }
        changes += world.changes;
        away = away.max(world.most_away);
        for developer in all {
            waited += developer.waited;
            begins.extend(developer.begins);
        }
    }
    begins.sort_by(f64::total_cmp);
    let days = (WEEKS * DAYS) as f64;
    Outcome {
        utilisation: computed / (days * way.gpus(DEVELOPERS) as f64 * HOURS as f64 * 3600.0),
        waited: waited / (days * DEVELOPERS as f64 * 3600.0),
        begin_of_95: begins[begins.len() * 95 / 100] / 60.0,
        longest_begin: begins.last().copied().unwrap_or(0.0) / 60.0,
        changes: changes as f64 / (days * way.gpus(DEVELOPERS) as f64),
        away,
    }
}

fn table() -> String {
    let mut text = "| ten developers | GPUs | memory of each | GPUs compute | waited by each in a day | a run begins within (95 %) | longest | changes for each GPU in a day | in host memory at most |\n\
                    |---|---|---|---|---|---|---|---|---|\n"
        .to_owned();
    for way in Way::ALL {
        let outcome = simulate(way, BUSY);
        let (changes, away) = match way {
            Way::Turns(_) => (
                format!("{:.0}", outcome.changes),
                format!("{} × what it uses", outcome.away),
            ),
            _ => ("–".to_owned(), "–".to_owned()),
        };
        writeln!(
            text,
            "| {} | {} | {} | {:.0} % | {:.0} min | {:.0} min | {:.0} min | {changes} | {away} |",
            way.name(),
            way.gpus(DEVELOPERS),
            way.memory(),
            outcome.utilisation * 100.0,
            outcome.waited * 60.0,
            outcome.begin_of_95,
            outcome.longest_begin,
        )
        .unwrap();
    }
    text
}
