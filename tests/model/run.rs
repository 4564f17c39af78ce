//! The runs: seeds until the time is over, and a failure made smaller.

use crate::draw;
use crate::life::Life;
use crate::machine::Machine;
use crate::operation::Step;
use crate::oracle::Violation;
use crate::support::{own_mounts, rights};
use crate::table::Table;
use crate::weights::{self, Weights};
use std::fmt::Write;
use std::time::{Duration, Instant};

/// How many operations a machine lives through, unless `TRANCHE_TEST_MODEL_STEPS` says otherwise.
const STEPS: usize = 120;

/// For how long new machines are begun, unless `TRANCHE_TEST_MODEL_SECONDS` says otherwise.
const SECONDS: u64 = 30;

/// For how long a failure is made smaller, unless `TRANCHE_TEST_MODEL_SHRINK` says otherwise.
const SHRINK: u64 = 120;

const SEED: u64 = 0x5eed;

fn number(variable: &str, default: u64) -> u64 {
    std::env::var(variable).map_or(default, |number| number.parse().unwrap())
}

/// A failure.
struct Failed {
    violation: Violation,
    steps: Vec<Step>,
    trace: String,
    log: String,
}

/// What these operations lead to.
fn live(machine: &mut Machine, steps: &[Step], table: &mut Table) -> Option<Failed> {
    let mut life = Life::new(machine);
    let (done, checked) = life.live(steps);
    table.add(&life.table);
    let trace = life.trace();
    if std::env::var_os("TRANCHE_TEST_MODEL_TRACE").is_some() {
        println!("{trace}");
    }
    let violation = checked.err()?;
    drop(life);
    Some(Failed {
        violation,
        steps: steps[..done].to_vec(),
        trace,
        log: machine.log(),
    })
}

/// Leaves out operations while the same rule is still broken, until the time is over.
fn shrink(machine: &mut Machine, mut failed: Failed) -> Failed {
    let end = Instant::now() + Duration::from_secs(number("TRANCHE_TEST_MODEL_SHRINK", SHRINK));
    let mut table = Table::default();
    let mut size = failed.steps.len() / 2;
    while size > 0 && Instant::now() < end {
        let mut from = 0;
        let mut smaller = false;
        while from < failed.steps.len() && Instant::now() < end {
            let to = (from + size).min(failed.steps.len());
            let mut fewer = failed.steps.clone();
            fewer.drain(from..to);
            match live(machine, &fewer, &mut table) {
                Some(again) if again.violation.rule == failed.violation.rule => {
                    failed = again;
                    smaller = true;
                }
                _ => from += size,
            }
        }
        size = if smaller {
            size.min(failed.steps.len() / 2).max(1)
        } else {
            size / 2
        };
    }
    failed
}

/// Lives until the time is over. Panics at the first failure.
pub(crate) fn run(test: &str, weights: &Weights) -> Option<Table> {
    if !rights::owns_machine(&format!("model::{test}")) {
        return None;
    }
    let seconds = number("TRANCHE_TEST_MODEL_SECONDS", SECONDS);
    let steps = number("TRANCHE_TEST_MODEL_STEPS", STEPS as u64) as usize;
    let first = number("TRANCHE_TEST_SEED", SEED);
    let mut table = Table::default();
    let lived = own_mounts::with_own_mounts(|| {
        let mut machine = Machine::new();
        let began = Instant::now();
        for seed in first.. {
            if seed > first && began.elapsed() > Duration::from_secs(seconds) {
                break;
            }
            let before = table.steps;
            let Some(failed) = live(&mut machine, &draw::steps(seed, steps, weights), &mut table) else {
                continue;
            };
            let mut text = format!(
                "seed {seed}, after {} operations ({} in all):\n{}: {}\n{}\n{}\n",
                table.steps - before,
                table.steps,
                failed.violation.rule,
                failed.violation.text,
                failed.trace,
                failed.log
            );
            let (before, rule) = (failed.steps.len(), failed.violation.rule);
            println!("{text}\nmade smaller:");
            text.clear();
            let failed = shrink(&mut machine, failed);
            let _ = write!(
                text,
                "seed {seed}: {rule}, by {} of {before} operations:\n{}: {}\n",
                failed.steps.len(),
                failed.violation.rule,
                failed.violation.text
            );
            for step in &failed.steps {
                let _ = writeln!(text, "  {step}");
            }
            let _ = write!(text, "{}\n{}\n{table}", failed.trace, failed.log);
            panic!("{text}\nTRANCHE_TEST_SEED={seed} TRANCHE_TEST_MODEL_STEPS={steps} repeats it");
        }
    });
    println!("{table}\nseeds from {first}, {steps} operations each");
    if let Err(panic) = lived {
        std::panic::resume_unwind(panic);
    }
    Some(table)
}

/// `make model SECONDS=200` asks for about two hundred reservations, and kills the broker or the client at a third.
#[test]
fn what_is_reserved_is_kept_for_its_user_whatever_is_killed_and_whatever_the_clock_says() {
    let test = "what_is_reserved_is_kept_for_its_user_whatever_is_killed_and_whatever_the_clock_says";
    let Some(table) = run(test, &weights::named("calendar")) else {
        return;
    };
    if table.number("the clock jumps", "forth") == 0 {
        println!("nothing was reserved: there is no clock that can be set");
        return;
    }
    for (row, result) in [("user: reserve", "done"), ("user: claim create", "done")] {
        assert!(table.number(row, result) > 0, "{row}: {result}: never\n{table}");
    }
}

#[test]
fn what_was_promised_is_held_and_nothing_else() {
    let test = "what_was_promised_is_held_and_nothing_else";
    let weights = std::env::var("TRANCHE_TEST_MODEL_WEIGHTS").unwrap_or_else(|_| "default".to_owned());
    let Some(table) = run(test, &weights::named(&weights)) else {
        return;
    };
    if weights != "default" {
        return;
    }
    // Each of these happened, and both ways.
    for (row, result) in [
        ("root: claim create", "done"),
        ("user: claim create", "done"),
        ("user: claim create --wait", "done"),
        ("broker killed", "done"),
    ] {
        assert!(table.number(row, result) > 0, "{row}: {result}: never\n{table}");
    }
}
