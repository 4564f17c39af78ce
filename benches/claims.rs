//! What `tranche claim create` takes with no claim held and with hundreds, in turns, beside an empty static program.
//!
//! ```text
//! make bench
//! ```

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a benchmark fails by a panic"
)]

use std::fs;
use std::path::Path;
use std::process::Command;

#[path = "support/runner.rs"]
mod runner;

use runner::Runner;

const TRANCHE: &str = env!("CARGO_BIN_EXE_tranche");

/// How many claims are held, each with a share. Eight GPUs have 512.
const HELD: usize = 400;

const POLICY: &str = "version: v1\nsharing: {timeSlicing: {resources: [{name: nvidia.com/gpu, replicas: 64}]}}\n";

fn main() {
    // `cargo test --all-targets` runs this too, and wants no benchmark.
    if !std::env::args().any(|argument| argument == "--bench") {
        return;
    }
    if !nix::unistd::geteuid().is_root() {
        println!("not run: benches/claims: not root");
        return;
    }
    let scene = runner::scene();
    let empty = runner::empty(scene.path());
    fs::write(scene.path().join("policy.yaml"), POLICY).unwrap();
    for number in 0..HELD {
        run(create(scene.path(), "many", &format!("held{number}")));
    }
    let mut runners = vec![Runner::new("an empty static program", &empty, Vec::new(), "")];
    for (name, place) in [("claim create, none held", "none"), ("claim create, 400 held", "many")] {
        runners.push(Runner::new(
            name,
            Path::new(TRANCHE),
            create(scene.path(), place, "new"),
            "",
        ));
    }
    for _ in 0..runner::rounds(60) {
        runners.iter_mut().for_each(Runner::round);
        for place in ["none", "many"] {
            let mut words = vec!["claim".to_owned(), "release".to_owned(), "new".to_owned()];
            words.extend(places(scene.path(), place));
            run(words);
        }
    }
    runner::table(&mut runners);
}

fn places(scene: &Path, place: &str) -> [String; 2] {
    let option = |option: &str, name: &str| format!("--{option}={}", scene.join(place).join(name).display());
    [option("state-dir", "state"), option("spec-dir", "cdi")]
}

/// The arguments that make the claim `name` of one share.
fn create(scene: &Path, place: &str, name: &str) -> Vec<String> {
    let mut words = [
        "claim",
        "create",
        "--inventory=sim:hgx-h200",
        "--shares=1",
        "--name",
        name,
    ]
    .map(str::to_owned)
    .to_vec();
    words.push(format!("--config={}", scene.join("policy.yaml").display()));
    words.extend(places(scene, place));
    words
}

fn run(words: Vec<String>) {
    let output = Command::new(TRANCHE).args(&words).env_clear().output().unwrap();
    assert!(
        output.status.success(),
        "{words:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
}
