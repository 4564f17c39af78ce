//! What users hold without using it (`idle`), as the fake driver library reports who works.

use crate::programs::Running;
use crate::scene::{ANN, BOB, Scene, Sleeper};
use crate::support::on_host::on_host;
use crate::support::{fake_host, until};
use fake_host::Host;
use nix::sys::signal::Signal;
use nix::time::{ClockId, clock_gettime};
use nix::unistd::Pid;
use serde_json::{Value, json};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};
use std::time::{Duration, UNIX_EPOCH};
use tranche_core::ledger::events::{EventKind, EventLine, parse};

/// A broker on a host with one GPU in ten turns.
struct Bed {
    scene: Scene,
    host: Host,
}

impl Bed {
    /// With these rules for users. `None` where this process cannot be several users.
    fn new(test: &str, users: &str) -> Option<Self> {
        let scene = Scene::without_broker(&format!("idle::{test}"))?;
        let host = fake_host::build("workstation-rtx4090", &scene.at("host")).unwrap();
        let policy = format!(
            "version: v1\nsharing:\n  timeSlicing:\n    resources:\n    - {{name: nvidia.com/gpu, devices: [0], replicas: 10}}\n  \
             users:\n    default: {users}\n"
        );
        fs::write(scene.at("policy.yaml"), policy).unwrap();
        let mut bed = Self { scene, host };
        bed.works(&[]);
        let mut refresh = bed.command(&["cdi", "refresh"]);
        for (option, path) in [("output-dir", "cdi"), ("hook-path", "tranche-oci")] {
            refresh.arg(bed.scene.option(option, path));
        }
        let refreshed = refresh.output().unwrap();
        assert!(refreshed.status.success(), "{refreshed:?}");
        bed.start();
        Some(bed)
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(self.scene.at("tranche"));
        command.args(arguments).env_clear().stdin(Stdio::null());
        on_host(&mut command, &self.scene.at(""));
        command
    }

    fn start(&mut self) {
        let mut broker = self.command(&["broker"]);
        broker.arg(self.scene.option("spec-dir", "cdi"));
        let journal = fs::File::options()
            .create(true)
            .append(true)
            .open(self.scene.at("journal"));
        self.scene.watch(broker.stderr(journal.unwrap()).spawn().unwrap());
    }

    /// Lets the driver report that these processes work, by percent.
    fn works(&self, processes: &[(Pid, u32)]) {
        let process =
            |(pid, sm): &(Pid, u32)| json!({"pid": pid.as_raw(), "kind": "compute", "memory_mib": 500, "sm": sm});
        self.nvml(|gpu| {
            gpu["utilization"] = json!({"gpu": 0, "memory": 0});
            gpu["processes"] = processes.iter().map(process).collect();
        });
    }

    fn nvml(&self, change: impl FnOnce(&mut Value)) {
        self.host.nvml(|config| change(&mut config["gpus"][0])).unwrap();
    }

    /// What `uid` sees of the idleness of the one thing that the user holds.
    fn idle(&self, uid: u32) -> Value {
        self.scene.ask(uid, "list", json!({})).unwrap()["claims"][0]["idle"].take()
    }

    fn is_over(&self, uid: u32) -> bool {
        !self.idle(uid)["by_seconds"].is_null()
    }

    fn journal(&self) -> String {
        fs::read_to_string(self.scene.at("journal")).unwrap()
    }
}

/// Two looks of the broker.
const TWO_LOOKS: Duration = Duration::from_secs(11);

#[test]
fn who_works_is_not_idle_and_who_does_nothing_is_told() {
    let test = "who_works_is_not_idle_and_who_does_nothing_is_told";
    let Some(bed) = Bed::new(test, "{idle: 4s}") else {
        return;
    };
    let ann = Running::new(&bed.scene, ANN, "0.any");
    let bob = Running::new(&bed.scene, BOB, "0.any");
    bed.works(&[(ann.program, 40), (bob.program, 0)]);
    until("it is shown", || bed.is_over(BOB));
    assert_eq!(bed.idle(BOB)["limit"], "sharing.users.default");
    let mode = fs::metadata(bed.scene.at("state/idle.json"))
        .unwrap()
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o600);
    assert_eq!(bed.idle(ANN)["unknown"], Value::Null);
    assert!(!bed.is_over(ANN), "{}", bed.idle(ANN));
    let status = bed.command(&["status"]).output().unwrap();
    let status = String::from_utf8(status.stdout).unwrap();
    let lines: Vec<&str> = status
        .lines()
        .filter(|line| line.contains("which is longer than idle in"))
        .collect();
    assert!(
        lines.len() == 1 && lines[0].contains(&bob.program.to_string()),
        "{status}"
    );
    let journal = bed.journal();
    let told = "idle for longer than 4s, which is idle in sharing.users.default";
    assert_eq!(
        journal.lines().filter(|line| line.contains(told)).count(),
        1,
        "{journal}"
    );

    // What belongs to no claim may be work for any of them: a server of MPS, for one.
    let stranger = Sleeper::new(ANN);
    bed.works(&[(Pid::from_raw(stranger.pid() as i32), 3)]);
    until("both count as at work", || !bed.is_over(BOB));
    std::thread::sleep(TWO_LOOKS);
    assert!(!bed.is_over(BOB) && !bed.is_over(ANN));

    // A GPU that is busy although no process is named.
    bed.works(&[]);
    bed.nvml(|gpu| gpu["utilization"]["gpu"] = json!(7));
    std::thread::sleep(TWO_LOOKS);
    assert!(!bed.is_over(BOB) && !bed.is_over(ANN));

    // Nobody works.
    bed.works(&[]);
    until("both are idle", || bed.is_over(BOB) && bed.is_over(ANN));

    // The driver does not say it.
    bed.nvml(|gpu| gpu["errors"] = json!({"nvmlDeviceGetProcessUtilization": "NVML_ERROR_NOT_SUPPORTED"}));
    until("it is unknown", || bed.idle(BOB)["unknown"].is_string());
    assert_eq!(bed.idle(BOB)["seconds"], Value::Null);
    assert!(!bed.is_over(ANN));
    until("it is said", || {
        bed.journal()
            .contains("its idle time is unknown, and not limited: NVML does not say")
    });
}

