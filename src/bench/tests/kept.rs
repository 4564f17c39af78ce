//! Which kept results say something of the shares of now, and what is said.

use super::gpu::{Cheats, results};
use crate::kept::{Kept, MeasuredHere};
use crate::results::Results;
use crate::verdict::Outcome;
use tranche_core::error::line;
use tranche_core::types::DeviceKey;
use tranche_plan::policy::read;
use tranche_plan::share::{Grade, Shares, SplitDevice, plan};
use tranche_plan::sim;

/// The first device of an H200 under a policy.
fn split(sharing: &str) -> SplitDevice {
    let h200 = sim::open("hgx-h200").unwrap();
    let text = format!("version: v1\nsharing:\n{sharing}");
    let read = read::parse("policy", &text).unwrap_or_else(|error| panic!("{text}: {}", line(&error)));
    plan(&read.policy, &h200).unwrap().devices.remove(0)
}

fn under_mps(shares: &[&str]) -> SplitDevice {
    let shares: String = shares.iter().map(|share| format!("      - {{{share}}}\n")).collect();
    split(&format!(
        "  mps:\n    resources:\n    - name: nvidia.com/gpu\n      devices: [0]\n      shares:\n{shares}"
    ))
}

fn turns(replicas: u32, interval: &str) -> SplitDevice {
    split(&format!(
        "  timeSlicing:\n    interval: {interval}\n    resources:\n    - {{name: nvidia.com/gpu, devices: [0], replicas: \
         {replicas}}}\n"
    ))
}

fn device() -> DeviceKey {
    DeviceKey::whole(sim::open("hgx-h200").unwrap().gpus[0].uuid.clone())
}

fn kept(results: &Results) -> Kept {
    Kept::new(&device(), results, None)
}

/// The line of a device under the driver that was measured.
fn said(split: &SplitDevice, results: &Results) -> String {
    let here = MeasuredHere::new(split, &results.host.driver, Some(&kept(results)));
    here.unwrap().to_string()
}

const HALVES: [&str; 2] = [
    "name: a, compute: 50%, memory: 45%",
    "name: b, compute: 50%, memory: 45%",
];

#[test]
fn shares_like_those_that_were_measured_have_a_line() {
    let results = results(Cheats::default());
    let text = said(&under_mps(&HALVES), &results);
    let begin = format!(
        "measured here {} (indicative): memory held (greedy got 63.1 GiB of 63.1 GiB)",
        results.date
    );
    assert!(
        text.starts_with(&format!("{begin}, compute held (cap 50 %, seen 66 of 132 SMs, p99 1.")),
        "{text}"
    );
    assert!(
        text.contains("bandwidth: requests 1.60x")
            && text.ends_with("faults: ended 13.0 ms after the neighbour's fault"),
        "{text}"
    );
    let text = said(&turns(2, "default"), &results);
    assert!(
        text.ends_with("faults held (went on after the neighbour's fault)"),
        "{text}"
    );
}

#[test]
fn only_the_same_way_and_about_the_same_split_count() {
    let results = results(Cheats::default());
    let way = |split: &SplitDevice| {
        let here = MeasuredHere::new(split, &results.host.driver, Some(&kept(&results))).unwrap();
        assert_eq!(here.measured.is_some(), here.why_not.is_none(), "{here}");
        let way = here.measured.as_ref().map(|measured| measured.way.to_string());
        way.unwrap_or_else(|| here.to_string())
    };
    let mps = |first: u32, second: u32| {
        let share = |name, percent: u32| format!("name: {name}, compute: {percent}%, memory: {}%", percent * 9 / 10);
        under_mps(&[&share("a", first), &share("b", second)])
    };
    let nothing = "not measured here: tranche bench has no such way of sharing";
    let others = "not measured here: measured as ts2, mps2, mps-50-50, mps-80-20, mig-2, mig-mps only";
    for (split, expected) in [
        (mps(50, 50), "mps-50-50"),
        (mps(55, 45), "mps-50-50"),
        (mps(20, 80), "mps-80-20"),
        (mps(75, 20), "mps-80-20"),
        (mps(60, 40), nothing),
        (mps(80, 10), nothing),
        (under_mps(&["name: a", "name: b"]), "mps2"),
        (under_mps(&["name: a", "name: b", "name: c"]), nothing),
        (under_mps(&["name: a, compute: 50%", "name: b, compute: 50%"]), others),
        (under_mps(&["name: a, memory: 45%", "name: b, memory: 45%"]), others),
        (turns(2, "default"), "ts2"),
        (turns(3, "default"), nothing),
        (turns(2, "short"), others),
        (turns(2, "medium"), nothing),
    ] {
        assert_eq!(way(&split), expected, "{:?} {:?}", split.method, split.shares);
    }
    let whole = split("  dedicated: {devices: [0]}\n");
    assert_eq!(
        MeasuredHere::new(&whole, &results.host.driver, None),
        None,
        "nobody is beside its holder"
    );
}

