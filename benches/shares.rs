//! What shares cost: a claim by itself, a claim in a container's start, and specifications of many shares.
//!
//! Machines are noisy: what counts is a ratio within one run.
//!
//! ```text
//! make bench                    # builds tranche-oci as it is shipped
//! make bench ROUNDS=100         # more rounds
//! ```

#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout)]

#[path = "../tests/support/engines.rs"]
mod engines;
#[path = "../tests/support/fake_host.rs"]
mod fake_host;
#[path = "../tests/support/session.rs"]
mod session;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use engines::{Bed, Engine};
use tranche::ledger::process::Machine;
use tranche::ledger::{Ask, Change, ContainerName, DeviceKey, Ledger, Part, State, World};

fn main() {
    // `cargo test --all-targets` runs this too, and wants no benchmark.
    if !std::env::args().any(|argument| argument == "--bench") {
        return;
    }
    let rounds: usize = std::env::var("ROUNDS").ok().and_then(|n| n.parse().ok()).unwrap_or(15);
    in_one_process(rounds * 100);
    as_hooks(rounds * 20);
    many_at_once();
    specifications(rounds);
    in_a_start(rounds);
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times[times.len() / 2]
}

fn line(what: &str, time: Duration, more: &str) {
    println!("{what:58} {:>10.1} us  {more}", time.as_secs_f64() * 1e6);
}

/// In memory where that is possible, as `/run` is.
fn place() -> tempfile::TempDir {
    let memory = Path::new("/dev/shm");
    let place = if memory.is_dir() {
        memory.to_owned()
    } else {
        std::env::temp_dir()
    };
    tempfile::tempdir_in(place).unwrap()
}

/// Every process has ended: how a release finds a container.
struct Ended(Machine);

impl World for Ended {
    fn is_gone(&self, _: &tranche::ledger::Process) -> bool {
        true
    }
    fn lives(&self, _: &tranche::ledger::Process) -> bool {
        false
    }
    fn now(&self) -> u64 {
        self.0.now()
    }
    fn uptime(&self) -> u64 {
        self.0.uptime()
    }
    fn boot(&self) -> &str {
        self.0.boot()
    }
}

/// Ten shares, nine of them held: the ledger alone.
fn in_one_process(rounds: usize) {
    let dir = place();
    let device: DeviceKey = "GPU-1".parse().unwrap();
    let take = |share: usize| {
        let machine = Machine::here().unwrap();
        let ask = Ask {
            part: Part::share(share.to_string().parse().unwrap()),
            name: None,
            container: Some(name(share)),
            process: Some(machine.process(std::process::id()).unwrap()),
            state: State::Held,
            keep: false,
            alone: false,
            uid: 0,
            ttl: None,
        };
        let ledger = Ledger::open(dir.path()).unwrap();
        let taken = ledger.change(&device, |book| Ok((book.take(&ask, &machine), Change::Made)));
        taken.unwrap().unwrap();
    };
    (0..9).for_each(take);
    let (mut claims, mut both) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        let start = Instant::now();
        take(9);
        claims.push(start.elapsed());
        let ended = Ended(Machine::here().unwrap());
        let ledger = Ledger::open(dir.path()).unwrap();
        let released = ledger.change(&device, |book| {
            Ok((book.release_container(&name(9), 0, &ended), Change::Made))
        });
        assert_eq!(released.unwrap(), 1);
        both.push(start.elapsed());
    }
    let both = median(both);
    line(
        "claim taken and given back, 9 of 10 shares held",
        both,
        &format!("{:.0} a second", 1.0 / both.as_secs_f64()),
    );
    line("  of that, the taking", median(claims), "");
}

fn name(share: usize) -> ContainerName {
    ContainerName {
        bundle: "/b".into(),
        id: format!("c{share}"),
    }
}

/// The hook as an engine runs it.
fn hook(oci: &Path, dir: &Path, verb: &str, share: usize, id: &str) -> Command {
    let state = dir.join(format!("{id}.json"));
    let pid = std::process::id();
    let text = format!(r#"{{"ociVersion":"1.0.2","id":"{id}","status":"creating","bundle":"/b","pid":{pid}}}"#);
    fs::write(&state, text).unwrap();
    let mut command = Command::new(oci);
    command.args([
        "hook", verb, "--device", "GPU-1", "--label", "gpu 0", "--of", "10", "--share",
    ]);
    command.arg(share.to_string()).arg("--state-dir").arg(dir.join("state"));
    command.env_clear().stdin(fs::File::open(&state).unwrap());
    command.stdout(Stdio::null()).stderr(Stdio::null());
    command
}

fn program() -> PathBuf {
    std::env::var_os("TRANCHE_OCI_STATIC").map_or_else(|| env!("CARGO_BIN_EXE_tranche-oci").into(), PathBuf::from)
}

fn root() -> bool {
    nix::unistd::geteuid().is_root()
}

fn as_hooks(rounds: usize) {
    if !root() {
        println!("not run: benches/shares, hooks: not root");
        return;
    }
    let (dir, oci) = (place(), program());
    let (mut version, mut claim) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        let start = Instant::now();
        assert!(
            Command::new(&oci)
                .arg("--version")
                .stdout(Stdio::null())
                .status()
                .unwrap()
                .success()
        );
        version.push(start.elapsed());
        let mut hook = hook(&oci, dir.path(), "claim", 0, "c0");
        let start = Instant::now();
        assert!(hook.status().unwrap().success());
        claim.push(start.elapsed());
    }
    let (version, claim) = (median(version), median(claim));
    line("tranche-oci --version: a process, and nothing done", version, "");
    let ratio = claim.as_secs_f64() / version.as_secs_f64();
    line("hook claim", claim, &format!("{ratio:.2} times the process"));
}