#[test]
fn a_claim_that_nobody_uses_is_released_when_it_is_idle() {
    let test = "a_claim_that_nobody_uses_is_released_when_it_is_idle";
    let Some(bed) = Bed::new(test, "{idle: 1s, atIdle: release}") else {
        return;
    };
    let user = Running::new(&bed.scene, ANN, "0.any");
    bed.scene.claim(BOB, "a").unwrap();
    until("it is released", || bed.scene.seen(BOB).is_empty());
    until("its specification is removed", || {
        bed.scene.specs().iter().all(|name| !name.contains("claim"))
    });
    until("the program is idle, too", || bed.is_over(ANN));
    assert_eq!(bed.scene.seen(ANN).len(), 1, "what is used is not released");
    drop(user);
}

#[test]
fn an_idle_program_is_ended_after_an_hour_and_one_that_works_goes_on() {
    let test = "an_idle_program_is_ended_after_an_hour_and_one_that_works_goes_on";
    let Some(mut bed) = Bed::new(test, "{idle: 1h, atIdle: end, grace: 2s}") else {
        return;
    };
    fs::create_dir_all(bed.scene.at("state/events")).unwrap();
    let ann = Running::new(&bed.scene, ANN, "0.any");
    let mut bob = Running::new(&bed.scene, BOB, "0.any");
    bed.works(&[(ann.program, 1)]);
    until("both are looked at", || {
        !bed.idle(ANN).is_null() && !bed.idle(BOB).is_null()
    });

    // The next broker goes on with what the last one has seen; here, that both did nothing for an hour.
    bed.scene.stop(Signal::SIGTERM);
    let file = bed.scene.at("state/idle.json");
    let mut seen: Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
    // That of another content. A file of an earlier version has none.
    seen.as_object_mut().unwrap().remove("checksum");
    // It looked just now, however long this machine takes to start the next one.
    let looked = &mut seen["idleness"]["looked"];
    let uptime = clock_gettime(ClockId::CLOCK_BOOTTIME).unwrap().tv_sec();
    looked["uptime"] = json!(uptime);
    looked["clock"] = json!(UNIX_EPOCH.elapsed().unwrap().as_secs());
    let claims = seen["idleness"]["claims"].as_object_mut().unwrap();
    assert_eq!(claims.len(), 2);
    claims.values_mut().for_each(|idle| *idle = json!({"seconds": 3600}));
    fs::write(&file, seen.to_string()).unwrap();
    bed.start();
    until("it is ended", || bob.has_ended());
    // The line follows the signal.
    until("the journal says so", || {
        bed.journal().contains("asked to end, by SIGTERM")
    });
    let journal = bed.journal();
    assert!(
        journal.contains("idle for longer than 1h, which is idle in sharing.users.default"),
        "{journal}"
    );
    assert!(journal.contains("asked to end, by SIGTERM"), "{journal}");
    assert!(bed.scene.seen(BOB).is_empty());
    // The history knows that a limit ended it, and who worked.
    let events = fs::read_to_string(bed.scene.at("state/events/log")).unwrap();
    let of = |kind: EventKind| {
        let events = events.lines().filter_map(|line| match parse(line) {
            EventLine::Event(event) => (event.kind == kind).then_some(event.claim?.uid),
            _ => None,
        });
        events.collect::<Vec<u32>>()
    };
    assert_eq!(of(EventKind::Overdue), [BOB], "{events}");
    assert!(
        of(EventKind::Busy).iter().all(|uid| *uid == ANN) && !of(EventKind::Busy).is_empty(),
        "{events}"
    );
    std::thread::sleep(TWO_LOOKS);
    assert_eq!(bed.scene.seen(ANN).len(), 1);
    assert!(bed.idle(ANN)["seconds"].as_u64().unwrap() < 60, "{}", bed.idle(ANN));
}

#[test]
fn a_time_in_which_no_broker_looked_counts_as_work() {
    let test = "a_time_in_which_no_broker_looked_counts_as_work";
    let Some(mut bed) = Bed::new(test, "{idle: 4s}") else {
        return;
    };
    bed.scene.claim(BOB, "a").unwrap();
    until("it is idle", || bed.is_over(BOB));
    for (command, line) in [
        (&["claim", "list"][..], "idle for "),
        (&["claim", "show", "a"], "idle for"),
    ] {
        let said = String::from_utf8(bed.scene.tranche(BOB, command).stdout).unwrap();
        assert!(said.contains(line), "{said}");
    }
    bed.scene.stop(Signal::SIGKILL);
    std::thread::sleep(Duration::from_secs(12));
    bed.start();
    until("it is looked at again", || bed.idle(BOB)["seconds"] == 0);
    until("it is idle again", || bed.is_over(BOB));
}
