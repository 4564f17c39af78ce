//! Turns: real programs with memory on a GPU that is a fake, a broker that gives it to one after another, and cgroups
//! that keep the others from it.

use crate::access::Bed;
use crate::scene::BOB;
use crate::support::fake_turns::{self, GPU_OF_HOST as GPU, POLICY, PROTECTED, TurnsClient};
use crate::support::test_cgroup::TestCgroup;
use crate::support::{fake_host, skip, until};
use nix::sys::signal::Signal;
use serde_json::{Value, json};
use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use tranche_core::claims::{ClaimEntry, Claims};
use tranche_core::ledger::{Change, Claim, ContainerName, Holder, Ledger};
use tranche_core::types::{Bounds, DeviceKey, Part, Promise, Subject};
use tranche_plan::turns::tries::{CopyRate, TryOutcome, TurnTries, TurnTry};
use tranche_state::turn_tries;
use tranche_state::turns::TurnRecord;
use tranche_turns::wishes::{HostLibrary, Wishes};

mod faults;
mod first;
mod killed;
mod pods;
mod runs;

/// A driver of which no fault is known that matters here.
const DRIVER: &str = "580.159.04";

/// One that lets the machine hang when resumed work is killed.
const HANGS: &str = "595.71.05";

const MIB: u64 = 1 << 20;

/// The machine, and the containers that were started.
struct Turns {
    bed: Bed,
    driver: &'static str,
}

/// A container: one process in a cgroup of its own.
struct Container {
    program: TurnsClient,
    number: u32,
    _cgroup: TestCgroup,
}

impl Turns {
    fn new(test: &str) -> Option<Self> {
        Self::with(test, DRIVER, POLICY)
    }

    fn with(test: &str, driver: &'static str, policy: &str) -> Option<Self> {
        let test = format!("turns::{test}");
        let build = |scene: &crate::scene::Scene| {
            let host = fake_host::build_with_driver("h200-in-vm", driver, &scene.at("host")).unwrap();
            let library = host.path(&format!("/usr/lib/x86_64-linux-gnu/libcuda.so.{driver}"));
            fake_turns::install(&host, &library, &scene.at("meeting"), 64);
            host.nvml(|config| config["gpus"][0]["utilization"] = json!({"gpu": 0, "memory": 0}))
                .unwrap();
            host
        };
        if let Err(why) = TestCgroup::of_controller("devices", &format!("look-{}", test.replace(':', "-"))) {
            skip::not_run(&format!("broker::{test}"), &why);
            return None;
        }
        let bed = Bed::on_host(&test, policy, PROTECTED, build)?;
        let mut turns = Self { bed, driver };
        // Before Linux 6.6, nobody is woken by a call.
        let library = HostLibrary::at(&turns.library());
        if let Err(why) = library.and_then(|library| Wishes::new(library, 1)) {
            skip::not_run(&format!("broker::{test}"), &why.to_string());
            return None;
        }
        turns.bed.start();
        Some(turns)
    }

    fn library(&self) -> PathBuf {
        let path = format!("host/usr/lib/x86_64-linux-gnu/libcuda.so.{}", self.driver);
        self.bed.scene.at(&path)
    }

    fn key(&self) -> DeviceKey {
        GPU.parse().unwrap()
    }

    /// Starts a container that holds the place `number`, as a hook of an engine of root does.
    fn start(&self, number: u32) -> Container {
        self.start_as(number, TurnsClient::without_context(&self.library()))
    }

    fn start_as(&self, number: u32, program: TurnsClient) -> Container {
        let container = self.made(number, program);
        self.enter(&container).unwrap();
        container
    }

    /// A container that holds nothing yet.
    fn made(&self, number: u32, program: TurnsClient) -> Container {
        let cgroup = TestCgroup::of_controller("devices", &format!("turns-{number}-{}", program.pid())).unwrap();
        Self::made_in(cgroup, number, program)
    }

    fn made_in(cgroup: TestCgroup, number: u32, program: TurnsClient) -> Container {
        // As engines make it: nothing is allowed but what the container has.
        fs::write(cgroup.0.join("devices.deny"), "a").unwrap();
        for device in ["c 195:0 rw", "c 1:3 rw", "c 1:9 r"] {
            fs::write(cgroup.0.join("devices.allow"), device).unwrap();
        }
        cgroup.add(program.pid().cast_unsigned());
        Container {
            program,
            number,
            _cgroup: cgroup,
        }
    }

