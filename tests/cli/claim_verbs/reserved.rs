//! Reservations for later: root's hooks obey the calendar without a broker, and nothing of it is lost when a command is
//! killed or when two people change it at once.

use super::killed::{killed, may_trace, steps};
use super::*;
use std::time::{SystemTime, UNIX_EPOCH};
use tranche_core::ledger::{Calendar, ReservedTime};
use tranche_core::types::HeldPart;

/// GPU 0 in two turns, and GPU 1 whole.
const POLICY: &str = "\
version: v1
sharing:
  timeSlicing: {resources: [{name: nvidia.com/gpu, devices: [0], replicas: 2}]}
  dedicated: {devices: [1]}
";

impl Scene {
    fn for_later(test: &str) -> Option<Scene> {
        let scene = Scene::new(test)?;
        scene.policy(POLICY);
        scene.refresh();
        Some(scene)
    }

    fn reserve(&self, more: &[&str]) -> Call {
        let mut call = self.at_host(&[&["reserve"], more].concat());
        // Of this zone, clocks are changed.
        call.words
            .splice(0..0, ["/usr/bin/env".to_owned(), "TZ=Europe/Berlin".to_owned()]);
        call
    }

    fn cancel(&self, ids: &[&str]) -> Call {
        self.tranche(&[&["reserve", "cancel"], ids].concat())
    }

    fn entries(&self) -> Vec<Value> {
        self.json(&["calendar"])["entries"].as_array().unwrap().clone()
    }

    /// Gives what is reserved to another user, as the broker would have reserved it.
    fn give_to(&self, uid: u32) {
        let state = self.at("state");
        let mut calendar = Calendar::read(&state).unwrap();
        for time in &mut calendar.times {
            (time.uid, time.who) = (uid, "ann".to_owned());
        }
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
        fs::write(Calendar::file(&state), calendar.text(now).unwrap()).unwrap();
    }
}

