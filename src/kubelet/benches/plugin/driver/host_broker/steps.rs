//! What the broker needs for a claim, by kind of claim, and what the steps cost that take longest. Its files are in
//! memory, as `/run` is. On a real node one file more is brought to the disk, which is measured apart.
//!
//! ```text
//! TRANCHE_HOST_PROGRAMS_BEFORE=/path/to/others make bench    # measures other programs in the same run
//! ```

use super::{Broker, part};
use crate::driver::claim;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;
use tranche_core::broker::{ask, tell};
use tranche_core::types::{MemorySize, Percent};
use tranche_protocol::{AllocatedDevice, PrepareClaimRequest, PreparedClaim, UnprepareClaimRequest, since_boot};

/// How long a call may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// An answer of the daemon that is older does not count for a new claim.
const OLD: Duration = Duration::from_millis(2100);

/// What is measured of each broker.
const KINDS: [&str; 4] = ["whole GPU", "part under MPS", "part under MPS, after 2 s", "Unprepare"];

/// A broker, and what was measured of it.
struct Side {
    socket: PathBuf,
    times: [Vec<Duration>; KINDS.len()],
    broker: Broker,
    place: TempDir,
}

impl Side {
    fn start(programs: &Path) -> Self {
        let place = tempfile::tempdir_in("/dev/shm").unwrap();
        let broker = Broker::start(programs, place.path());
        Self {
            socket: place.path().join("run/broker.sock"),
            times: Default::default(),
            broker,
            place,
        }
    }

    fn prepare(&self, name: &str, device: AllocatedDevice) -> Duration {
        let request = PrepareClaimRequest {
            claim: claim(name),
            devices: vec![device],
            asked_at: since_boot(),
            waits: false,
        };
        let start = Instant::now();
        let prepared: PreparedClaim = ask(&self.socket, &request, PATIENCE).unwrap();
        let time = start.elapsed();
        assert_eq!(prepared.cdi.len(), 1);
        time
    }

    fn unprepare(&mut self, name: &str) {
        let request = UnprepareClaimRequest { uid: claim(name).uid };
        let start = Instant::now();
        tell(&self.socket, &request, PATIENCE).unwrap();
        self.times[3].push(start.elapsed());
    }

    fn measure(&mut self, kind: usize, name: &str) {
        let device = if kind == 0 { whole() } else { of_mps(name) };
        let time = self.prepare(name, device);
        self.times[kind].push(time);
        self.unprepare(name);
    }
}

fn whole() -> AllocatedDevice {
    AllocatedDevice {
        device: "gpu-3".to_owned(),
        ..AllocatedDevice::default()
    }
}

/// The same amounts as [`part`].
fn of_mps(share: &str) -> AllocatedDevice {
    AllocatedDevice {
        device: part(share)["device"].as_str().unwrap().to_owned(),
        share_id: Some(share.to_owned()),
        memory: Some(MemorySize::from_mib(8 << 10)),
        compute: Some(Percent::of_sum(10)),
        shares: Some(1),
        ..AllocatedDevice::default()
    }
}

pub(super) fn costs(programs: &Path, rounds: usize) {
    if !Path::new("/dev/shm").is_dir() {
        println!("not run: Prepare at the broker: /dev/shm is not there");
        return;
    }
    let before = std::env::var_os("TRANCHE_HOST_PROGRAMS_BEFORE").map(PathBuf::from);
    let programs: Vec<&Path> = [programs].into_iter().chain(before.as_deref()).collect();
    let mut sides: Vec<Side> = programs.iter().map(|programs| Side::start(programs)).collect();
    for side in &sides {
        // The daemon runs as long as this claim has its part.
        side.prepare("first", of_mps("first"));
    }
    for round in 0..rounds * 10 {
        for kind in [0, 1] {
            let name = format!("c{kind}-{round}");
            sides.iter_mut().for_each(|side| side.measure(kind, &name));
        }
    }
    for round in 0..rounds {
        std::thread::sleep(OLD);
        let name = format!("late-{round}");
        sides.iter_mut().for_each(|side| side.measure(2, &name));
    }
    for (kind, what) in KINDS.into_iter().enumerate() {
        let mut medians = sides.iter_mut().map(|side| median(&mut side.times[kind]));
        let now = medians.next().unwrap();
        let goal = if what == "Unprepare" { "" } else { " (goal: below 5 ms)" };
        let before = medians
            .next()
            .map(|before| format!(", before {before:.2} ms, {:.2} times", now / before));
        println!("broker: {what:36} {now:>8.2} ms{}{goal}", before.unwrap_or_default());
    }
    apart(&sides[0], rounds);
}

/// The steps that take longest, each alone.
fn apart(side: &Side, rounds: usize) {
    let control = side.broker.host.join("usr/bin/nvidia-cuda-mps-control");
    let mut asked = times(rounds * 2, || {
        let mut command = Command::new(&control);
        command.env_clear().stdin(Stdio::piped()).stdout(Stdio::null());
        command.env("CUDA_MPS_PIPE_DIRECTORY", side.place.path().join("run/mps-daemon/0"));
        let mut program = command.spawn().unwrap();
        let questions = b"get_default_active_thread_percentage\nget_default_device_pinned_mem_limit 0\n";
        program.stdin.take().unwrap().write_all(questions).unwrap();
        assert!(program.wait().unwrap().success());
    });
    println!(
        "step: a program asks the daemon of MPS       {:>8.2} ms, once in 2 s",
        median(&mut asked)
    );
    let disk = std::env::temp_dir();
    for (what, place) in [("memory", Path::new("/dev/shm")), ("the disk", &disk)] {
        let place = tempfile::tempdir_in(place).unwrap();
        let mut synced = times(rounds, || {
            let mut file = File::create(place.path().join("new")).unwrap();
            file.write_all(&[0; 500]).unwrap();
            file.sync_all().unwrap();
            std::fs::rename(place.path().join("new"), place.path().join("kept")).unwrap();
            File::open(place.path()).unwrap().sync_all().unwrap();
        });
        println!(
            "step: a file is kept, in {what:20} {:>8.3} ms, once for each claim",
            median(&mut synced)
        );
    }
}

fn times(rounds: usize, mut step: impl FnMut()) -> Vec<Duration> {
    let one = |_| {
        let start = Instant::now();
        step();
        start.elapsed()
    };
    (0..rounds).map(one).collect()
}

/// In milliseconds.
fn median(times: &mut [Duration]) -> f64 {
    times.sort();
    times[times.len() / 2].as_secs_f64() * 1e3
}