/// A thousand processes for ten shares: how long until all have their answer.
fn many_at_once() {
    if !root() {
        return;
    }
    let (dir, oci) = (place(), program());
    let mut commands: Vec<Command> = (0..1000)
        .map(|n| hook(&oci, dir.path(), "claim", n % 10, &format!("c{n}")))
        .collect();
    let start = Instant::now();
    let mut children: Vec<_> = commands.iter_mut().map(|c| c.spawn().unwrap()).collect();
    let won = children
        .iter_mut()
        .map(|c| c.wait().unwrap().success())
        .filter(|won| *won)
        .count();
    assert_eq!(won, 10);
    line(
        "a thousand hooks at once for ten shares, each",
        start.elapsed() / 1000,
        "10 won",
    );
}

/// GPU 0 in so many replicas, GPU 1 whole.
fn policy(file: &Path, replicas: usize) {
    let text = format!(
        "version: v1\nsharing:\n  timeSlicing:\n    resources: [{{name: nvidia.com/gpu, devices: [0], replicas: {replicas}}}]\n"
    );
    fs::write(file, text).unwrap();
}

const SIZES: [usize; 3] = [10, 100, 1000];

fn specifications(rounds: usize) {
    let dir = place();
    let file = dir.path().join("policy.yaml");
    let made = |arguments: &[&str]| {
        let mut times = Vec::new();
        let mut bytes = 0;
        for _ in 0..rounds {
            let start = Instant::now();
            let output = Command::new(env!("CARGO_BIN_EXE_tranche"))
                .args([
                    "cdi",
                    "generate",
                    "--inventory=sim:t4x2",
                    "--hook-path=/usr/bin/tranche-oci",
                ])
                .args(arguments)
                .output()
                .unwrap();
            times.push(start.elapsed());
            assert!(output.status.success());
            bytes = output.stdout.len();
        }
        (median(times), bytes)
    };
    let (time, none) = made(&[]);
    line("cdi generate, no policy", time, &format!("{none} bytes"));
    for size in SIZES {
        policy(&file, size);
        let (time, bytes) = made(&[&format!("--config={}", file.display())]);
        // By index and by UUID.
        let each = (bytes - none) / (2 * size);
        let what = format!("cdi generate, {size} shares of one GPU");
        line(&what, time, &format!("{bytes} bytes, {each} a name"));
    }
}

/// podman's start, with the specifications of above.
fn in_a_start(rounds: usize) {
    for engine in [Engine::PodmanCrun, Engine::PodmanRunc] {
        if let Some(reason) = engine.missing() {
            println!("not run: benches/shares, {engine:?}: {reason}");
            continue;
        }
        let bed = Bed::new();
        fs::copy(program(), bed.hook()).unwrap();
        fs::write(bed.specs().join("none-yet"), "").unwrap();
        let host = fake_host::build("t4x2-old-driver", &bed.at("host")).unwrap();
        if let Some(missing) = host.not_made.first() {
            println!("not run: benches/shares, {engine:?}: {}", missing.why);
            continue;
        }
        for size in SIZES {
            policy(&bed.at(&format!("policy-{size}.yaml")), size);
        }
        let host = bed.at("host").display().to_string();
        let script = format!(
            r#"
rm /etc/cdi/none-yet
for size in 10 100 1000; do
    tranche cdi generate --driver-root {host} --dev-root {host} --proc-root {host}/proc --sys-root {host}/sys --cdi-version 0.5 \
        --hook-path "$oci" --config "$bed/policy-$size.yaml" --output "$bed/spec-$size.yaml"
done
# timed NAME SPEC DEVICE: nanoseconds of a start.
timed() {{
    cp "$bed/spec-$2.yaml" /etc/cdi/nvidia.yaml
    before=$(date +%s%N)
    podman run --rm --network=none $limits --device "nvidia.com/gpu=$3" --rootfs "$image" /bin/true || exit 1
    echo $(($(date +%s%N) - before)) >> "$bed/times-$1"
}}
image=$1
round=0
while [ $round -lt {rounds} ]; do
    timed whole 10 1
    timed share-10 10 0.0
    timed whole-1000 1000 1
    timed share-100 100 0.0
    timed share-1000 1000 0.0
    round=$((round + 1))
done
"#
        );
        session::session(&bed, engine, 1, &script);
        let time = |name: &str| {
            let text = fs::read_to_string(bed.at(&format!("times-{name}"))).unwrap();
            median(text.lines().map(|l| Duration::from_nanos(l.parse().unwrap())).collect())
        };
        let base = time("whole");
        for (name, what) in [
            ("whole", "a whole GPU, 10 shares beside it"),
            ("share-10", "a share of 10"),
            ("share-100", "a share of 100"),
            ("whole-1000", "a whole GPU, 1000 shares beside it"),
            ("share-1000", "a share of 1000"),
        ] {
            let time = time(name);
            let ratio = time.as_secs_f64() / base.as_secs_f64();
            line(
                &format!("{engine:?} run, {what}"),
                time,
                &format!("{ratio:.2} times the first"),
            );
        }
    }
}
