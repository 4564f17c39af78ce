//! What `tranche doctor` takes on each test host, with a driver's library that answers at once, beside an empty static
//! program and `tranche --version`.
//!
//! Another machine is examined, so no engine is asked for its version: that takes as long as the engine does.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a benchmark fails by a panic"
)]

use std::path::Path;

#[path = "support/runner.rs"]
mod runner;

use runner::Runner;
use tranche_test_support::fake_host;

const TRANCHE: &str = env!("CARGO_BIN_EXE_tranche");

fn main() {
    // `cargo test --all-targets` runs this too, and wants no benchmark.
    if !std::env::args().any(|argument| argument == "--bench") {
        return;
    }
    let scene = runner::scene();
    let empty = runner::empty(scene.path());
    let mut runners = vec![
        Runner::new("an empty static program", &empty, Vec::new(), ""),
        Runner::new("tranche --version", Path::new(TRANCHE), vec!["--version".into()], ""),
    ];
    for name in fake_host::names().unwrap() {
        let host = fake_host::build(&name, &scene.path().join(&name)).unwrap();
        if let Some(missing) = host.not_made.first() {
            println!("not run: benches/doctor: {name}: {}", missing.why);
            return;
        }
        let place = |name: &str| format!("--{name}={}", scene.path().join(name).display());
        let options = [
            format!("--root={}", host.root.display()),
            place("spec-dir"),
            place("state-dir"),
        ];
        let arguments = ["doctor".to_owned()].into_iter().chain(options).collect();
        // Every test host lacks a specification, or a driver: the exit code is 4.
        runners.push(Runner::new(&format!("doctor, {name}"), Path::new(TRANCHE), arguments, "").exits(4));
    }
    for _ in 0..runner::rounds(30) {
        runners.iter_mut().for_each(Runner::round);
    }
    runner::table(&mut runners);
}
