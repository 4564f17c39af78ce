//! What tranche-kubelet costs, as the program that packages have: its size and memory, and how long a kubelet waits for
//! it.
//!
//! Beside each time is that of an empty tonic server, which the same fake kubelet asks the same in the same run: what
//! gRPC and the kubelet cost without tranche. Compare the ratios, because machines are noisy.
//!
//! ```text
//! make bench                    # builds tranche-kubelet as it is shipped
//! make bench ROUNDS=100         # more rounds
//! ```

#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout, clippy::print_stderr)]

mod driver;
mod empty;
#[path = "../../tests/kubelet"]
#[allow(dead_code, reason = "the tests use the rest")]
mod fakes {
    pub(crate) mod bed;
    pub(crate) mod driver_node;
    pub(crate) mod fake_api;
    pub(crate) mod fake_broker;
    pub(crate) mod fake_kubelet;
}
#[path = "../../tests/kubelet/dra/fixtures.rs"]
#[allow(dead_code, reason = "the tests use the rest")]
mod fixtures;
#[path = "../../tests/support/offers.rs"]
#[allow(dead_code, reason = "the tests use the rest")]
mod offers;
// The names by which the fakes know each other.
use fakes::{bed, fake_api, fake_broker, fake_kubelet};

use bed::{Bed, GPU};
use empty::{EMPTY, Empty};
use offers::replicas;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use tranche_protocol::Offer;

/// A time of tranche-kubelet, and that of the empty server.
#[derive(Default)]
struct Pair {
    plugin: Vec<Duration>,
    empty: Vec<Duration>,
}

impl Pair {
    fn line(&mut self, what: &str, goal: &str) {
        self.line_beside(what, "empty server", goal);
    }

    /// The same beside another thing than the empty server.
    fn line_beside(&mut self, what: &str, other: &str, goal: &str) {
        let median = |times: &mut Vec<Duration>| {
            times.sort();
            times[times.len() / 2].as_secs_f64() * 1e3
        };
        let (plugin, empty) = (median(&mut self.plugin), median(&mut self.empty));
        let ratio = plugin / empty;
        println!("{what:44} {plugin:>8.2} ms, {other} {empty:>7.2} ms, {ratio:>5.2} times{goal}");
    }
}

fn main() {
    // `cargo test --all-targets` runs this too, and wants no benchmark.
    if !std::env::args().any(|argument| argument == "--bench") {
        return;
    }
    let Some(program) = std::env::var_os("TRANCHE_KUBELET").map(PathBuf::from) else {
        println!("not run: benches/plugin: TRANCHE_KUBELET is not set: run `make bench`");
        return;
    };
    let rounds = std::env::var("ROUNDS").ok().and_then(|n| n.parse().ok()).unwrap_or(15);
    let size = std::fs::metadata(program).unwrap().len() as f64 / 1e6;
    println!("tranche-kubelet, {rounds} rounds, medians; {size:.2} MB (goal: below 6 MB)");
    memory();
    usual(rounds);
    start(eight_gpus(), rounds);
    start(many(), rounds.div_ceil(3));
    driver::costs(rounds);
}

fn eight_gpus() -> Vec<Offer> {
    (0..8).map(|gpu| replicas(&format!("GPU-{gpu}"), 10)).collect()
}

/// 64 GPUs with 7 MIG devices of 10 shares.
fn many() -> Vec<Offer> {
    let devices = (0..64).flat_map(|gpu| (0..7).map(move |n| (gpu, n)));
    let offer = |(gpu, n)| replicas(&format!("MIG-6f5b7e3c-7a0e-5c5e-9f0c-00000000{n:02}{gpu:02}"), 10);
    devices.map(offer).collect()
}

/// Waits without the pauses of the tests, which are longer than what is measured.
fn until(mut is_true: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(60);
    while !is_true() {
        assert!(Instant::now() < end, "waited in vain");
        std::thread::sleep(Duration::from_micros(100));
    }
}

