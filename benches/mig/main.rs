//! MIG: how long a plan takes, and how many requests of a simulated day find a place.
//!
//! The simulation uses no clock and no other source of chance than a seed, so its numbers are the same on any machine;
//! its table and its plot are written into `docs`.
//!
//! ```text
//! cargo bench --bench mig
//! ```

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
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
mod times;

use day::{Choice, Day, Outcome};
use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use tranche_plan::mig::MigGpu;

/// The product of the simulation: the placements of an A100, H100, H200 and B200 are the same.
const PRODUCT: &str = include_str!("../../src/plan/sim/mig/h100-80.json");

/// How many requests come in a day.
const REQUESTS: usize = 10_000;

/// The days over which each number is the mean.
const DAYS: u64 = 5;

fn main() {
    // `cargo test --all-targets` runs this too, and wants no benchmark.
    if !std::env::args().any(|argument| argument == "--bench") {
        return;
    }
    times::measure();
    let gpu: MigGpu = serde_json::from_str(PRODUCT).unwrap();
    day::check_against_the_product(&gpu);
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs");
    let table = table(&gpu);
    println!("{table}");
    page::write_table(&docs, "MIG", &table);
    fs::write(docs.join("maintaining/mig-acceptance.svg"), curve(&gpu)).unwrap();
}

/// The mean of some days.
fn mean(gpu: &MigGpu, gpus: usize, load: f64, choice: Choice) -> Outcome {
    let days = (0..DAYS).map(|seed| Day { gpus, load, seed }.run(gpu, choice, REQUESTS));
    Outcome::mean(&days.collect::<Vec<_>>())
}

/// The rows of the page.
fn table(gpu: &MigGpu) -> String {
    let mut text = "| GPUs | place | accepted | of 3g, 4g, 7g | GPUs with room for 3g | for 7g |\n\
                    |---|---|---|---|---|---|\n"
        .to_owned();
    for gpus in [8, 64, 1000] {
        for choice in Choice::ALL {
            let outcome = mean(gpu, gpus, 0.9, choice);
            writeln!(
                text,
                "| {gpus} | {} | {:.1} % | {:.1} % | {:.1} % | {:.1} % |",
                choice.name(),
                outcome.accepted * 100.0,
                outcome.large_accepted * 100.0,
                outcome.room_for_half * 100.0,
                outcome.room_for_whole * 100.0
            )
            .unwrap();
        }
    }
    text
}

/// The plot: accepted requests by load.
fn curve(gpu: &MigGpu) -> String {
    let loads = [0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.1, 1.2];
    let lines = Choice::ALL.map(|choice| {
        let points = loads.map(|load| (load * 100.0, mean(gpu, 64, load, choice).accepted * 100.0));
        (choice.name(), points.to_vec())
    });
    plot::svg("requests accepted (%) by load (% of compute slices), 64 GPUs", &lines)
}
