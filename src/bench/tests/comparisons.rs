//! Two runs beside each other.

use super::gpu::{Cheats, results, run};
use crate::cell::Neighbour;
use crate::compare::{Change, compare};
use crate::results::Results;

#[test]
fn a_run_is_like_itself() {
    let one = results(Cheats::default());
    let comparison = compare(&one, &one);
    assert!(comparison.differences.is_empty());
    let changes = comparison.cells.iter().filter(|one| one.before.is_some());
    assert!(changes.clone().count() > 30 && changes.clone().all(|one| one.change == Change::Within));
}

#[test]
fn only_what_exceeds_the_spread_is_a_change() {
    let before = results(Cheats::default());
    let mut other = run(Cheats {
        slow: Some((Neighbour::HogL2, 1.9)),
        ..Cheats::default()
    });
    other.host.driver = "615.10".into();
    other.host.product = "NVIDIA H100\u{1b}[31m".into();
    let after = Results::new(other);
    let comparison = compare(&before, &after);
    for one in comparison.cells.iter().filter(|one| one.before.is_some()) {
        let expected = match one.cell.neighbour {
            Neighbour::HogL2 => Change::Slower,
            _ => Change::Within,
        };
        assert_eq!(one.change, expected, "{}", one.cell);
    }
    let back = compare(&after, &before);
    assert!(back.cells.iter().any(|one| one.change == Change::Faster));
    let text = comparison.text();
    for words in [
        "driver: 570.124.06, then 615.10\n",
        "product: NVIDIA H200, then NVIDIA H100\\u{1b}[31m\n",
        "mig-2, share 0:0, bandwidth: held, then not held\n",
        "  slower\n",
    ] {
        assert!(text.contains(words), "{words}: {text}");
    }
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
}

#[test]
fn single_measurements_have_no_spread_to_judge_by() {
    let once = |by| {
        let mut run = run(Cheats {
            slow: Some((Neighbour::HogSm, by)),
            ..Cheats::default()
        });
        run.cells
            .iter_mut()
            .for_each(|(_, all)| all.as_mut().unwrap().truncate(1));
        run.cells
            .retain(|(cell, _)| by < 3.0 || cell.neighbour != Neighbour::Batch);
        Results::new(run)
    };
    let comparison = compare(&once(2.5), &once(3.0));
    let of = |neighbour| {
        comparison
            .cells
            .iter()
            .find(|one| one.cell.neighbour == neighbour)
            .unwrap()
            .change
    };
    assert_eq!(of(Neighbour::HogSm), Change::Unknown);
    assert_eq!(of(Neighbour::Batch), Change::Missing);
    assert_eq!(of(Neighbour::HogDram), Change::Within);
}
