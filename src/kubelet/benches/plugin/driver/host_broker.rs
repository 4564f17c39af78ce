//! What the broker's work is of a claim's preparation: the same driver before `tranche broker`, on a host that is made
//! of files and whose MPS daemon runs, and before a broker that answers at once.
//!
//! The driver's library and the daemon are those of the tests (`examples`); ledger, specification and control of the
//! device are the real ones.

mod steps;

use super::{claim, prepare, wait_registered};
use crate::bed::Bed;
use crate::fakes::driver_node::DriverNode;
use crate::fixtures::{DRIVER, devices, equal, whole};
use crate::{Pair, until};
use serde_json::json;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Instant;

/// The programs of MPS that a host has.
const MPS: [&str; 3] = ["nvidia-cuda-mps-control", "nvidia-cuda-mps-server", "nvidia-smi"];

/// Two GPUs for parts of any size, six whole ones.
const POLICY: &str = "version: v1\nkubernetes: {door: dra}\nsharing:\n  mps:\n    grace: 0\n    resources:\n    - {name: \
                      nvidia.com/gpu, devices: [0, 1], replicas: 10}\n";

/// `tranche broker` of one node.
struct Broker {
    process: Child,
    /// The root directory of the host.
    host: PathBuf,
}

impl Broker {
    /// Starts the one in `programs`, with its host and state in `place`.
    fn start(programs: &Path, place: &Path) -> Self {
        let host = make_host(programs, &place.join("host"));
        fs::write(place.join("policy.yaml"), POLICY).unwrap();
        let mut command = Command::new(programs.join("tranche"));
        command.arg("broker").env_clear().stdin(Stdio::null());
        for (option, place) in [
            ("driver-root", host.clone()),
            ("dev-root", host.clone()),
            ("proc-root", host.join("proc")),
            ("sys-root", host.join("sys")),
            ("config", place.join("policy.yaml")),
            ("state-dir", place.join("run")),
            ("spec-dir", place.join("cdi")),
        ] {
            command.arg(format!("--{option}={}", place.display()));
        }
        let process = command.spawn().unwrap();
        let broker = Self { process, host };
        until(|| UnixStream::connect(place.join("run/broker.sock")).is_ok());
        broker
    }

    /// The daemon and its servers.
    fn daemons(&self) -> Vec<String> {
        let programs = self.host.join("usr/bin");
        let processes = fs::read_dir("/proc").unwrap().flatten();
        let own = processes
            .filter(|entry| fs::read_link(entry.path().join("exe")).is_ok_and(|exe| exe.starts_with(&programs)));
        own.map(|entry| entry.file_name().into_string().unwrap()).collect()
    }
}

impl Drop for Broker {
    /// Ends the broker, and then the daemon, which outlives it.
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        for daemon in self.daemons() {
            let _ = Command::new("kill").args(["-s", "KILL", &daemon]).status();
        }
    }
}

/// Makes a host with the programs of MPS, and returns its root directory.
fn make_host(programs: &Path, place: &Path) -> PathBuf {
    let examples = programs.join("examples");
    let mut command = Command::new(examples.join("fake-host"));
    // With it, the program would compile the driver's library first.
    command.env_remove("CARGO").arg("hgx-h200").arg(place);
    let made = command.output().unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let host = PathBuf::from(String::from_utf8(made.stdout).unwrap().trim_end());
    for name in MPS {
        fs::copy(examples.join("fake-mps"), host.join("usr/bin").join(name)).unwrap();
    }
    let config = json!({"record": host.join("record"), "faults": {}});
    fs::write(host.join("fake-mps.json"), config.to_string()).unwrap();
    host
}

pub(super) fn costs(rounds: usize) {
    let Some(programs) = std::env::var_os("TRANCHE_HOST_PROGRAMS").map(PathBuf::from) else {
        println!(
            "not run: NodePrepareResources through the broker: TRANCHE_HOST_PROGRAMS is not set: run `make bench`"
        );
        return;
    };
    // It makes device nodes, and the broker is for root.
    if fs::metadata("/proc/self").unwrap().uid() != 0 {
        println!("not run: NodePrepareResources through the broker: not root");
        return;
    }
    steps::costs(&programs, rounds);
    let real = DriverNode::on(Bed::asleep(Vec::new()));
    let broker = Broker::start(&programs, &real.bed.at(""));
    let at_once = DriverNode::new(devices(
        (0..8).map(|gpu| if gpu < 2 { equal(gpu, 10) } else { whole(gpu) }),
    ));
    let _processes = [&real, &at_once].map(|node| node.start(DRIVER));
    for node in [&real, &at_once] {
        wait_registered(node, DRIVER);
    }
    // The daemon runs as long as this claim has its part.
    prepare(&real, DRIVER, &claim("first"), &part("first"));
    let before = broker.daemons();
    assert!(!before.is_empty(), "the daemon runs");
    let mut prepared = Pair::default();
    for round in 0..rounds * 10 {
        let name = format!("c{round}");
        let (claim, part) = (claim(&name), part(&name));
        for (node, times) in [(&real, &mut prepared.plugin), (&at_once, &mut prepared.empty)] {
            times.push(prepare(node, DRIVER, &claim, &part));
            node.kubelet.unprepare(DRIVER, std::slice::from_ref(&claim)).unwrap();
        }
    }
    assert_eq!(broker.daemons(), before, "it is the same daemon");
    prepared.line_beside(
        "driver: the same of a part under MPS",
        "broker that answers at once",
        " (tranche broker, the daemon runs, and all of its files are on a disk)",
    );
    for number in [1, 4, 16] {
        together(&real, number, rounds);
    }
}

/// How long a kubelet waits for the claims of one pod, which it asks for in one call. All are parts of one GPU: so one
/// file of the ledger and one that is kept have all of them.
fn together(node: &DriverNode, number: usize, rounds: usize) {
    let mut times = Vec::new();
    for round in 0..rounds {
        let claims: Vec<_> = (0..number)
            .map(|one| claim(&format!("t{number}-{round}-{one}")))
            .collect();
        for claim in &claims {
            let mut part = part(&claim.name);
            part["consumedCapacity"] = json!({"memory": "4Gi", "compute": "5", "shares": "1"});
            node.api.allocate(claim, json!({"results": [part]}));
        }
        let start = Instant::now();
        let results = node.kubelet.prepare(DRIVER, &claims).unwrap();
        times.push(start.elapsed());
        assert!(
            results.len() == number && results.values().all(Result::is_ok),
            "{results:?}"
        );
        node.kubelet.unprepare(DRIVER, &claims).unwrap();
    }
    times.sort();
    let each = times[times.len() / 2].as_secs_f64() * 1e3 / number as f64;
    println!("driver: {number:>2} claims in one call                   {each:>8.2} ms for each, with files on a disk");
}

/// 8 GiB and 10 % of GPU 0, as the scheduler allocates them.
fn part(share: &str) -> serde_json::Value {
    let consumed = json!({"memory": "8Gi", "compute": "10", "shares": "1"});
    json!({"request": "gpu", "driver": DRIVER, "pool": crate::fake_api::NODE, "device": "gpu-0", "shareID": share,
        "consumedCapacity": consumed})
}
