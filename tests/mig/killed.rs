//! A broker that is killed while it changes a layout. `TRANCHE_TEST_MIG_KILLS=200` kills it more often (minutes).

use crate::bed::Bed;
use crate::support::sample;
use nix::sys::signal::Signal;
use serde_json::Value;
use std::fs;
use std::process::Stdio;
use std::thread;
use std::time::Instant;

/// How often the broker is killed.
fn kills() -> u32 {
    let given = std::env::var("TRANCHE_TEST_MIG_KILLS");
    given.map_or_else(|_| sample::number(8, 40), |number| number.parse().unwrap())
}

#[test]
fn a_killed_broker_leaves_what_there_was_or_what_is_wanted() {
    let mut bed = Bed::new("dgx-a100-mig");
    let wanted = "0:4x1g.5gb,1g.5gb@6,2g.10gb@4";
    bed.apply("0:3g.20gb,2g.10gb,1g.5gb");
    let old = bed.layout(0);
    let began = Instant::now();
    bed.apply(wanted);
    let whole = began.elapsed();
    bed.apply(&format!("0:{old}"));
    let (mut unfinished, mut finished) = (0, 0);
    let kills = kills();
    for kill in 0..kills {
        let mut applying = bed
            .command(&["mig", "apply", "--yes", "--layout", wanted])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        // At some point of the change, or after it.
        let journal = bed.at("state/mig-change.json");
        crate::support::until("the change has begun", || {
            journal.exists() || applying.try_wait().unwrap().is_some()
        });
        thread::sleep(whole.mul_f64(f64::from(kill * 13 % 100) / 100.0));
        bed.end(Signal::SIGKILL);
        applying.wait().unwrap();
        unfinished += u32::from(journal.exists());
        bed.start();
        crate::support::until("the next broker has put it back", || !journal.exists());
        let now = bed.layout(0);
        let new = "1g.5gb@0,1g.5gb@1,1g.5gb@2,1g.5gb@3,1g.5gb@6,2g.10gb@4";
        assert!(now == old || now == new, "kill {kill}: {now}, and there was {old}");
        // What the next boot makes is what there is.
        let saved: Value = serde_json::from_slice(&fs::read(bed.at("state/kept/mig-layout.json")).unwrap()).unwrap();
        let saved = saved["gpus"][0]["layout"]["instances"].as_array().unwrap().len();
        assert_eq!(saved, now.split(',').count(), "kill {kill}");
        finished += u32::from(now != old);
        if now != old {
            bed.apply(&format!("0:{old}"));
            assert_eq!(bed.layout(0), old);
        }
    }
    println!("{unfinished} of {kills} were killed on the way, {finished} have the new layout");
    assert!(unfinished > 0, "no kill came on the way");
    // What was saved is one of the two, whole.
    let saved: Value = serde_json::from_slice(&fs::read(bed.at("state/kept/mig-layout.json")).unwrap()).unwrap();
    assert_eq!(saved["gpus"].as_array().unwrap().len(), 1);
}
