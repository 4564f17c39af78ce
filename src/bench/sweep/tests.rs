//! The search on simulated machines.

use super::*;
use fastrand::Rng;
use proptest::prelude::*;

/// Runs a search. `truth` has the latency of the first workload for its part; each run differs from it by at most
/// `noise`, as a part of it.
fn search(step: u32, bound: f64, noise: f64, seed: u64, truth: impl Fn(u32) -> f64) -> Sweep {
    let mut rng = Rng::with_seed(seed);
    let mut sweep = Sweep::new(step, bound).unwrap();
    let most = sweep.most_runs_left();
    let mut runs = 0;
    while let Some(split) = sweep.next_run() {
        let mut one = || truth(split.first()) * (1.0 + noise * (2.0 * rng.f64() - 1.0));
        let latency_ms = Spread::of([one(), one(), one()]).unwrap();
        sweep.answer(Trial {
            latency_ms,
            rate: Some(f64::from(split.second())),
        });
        runs += 1;
        assert!(runs <= most, "{runs} of at most {most}");
    }
    sweep
}

/// The smallest part whose latency is within the bound.
fn best(step: u32, bound: f64, truth: impl Fn(u32) -> f64) -> Option<Split> {
    (10..=90)
        .step_by(step as usize)
        .find(|part| truth(*part) <= bound)
        .and_then(Split::new)
}

#[test]
fn the_best_split_is_found_by_few_runs() {
    let truth = |part| 300.0 / f64::from(part);
    let sweep = search(10, 7.0, 0.0, 1, truth);
    assert_eq!(sweep.best(), Split::new(50));
    let runs: usize = sweep.curve().iter().map(|point| point.runs).sum();
    assert!(runs <= 4, "{runs}");
    let text = sweep.text();
    assert!(text.ends_with("\nbest split: 50/50, within 7 ms\n"), "{text}");
    assert!(
        text.contains("40/60      7.50       60.0     1  ") && text.contains(" over\n"),
        "{text}"
    );
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    let narrow = search(5, 7.0, 0.0, 1, truth);
    assert_eq!(narrow.best(), Split::new(45));
}

#[test]
fn every_bound_between_two_splits_has_its_answer() {
    let truth = |part| 1000.0 / f64::from(part);
    for step in [5, 10] {
        for part in (5..=95).step_by(step as usize) {
            let bound = truth(part + step) * 1.01;
            let expected = best(step, bound, truth);
            assert_eq!(search(step, bound, 0.0, 1, truth).best(), expected, "{part}");
        }
    }
    assert_eq!(search(10, 1e6, 0.0, 1, truth).best(), Split::new(10));
}

#[test]
fn what_is_impossible_is_said_in_one_line() {
    let sweep = search(10, 1.0, 0.0, 1, |part| 300.0 / f64::from(part));
    assert_eq!(sweep.best(), None);
    let text = sweep.text();
    assert!(
        text.ends_with("\nno split keeps the first within 1 ms: at 90/10 it takes 3.33 ms\n"),
        "{text}"
    );
    for (step, bound) in [
        (7, 1.0),
        (0, 1.0),
        (10, 0.0),
        (10, -1.0),
        (10, f64::NAN),
        (5, f64::INFINITY),
    ] {
        assert!(Sweep::new(step, bound).is_err(), "{step} {bound}");
    }
}

#[test]
fn a_latency_that_rises_with_the_part_is_noticed() {
    // The first is best at 50.
    let truth = |part: u32| 5.0 + (f64::from(part) - 50.0).abs() / 5.0;
    let sweep = search(10, 4.0, 0.02, 3, truth);
    assert_eq!(sweep.best(), None);
    let text = sweep.text();
    let last = text.lines().last().unwrap();
    assert!(
        last.starts_with("the first is slower with a larger part: ") && last.ends_with("may be better"),
        "{text}"
    );
}

#[test]
fn a_run_with_the_bound_in_its_spread_is_repeated_and_no_other_is() {
    let mut sweep = Sweep::new(10, 10.0).unwrap();
    let trial = |values: [f64; 3]| Trial {
        latency_ms: Spread::of(values).unwrap(),
        rate: None,
    };
    let first = sweep.next_run().unwrap();
    assert!(sweep.text().contains("not finished: 50/50 is next"));
    sweep.answer(trial([9.0, 9.9, 11.0]));
    assert_eq!(sweep.next_run(), Some(first));
    sweep.answer(trial([9.0, 10.5, 11.0]));
    assert_eq!(sweep.next_run(), Some(first));
    sweep.answer(trial([9.0, 9.8, 11.0]));
    assert_eq!(sweep.next_run(), Split::new(30), "two of three are within the bound");
    assert_eq!(sweep.best(), None, "the search is not over");
    sweep.answer(trial([20.0, 21.0, 22.0]));
    assert_eq!(sweep.next_run(), Split::new(40));
    assert_eq!(sweep.curve().iter().map(|point| point.runs).collect::<Vec<_>>(), [1, 3]);
}

proptest! {
    /// On a machine whose latency falls, the split is the best one, unless the noise hides the difference.
    #[test]
    fn noise_moves_the_answer_only_where_it_hides_the_bound(
        seed in any::<u64>(), bound in 1.0_f64..40.0, base in 0.0_f64..10.0, scale in 10.0_f64..1000.0,
        noise in 0.0_f64..0.08, step in prop::sample::select(vec![5_u32, 10]),
    ) {
        let truth = |part: u32| base + scale / f64::from(part);
        let sweep = search(step, bound, noise, seed, truth);
        let surely = |part: u32| truth(part) * (1.0 + noise) <= bound;
        let perhaps = |part: u32| truth(part) * (1.0 - noise) <= bound;
        let parts = || (10..=90).step_by(step as usize);
        match sweep.best() {
            Some(found) => {
                prop_assert!(perhaps(found.first()));
                prop_assert!(parts().filter(|part| *part < found.first()).all(|part| !surely(part)));
            }
            None => prop_assert!(parts().all(|part| !surely(part))),
        }
        prop_assert!(sweep.next_run().is_none() && sweep.most_runs_left() == 0);
    }

    /// Whatever the machine does, the search ends, and its answer was measured to be within the bound.
    #[test]
    fn no_answer_was_measured_to_be_too_slow(latencies in prop::collection::vec(0.5_f64..20.0, 17), bound in 0.5_f64..20.0, seed in any::<u64>()) {
        let sweep = search(5, bound, 0.03, seed, |part| latencies[(part as usize - 10) / 5]);
        if let Some(best) = sweep.best() {
            let curve = sweep.curve();
            let point = curve.iter().find(|point| point.split == best).unwrap();
            prop_assert!(point.is_within && point.latency_ms.median <= bound);
        }
        prop_assert!(!sweep.text().is_empty());
    }
}
