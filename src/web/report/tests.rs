use super::*;
use crate::intake::tests::{Scene, gpu, uptime};
use crate::timeline::timeline;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use tranche_core::ledger::events::{EventKind, EventLine, parse};

const DAY: u64 = 86_400;

fn root() -> Viewer {
    Viewer::of(0)
}

/// What happens on the machine at one second.
#[derive(Debug, Clone, Copy)]
enum Step {
    Take { gpu: u32, share: u32, uid: u32 },
    Release { gpu: u32, share: u32 },
    Wait { gpu: u32, uid: u32, seconds: u64 },
    Work { gpu: u32, uid: u32, seconds: u64 },
    Look,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0..2u32, 0..3u32, 1..4u32).prop_map(|(gpu, share, uid)| Step::Take { gpu, share, uid: uid * 40_000 }),
        3 => (0..2u32, 0..3u32).prop_map(|(gpu, share)| Step::Release { gpu, share }),
        1 => (0..2u32, 1..4u32, 0..50u64).prop_map(|(gpu, uid, seconds)| Step::Wait { gpu, uid: uid * 40_000, seconds }),
        1 => (0..2u32, 1..4u32, 0..50u64).prop_map(|(gpu, uid, seconds)| Step::Work { gpu, uid: uid * 40_000, seconds }),
        1 => Just(Step::Look),
    ]
}

/// Second by second: who holds which device, as the lines say, from the second `from` of this boot to `to`.
fn counted(text: &str, from: u64, to: u64) -> BTreeMap<String, (u64, u64, u64)> {
    let mut events = Vec::new();
    for line in text.lines() {
        if let EventLine::Event(event) = parse(line) {
            events.push(event);
        }
    }
    let mut sums: BTreeMap<String, (u64, u64, u64)> = BTreeMap::new();
    let mut held: BTreeMap<(String, String), u32> = BTreeMap::new();
    let mut events = events.into_iter().peekable();
    for second in 0..=to {
        while let Some(event) = events.next_if(|event| event.uptime <= second) {
            let claim = event.claim.as_ref().unwrap();
            let place = (claim.device.to_string(), claim.part.to_string());
            match event.kind {
                EventKind::Began => drop(held.insert(place, claim.uid)),
                EventKind::Ended => drop(held.remove(&place)),
                EventKind::Served if event.uptime > from => {
                    sums.entry(format!("uid {}", claim.uid)).or_default().1 += event.value;
                }
                EventKind::Busy if event.uptime > from => {
                    sums.entry(format!("uid {}", claim.uid)).or_default().2 += event.value;
                }
                _ => {}
            }
        }
        if second >= from && second < to {
            let pairs: BTreeSet<(String, u32)> = held.iter().map(|((device, _), uid)| (device.clone(), *uid)).collect();
            for (_, uid) in pairs {
                sums.entry(format!("uid {uid}")).or_default().0 += 1;
            }
        }
    }
    sums
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    /// Whatever happens on the machine: the figures are those of a count, second by second, of what the lines say.
    #[test]
    fn figures_equal_a_count_from_the_events(
        steps in proptest::collection::vec((1..30u64, step()), 1..60),
        since in 1..900u64,
    ) {
        let mut scene = Scene::new();
        let length: u64 = steps.iter().map(|(passed, _)| passed).sum();
        let mut second = uptime().saturating_sub(length);
        for (passed, step) in steps {
            second += passed;
            match step {
                Step::Take { gpu: number, share, uid } => drop(scene.take(second, &gpu(number), share, uid)),
                Step::Release { gpu: number, share } => scene.release(second, &gpu(number), share),
                Step::Wait { gpu: number, uid, seconds } => {
                    let locked = scene.ledger.lock().unwrap().recording(second);
                    locked.note_device(EventKind::Served, seconds, &gpu(number), uid);
                }
                Step::Work { gpu: number, uid, seconds } => {
                    let locked = scene.ledger.lock().unwrap().recording(second);
                    locked.note_device(EventKind::Busy, seconds, &gpu(number), uid);
                }
                Step::Look => drop(scene.look()),
            }
        }
        scene.look();
        let text = fs::read_to_string(scene.log()).unwrap_or_default();
        // Another second may begin in between.
        let same = (0..5).any(|_| {
            let now = uptime();
            let report = report(&scene.database, ReportBy::User, since, &root()).unwrap();
            let (from, to) = (now.saturating_sub(since), now);
            let rows: BTreeMap<String, (u64, u64, u64)> = report
                .rows
                .into_iter()
                .map(|row| (row.name.unwrap(), (row.held_seconds, row.waited_seconds, row.busy_seconds.unwrap_or(0))))
                .filter(|(_, sums)| *sums != (0, 0, 0))
                .collect();
            let mut expected = counted(&text, from, to);
            expected.retain(|_, sums| *sums != (0, 0, 0));
            rows == expected
        });
        prop_assert!(same, "{text}");
    }
}

#[test]
fn others_are_a_total_and_their_names_are_not_shown() {
    let mut scene = Scene::new();
    let now = uptime();
    scene.take(now - 100, &gpu(0), 1, 40_000);
    scene.take(now - 60, &gpu(0), 2, 50_000);
    scene.take(now - 60, &gpu(1), 1, 60_000);
    for share in [1, 2] {
        scene.release(now, &gpu(0), share);
    }
    scene.release(now, &gpu(1), 1);
    scene.look();
    let own = Viewer::of(40_000);
    let rows = |by, viewer: &Viewer| -> Vec<(Option<String>, u64)> {
        let report = report(&scene.database, by, DAY, viewer).unwrap();
        report
            .rows
            .into_iter()
            .map(|row| (row.name, row.held_seconds))
            .collect()
    };
    let expected = [(None, 120), (Some("uid 40000".to_owned()), 100)];
    assert_eq!(rows(ReportBy::User, &own), expected);
    assert_eq!(rows(ReportBy::User, &root()).len(), 3);
    let devices = [(Some(gpu(0).to_string()), 100), (Some(gpu(1).to_string()), 60)];
    assert_eq!(rows(ReportBy::Device, &own), devices);
    let seen = timeline(&scene.database, DAY, &own).unwrap();
    let who: Vec<Option<String>> = seen
        .lanes
        .into_iter()
        .flat_map(|lane| lane.spans)
        .map(|span| span.who)
        .collect();
    assert_eq!(who.iter().filter(|who| who.is_some()).count(), 1, "{who:?}");
    assert!(!format!("{who:?}").contains("50000"), "{who:?}");
}

/// A clock that is set does not change how long something was held.
#[test]
fn a_clock_that_jumps_changes_no_duration() {
    let mut scene = Scene::new();
    let now = uptime();
    scene.take(now - 100, &gpu(0), 1, 40_000);
    scene.release(now - 40, &gpu(0), 1);
    let text = fs::read_to_string(scene.log()).unwrap();
    // The first line was written before the clock was set: in 1970.
    let jumped: String = text
        .lines()
        .map(|line| match line.strip_prefix("began\t") {
            Some(rest) => {
                let mut fields: Vec<&str> = rest.split('\t').collect();
                fields[1] = "77";
                format!("began\t{}\n", fields.join("\t"))
            }
            None => format!("{line}\n"),
        })
        .collect();
    assert_ne!(jumped, text);
    fs::write(scene.log(), jumped).unwrap();
    scene.look();
    let report = report(&scene.database, ReportBy::User, DAY, &root()).unwrap();
    assert_eq!(report.rows[0].held_seconds, 60);
}
