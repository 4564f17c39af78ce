//! Devices that users reserve for later: who gets them, who waits, and what a wrong clock does.

use crate::scene::{ANN, BOB, GPU_0, GPU_1, Scene};
use crate::support::other_clock::OtherClock;
use crate::support::{skip, until};
use crate::waiting::{Waiting, until_waiting};
use nix::sys::signal::Signal;
use serde_json::{Value, json};
use std::fs;
use std::time::{SystemTime, UNIX_EPOCH};

const HOUR: i64 = 3600;

const POLICY: &str = "\
version: v1
sharing:
  dedicated: {devices: [0, 1]}
  quota: {shares: 2, all: 2}
  calendar: {before: 30m, noShow: 15m, open: 2}
";

struct Bed {
    scene: Scene,
    clock: OtherClock,
    /// When it was made, in seconds since 1970.
    begin: i64,
}

impl Bed {
    fn new(test: &str, policy: &str) -> Option<Self> {
        let mut scene = Scene::without_broker(&format!("reserved::{test}"))?;
        fs::write(scene.at("policy.yaml"), policy).unwrap();
        let clock = match OtherClock::new(&scene.at("")) {
            Ok(clock) => clock,
            Err(why) => {
                skip::not_run(&format!("broker::reserved::{test}"), &why.to_string());
                return None;
            }
        };
        let mut broker = scene.command();
        clock.show(&mut broker);
        scene.watch(broker.spawn().unwrap());
        let begin = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
        let begin = begin.try_into().unwrap();
        Some(Self { scene, clock, begin })
    }

    /// Reserves `what` from `from` to `until`, in seconds since the test began.
    fn reserve(&self, uid: u32, what: &str, from: i64, until: i64) -> Result<Value, String> {
        let request = json!({"what": what, "from": self.begin + from, "until": self.begin + until, "reason": null,
                             "zone": "Europe/Berlin", "offsets": [3600, 3600]});
        self.scene.ask(uid, "reserve-time", request)
    }

    fn claim(&self, uid: u32, name: &str, device: &str) -> Result<Value, String> {
        self.scene.ask(uid, "claim", json!({"name": name, "device": device}))
    }

    fn of_root(&self, arguments: &[&str]) -> (bool, String) {
        let mut command = match arguments {
            ["claim", "release", ..] => {
                let mut command = std::process::Command::new(self.scene.at("tranche"));
                command
                    .args(arguments)
                    .arg(self.scene.option("state-dir", "state"))
                    .env_clear();
                command
            }
            _ => self.scene.command_of_root(arguments),
        };
        self.clock.show(&mut command);
        let said = command.output().unwrap();
        let text = format!(
            "{}{}",
            String::from_utf8_lossy(&said.stdout),
            String::from_utf8_lossy(&said.stderr)
        );
        (said.status.success(), text)
    }
}

#[test]
fn in_a_reserved_time_only_its_user_gets_the_device_and_others_wait_for_its_end() {
    let test = "in_a_reserved_time_only_its_user_gets_the_device_and_others_wait_for_its_end";
    let Some(bed) = Bed::new(test, POLICY) else { return };
    let reserved = bed.reserve(ANN, "0", 2 * HOUR, 4 * HOUR).unwrap();
    assert_eq!((&reserved["id"], &reserved["device"]), (&json!(1), &json!(GPU_0)));
    // Long before, everything is given.
    bed.claim(BOB, "early", "0").unwrap();
    bed.scene.ask(BOB, "release", json!({"what": "early"})).unwrap();
    bed.clock.set(2 * HOUR - 1700);
    let line = bed.claim(BOB, "b", "0").unwrap_err();
    assert!(
        line.contains(&format!("(uid {ANN}) from ")) && line.contains("reservation 1"),
        "{line}"
    );
    let (is_done, line) = bed.of_root(&["claim", "create", "--name=r", "--device=0"]);
    assert!(
        !is_done && line.contains("reservation 1") && line.lines().count() == 1,
        "{line}"
    );
    // Whoever takes any gets the other one.
    let other = bed.claim(BOB, "b", "any").unwrap();
    assert!(other["claim"]["device"].as_str().unwrap().ends_with("=1"), "{other}");
    bed.claim(ANN, "a", "any").unwrap();
    bed.clock.set(3 * HOUR);
    let waits = Waiting::new(
        &bed.scene,
        BOB,
        "claim",
        json!({"name": "w", "device": "0", "wait": "100s"}),
    );
    until_waiting(&bed.scene, 1);
    bed.scene.ask(ANN, "release", json!({"what": "a"})).unwrap();
    // It has been used once, so it stays reserved; and its user comes before the one who waits.
    let shown = bed.scene.ask(BOB, "calendar", json!({})).unwrap();
    assert_eq!(shown["entries"][0]["state"], "now", "{shown}");
    bed.claim(ANN, "again", "0").unwrap();
    bed.scene.ask(ANN, "release", json!({"what": "again"})).unwrap();
    until_waiting(&bed.scene, 1);
    // At its end nothing is written, and the one who waits is served.
    bed.clock.set(4 * HOUR + 5);
    waits.answer().unwrap();
}