    fn enter(&self, container: &Container) -> Result<Value, String> {
        let claims = Claims::open(&self.bed.scene.at("state")).unwrap();
        let entry = ClaimEntry {
            device: self.key(),
            subject: Subject::Part(
                Part::Share(container.number.to_string().parse().unwrap()),
                Promise::Turns { holders: 3 },
            ),
            replicas: 3,
            bounds: Bounds::default(),
            asked_as: None,
            alone: true,
        };
        let name = ContainerName::at(&self.bed.scene.at("state"), &format!("c{}", container.number)).unwrap();
        let pid = container.program.pid().cast_unsigned();
        claims.enter(&entry, Holder::Container(name), Some(pid)).unwrap();
        self.bed.scene.ask(0, "prepare", json!({"device": self.key()}))
    }

    /// Who has the device: the number of the place.
    fn resident(&self) -> Option<u32> {
        let record = self.record()?;
        let key = record["resident"].as_str()?;
        key.split(' ').nth(2)?.parse().ok()
    }

    fn record(&self) -> Option<Value> {
        let path = self.bed.scene.at("state/turns").join(format!("{GPU}.json"));
        serde_json::from_slice(&fs::read(path).ok()?).ok()
    }

    fn await_resident(&self, number: u32) {
        let is_so =
            || self.resident() == Some(number) && self.record().is_some_and(|record| record["change"].is_null());
        let begun = Instant::now();
        while !is_so() {
            assert!(
                begun.elapsed() < Duration::from_secs(60),
                "{:?}\n{}",
                self.record(),
                self.logged()
            );
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// What a program says next: within some turns.
    fn said(&self, container: &mut Container) -> String {
        let says = container.program.says_something_in(Duration::from_secs(60));
        assert!(says, "{:?}\n{}", self.record(), self.logged());
        container.program.read()
    }

    /// Gives the claim on a place to a user, as if a program of that user had it.
    fn give_to(&self, number: u32, uid: u32) {
        let ledger = Ledger::open(&self.bed.scene.at("state")).unwrap();
        let changed = ledger.lock().unwrap().change_each(|book| {
            let is_of = |claim: &&mut Claim| claim.part.to_string().contains(&number.to_string());
            for claim in book.claims.iter_mut().filter(is_of) {
                claim.uid = uid;
                claim.holder = Holder::Process {
                    program: "train".to_owned(),
                    id: "1".to_owned(),
                };
            }
            Change::Made
        });
        assert!(changed.unwrap().is_empty());
    }

    fn logged(&self) -> String {
        fs::read_to_string(self.bed.scene.at("log")).unwrap_or_default()
    }
}

impl Container {
    /// Whether its processes may open the device: without a driver, that ends with ENXIO after the kernel allowed it.
    fn may_open(&mut self, turns: &Turns) -> bool {
        let node = turns.bed.scene.at("host/dev/nvidia0");
        match self.program.ask(&format!("open {}", node.display())).as_str() {
            "error 6" => true,
            "error 1" => false,
            other => panic!("{other}"),
        }
    }
}

#[test]
fn three_containers_have_the_whole_gpu_by_turns() {
    let Some(turns) = Turns::new("three_containers_have_the_whole_gpu_by_turns") else {
        return;
    };
    let mut first = turns.start(0);
    turns.await_resident(0);
    assert!(first.may_open(&turns));
    assert_eq!(first.program.ask(&format!("take {}", 40 * MIB)), "taken");
    // It does nothing, so the second one has its turn soon, and then the third one.
    let mut second = turns.start(1);
    assert!(!second.may_open(&turns) || turns.resident() == Some(1));
    turns.await_resident(1);
    assert!(second.may_open(&turns) && !first.may_open(&turns));
    assert_eq!(
        second.program.ask(&format!("take {}", 40 * MIB)),
        "taken",
        "{}",
        turns.logged()
    );
    let mut third = turns.start(2);
    turns.await_resident(2);
    assert_eq!(
        third.program.ask(&format!("take {}", 20 * MIB)),
        "taken",
        "{}",
        turns.logged()
    );
    // A call wakes the first one. It waits until its memory is there again.
    first.program.tell("call");
    assert_eq!(turns.said(&mut first), "called");
    turns.await_resident(0);
    assert_eq!(first.program.ask("check"), "good");
    for (container, number) in [(&mut second, 1), (&mut third, 2)] {
        container.program.tell("call");
        assert_eq!(turns.said(container), "called");
        turns.await_resident(number);
        assert_eq!(container.program.ask("check"), "good");
    }
}

#[test]
fn a_person_suspends_and_resumes() {
    let Some(turns) = Turns::new("a_person_suspends_and_resumes") else {
        return;
    };
    let events = turns.bed.scene.at("state/events");
    fs::create_dir(&events).unwrap();
    let mut only = turns.start(0);
    turns.await_resident(0);
    assert_eq!(only.program.ask(&format!("take {}", 30 * MIB)), "taken");
    let ask = |suspend: bool| {
        turns
            .bed
            .scene
            .ask(0, "turn", json!({"what": "c0", "suspend": suspend}))
    };
    // Without host.json, too, the names of devices are known.
    assert!(!turns.bed.scene.at("state/host.json").exists());
    turns
        .bed
        .scene
        .ask(0, "turn", json!({"what": "0.0", "suspend": true}))
        .unwrap();
    until("it is suspended", || turns.resident().is_none());
    ask(true).unwrap();
    let list = turns.bed.scene.ask(0, "list", json!({})).unwrap();
    let turn = &list["claims"][0]["turn"];
    assert_eq!(
        (&turn["is_put_aside"], &turn["host_memory_mib"]),
        (&json!(true), &json!(30)),
        "{list}"
    );
    let metrics = turns.bed.scene.of_root(&["metrics", "--no-gpu"]);
    let errors = String::from_utf8(metrics.stderr).unwrap();
    let metrics = String::from_utf8(metrics.stdout).unwrap();
    for (name, value) in [
        ("held", "0"),
        ("suspended", "1"),
        ("host_memory_bytes", "31457280"),
        ("changes_total", "2"),
    ] {
        // No specification was written, so that the device has no other name.
        let line = format!("tranche_device_turn_{name}{{device=\"{GPU}\"}} {value}");
        assert!(metrics.lines().any(|of| of == line), "{line}\n{metrics} {errors}");
    }
    only.program.tell("call");
    assert!(
        !only.program.says_something_in(Duration::from_secs(3)),
        "only a person resumes it"
    );
    let before = Instant::now();
    ask(false).unwrap();
    assert_eq!(turns.said(&mut only), "called");
    assert!(before.elapsed() < Duration::from_secs(60));
    assert_eq!(only.program.ask("check"), "good");
    turns.await_resident(0);
    until("the events are recorded", || {
        let events = fs::read_to_string(events.join("log")).unwrap_or_default();
        let of = |kind: &str| events.lines().filter(|line| line.starts_with(kind)).count();
        (of("suspended\t"), of("resumed\t"), of("lost\t")) == (1, 1, 0)
    });
    let refused = turns
        .bed
        .scene
        .ask(0, "turn", json!({"what": "nobody", "suspend": true}))
        .unwrap_err();
    assert!(refused.contains("nobody"), "{refused}");
}

#[test]
fn a_start_is_refused_where_its_container_cannot_be_kept_away_or_nobody_relies_on_the_driver() {
    let Some(mut turns) = Turns::new("a_start_is_refused_where_its_container_cannot_be_kept_away") else {
        return;
    };
    // A privileged container: nothing is denied.
    let program = TurnsClient::without_context(&turns.library());
    let cgroup = TestCgroup::of_controller("devices", &format!("turns-all-{}", program.pid())).unwrap();
    cgroup.add(program.pid().cast_unsigned());
    let mut all = Container {
        program,
        number: 0,
        _cgroup: cgroup,
    };
    let mut first = turns.start(1);
    turns.await_resident(1);
    let refused = turns.enter(&all).unwrap_err();
    assert!(refused.contains("it is privileged, or has rules with *"), "{refused}");
    assert!(
        first.may_open(&turns) && all.may_open(&turns),
        "nothing of it was changed"
    );
    // The driver opens nodes again at each start of CUDA.
    let params = turns.bed.scene.at("host/proc/driver/nvidia/params");
    fs::write(
        &params,
        PROTECTED.replace("ModifyDeviceFiles: 0", "ModifyDeviceFiles: 1"),
    )
    .unwrap();
    let ask = || turns.bed.scene.ask(0, "prepare", json!({"device": turns.key()}));
    let refused = ask().unwrap_err();
    assert!(refused.contains("access: enforce is not in force"), "{refused}");
    fs::write(&params, PROTECTED).unwrap();
    turns.bed.scene.stop(Signal::SIGTERM);
    fs::write(
        turns.bed.scene.at("policy.yaml"),
        POLICY.replace("assumeTested: true", "assumeTested: false"),
    )
    .unwrap();
    turns.bed.start();
    let ask = || turns.bed.scene.ask(0, "prepare", json!({"device": turns.key()}));
    let refused = ask().unwrap_err();
    assert!(
        refused.contains("never tried with driver 580.159.04 on NVIDIA H200") && refused.contains("tranche turns try"),
        "{refused}"
    );
    let found = |driver: &str, outcome| {
        let mut tries = TurnTries::default();
        tries.record(TurnTry {
            driver: driver.to_owned(),
            product: "NVIDIA H200".to_owned(),
            date: "2026-11-28".to_owned(),
            outcome,
            boot: String::new(),
        });
        turn_tries::write(&turns.bed.scene.at("state"), &tries).unwrap();
    };
    let rate = CopyRate {
        bytes: 8,
        out_ns: 1,
        back_ns: 1,
    };
    found("580.95.05", TryOutcome::Passed(rate));
    let refused = ask().unwrap_err();
    assert!(refused.contains("never tried with driver 580.159.04"), "{refused}");
    found("580.159.04", TryOutcome::Failed("a byte differs".to_owned()));
    let refused = ask().unwrap_err();
    assert!(
        refused.contains("on 2026-11-28") && refused.contains("failed: a byte differs"),
        "{refused}"
    );
    found("580.159.04", TryOutcome::Passed(rate));
    drop(all);
    ask().unwrap();
}

#[test]
fn resumed_work_is_suspended_before_it_is_ended_where_the_machine_would_hang() {
    let test = "resumed_work_is_suspended_before_it_is_ended_where_the_machine_would_hang";
    let policy = format!("{POLICY}  users:\n    default: {{maxHold: 1s, atLimit: end, grace: 1s}}\n");
    let Some(turns) = Turns::with(test, HANGS, &policy) else {
        return;
    };
    let mut first = turns.start_as(0, TurnsClient::of_user(&turns.library(), BOB));
    turns.await_resident(0);
    assert_eq!(first.program.ask(&format!("take {}", 30 * MIB)), "taken");
    let mut second = turns.start(1);
    turns.await_resident(1);
    first.program.tell("call");
    assert_eq!(turns.said(&mut first), "called");
    // It has been resumed. From now on it is a user's, who has had it for too long, and it cannot be suspended.
    let meeting = turns.bed.scene.at("meeting");
    fs::write(meeting.join("faults"), r#"{"lock": 999}"#).unwrap();
    let ask = |verb: &str, fields: Value| turns.bed.scene.ask(0, verb, fields);
    let refused = ask("release", json!({"what": "0.0", "force": true})).unwrap_err();
    assert!(
        refused.contains("could never be resumed without its claim"),
        "{refused}"
    );
    turns.give_to(0, BOB);
    let cannot = || {
        let list = turns.bed.scene.ask(BOB, "list", json!({})).unwrap();
        list["claims"][0]["cannot_be_ended"]
            .as_str()
            .unwrap_or_default()
            .to_owned()
    };
    until("it is said why it is not ended", || {
        cannot().contains("cannot be locked")
    });
    let expected = "with driver 595.71.05, the machine can hang when resumed work is killed";
    assert!(cannot().contains(expected), "{}", cannot());
    // Much longer than the grace, and with a look at who is to be ended.
    std::thread::sleep(Duration::from_secs(7));
    assert!(!first.program.has_ended(), "{}", turns.logged());
    let refused = ask("turn", json!({"what": format!("{GPU}.0"), "suspend": false})).unwrap_err();
    assert!(refused.contains("is being ended"), "{refused}");
    fs::remove_file(meeting.join("faults")).unwrap();
    until("it has ended", || first.program.has_ended());
    // Whoever looks at the other processes would find that the machine hangs.
    ask("turn", json!({"what": "c1", "suspend": false})).unwrap();
    turns.await_resident(1);
    assert_eq!(second.program.ask(&format!("take {}", 40 * MIB)), "taken");
    assert!(!meeting.join("host-hung").exists(), "{}", turns.logged());
}

#[test]
fn the_removal_lets_everybody_open_the_device_again_and_says_who_is_suspended() {
    let Some(mut turns) = Turns::new("the_removal_lets_everybody_open_the_device_again_and_says_who_is_suspended")
    else {
        return;
    };
    let mut first = turns.start(0);
    turns.await_resident(0);
    assert_eq!(first.program.ask(&format!("take {}", 30 * MIB)), "taken");
    let mut second = turns.start(1);
    turns.await_resident(1);
    assert!(!first.may_open(&turns));
    let remove = |turns: &Turns| {
        let places = ["spec-dir=cdi", "tmpfiles-dir=tmpfiles.d"];
        let output = turns
            .bed
            .command(&["system", "prepare-removal"], &places)
            .output()
            .unwrap();
        assert!(!output.status.success(), "{output:?}");
        String::from_utf8(output.stderr).unwrap()
    };
    // A broker keeps them away.
    let said = remove(&turns);
    assert!(said.contains("another broker serves it"), "{said}");
    assert!(!first.may_open(&turns));
    turns.bed.scene.stop(Signal::SIGTERM);
    let resume = turns.bed.scene.of_root(&["resume", "c0"]);
    let refused = String::from_utf8(resume.stderr).unwrap();
    assert!(
        refused.contains("broker: does not run, and it alone can do this"),
        "{refused}"
    );
    let said = remove(&turns);
    let suspended: Vec<&str> = said
        .lines()
        .filter(|line| line.contains("is suspended in the memory"))
        .collect();
    assert!(matches!(suspended[..], [line] if line.contains("c0")), "{said}");
    assert!(first.may_open(&turns) && second.may_open(&turns));
}
