//! What the history costs: a change of the ledger with and without events, beside each other, a report of 7 days over
//! a million events of 90 days, and the page with a thousand claims beside them.
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

use std::fs::{self, File};
use std::io::{BufWriter, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};
use tranche_core::claims::{ClaimEntry, Claims};
use tranche_core::ledger::{Bounds, ContainerName, Holder};
use tranche_core::types::{DeviceKey, Part, Subject};
use tranche_protocol::ReportBy;
use tranche_web::intake::Intake;
use tranche_web::report::report;
use tranche_web::viewer::Viewer;

/// How many shares are held by others.
const HELD: u32 = 400;

const EVENTS: u64 = 1_000_000;

const DAY: u64 = 86_400;

fn main() {
    // `cargo test --all-targets` runs this too, and wants no benchmark.
    if !std::env::args().any(|argument| argument == "--bench") {
        return;
    }
    changes();
    let top = million();
    page(&top.path().join("data"));
}

fn gpu(number: u64) -> DeviceKey {
    format!("GPU-8188460b-0e3a-4d7e-9d3a-00000000000{number}")
        .parse()
        .unwrap()
}

fn entry() -> ClaimEntry {
    ClaimEntry {
        device: gpu(0),
        subject: Subject::Part(Part::Any, "1/1000".parse().unwrap()),
        replicas: 1000,
        bounds: Bounds::default(),
        asked_as: Some("nvidia.com/gpu=0.any".into()),
        alone: false,
    }
}

fn container(number: u32) -> Holder {
    Holder::Container(ContainerName {
        bundle: format!("/run/containerd/io.containerd.runtime.v2.task/k8s.io/{number:064x}"),
        id: format!("{number:064x}"),
    })
}

/// Enters a share, as the hook of a container does, with and without events, in turns.
fn changes() {
    let tops = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    fs::create_dir(tops[1].path().join("events")).unwrap();
    let claims = tops.each_ref().map(|top| Claims::open(top.path()).unwrap());
    let me = Some(std::process::id());
    for number in 0..HELD {
        for claims in &claims {
            claims.enter(&entry(), container(number), me).unwrap();
        }
    }
    let mut times: [Vec<Duration>; 2] = Default::default();
    let holder = container(HELD);
    for _ in 0..2_000 {
        for (claims, times) in claims.iter().zip(&mut times) {
            let start = Instant::now();
            claims.enter(&entry(), holder.clone(), me).unwrap();
            times.push(start.elapsed());
            claims.release_failed_start(&holder, &gpu(0)).unwrap();
        }
    }
    let [without, with] = times.map(|mut times| {
        times.sort();
        times[times.len() / 2].as_secs_f64() * 1e6
    });
    println!(
        "a share entered, {HELD} held: {without:.1} us without events, {with:.1} us with ({:.2} times)",
        with / without
    );
}

/// A million lines, of which each second one begins a hold.
fn write(log: &Path) {
    let uptime = 100 * DAY;
    let now = tranche_core::ledger::clock();
    let top = tempfile::tempdir().unwrap();
    fs::create_dir(top.path().join("events")).unwrap();
    Claims::open(top.path())
        .unwrap()
        .enter(&entry(), container(1), Some(std::process::id()))
        .unwrap();
    let text = fs::read_to_string(top.path().join("events/log")).unwrap();
    let real = text.lines().nth(1).unwrap();
    let fields: Vec<&str> = real.split('\t').collect();
    let mut file = BufWriter::new(File::create(log).unwrap());
    writeln!(file, "tranche-events 1 a-boot-of-long-ago 1").unwrap();
    let holds = EVENTS / 2;
    for number in 0..holds {
        let began = uptime - 90 * DAY + number * 90 * DAY / holds;
        // From a minute to ten hours, on 8 GPUs with 100 shares, by 40 users.
        let length = 60 + number * 7_919 % 36_000;
        for (kind, at) in [("began", began), ("ended", (began + length).min(uptime))] {
            let mut line: Vec<String> = fields.iter().map(|field| (*field).to_owned()).collect();
            line[0] = kind.to_owned();
            line[1] = at.to_string();
            line[2] = (now - (uptime - at)).to_string();
            line[4] = gpu(number % 8).gpu().to_string();
            line[6] = format!("{}=1/1000", number % 1000);
            line[8] = (1000 + number % 40).to_string();
            line[9] = format!("{}:{began}", now - (uptime - began));
            writeln!(file, "{}", line.join("\t")).unwrap();
        }
    }
}

/// Returns the directory whose `data` has the database.
fn million() -> tempfile::TempDir {
    let top = tempfile::tempdir().unwrap();
    for directory in ["events", "data"] {
        fs::create_dir(top.path().join(directory)).unwrap();
    }
    write(&top.path().join("events/log"));
    let mut database = tranche_web::database::open(&top.path().join("data")).unwrap();
    let mut intake = Intake::new(top.path());
    let start = Instant::now();
    let mut events = 0;
    loop {
        let taken = intake.look(&mut database).unwrap();
        assert_eq!(taken.unknown, 0);
        events += taken.events;
        if !taken.is_more {
            break;
        }
    }
    println!("{events} events recorded in {:.1} s", start.elapsed().as_secs_f64());
    assert_eq!(events as u64, EVENTS);
    for by in [ReportBy::User, ReportBy::Group, ReportBy::Device] {
        for days in [7, 90] {
            let mut best = Duration::MAX;
            for _ in 0..5 {
                let start = Instant::now();
                let found = report(&database, by, days * DAY, &Viewer::of(0)).unwrap();
                best = best.min(start.elapsed());
                assert!(!found.rows.is_empty());
            }
            println!(
                "report of {days} days by {}: {:.0} ms",
                by.as_str(),
                best.as_secs_f64() * 1e3
            );
        }
    }
    top
}

/// The page and the metrics, as a client of the program has them, with a thousand claims of containers.
fn page(data: &Path) {
    const CLAIMS: u32 = 1000;
    let top = tempfile::tempdir().unwrap();
    fs::create_dir(top.path().join("events")).unwrap();
    let claims = Claims::open(top.path()).unwrap();
    for number in 0..CLAIMS {
        claims
            .enter(&entry(), container(number), Some(std::process::id()))
            .unwrap();
    }
    let at = |name: &str| top.path().join(name);
    let option = |option: &str, path: &Path| format!("--{option}={}", path.display());
    let mut web = Command::new(env!("CARGO_BIN_EXE_tranche-web"))
        .args([
            option("state-dir", top.path()),
            option("data-dir", data),
            option("socket", &at("socket")),
            option("page-socket", &at("page")),
        ])
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let get = |target: &str| {
        let mut stream = UnixStream::connect(at("page")).ok()?;
        write!(stream, "GET {target} HTTP/1.1\r\nHost: localhost\r\n\r\n").ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).ok()?;
        Some(answer)
    };
    let is_read = |page: String| page.matches("class=\"used\" x=").count() >= CLAIMS as usize;
    while !get("/").is_some_and(is_read) {
        thread::sleep(Duration::from_millis(50));
    }
    for target in ["/", "/metrics"] {
        let mut times: Vec<Duration> = Vec::new();
        let mut length = 0;
        for _ in 0..11 {
            let start = Instant::now();
            length = get(target).unwrap().len();
            times.push(start.elapsed());
        }
        times.sort();
        println!(
            "{target} with {CLAIMS} claims: {:.1} ms, {length} bytes",
            times[times.len() / 2].as_secs_f64() * 1e3
        );
    }
    web.kill().unwrap();
    web.wait().unwrap();
}
