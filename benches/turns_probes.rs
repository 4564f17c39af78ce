//! What a call costs of a program that is probed, of one beside it that is not, and of one that was: see
//! `tranche_turns::wishes`. All in one run.
//!
//! ```text
//! cargo bench --all-features --bench turns_probes
//! ```

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a benchmark fails by a panic"
)]

use std::time::Duration;
use tranche_core::process_identity::ProcessIdentity;
use tranche_test_support::fake_turns::{FakeTurns, TurnsClient};
use tranche_turns::wishes::{HostLibrary, Wishes};

const CALLS: u32 = 100_000;
const ROUNDS: usize = 9;

fn main() {
    // `cargo test --all-targets` runs this too, and wants no benchmark.
    if !std::env::args().any(|argument| argument == "--bench") {
        return;
    }
    let fake = FakeTurns::new(20, None, &[]);
    let wishes = HostLibrary::at(&fake.library()).and_then(|library| Wishes::new(library, 1000));
    let mut wishes = match wishes {
        Ok(wishes) => wishes,
        Err(reason) => return println!("not run: benches/turns_probes: {reason}"),
    };
    let (mut probed, mut beside) = (fake.client(1 << 20), fake.client(1 << 20));
    let process = ProcessIdentity::of(probed.pid()).unwrap().unwrap();
    let rows = ["beside it", "probed", "no longer probed"];
    let mut times = rows.map(|_| Vec::new());
    for _ in 0..ROUNDS {
        wishes.watch(process).unwrap();
        times[0].push(call(&mut beside));
        times[1].push(call(&mut probed));
        // The first call ends the probes of a process as soon as it is taken in.
        assert_eq!(wishes.wait(Duration::from_secs(10)).unwrap(), [process]);
        times[2].push(call(&mut probed));
        wishes.forget(process);
    }
    println!("nanoseconds of a call: median, least (of {ROUNDS} rounds of {CALLS} calls)");
    for (row, mut times) in rows.into_iter().zip(times) {
        times.sort_unstable();
        println!("{row:18} {:6} {:6}", times[ROUNDS / 2], times[0]);
    }
}

/// The nanoseconds of one call.
fn call(client: &mut TurnsClient) -> u64 {
    client.ask(&format!("many {CALLS}")).parse().unwrap()
}
