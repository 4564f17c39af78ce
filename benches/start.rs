//! What a container's start pays for our hook: `tranche-oci` against an empty static program.
//!
//! Machines are noisy, so nothing here is a time to compare with another day's: every round runs each program once, and
//! what counts is a program's median over the empty one's, in the same run.
//!
//! ```text
//! make bench                    # builds tranche-oci as it is shipped
//! make bench ROUNDS=2000        # more rounds
//! ```

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a benchmark fails by a panic"
)]

use std::fs;
use std::path::PathBuf;

#[path = "support/runner.rs"]
mod runner;

use runner::Runner;

fn main() {
    // `cargo test --all-targets` runs this too, and wants no benchmark.
    if !std::env::args().any(|argument| argument == "--bench") {
        return;
    }
    let Some(oci) = std::env::var_os("TRANCHE_OCI_STATIC").map(PathBuf::from) else {
        println!("not run: benches/start: TRANCHE_OCI_STATIC is not set: run `make bench`");
        return;
    };
    let scene = runner::scene();
    let empty = runner::empty(scene.path());
    let bundle = scene.path().join("bundle");
    fs::create_dir_all(bundle.join("rootfs")).unwrap();
    fs::write(bundle.join("config.json"), r#"{"root":{"path":"rootfs"}}"#).unwrap();
    let state = format!(r#"{{"ociVersion":"1.0.2","id":"c","status":"creating","bundle":{bundle:?}}}"#);
    let links = |count: usize| -> Vec<String> {
        let link = |n| {
            [
                "--link".to_owned(),
                format!("lib{n}.so.1::/usr/lib/x86_64-linux-gnu/lib{n}.so"),
            ]
        };
        ["hook".to_owned(), "prepare".to_owned()]
            .into_iter()
            .chain((0..count).flat_map(link))
            .collect()
    };
    let mut runners = [
        Runner::new("an empty static program", &empty, Vec::new(), &state),
        Runner::new("tranche-oci --version", &oci, vec!["--version".into()], &state),
        Runner::new("hook prepare, nothing to do", &oci, links(0), &state),
        Runner::new("hook prepare, 6 links in place", &oci, links(6), &state),
        Runner::new("hook prepare, 50 links in place", &oci, links(50), &state),
        Runner::new("hook prepare, 50 links to make", &oci, links(50), &state),
    ];
    for _ in 0..runner::rounds(500) {
        for (n, runner) in runners.iter_mut().enumerate() {
            if n == 5 {
                fs::remove_dir_all(bundle.join("rootfs/usr")).unwrap();
            }
            runner.round();
        }
    }
    runner::table(&mut runners);
}
