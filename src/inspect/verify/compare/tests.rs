use super::*;
use serde_json::{Value, json};

const UUID: &str = "GPU-11111111-2222-3333-4444-555555555555";

/// 60 % of 40 SMs, and 8 GiB of 15360 MiB, under MPS.
fn big() -> Promised {
    Promised {
        cdi: "nvidia.com/gpu=1.big".into(),
        uuid: Some(UUID.into()),
        memory: Some(MemorySize::from_mib(15360)),
        sms: Some(40),
        promise: Some(Promise::Mps {
            memory: Some(MemorySize::from_mib(8192)),
            compute: Some("60%".parse().unwrap()),
        }),
    }
}

/// A report of one device that is as `big` promises, changed by `edit`.
fn report(edit: impl FnOnce(&mut Value)) -> CudaReport {
    let mut device = json!({
        "name": "Tesla T4", "uuid": &UUID[4..], "compute_mode": "default", "sms": 24, "mps": true,
        "memory_free": 8192_u64 << 20, "memory_total": 15360_u64 << 20, "largest_allocation": null, "not_asked": {}
    });
    edit(&mut device);
    serde_json::from_value(json!({
        "version": 1, "uid": 0, "environment": {"CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": format!("{UUID}=8192M")},
        "mps": {"pipe_directory": "/tmp/nvidia-mps", "accepts": true, "errno": null}, "cuda": 12040, "device_count": 1,
        "devices": [device]
    }))
    .unwrap()
}

fn lines(promised: &[Promised], report: &CudaReport) -> Vec<String> {
    checks(promised, report).iter().map(ToString::to_string).collect()
}

/// The line of one check of `big`.
fn line(of: &str, edit: impl FnOnce(&mut Value)) -> String {
    let beginning = format!("nvidia.com/gpu=1.big {of}: ");
    let lines = lines(&[big()], &report(edit));
    let line = lines.iter().find_map(|line| line.strip_prefix(&beginning));
    line.unwrap_or_else(|| panic!("{lines:?}")).to_owned()
}

#[test]
fn a_share_that_is_as_promised() {
    let expected = [
        format!(
            "nvidia.com/gpu=1.big device: promised {UUID}; CUDA gives {}; as promised",
            &UUID[4..]
        ),
        "nvidia.com/gpu=1.big memory: promised 8192 MiB; CUDA gives 8192 MiB free of 15360 MiB; as promised".into(),
        "nvidia.com/gpu=1.big compute: promised 24 SMs (60%); CUDA gives 24 SMs; as promised".into(),
        "nvidia.com/gpu=1.big mps: promised a client of its MPS daemon; CUDA gives a client of MPS; as promised".into(),
    ];
    assert_eq!(lines(&[big()], &report(|_| {})), expected);
}

#[test]
fn more_than_promised_means_that_no_limit_is_in_effect() {
    for (of, field, value) in [
        ("memory", "memory_free", json!(8193_u64 << 20)),
        ("compute", "sms", json!(25)),
        ("mps", "mps", json!(false)),
    ] {
        let line = line(of, |device| device[field] = value);
        assert!(line.contains("MORE THAN PROMISED: no limit is in effect"), "{line}");
    }
}

#[test]
fn less_than_promised_is_said_where_it_is_certain() {
    let total = line("memory", |device| {
        device["memory_free"] = json!(4000_u64 << 20);
        device["memory_total"] = json!(4096_u64 << 20);
    });
    assert!(total.ends_with("; LESS"), "{total}");
    let compute = line("compute", |device| device["sms"] = json!(12));
    assert!(compute.ends_with("; LESS: a lower ceiling is in effect"), "{compute}");
    // A lower limit, or the memory is in use: CUDA does not say which.
    let used = line("memory", |device| device["memory_free"] = json!(1000_u64 << 20));
    assert!(
        used.contains("; not asked: whether processes on the device use the rest"),
        "{used}"
    );
    let mut own = report(|device| device["memory_free"] = json!(1000_u64 << 20));
    let limits = "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT".to_owned();
    own.environment.insert(limits, format!("GPU-other=9G, {UUID}=1G"));
    let line = &lines(&[big()], &own)[1];
    assert!(
        line.ends_with("; LESS: CUDA_MPS_PINNED_DEVICE_MEM_LIMIT says 1024 MiB"),
        "{line}"
    );
}

