//! A clock that jumps by a year, in both directions: nobody loses what is held, nothing is given twice, and what is out
//! of service stays so.

use crate::scene::{ANN, BOB, GPU_0, Scene};
use crate::support::other_clock::OtherClock;
use crate::support::{skip, until};
use nix::sys::signal::Signal;
use serde_json::json;
use std::fs;
use std::process::{Command, Output};

const YEAR: i64 = 365 * 86_400;

const POLICY: &str = "\
version: v1
sharing:
  timeSlicing: {resources: [{name: nvidia.com/gpu, devices: [0, 1], replicas: 10}]}
  users: {default: {maxHold: 1h, atLimit: end}}
";

struct Bed {
    scene: Scene,
    clock: OtherClock,
}

impl Bed {
    fn new(test: &str) -> Option<Self> {
        let scene = Scene::without_broker(&format!("clock::{test}"))?;
        fs::write(scene.at("policy.yaml"), POLICY).unwrap();
        match OtherClock::new(&scene.at("")) {
            Ok(clock) => Some(Self { scene, clock }),
            Err(why) => {
                skip::not_run(&format!("broker::clock::{test}"), &why.to_string());
                None
            }
        }
    }

    fn start(&mut self) {
        let mut broker = self.scene.command();
        self.clock.show(&mut broker);
        self.scene.watch(broker.spawn().unwrap());
    }

    fn of_root(&self, arguments: &[&str]) -> Output {
        let mut command = match arguments[0] {
            "claim" if arguments[1] == "create" => self.scene.command_of_root(arguments),
            "claim" => {
                let mut command = Command::new(self.scene.at("tranche"));
                command
                    .args(arguments)
                    .arg(self.scene.option("state-dir", "state"))
                    .env_clear();
                command
            }
            _ => {
                let mut command = Command::new(self.scene.at("tranche"));
                command.args(arguments).arg("--inventory=sim:t4x2").env_clear();
                command.arg(self.scene.option("state-dir", "state"));
                command
            }
        };
        self.clock.show(&mut command);
        command.output().unwrap()
    }

    /// What must hold whatever the clock says. `number` makes names that nobody has yet.
    fn check(&self, number: usize, at: &str) {
        let pod = json!({"namespace": "shop", "name": "web-1"});
        let taken = self
            .scene
            .ask(0, "reserve", json!({"pod": pod, "devices": [format!("{GPU_0}.0")]}));
        assert!(taken.unwrap_err().contains("web-0"), "{at}");
        let name = format!("more-{number}");
        let drained = self
            .scene
            .ask(BOB, "claim", json!({"name": name, "device": "1", "shares": 1}));
        assert!(drained.unwrap_err().contains("out of service"), "{at}");
        let created = self.of_root(&["claim", "create", "--name", &name, "--device", "1", "--shares", "1"]);
        assert!(!created.status.success(), "{at}: {created:?}");
        let names = self.scene.names();
        let has = |wanted: &str| names.iter().any(|name| name.contains(wanted));
        assert!(has("held") && has("web-0") && has("of-root"), "{at}: {names:?}");
        assert_eq!(names.len(), 3, "{at}: {names:?}");
        // What is new is given as always.
        self.scene
            .ask(BOB, "claim", json!({"name": name, "device": "0", "shares": 1}))
            .unwrap();
        self.scene.ask(BOB, "release", json!({"what": name})).unwrap();
    }
}

#[test]
fn a_clock_that_jumps_by_a_year_changes_nothing() {
    let Some(mut bed) = Bed::new("a_clock_that_jumps_by_a_year_changes_nothing") else {
        return;
    };
    bed.start();
    let pod = json!({"namespace": "shop", "name": "web-0"});
    bed.scene
        .ask(0, "reserve", json!({"pod": pod, "devices": [format!("{GPU_0}.0")]}))
        .unwrap();
    bed.scene
        .ask(ANN, "claim", json!({"name": "held", "device": "0", "shares": 1}))
        .unwrap();
    let created = bed.of_root(&[
        "claim",
        "create",
        "--name=of-root",
        "--device=0",
        "--shares=1",
        "--ttl=3600",
    ]);
    assert!(created.status.success(), "{created:?}");
    let drained = bed.of_root(&["drain", "1"]);
    assert!(drained.status.success(), "{drained:?}");
    let mut number = 0;
    let mut check = |bed: &Bed, at: &str| {
        number += 1;
        bed.check(number, at);
    };
    check(&bed, "before");
    for (years, at) in [
        (1, "a year later"),
        (-1, "a year earlier"),
        (-56, "in 1970"),
        (0, "right again"),
    ] {
        bed.clock.set(years * YEAR);
        check(&bed, at);
        // Another broker, which has not seen the jump.
        assert_eq!(bed.scene.stop(Signal::SIGTERM), Some(0));
        bed.start();
        check(&bed, &format!("{at}, another broker"));
        let listed = bed.of_root(&["claim", "list"]);
        assert!(listed.status.success(), "{at}: {listed:?}");
    }
    // A boot at which the clock is not set yet.
    bed.clock.set(-56 * YEAR);
    assert_eq!(bed.scene.stop(Signal::SIGTERM), Some(0));
    fs::remove_dir_all(bed.scene.at("state/ledger")).unwrap();
    bed.start();
    until("what was kept is there", || bed.scene.names().len() == 1);
    let drained = bed
        .scene
        .ask(BOB, "claim", json!({"name": "more", "device": "1", "shares": 1}));
    assert!(drained.unwrap_err().contains("out of service"));
}