#[test]
fn a_reservation_that_nobody_uses_is_given_up_and_one_is_cancelled_by_its_user() {
    let test = "a_reservation_that_nobody_uses_is_given_up_and_one_is_cancelled_by_its_user";
    let Some(bed) = Bed::new(test, POLICY) else { return };
    bed.reserve(ANN, "any", HOUR, 3 * HOUR).unwrap();
    bed.reserve(ANN, "1", HOUR, 3 * HOUR).unwrap();
    let line = bed.reserve(ANN, "any", 9 * HOUR, 10 * HOUR).unwrap_err();
    assert!(
        line.contains("you have 2 reservations that are not over, and 2 are the most"),
        "{line}"
    );
    let line = bed.reserve(BOB, "any", 2 * HOUR, 4 * HOUR).unwrap_err();
    assert!(
        line.contains("gpu 0: reserved for") && line.contains("gpu 1: reserved for"),
        "{line}"
    );
    assert!(
        bed.scene
            .ask(BOB, "cancel-time", json!({"id": 2}))
            .unwrap_err()
            .contains("another user")
    );
    bed.clock.set(HOUR + 60);
    assert!(bed.claim(BOB, "b", "1").is_err());
    bed.scene.ask(ANN, "cancel-time", json!({"id": 2})).unwrap();
    bed.claim(BOB, "b", "1").unwrap();
    assert!(
        bed.scene
            .ask(ANN, "cancel-time", json!({"id": 2}))
            .unwrap_err()
            .contains("not found")
    );
    bed.clock.set(HOUR + 14 * 60);
    assert!(
        bed.of_root(&["claim", "create", "--name=r", "--device=0"])
            .1
            .contains("reservation 1")
    );
    bed.clock.set(HOUR + 16 * 60);
    let shown = bed.scene.ask(BOB, "calendar", json!({})).unwrap();
    assert_eq!(shown["entries"][0]["state"], "given-up", "{shown}");
    assert!(bed.of_root(&["claim", "create", "--name=r", "--device=0"]).0);
}

#[test]
fn what_ends_in_time_is_given_and_who_stays_is_named_or_ended() {
    let test = "what_ends_in_time_is_given_and_who_stays_is_named_or_ended";
    let policy = POLICY.replace("open: 2", "open: 2, clear: end")
        + "  users: {default: {maxHold: 10m, atLimit: end, grace: 1s}}\n";
    let Some(bed) = Bed::new(test, &policy) else { return };
    bed.reserve(ANN, "0", 2 * HOUR, 4 * HOUR).unwrap();
    // Root and who has no limit of time hold what they had.
    bed.claim(BOB, "long", "1").unwrap();
    let (is_done, line) = bed.of_root(&["claim", "create", "--name=r", "--device=0"]);
    assert!(is_done, "{line}");
    bed.clock.set(2 * HOUR - 1200);
    let shown = bed.scene.ask(0, "calendar", json!({})).unwrap();
    assert_eq!(
        shown["entries"][0]["held_by"][0], "claim r on the whole device",
        "{shown}"
    );
    let for_ann = bed.scene.ask(ANN, "calendar", json!({})).unwrap();
    assert_eq!(for_ann["entries"][0]["held_by"][0], "another user, on the whole device");
    assert!(bed.of_root(&["claim", "release", "r"]).1.contains("r"));
    assert!(
        bed.of_root(&["claim", "create", "--name=r", "--device=0"])
            .1
            .contains("reservation 1")
    );
    bed.scene.ask(BOB, "release", json!({"what": "long"})).unwrap();
    bed.claim(BOB, "short", "0").unwrap();
    // The claim that nobody uses is released when the time comes, although the clock has jumped.
    bed.clock.set(2 * HOUR + 1);
    until("it is released", || bed.claim(ANN, "mine", "0").is_ok());
}

