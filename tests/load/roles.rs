//! Each role alone.

use crate::machine::{BANDWIDTH, GPU, ITERATION, MIB, MS, Machine, SMS, equal, near, now, number, run};
use crate::support::measured::measured;
use serde_json::json;

#[test]
fn it_says_what_it_runs_on_when_it_is_ready() {
    let machine = Machine::new();
    let before = now();
    let mut load = machine.start("serve --fma 10 --bytes 1048576");
    let ready = load.ready();
    let (at, took) = (number(&ready, "at"), number(&ready, "context_ns"));
    assert!(before < at && at < now(), "{ready}");
    // One iteration of the calculation on all SMs, and the calls before it.
    assert!(ITERATION as u64 <= took && took < at - before, "{ready}");
    let expected = json!({
        "event": "ready", "at": at, "context_ns": took, "version": 1, "name": "Tesla \"T4\"", "uuid": GPU,
        "sms": SMS, "l2_bytes": 4 * MIB, "memory_bytes": 4096 * MIB, "free_bytes": (4096 - 2) * MIB,
        "capability": [8, 0], "driver": 12040
    });
    assert_eq!(ready, expected);
    drop((load, machine));
    let mig = Machine::with(|config| {
        config["gpus"][0]["uuid"] = GPU.replace("GPU", "MIG").into();
        config["gpus"][0]["name"] = "NVIDIA A100-SXM4-40GB MIG 1g.5gb".into();
    });
    assert_eq!(mig.start("probe").ready()["uuid"], GPU.replace("GPU", "MIG"));
}

#[test]
fn a_request_of_the_calibrated_size_takes_the_time_that_was_asked_for() {
    measured(|| {
        let machine = Machine::new();
        let mut load = machine.start("calibrate --target-us 4000");
        load.ready();
        let calibrated = load.event();
        assert_eq!(calibrated["event"], "calibrated", "{calibrated}");
        equal(number(&calibrated, "request_ns") as f64, 4e6);
        let copy = (32 * MIB / BANDWIDTH) as f64;
        near(number(&calibrated, "fma") as f64, (4e6 - copy) / ITERATION);
        assert!(load.finish().complete().is_empty());
        // The copy alone takes longer.
        let mut load = machine.start("calibrate --target-us 50");
        load.ready();
        assert_eq!(load.event()["fma"], 1);
    });
}

#[test]
fn requests_are_served_at_their_times() {
    measured(|| {
        let machine = Machine::new();
        let mut load = machine.start("serve --fma 400 --bytes 16777216");
        load.ready();
        let intended: Vec<u64> = (0..20).map(|at| at * 15 * MS).chain([285 * MS]).collect();
        let begin = now() + 20 * MS;
        intended.iter().for_each(|at| load.say(&format!("at {at}\n")));
        load.say(&format!("start {begin} {}\n", begin + 400 * MS));
        let ended = load.finish();
        let served = ended.complete();
        let all: Vec<u64> = served.iter().map(|event| number(event, "intended")).collect();
        assert_eq!(all, intended);
        assert!(
            number(ended.events.last().unwrap(), "at") >= begin + 400 * MS,
            "it lasts until its end"
        );
        let alone = 400.0 * ITERATION + (16 * MIB / BANDWIDTH) as f64;
        let times = ended.times("began");
        assert!(times[0] as f64 >= alone, "{times:?}: {alone}");
        equal(times[times.len() / 2] as f64, alone);
        let began = |at: usize| number(&served[at], "began");
        assert!((0..20).all(|at| began(at) >= intended[at]));
        // The last one was intended at the same time as the one before it, and waited for it.
        assert!(began(20) >= number(&served[19], "done"));
        let waited = number(&served[20], "done") - number(&served[20], "intended");
        assert!(waited as f64 >= 2.0 * alone, "{waited}");
    });
}

