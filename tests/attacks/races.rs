//! What was looked at is not what is used: a racing program exchanges a component of a path for something else, as fast
//! as it can, while the hook works.

use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use nix::fcntl::{AT_FDCWD, RenameFlags, renameat2};
use nix::sys::stat::Mode;
use nix::unistd::mkfifo;

use crate::both_ways;
use crate::stage::Stage;
use crate::tally::Tally;
use crate::verb::{VERBS, Verb};

/// Runs of the hook against one race.
const RUNS: usize = 4;
/// No race takes longer, however slow the machine is.
const MOST: Duration = Duration::from_secs(1);

/// Exchanges `component` with `other` until the hook has run often enough. A race counts as one attack.
pub(crate) fn race(stage: &Stage, component: &str, other: &str, name: &str, tally: &mut Tally) {
    let (real, false_) = (stage.image(component), stage.image(other));
    let before = stage.look();
    let stop = AtomicBool::new(false);
    let mut ended = std::thread::scope(|threads| {
        threads.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                // The hook may be replacing one of them at this moment.
                let _ = renameat2(AT_FDCWD, &real, AT_FDCWD, &false_, RenameFlags::RENAME_EXCHANGE);
            }
        });
        let start = Instant::now();
        let mut ended = stage.run();
        for _ in 1..RUNS {
            if start.elapsed() > MOST {
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
    tally.count(name, ended.code, ended.took, &ended.wrong);
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
    both_ways("races::any_component_for_a_link_to_the_host", |tally, how| {
        for verb in VERBS {
            for component in verb.components() {
                let stage = with(verb, component);
                stage.link("/away", stage.host(component));
                race(
                    &stage,
                    component,
                    "/away",
                    &format!("{} {component} and a link, {how}", verb.name),
                    tally,
                );
            }
        }
    });
}

#[test]
fn any_file_for_one_that_waits() {
    both_ways("races::any_file_for_one_that_waits", |tally, how| {
        for verb in VERBS {
            for component in verb.touches {
                let stage = with(verb, component);
                mkfifo(&stage.clear("/away"), Mode::S_IRWXU).unwrap();
                race(
                    &stage,
                    component,
                    "/away",
                    &format!("{} {component} and a fifo, {how}", verb.name),
                    tally,
                );
            }
        }
    });
}
