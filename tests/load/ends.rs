//! The end of a process: when its input ends, when its time is over, and when nobody reads.

use crate::machine::{Load, MS, Machine, now};
use crate::support::measured::measured;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Closes the input, and checks that the process ends at once, without the event of a complete run.
fn ends(mut load: Load, when: &str) {
    drop(load.input.take());
    let closed = Instant::now();
    let ended = load.finish();
    assert!(
        closed.elapsed() < Duration::from_millis(300),
        "{when}: {:?}",
        closed.elapsed()
    );
    assert_eq!(ended.code, Some(1), "{when}");
    assert!(
        ended.events.iter().all(|event| event["event"] != "end"),
        "{when}: {ended:?}"
    );
    assert_eq!(
        ended.error, "tranche-load: the input ended before the run was complete\n",
        "{when}"
    );
}

#[test]
fn every_role_ends_with_its_input() {
    measured(|| {
        let machine = Machine::new();
        let roles = [
            "serve --fma 500",
            "batch --fma 500",
            "hog-sm",
            "hog-dram",
            "hog-l2",
            "hog-pcie",
            "greedy",
        ];
        for role in roles.into_iter().chain(["fault", "probe", "keep"]) {
            let mut load = machine.start(role);
            load.ready();
            ends(load, &format!("{role}, before start"));
            let mut load = machine.start(role);
            load.ready();
            load.say(&format!("start {} {}\n", now() + 5000 * MS, now() + 9000 * MS));
            sleep(Duration::from_millis(30));
            ends(load, &format!("{role}, before its begin"));
        }
        for role in roles {
            let mut load = machine.start(role);
            load.ready();
            load.say(&format!("start {} {}\n", now(), now() + 9000 * MS));
            sleep(Duration::from_millis(50));
            ends(load, &format!("{role}, at work"));
        }
        let mut load = machine.start("serve --fma 500");
        load.ready();
        load.say(&format!(
            "at 0\nat {}\nstart {} {}\n",
            5000 * MS,
            now(),
            now() + 9000 * MS
        ));
        sleep(Duration::from_millis(30));
        ends(load, "serve, between two requests");
        let mut load = machine.start("calibrate --target-us 10000");
        load.ready();
        ends(load, "calibrate");
    });
}

#[test]
fn a_process_ends_by_its_deadline() {
    measured(|| {
        let machine = Machine::new();
        let began = Instant::now();
        let mut load = machine.start("batch --fma 500 --deadline 1");
        load.ready();
        load.say(&format!("start {} {}\n", now(), now() + 9000 * MS));
        let ended = load.finish();
        assert!(began.elapsed() < Duration::from_millis(1500), "{:?}", began.elapsed());
        assert_eq!(ended.code, Some(1));
        assert_eq!(ended.error, "tranche-load: the work has not ended in time\n");
        let mut load = machine.start("batch --fma 500 --deadline 1");
        load.ready();
        assert_eq!(load.finish().error, "tranche-load: the input has not ended in time\n");
        drop(machine);
        let hangs = Machine::with(|config| config["init"] = "hang".into());
        let ended = hangs.start("probe --deadline 1").finish();
        assert_eq!(
            (ended.code, ended.error.as_str()),
            (Some(1), "tranche-load: cuInit has not ended in time\n")
        );
    });
}