#[test]
fn requests_whose_turn_comes_too_late_are_reported() {
    measured(|| {
        let machine = Machine::new();
        let mut load = machine.start("serve --fma 800 --bytes 0");
        load.ready();
        // Two or more are intended while one is served.
        let intended: Vec<u64> = (0..150).map(|at| at * 2 * MS).collect();
        intended.iter().for_each(|at| load.say(&format!("at {at}\n")));
        let begin = now() + 20 * MS;
        load.say(&format!("start {begin} {}\n", begin + 200 * MS));
        let ended = load.finish();
        let events = ended.complete();
        let all: Vec<u64> = events.iter().map(|event| number(event, "intended")).collect();
        assert_eq!(all, intended, "none is left out");
        let count = events.iter().take_while(|event| event["event"] == "served").count();
        assert!(
            events[count..].iter().all(|event| event["event"] == "late"),
            "{events:?}"
        );
        let most = (200 * MS) as f64 / (800.0 * ITERATION) + 1.0;
        assert!(count > 15 && count as f64 <= most, "{count}");
        // Each one waits longer than the one before it.
        let latencies: Vec<u64> = events[..count]
            .iter()
            .map(|event| number(event, "done") - number(event, "intended"))
            .collect();
        assert!(latencies.is_sorted(), "{latencies:?}");
        // The last one was begun before the end and reported though it was done after it.
        let (began, done) = (number(&events[count - 1], "began"), number(&events[count - 1], "done"));
        assert!(began < 200 * MS && done >= 200 * MS, "{began} {done}");
    });
}

#[test]
fn without_times_requests_are_served_back_to_back() {
    measured(|| {
        let machine = Machine::new();
        let [ended] = run([machine.start("serve --fma 600 --bytes 0")], 300 * MS);
        let served = ended.complete();
        assert!(
            served
                .iter()
                .all(|event| event["intended"] == event["began"] && event["event"] == "served")
        );
        near(served.len() as f64, (300 * MS) as f64 / (600.0 * ITERATION));
    });
}

#[test]
fn batches_and_hogs_do_as_much_as_the_gpu_can() {
    measured(|| {
        let machine = Machine::new();
        let [batch] = run([machine.start("batch --fma 1000 --bytes 0")], 300 * MS);
        near(batch.rate(), 1.0 / (1000.0 * ITERATION));
        let [sm] = run([machine.start("hog-sm")], 350 * MS);
        assert!((3..=4).contains(&sm.complete().len()), "{sm:?}");
        assert!(sm.times("began")[0] >= 100 * MS);
        let [dram] = run([machine.start("hog-dram")], 200 * MS);
        near(dram.rate(), BANDWIDTH as f64);
        // It has its own footprint: what fits into the cache is faster.
        let [l2] = run([machine.start("hog-l2")], 200 * MS);
        near(l2.rate(), 4.0 * BANDWIDTH as f64);
        let [l2] = run([machine.start("hog-l2 --bytes 8388608")], 200 * MS);
        near(l2.rate(), BANDWIDTH as f64);
        // 12 in each direction at the same time.
        let [pcie] = run([machine.start("hog-pcie")], 200 * MS);
        near(pcie.rate(), 24.0);
    });
}

#[test]
fn memory_is_filled_and_each_byte_compared_later() {
    let of_memory = |is_damaged: bool| {
        let meeting = tempfile::tempdir().unwrap();
        let machine = Machine::with(|config| config["turns"] = json!({"directory": meeting.path()}));
        let mut load = machine.start("keep --bytes 3000004");
        assert_eq!(number(&load.ready(), "free_bytes"), 4096 * MIB - MIB - 3_000_000);
        if is_damaged {
            let block = std::fs::read_dir(meeting.path().join(GPU)).unwrap().find_map(|block| {
                let path = block.unwrap().path();
                (path.metadata().unwrap().len() == 3_000_000).then_some(path)
            });
            let mut bytes = std::fs::read(block.as_ref().unwrap()).unwrap();
            *bytes.last_mut().unwrap() ^= 1;
            std::fs::write(block.unwrap(), bytes).unwrap();
        }
        load.say(&format!("start {} {}\n", now(), now() + MS));
        load.finish().complete().to_vec()
    };
    let compared = |wrong: u32| vec![json!({"event": "compared", "bytes": 3_000_000, "wrong": wrong})];
    assert_eq!(of_memory(false), compared(0));
    assert_eq!(of_memory(true), compared(1));
}

#[test]
fn a_fault_is_reported_by_its_own_process() {
    for (kind, code, name) in [
        ("trap", 719, "CUDA_ERROR_LAUNCH_FAILED"),
        ("address", 700, "CUDA_ERROR_ILLEGAL_ADDRESS"),
    ] {
        let machine = Machine::new();
        let mut load = machine.start(&format!("fault --kind {kind}"));
        load.ready();
        let begin = now() + 60 * MS;
        load.say(&format!("start {begin} {}\n", begin + 100 * MS));
        let ended = load.finish();
        let [faulted] = ended.complete() else {
            panic!("{ended:?}")
        };
        let at = number(faulted, "at");
        assert!(at > begin && at < begin + 50 * MS, "{faulted}");
        assert_eq!(
            *faulted,
            json!({"event": "faulted", "at": at, "code": code, "name": name})
        );
    }
}
