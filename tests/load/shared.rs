//! Processes that share a GPU: the model's rules, as `tranche-load` measures them.

use crate::machine::{BANDWIDTH, ITERATION, Load, MIB, MS, Machine, SMS, equal, most, near, now, number, run};
use crate::support::measured::measured;
use serde_json::json;

/// A request of 1 ms on all SMs.
const SHORT: &str = "batch --fma 200 --bytes 0";

#[test]
fn contexts_have_equal_turns() {
    measured(|| {
        let machine = Machine::new();
        // Requests that are longer than a turn. With short ones, the time between two of them counts.
        let batch = "batch --fma 4000 --bytes 0";
        let [one, other] = run([machine.start(batch), machine.start(batch)], 900 * MS);
        equal(one.rate(), other.rate());
        near(one.rate() + other.rate(), 1.0 / (4000.0 * ITERATION));
        // A kernel of another context that does not end is interrupted after a slice.
        let [serve, hog] = run([machine.start(SHORT), machine.start("hog-sm")], 600 * MS);
        assert!(most(&serve.times("began")) < 20 * MS, "{:?}", serve.times("began"));
        let part = serve.rate() * 200.0 * ITERATION;
        assert!((0.15..0.65).contains(&part), "{part}");
        assert!(hog.complete().len() >= 5, "its clock runs on");
    });
}

#[test]
fn a_percentage_is_a_ceiling_for_sms_and_not_for_bandwidth() {
    measured(|| {
        let machine = Machine::new();
        let rate = 1.0 / (1000.0 * ITERATION);
        let [half] = run([machine.start_client("batch --fma 1000 --bytes 0", 50)], 400 * MS);
        near(half.rate(), rate / 2.0);
        let [one, other] = run(
            [
                machine.start_client("batch --fma 1000 --bytes 0", 80),
                machine.start_client("batch --fma 1000 --bytes 0", 20),
            ],
            500 * MS,
        );
        near(one.rate(), rate * 0.8);
        near(other.rate(), rate * 0.2);
        let [one, other] = run(
            [
                machine.start_client("hog-dram", 80),
                machine.start_client("hog-dram", 50),
            ],
            300 * MS,
        );
        near(one.rate(), BANDWIDTH as f64 / 2.0);
        near(other.rate(), BANDWIDTH as f64 / 2.0);
    });
}

#[test]
fn long_kernels_keep_clients_without_a_limit_waiting() {
    measured(|| {
        let machine = Machine::new();
        let times = |percent| {
            let serve = machine.start_client(SHORT, percent);
            let hog = machine.start_client("hog-sm", percent);
            let [serve, _] = run([serve, hog], 600 * MS);
            serve.times("began")
        };
        assert!(*times(100).last().unwrap() > 80 * MS);
        assert!(most(&times(50)) < 20 * MS);
    });
}

#[test]
fn the_neighbours_copies_push_data_out_of_the_cache() {
    measured(|| {
        let machine = Machine::new();
        let [cached, _] = run(
            [machine.start_client("hog-l2", 50), machine.start_client("hog-dram", 50)],
            300 * MS,
        );
        near(cached.rate(), BANDWIDTH as f64 / 2.0);
    });
}

#[test]
fn a_fault_reaches_the_clients_of_the_same_server_alone() {
    measured(|| {
        let machine = Machine::new();
        let mut neighbour = machine.start_client(SHORT, 50);
        let mut other = machine.start(SHORT);
        let mut fault = machine.start_client("fault", 50);
        let begin = now() + 200 * MS;
        for load in [&mut neighbour, &mut other, &mut fault] {
            load.ready();
            load.say(&format!("start {begin} {}\n", begin + 200 * MS));
        }
        let at = number(&fault.finish().complete()[0], "at");
        let ended = neighbour.finish();
        assert_eq!(ended.code, Some(1));
        let (last, before) = ended.events.split_last().unwrap();
        let seen = number(last, "at");
        assert!(seen >= begin && seen < at + 50 * MS, "{at} {last}");
        let expected = json!({"event": "error", "at": seen, "call": last["call"], "code": 719, "name": "CUDA_ERROR_LAUNCH_FAILED"});
        assert_eq!(*last, expected);
        // What was done before it is reported.
        assert!(before.iter().all(|event| event["event"] == "finished"), "{before:?}");
        assert!(
            ended.error.ends_with("returned CUDA_ERROR_LAUNCH_FAILED (719)\n"),
            "{}",
            ended.error
        );
        assert!(other.finish().complete().len() > 50);
        // The server serves new clients.
        assert!(
            !run([machine.start_client(SHORT, 50)], 100 * MS)[0]
                .complete()
                .is_empty()
        );
    });
}