#[test]
fn another_driver_another_device_and_another_promise_were_not_measured() {
    let results = results(Cheats::default());
    let halves = under_mps(&HALVES);
    let here = |driver: &str, kept: Option<&Kept>| MeasuredHere::new(&halves, driver, kept).unwrap();
    let other = here("999.1", Some(&kept(&results)));
    let why = format!("not measured here: measured with driver {}", results.host.driver);
    assert_eq!(other.to_string(), why);
    assert_eq!(other.command.as_deref(), Some("tranche bench 0"));
    let second = DeviceKey::whole(sim::open("hgx-h200").unwrap().gpus[1].uuid.clone());
    for nothing in [None, Some(Kept::new(&second, &results, None))] {
        assert_eq!(
            here(&results.host.driver, nothing.as_ref()).to_string(),
            "not measured here"
        );
    }
    let graded = |grade| {
        let mut graded = halves.clone();
        if let Shares::Named(shares) = &mut graded.shares {
            shares
                .iter_mut()
                .for_each(|share| share.guarantees.memory.grade = grade);
        }
        said(&graded, &results)
    };
    let hard = graded(Grade::Hard);
    assert!(
        hard.contains(": compute held (") && hard.ends_with("; not measured: memory"),
        "{hard}"
    );
    let advisory = graded(Grade::Advisory);
    assert!(advisory.contains(": memory held ("), "{advisory}");
}

#[test]
fn what_did_not_hold_is_said_of_the_share_that_it_is_of() {
    let honest = results(Cheats::default());
    let cheating = results(Cheats {
        ceiling: true,
        ..Cheats::default()
    });
    let not_held = |results: &Results| {
        let here = MeasuredHere::new(&under_mps(&HALVES), &results.host.driver, Some(&kept(results)));
        here.unwrap().not_held()
    };
    assert_eq!(not_held(&honest), None);
    let line = not_held(&cheating).unwrap();
    let begin = format!("gpu 0: measured here {}: compute not held (cap 50 %, ", cheating.date);
    assert!(line.starts_with(&begin) && !line.contains("memory"), "{line}");
    // Of the second share alone.
    let mut second = honest;
    let way = second.ways.iter_mut().find(|one| one.way.to_string() == "mps-50-50");
    let verdict = &mut way.unwrap().shares[1].verdicts[0];
    (verdict.outcome, verdict.figure) = (Outcome::NotHeld, "of the second".to_owned());
    assert!(not_held(&second).unwrap().ends_with("memory not held (of the second)"));
}

#[test]
fn a_run_replaces_what_it_measured_and_nothing_else() {
    let mut first = results(Cheats::default());
    first.date = "2026-01-01".to_owned();
    let before = kept(&first);
    assert!(before.ways.iter().all(|one| one.way.to_string() != "solo"));
    let mut second = first.clone();
    second.date = "2026-02-02".to_owned();
    second
        .ways
        .retain(|one| ["ts2", "mps2"].contains(&one.way.to_string().as_str()));
    // Every cell of it has failed.
    for share in second.ways.iter_mut().filter(|one| one.way.to_string() == "mps2") {
        let verdicts = share.shares.iter_mut().flat_map(|share| &mut share.verdicts);
        verdicts.for_each(|verdict| verdict.figure.clear());
    }
    let after = Kept::new(&device(), &second, Some(before.clone()));
    assert_eq!(after.ways.len(), before.ways.len());
    for one in &after.ways {
        let expected = match one.way.to_string() == "ts2" {
            true => "2026-02-02",
            false => "2026-01-01",
        };
        assert_eq!(one.date, expected, "{}", one.way);
    }
}

#[test]
fn a_file_is_read_as_it_was_written_and_a_damaged_one_is_refused_in_one_line() {
    let (kept, device) = (kept(&results(Cheats::default())), device());
    let text = kept.text().unwrap();
    let read = |bytes: &[u8]| Kept::read("a.json", &device, bytes);
    assert_eq!(read(text.as_bytes()).unwrap(), kept);
    let newer = tranche_core::sealed::seal("{\"version\":2}").into_owned();
    let other = DeviceKey::whole("GPU-11111111-1111-1111-1111-111111111111".parse().unwrap());
    let of_other = Kept::new(&other, &results(Cheats::default()), None).text().unwrap();
    for (bytes, why) in [
        (text.replace("held", "hold"), "is damaged"),
        (text[..text.len() / 2].to_owned(), "is damaged"),
        (String::new(), "is damaged"),
        (newer, "was written by a newer tranche"),
        (of_other, "is of another device"),
    ] {
        let error = line(&read(bytes.as_bytes()).unwrap_err());
        assert!(error.starts_with(&format!("a.json: {why}")), "{error}");
        assert!(
            error.contains("; remove it; the next tranche bench writes it anew"),
            "{error}"
        );
    }
    assert_eq!(
        Kept::file_name(&"GPU-8188460b/7/0".parse().unwrap()),
        "GPU-8188460b-7-0.json"
    );
}