#[test]
fn hooks_of_root_obey_the_calendar_without_a_broker() {
    let Some(scene) = Scene::for_later("reserved_hooks") else {
        return;
    };
    let said = scene
        .reserve(&["0.any", "--from=now", "--for=2h", "--reason=a talk"])
        .run()
        .ok();
    assert!(said.starts_with("gpu 0 share 0: reserved for root from "), "{said}");
    let said = scene.reserve(&["any", "--from=now", "--for=90m"]).run().ok();
    assert!(said.starts_with("gpu 1: reserved for root from "), "{said}");
    let container = Init::new();
    let start = |device: &str, id: &str| scene.hook("createRuntime", device, id, container.pid()).run();
    // Its own time is for all that root starts.
    start("nvidia.com/gpu=1", "aaaa1111").ok();
    scene.tranche(&["claim", "release", "aaaa1111", "--force"]).run().ok();
    scene.give_to(1000);
    for device in ["nvidia.com/gpu=1", "nvidia.com/gpu=0", "nvidia.com/gpu=0.0"] {
        let line = start(device, "bbbb2222").failed(1);
        assert!(
            line.contains(": reserved for ann (uid 1000) from ") && line.contains(", reservation "),
            "{line}"
        );
    }
    // Another share is given, and any is that one.
    scene.create(&["--name=other", "--shares=1", "--of=0"]).run().ok();
    scene.tranche(&["claim", "release", "other"]).run().ok();
    start("nvidia.com/gpu=0.any", "cccc3333").ok();
    assert!(
        start("nvidia.com/gpu=0.any", "dddd4444")
            .failed(1)
            .contains("reservation 1 (a talk)")
    );
    let line = scene.create(&["--name=t", "--device=any"]).run().failed(1);
    assert!(line.contains("reservation 2"), "{line}");
    // A reboot changes nothing of it.
    for entry in fs::read_dir(scene.at("state"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
    {
        if !entry.ends_with("kept") {
            fs::remove_dir_all(&entry).or_else(|_| fs::remove_file(&entry)).unwrap();
        }
    }
    assert!(
        start("nvidia.com/gpu=1", "eeee5555")
            .failed(1)
            .contains("reservation 2")
    );
    let said = scene.cancel(&["2"]).run().ok();
    assert!(said.starts_with("gpu 1: cancelled; it was reserved for ann "), "{said}");
    start("nvidia.com/gpu=1", "eeee5555").ok();
}

#[test]
fn a_calendar_that_cannot_be_read_gives_nothing_and_is_reported_in_one_line() {
    let Some(scene) = Scene::for_later("reserved_damaged") else {
        return;
    };
    scene.reserve(&["any", "--from=tomorrow 14:00", "--for=1h"]).run().ok();
    let file = scene.at("state/kept/calendar.json");
    for (text, why) in [
        ("{", "is damaged"),
        ("{\"version\":2}", "was written by a newer tranche"),
    ] {
        fs::write(&file, text).unwrap();
        let container = Init::new();
        let start = scene.hook("createRuntime", "nvidia.com/gpu=1", "aaaa1111", container.pid());
        let reserve = scene.reserve(&["any", "--from=tomorrow 14:00", "--for=1h"]);
        for line in [
            start.run().failed(1),
            reserve.run().failed(1),
            scene.tranche(&["calendar"]).run().failed(1),
            scene.cancel(&["1"]).run().failed(1),
        ] {
            assert!(line.contains("calendar.json") && line.contains(why), "{line}");
            assert!(line.contains("tranche reserve cancel all"), "{line}");
        }
        let doctor = scene.at_host(&["doctor"]).run();
        assert!(doctor.out.contains("calendar.json"), "{doctor:?}");
        scene.cancel(&["all"]).run().ok();
        start.run().ok();
        assert_eq!(scene.entries().len(), 0);
    }
}

#[test]
fn people_at_once_get_different_times() {
    let Some(scene) = Scene::for_later("reserved_at_once") else {
        return;
    };
    let done: Vec<Said> = std::thread::scope(|threads| {
        let threads: Vec<_> = (0..6)
            .map(|_| {
                let reserve = scene.reserve(&["1", "--from=tomorrow 14:00", "--for=1h"]);
                threads.spawn(move || reserve.run())
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let granted = done.iter().filter(|said| said.code == Some(0)).count();
    assert_eq!((granted, scene.entries().len()), (1, 1), "{done:?}");
    for said in done.into_iter().filter(|said| said.code != Some(0)) {
        let line = said.failed(1);
        assert!(line.contains("gpu 1: reserved for root from "), "{line}");
    }
}

#[test]
fn bad_input_changes_nothing_and_is_one_line() {
    let Some(scene) = Scene::for_later("reserved_bad") else {
        return;
    };
    scene.at_host(&["drain", "1"]).run().ok();
    for (arguments, code, why) in [
        (&["7", "--from=tomorrow 14:00", "--for=1h"][..], 2, "not found"),
        (&["0", "--from=tomorrow 14:00", "--for=1h"], 2, "share 0: not a share"),
        (
            &["1", "--from=tomorrow 14:00", "--for=1h"],
            1,
            "gpu 1: out of service since",
        ),
        (&["any", "--from=2020-01-01 14:00", "--for=1h"], 2, "has passed"),
        (
            &["0.any", "--from=2027-03-28 02:30", "--for=1h"],
            2,
            "does not exist in this time zone",
        ),
        (
            &["0.any", "--from=2027-10-31 02:30", "--for=1h"],
            2,
            "is twice in this time zone",
        ),
        (&["0.any", "--from=noon", "--for=1h"], 2, "is not a time"),
        (&["0.any", "--from=14:00", "--for=0m"], 2, "is too short"),
        (&["0.any", "--from=14:00", "--for=25h"], 1, "more than 24h at once"),
        (&["0.any", "--from=14:00", "--for=1h", "--reason=a\nb"], 2, "--reason"),
        (&["0.any", "--from=14:00"], 2, "--for"),
        (&["cancel", "0"], 2, ""),
    ] {
        let line = scene.reserve(arguments).run().failed(code);
        assert!(line.contains(why), "{arguments:?}: {line}");
        assert_eq!(scene.entries().len(), 0, "{arguments:?}");
    }
    assert!(
        scene
            .cancel(&["1"])
            .run()
            .failed(1)
            .contains("reservation 1: not found")
    );
    assert!(scene.cancel(&["one"]).run().failed(2).contains("is not a number"));
}

#[test]
fn the_hours_of_a_night_in_which_clocks_are_changed_are_hours() {
    let Some(scene) = Scene::for_later("reserved_night") else {
        return;
    };
    // A time of root may be a year ahead. This night of 2027 has 25 hours, or it is past by then.
    let said = scene
        .reserve(&["1", "--from=2027-10-30 22:00", "--for=6h", "--json"])
        .run();
    if said.code != Some(0) {
        assert!(
            said.err.contains("has passed") || said.err.contains("more than a year"),
            "{said:?}"
        );
        return;
    }
    let time: ReservedTime = serde_json::from_str(&said.out).unwrap();
    assert_eq!(time.until - time.from, 6 * 3600);
    assert_eq!(
        (time.offsets, &*time.zone, time.part),
        ([7200, 3600], "Europe/Berlin", HeldPart::Whole)
    );
    let mut calendar = scene.tranche(&["calendar"]);
    calendar
        .words
        .splice(0..0, ["/usr/bin/env".to_owned(), "TZ=Europe/Berlin".to_owned()]);
    let shown = calendar.run().ok();
    assert!(shown.contains("Sat 30 Oct 22:00  31 Oct 03:00"), "{shown}");
    // The same moments elsewhere.
    calendar.words[1] = "TZ=America/New_York".to_owned();
    assert!(calendar.run().ok().contains("Sat 30 Oct 16:00  22:00"));
}

#[test]
fn a_killed_command_leaves_the_calendar_as_it_was_or_as_it_is_to_be() {
    let test = "reserved_killed";
    let Some(scene) = Scene::for_later(test) else { return };
    if !may_trace(test) {
        return;
    }
    let reserve = |scene: &Scene| scene.reserve(&["1", "--from=tomorrow 14:00", "--for=1h"]);
    let cancel = |scene: &Scene| scene.cancel(&["1"]);
    let reserve_steps = steps(&scene, &reserve(&scene));
    let cancel_steps = steps(&scene, &cancel(&scene));
    assert!(
        reserve_steps.len() >= 6 && cancel_steps.len() >= 6,
        "{reserve_steps:?} {cancel_steps:?}"
    );
    let of_reserve = reserve_steps.iter().map(|step| (true, step));
    let of_cancel = cancel_steps.iter().map(|step| (false, step));
    for (is_reserve, step) in of_reserve.chain(of_cancel) {
        let scene = Scene::for_later(test).unwrap();
        if !is_reserve {
            reserve(&scene).run().ok();
        }
        let call = if is_reserve { reserve(&scene) } else { cancel(&scene) };
        killed(&call, step);
        // What a start gets agrees with what the calendar says; in an hour from now nothing is kept from it yet.
        let entries = scene.entries();
        assert!(entries.len() <= 1, "{step:?}: {entries:?}");
        drop(scene.start("nvidia.com/gpu=1", "aaaa1111"));
        // The same command again finishes what was begun.
        let again = call.run();
        assert_eq!(
            again.code == Some(0),
            entries.is_empty() == is_reserve,
            "{step:?}: {again:?}"
        );
        assert_eq!(scene.entries().len(), usize::from(is_reserve), "{step:?}");
        let kept = names_in(&scene.at("state/kept"));
        assert!(
            kept.iter()
                .all(|name| ["calendar.json", "ledger", "last-policy.json"].contains(&name.as_str())),
            "{step:?}: {kept:?}"
        );
    }
}