/// What the program takes that has shown these offers for as long as the lists of a start take.
fn resident(offers: Vec<Offer>) -> f64 {
    let count: usize = offers.iter().map(|offer| offer.count()).sum();
    let bed = Bed::new(offers);
    let process = bed.process();
    until(|| bed.kubelet.allocatable(GPU) == count && bed.broker.node().longest > 0);
    std::thread::sleep(Duration::from_secs(1));
    process.memory() as f64 * 1024.0 / 1e6
}

fn memory() {
    let (none, eight, large) = (resident(Vec::new()), resident(eight_gpus()), resident(many()));
    println!("memory with nothing to offer                 {none:>8.2} MB");
    let ratio = |memory: f64| memory / none;
    println!(
        "memory with 8 GPUs of 10 shares              {eight:>8.2} MB, {:.2} times (goal: below 10 MB)",
        ratio(eight)
    );
    println!(
        "memory with 64 GPUs of 7 MIG devices of 10   {large:>8.2} MB, {:.2} times",
        ratio(large)
    );
}

/// Both register with a new kubelet, and allocate.
fn usual(rounds: usize) {
    let mut bed = Bed::new(eight_gpus());
    let empty = Empty::new(&plugins(&bed), 80);
    let _process = bed.process();
    bed.wait_allocatable(80);
    let (mut registered, mut allocated) = (Pair::default(), Pair::default());
    for round in 0..rounds {
        bed.kubelet.stop();
        let before = bed.kubelet.registered(GPU);
        let start = Instant::now();
        bed.kubelet.start();
        until(|| bed.kubelet.registered(GPU) > before);
        registered.plugin.push(last(&bed) - start);
        bed.wait_allocatable(80);
        registered.empty.push(register(&bed, &empty, 80));
        for n in 0..20 {
            let id = format!("GPU-{}.{}", (round + n) % 8, n % 10);
            for (resource, times) in [(GPU, &mut allocated.plugin), (EMPTY, &mut allocated.empty)] {
                let start = Instant::now();
                let names = bed.kubelet.allocate(resource, &[&id]).unwrap();
                times.push(start.elapsed());
                assert_eq!(names.len(), 1);
            }
        }
    }
    registered.line("from a new kubelet's socket to registered", "");
    allocated.line("Allocate of one share", " (goal: below 5 ms)");
}

/// The directory of device plugins.
fn plugins(bed: &Bed) -> PathBuf {
    bed.kubelet.socket().parent().unwrap().to_owned()
}

/// When something was registered last.
fn last(bed: &Bed) -> Instant {
    bed.kubelet.state().registrations.last().unwrap().0
}

/// How long the empty server takes until the kubelet has registered it. It does not have to notice the kubelet.
fn register(bed: &Bed, empty: &Empty, devices: usize) -> Duration {
    let start = Instant::now();
    empty.register();
    let registered = last(bed) - start;
    until(|| bed.kubelet.allocatable(EMPTY) == devices);
    registered
}

/// From the start of the program until the kubelet can allocate every share.
fn start(offers: Vec<Offer>, rounds: usize) {
    let count = offers.len() * 10;
    let bed = Bed::new(offers);
    let mut listed = Pair::default();
    for _ in 0..rounds {
        let received = bed.kubelet.state().received;
        let start = Instant::now();
        let process = bed.process();
        until(|| bed.kubelet.state().received > received);
        listed.plugin.push(start.elapsed());
        assert_eq!(bed.kubelet.allocatable(GPU), count);
        drop(process);
        bed.wait_allocatable(0);
        let empty = Empty::new(&plugins(&bed), count);
        let received = bed.kubelet.state().received;
        let start = Instant::now();
        empty.register();
        until(|| bed.kubelet.state().received > received);
        listed.empty.push(start.elapsed());
        assert_eq!(bed.kubelet.allocatable(EMPTY), count);
    }
    let what = format!("from a start to {count} allocatable shares");
    listed.line(&what, "");
}