#[test]
fn the_work_of_a_killed_process_ends_with_it() {
    measured(|| {
        let machine = Machine::new();
        let (mut hog, mut other) = (machine.start_client("hog-sm", 100), machine.start_client(SHORT, 100));
        hog.ready();
        other.ready();
        hog.say(&format!("start {} {}\n", now(), now() + 10_000 * MS));
        std::thread::sleep(std::time::Duration::from_millis(20));
        drop(hog);
        other.say(&format!("start {} {}\n", now(), now() + 100 * MS));
        // The kernel that was killed would have lasted for 80 ms more.
        assert!(number(&other.finish().complete()[0], "done") < 40 * MS);
    });
}

#[test]
fn memory_is_what_the_limit_and_the_neighbours_leave() {
    let machine = Machine::new();
    let pipe = machine.top.path().join("mps");
    let pipe = ("CUDA_MPS_PIPE_DIRECTORY", pipe.to_str().unwrap());
    let mut limited = machine.start_with("greedy", &[pipe, ("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", "0=1000M")]);
    limited.ready();
    limited.say(&format!("start {} {}\n", now(), now() + 1000 * MS));
    let (allocated, refused) = (limited.event(), limited.event());
    // 1 MiB is for results. Blocks of 256 MiB, and then of 128, 64, 32, 4 and 2.
    assert_eq!(
        allocated,
        json!({"event": "allocated", "bytes": 998 * MIB, "blocks": 3 + 5})
    );
    let expected = json!({
        "event": "refused", "call": "cuMemAlloc_v2", "code": 2, "name": "CUDA_ERROR_OUT_OF_MEMORY", "bytes": 2 * MIB
    });
    assert_eq!(refused, expected);
    // It holds what it has: the others get the rest.
    let mut other = machine.start("greedy");
    assert_eq!(number(&other.ready(), "free_bytes"), (4096 - 999 - 1) * MIB);
    other.say(&format!("start {} {}\n", now(), now() + 100 * MS));
    assert_eq!(
        number(&other.event(), "bytes"),
        (4096 - 999 - 1) * MIB / (2 * MIB) * 2 * MIB
    );
    // The memory of a process comes back at its end.
    assert_eq!(other.finish().complete()[0]["event"], "refused");
    assert!(limited.finish().complete().is_empty());
    assert_eq!(number(&machine.start("probe").ready(), "free_bytes"), 4095 * MIB);
}

#[test]
fn a_probe_sees_the_sms_of_its_percentage() {
    let machine = Machine::new();
    // Those who come first have the first ones.
    let mut half = machine.start_client("probe", 50);
    half.ready();
    let mut fifth = machine.start_client("probe", 20);
    fifth.ready();
    let mut all = machine.start("probe");
    all.ready();
    let begin = now();
    let [half, fifth, all] = [half, fifth, all].map(|mut probe| {
        probe.say(&format!("start {begin} {}\n", begin + 50 * MS));
        probe
    });
    let [half, fifth, all] = [half, fifth, all].map(Load::finish);
    let sms = |from: u64, to: u64| json!({"event": "probed", "sms": (from..to).collect::<Vec<_>>(), "blocks": 1024});
    assert_eq!(half.complete(), [sms(0, SMS / 2)]);
    assert_eq!(fifth.complete(), [sms(SMS / 2, SMS * 7 / 10)]);
    assert_eq!(all.complete(), [sms(0, SMS)]);
}