#[test]
fn a_clock_that_is_not_set_after_a_boot_gives_away_nothing_that_is_reserved() {
    let test = "a_clock_that_is_not_set_after_a_boot_gives_away_nothing_that_is_reserved";
    let Some(mut bed) = Bed::new(test, POLICY) else { return };
    bed.reserve(ANN, "0", 600, HOUR).unwrap();
    bed.scene.stop(Signal::SIGTERM);
    for entry in fs::read_dir(bed.scene.at("state"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
    {
        if !entry.ends_with("kept") {
            fs::remove_dir_all(&entry).or_else(|_| fs::remove_file(&entry)).unwrap();
        }
    }
    bed.clock.set(-bed.begin);
    let mut broker = bed.scene.command();
    bed.clock.show(&mut broker);
    bed.scene.watch(broker.spawn().unwrap());
    let line = bed.claim(BOB, "b", "0").unwrap_err();
    assert!(line.contains("reservation 1"), "{line}");
    let line = bed.reserve(BOB, "1", 600, HOUR).unwrap_err();
    assert!(
        line.contains("clock: it says 1970-") && line.contains("set the clock"),
        "{line}"
    );
    bed.clock.set(0);
    bed.reserve(BOB, "1", 600, HOUR).unwrap();
}

#[test]
fn users_reserve_where_the_policy_says_so_and_bad_input_is_one_line() {
    let test = "users_reserve_where_the_policy_says_so_and_bad_input_is_one_line";
    let none = POLICY.replace("  calendar: {before: 30m, noShow: 15m, open: 2}\n", "");
    let Some(bed) = Bed::new(test, &none) else { return };
    let line = bed.reserve(ANN, "0", HOUR, 2 * HOUR).unwrap_err();
    assert!(line.contains("lets nobody but root reserve for later"), "{line}");
    let said = bed.of_root(&["reserve", "0", "--from=tomorrow 14:00", "--for=2h", "--reason=a talk"]);
    assert!(
        said.0 && said.1.starts_with("gpu 0: reserved for root from "),
        "{}",
        said.1
    );
    fs::write(bed.scene.at("policy.yaml"), POLICY).unwrap();
    until("the policy is in force", || {
        bed.reserve(ANN, "1", HOUR, 2 * HOUR).is_ok()
    });
    let refused = bed.of_root(&["reserve", "0", "--from=tomorrow 15:00", "--for=2h"]);
    assert!(
        !refused.0 && refused.1.contains("reservation 1 (a talk)"),
        "{}",
        refused.1
    );
    bed.of_root(&["drain", "1"]);
    for (what, from, until, why) in [
        ("0", -HOUR, HOUR, "has passed"),
        ("7", HOUR, 2 * HOUR, "not found"),
        ("1", 30 * HOUR, 31 * HOUR, "gpu 1: out of service"),
        ("0", HOUR, HOUR, "is too short"),
        ("0", HOUR, 27 * HOUR, "more than 24h at once"),
        ("0", 20 * 24 * HOUR, 20 * 24 * HOUR + HOUR, "more than 14d ahead"),
        ("0.3", HOUR, 2 * HOUR, ""),
        ("\u{1b}[2J", HOUR, 2 * HOUR, ""),
    ] {
        let line = bed.reserve(BOB, what, from, until).unwrap_err();
        assert!(line.contains(why) && !line.contains('\n'), "{what}: {line}");
    }
    let bad = json!({"what": "0", "from": bed.begin + HOUR, "until": bed.begin + 2 * HOUR, "reason": "a\nb",
                     "zone": "UTC", "offsets": [0, 0]});
    assert!(
        bed.scene
            .ask(BOB, "reserve-time", bad)
            .unwrap_err()
            .contains("--reason")
    );
    let shown = bed.scene.ask(BOB, "calendar", json!({})).unwrap();
    assert_eq!(shown["entries"].as_array().unwrap().len(), 2, "{shown}");
    assert_ne!(GPU_0, GPU_1);
}
