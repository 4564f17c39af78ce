//! What was looked at is not what is used: a racing program exchanges a component of a path for something else, as fast
//! as it can, while the hook works.

use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use nix::fcntl::{AT_FDCWD, RenameFlags, renameat2};
use nix::sys::stat::Mode;
use nix::unistd::mkfifo;

use crate::stage::Stage;
use crate::trial::{Attack, Trial};
use crate::verb::{VERBS, Verb};

/// Runs of the hook against one race, and how long one takes at most, however slow the machine is: `make attack-long`
/// sets `TRANCHE_TEST_RACE_SECONDS`, and then each race goes on for so long.
pub(crate) fn limits() -> (usize, Duration) {
    let long = std::env::var("TRANCHE_TEST_RACE_SECONDS")
        .ok()
        .and_then(|text| text.parse().ok());
    long.map_or((4, Duration::from_secs(1)), |seconds| {
        (usize::MAX, Duration::from_secs(seconds))
    })
}

/// Exchanges `component` with `other` until the hook has run often enough. A race counts as one variation.
pub(crate) fn race(trial: &mut Trial, stage: &Stage, component: &str, other: &str, name: &str) {
    let (real, false_) = (stage.image(component), stage.image(other));
    race_on(trial, stage, name, || {
        // The hook may be replacing one of them at this moment.
        let _ = renameat2(AT_FDCWD, &real, AT_FDCWD, &false_, RenameFlags::RENAME_EXCHANGE);
    });
}

/// Exchanges two files without a pause while `work` is done.
pub(crate) fn exchange(one: &Path, other: &Path, work: impl FnOnce()) {
    let stop = AtomicBool::new(false);
    let stop_at_the_end = Stop(&stop);
    std::thread::scope(|threads| {
        // Also where the work ends with a panic.
        let _stop = stop_at_the_end;
        threads.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                let _ = renameat2(AT_FDCWD, one, AT_FDCWD, other, RenameFlags::RENAME_EXCHANGE);
            }
        });
        work();
    });
}

/// Ends a race when it is dropped.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Calls `exchange` without a pause until the hook has run often enough.
pub(crate) fn race_on(trial: &mut Trial, stage: &Stage, name: &str, exchange: impl Fn() + Sync) {
    let before = stage.look();
    let stop = AtomicBool::new(false);
    let (mut runs, most) = limits();
    if !trial.subject.is_real() {
        // So often that it surely loses once.
        runs = 40;
    }
    let mut ended = std::thread::scope(|threads| {
        threads.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                exchange();
            }
        });
        let start = Instant::now();
        let mut ended = stage.run();
        for _ in 1..runs {
            if start.elapsed() > most {
                break;
            }
            let next = stage.run();
            ended.code = ended.code.max(next.code);
            ended.took = ended.took.max(next.took);
            ended.wrong.extend(next.wrong);
        }
        stop.store(true, Ordering::Relaxed);
        ended
    });
    stage.compare(&before, &mut ended.wrong);
    trial.record(name, &ended);
}

/// A stage where `component` is there to be exchanged.
pub(crate) fn with(verb: Verb, component: &str) -> Stage {
    let stage = Stage::new(verb);
    let place = stage.image(component);
    if fs::symlink_metadata(&place).is_err() {
        fs::create_dir_all(place.parent().unwrap()).unwrap();
        fs::write(&place, "x").unwrap();
    }
    stage
}

/// CVE-2024-0132, CVE-2025-23359 and CVE-2026-24260 are races of this kind.
#[test]
fn any_component_for_a_link_to_the_host() {
    Attack::new(
        "races::any_component_for_a_link_to_the_host",
        "a component of a path is exchanged with a link to the host, as fast as can be, while the hook works",
    )
    .run(|trial| {
        for verb in VERBS {
            trial.twin(&Stage::new(verb));
            for component in verb.components() {
                let stage = with(verb, component);
                stage.link("/away", stage.host(component));
                race(
                    trial,
                    &stage,
                    component,
                    "/away",
                    &format!("{} {component} and a link", verb.name),
                );
            }
        }
    });
}

#[test]
fn any_file_for_one_that_waits() {
    Attack::new(
        "races::any_file_for_one_that_waits",
        "a file is exchanged with a FIFO between the look at it and its opening",
    )
    .run(|trial| {
        for verb in VERBS {
            trial.twin(&Stage::new(verb));
            for component in verb.touches {
                let stage = with(verb, component);
                mkfifo(&stage.clear("/away"), Mode::S_IRWXU).unwrap();
                race(
                    trial,
                    &stage,
                    component,
                    "/away",
                    &format!("{} {component} and a fifo", verb.name),
                );
            }
        }
    });
}