#[test]
fn hardware_rounds_compute_down_and_a_context_uses_memory() {
    let compute = line("compute", |device| device["sms"] = json!(16));
    assert!(compute.ends_with("as promised"), "{compute}");
    let memory = line("memory", |device| device["memory_free"] = json!(7200_u64 << 20));
    assert!(memory.ends_with("as promised"), "{memory}");
}

#[test]
fn what_could_not_be_asked_has_its_reason() {
    for (of, field) in [("memory", "memory_free"), ("compute", "sms"), ("mps", "mps")] {
        let line = line(of, |device| {
            device[field] = Value::Null;
            device["not_asked"] = json!({field: "cuX returned 46"});
        });
        assert!(line.contains("not asked: cuX returned 46"), "{line}");
    }
    let unknown = Promised { sms: None, ..big() };
    let line = &lines(&[unknown], &report(|_| {}))[2];
    assert_eq!(
        line,
        "nvidia.com/gpu=1.big compute: promised 60%; CUDA gives 24 SMs; not asked: the host does not say how many SMs the \
         whole device has"
    );
}

#[test]
fn another_device_and_no_device() {
    let other = lines(&[big()], &report(|device| device["uuid"] = json!("aaaaaaaa-0")));
    assert!(other[0].contains("CUDA gives aaaaaaaa-0; LESS"), "{other:?}");
    assert!(
        other[1].ends_with("MORE THAN PROMISED: a container with a share under MPS has no other device"),
        "{other:?}"
    );
    let none = CudaReport {
        devices: Vec::new(),
        ..report(|_| {})
    };
    assert!(lines(&[big()], &none)[0].contains("CUDA gives no device; LESS"));
    let failed = CudaReport {
        version: 1,
        error: Some("cuInit returned CUDA_ERROR_NOT_PERMITTED (800)".into()),
        ..CudaReport::default()
    };
    let line = lines(&[big()], &failed);
    assert_eq!(
        line,
        ["cuda: promised a device; LESS: cuInit returned CUDA_ERROR_NOT_PERMITTED (800)"]
    );
}

#[test]
fn an_instance_of_an_old_driver_is_the_one_that_is_there() {
    let old = || Promised {
        uuid: Some("MIG-GPU-11111111-2222/7/0".into()),
        ..big()
    };
    let lines_of_one = lines(&[old()], &report(|_| {}));
    assert!(
        lines_of_one[0].ends_with("not asked: CUDA does not name instances as this driver does"),
        "{lines_of_one:?}"
    );
    assert!(lines_of_one[1].ends_with("as promised"), "{lines_of_one:?}");
}

#[test]
fn a_share_by_turns_and_a_container_without_a_claim_promise_nothing_of_size() {
    let turns = Promised {
        promise: Some(Promise::Slices { slices: 1, of: 2 }),
        ..big()
    };
    let report = report(|device| {
        device["sms"] = json!(40);
        device["mps"] = json!(false);
        device["memory_free"] = device["memory_total"].clone();
    });
    let lines_of_turns = lines(&[turns], &report);
    assert!(lines_of_turns[0].ends_with("as promised"), "{lines_of_turns:?}");
    assert!(
        lines_of_turns[1..]
            .iter()
            .all(|line| line.ends_with("; nothing is promised")),
        "{lines_of_turns:?}"
    );
    let expected = format!(
        "device: CUDA gives {}: 40 SMs, 15360 MiB free of 15360 MiB, not under MPS; nothing is promised",
        &UUID[4..]
    );
    assert_eq!(lines(&[], &report), [expected]);
}

#[test]
fn a_whole_device_is_all_of_it() {
    let whole = || Promised {
        promise: Some(Promise::Whole),
        ..big()
    };
    let all = report(|device| device["memory_total"] = json!(15000_u64 << 20));
    let line = &lines(&[whole()], &all)[1];
    assert_eq!(
        line,
        "nvidia.com/gpu=1.big memory: promised all 15360 MiB; CUDA gives 8192 MiB free of 15000 MiB; as promised"
    );
    let part = report(|device| device["memory_total"] = json!(10000_u64 << 20));
    assert!(lines(&[whole()], &part)[1].ends_with("; LESS"));
}
