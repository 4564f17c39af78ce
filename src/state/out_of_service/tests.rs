use super::*;
use std::fs;
use std::sync::Barrier;

fn device(label: &str, key: &str) -> NamedDevice {
    NamedDevice {
        label: label.to_owned(),
        key: key.parse().unwrap(),
    }
}

fn out(state: &Path) -> Vec<String> {
    let mut devices: Vec<String> = OutOfService::read(state)
        .drained
        .iter()
        .map(|one| one.device.to_string())
        .collect();
    devices.sort();
    devices
}

#[test]
fn a_second_drain_keeps_the_time_of_the_first_and_takes_the_new_reason() {
    let state = tempfile::tempdir().unwrap();
    let gpu = [device("gpu 0", "GPU-11111111")];
    let first = drain(state.path(), &gpu, DrainTime::Now(100), Some("a fan")).unwrap();
    assert_eq!((first[0].0.from, first[0].1.as_ref()), (100, None));
    let second = drain(state.path(), &gpu, DrainTime::Now(200), Some("memory")).unwrap();
    assert_eq!(second[0].0.from, 100);
    assert_eq!(second[0].1.as_ref(), Some(&first[0].0), "what was there is not lost");
    assert_eq!(OutOfService::read(state.path()).drained, [second[0].0.clone()]);
    let ended = undrain(state.path(), &gpu).unwrap();
    assert_eq!(ended, [vec![second[0].0.clone()]]);
    assert_eq!(
        undrain(state.path(), &gpu).unwrap(),
        [vec![]],
        "it is in service already"
    );
    assert!(
        !OutOfService::drained_file(state.path()).exists(),
        "an empty file costs every start"
    );
}

#[test]
fn a_second_drain_changes_what_is_asked_for_and_keeps_the_rest() {
    let state = tempfile::tempdir().unwrap();
    let gpu = [device("gpu 0", "GPU-11111111")];
    let now = when::now();
    let again = |time, reason| {
        let done = drain(state.path(), &gpu, time, reason).unwrap();
        let [(outage, _)] = done.as_slice() else {
            panic!("{done:?}")
        };
        (outage.from, outage.reason.clone(), outage.is_in_force())
    };
    let fan = Some("a fan".to_owned());
    assert_eq!(again(DrainTime::Now(now), Some("a fan")), (now, fan.clone(), true));
    // The time that was asked for counts, also if the device is in service until then.
    let later = now + 7200;
    assert_eq!(again(DrainTime::At(later), None), (later, fan.clone(), false));
    assert_eq!(again(DrainTime::Now(now), None), (now, fan, true));
    let memory = Some("memory".to_owned());
    assert_eq!(again(DrainTime::Now(now + 2), Some("memory")), (now, memory, true));
}

#[test]
fn administrators_at_once_lose_nothing_of_each_other() {
    let state = tempfile::tempdir().unwrap();
    let (path, start) = (state.path(), Barrier::new(8));
    std::thread::scope(|threads| {
        for number in 0..8 {
            let start = &start;
            threads.spawn(move || {
                let own = [device("gpu", &format!("GPU-0000000{number}"))];
                start.wait();
                for _ in 0..10 {
                    drain(path, &own, DrainTime::Now(1), None).unwrap();
                    assert_eq!(undrain(path, &own).unwrap()[0].len(), 1, "another one took it away");
                }
                drain(path, &own, DrainTime::Now(1), None).unwrap();
            });
        }
    });
    let all: Vec<String> = (0..8).map(|number| format!("GPU-0000000{number}")).collect();
    assert_eq!(out(path), all);
}

#[test]
fn a_damaged_file_is_repaired_by_undrain_all_and_by_nothing_else() {
    let state = tempfile::tempdir().unwrap();
    let gpu = [device("gpu 0", "GPU-11111111")];
    drain(state.path(), &gpu, DrainTime::Now(1), None).unwrap();
    let file = OutOfService::drained_file(state.path());
    fs::write(&file, "{").unwrap();
    for error in [
        drain(state.path(), &gpu, DrainTime::Now(1), None).unwrap_err(),
        undrain(state.path(), &gpu).unwrap_err(),
    ] {
        let line = error.to_string();
        assert!(
            line.contains("is damaged") && line.contains("tranche undrain all"),
            "{line}"
        );
    }
    assert_eq!(fs::read_to_string(&file).unwrap(), "{");
    assert_eq!(undrain_all(state.path()).unwrap(), []);
    assert!(OutOfService::read(state.path()).is_empty());
}

#[test]
fn a_mig_device_of_a_drained_gpu_comes_back_with_its_gpu() {
    let state = tempfile::tempdir().unwrap();
    let (gpu, mig) = (device("gpu 0", "GPU-11111111"), device("mig 0:1", "GPU-11111111/7/0"));
    drain(state.path(), &[gpu.clone(), mig.clone()], DrainTime::Now(1), None).unwrap();
    let line = undrain(state.path(), &[mig]).unwrap_err().to_string();
    assert!(line.contains("mig 0:1: the GPU that it is on is out of service") && line.contains("undrain GPU-11111111"));
    assert_eq!(out(state.path()).len(), 2, "nothing is half done");
    undrain(state.path(), &[gpu]).unwrap();
    assert_eq!(out(state.path()).len(), 0);
}

#[test]
fn a_prohibited_mode_counts_until_it_is_known_to_be_another() {
    let state = tempfile::tempdir().unwrap();
    let mut host = tranche_plan::sim::open("t4x2").unwrap();
    let key = DeviceKey::whole(host.gpus[0].uuid.clone());
    let why = || OutOfService::read(state.path()).why(&key).map(|why| why.to_string());
    for (mode, is_out) in [
        (Some(ComputeMode::Default), false),
        (Some(ComputeMode::Prohibited), true),
        (None, true),
        (Some(ComputeMode::ExclusiveProcess), false),
    ] {
        host.gpus[0].compute_mode = mode;
        record_prohibited(&host, state.path()).unwrap();
        assert_eq!(
            why().is_some_and(|why| why.contains("is PROHIBITED")),
            is_out,
            "{mode:?}"
        );
        assert_eq!(of_host(&host, state.path()).why(&key).is_some(), is_out, "{mode:?}");
        let gpu = [NamedDevice {
            label: "gpu 0".into(),
            key: key.clone(),
        }];
        let undrained = undrain(state.path(), &gpu);
        assert_eq!(
            undrained.is_err_and(|error| error.to_string().contains("-c DEFAULT")),
            is_out
        );
    }
}

#[test]
fn reasons_are_one_short_line() {
    check_reason("a fan").unwrap();
    for bad in ["", " ", "a\nb", "\u{1b}[31m", &"x".repeat(201)] {
        assert!(check_reason(bad).is_err(), "{bad:?}");
    }
}

#[test]
fn devices_by_name_and_a_lost_gpu_by_its_uuid() {
    let host = tranche_plan::sim::open("t4x2").unwrap();
    let find = |text: &str| NamedDevice::find(&host, &text.parse().unwrap());
    assert_eq!(find("1").unwrap().label, "gpu 1");
    assert_eq!(
        find("GPU-99999999-0000-0000-0000-000000000000")
            .unwrap()
            .key
            .gpu()
            .as_str(),
        "GPU-99999999-0000-0000-0000-000000000000"
    );
    assert!(find("7").unwrap_err().to_string().contains("not found"));
    assert_eq!(NamedDevice::all(&host).len(), 2);
}

/// The clock of a machine without a battery is that of 1970 after a boot.
#[test]
fn an_outage_whose_time_has_come_is_recorded_as_one_that_began() {
    let state = tempfile::tempdir().unwrap();
    let gpu = [device("gpu 0", "GPU-11111111")];
    drain(state.path(), &gpu, DrainTime::At(when::now() + 3600), None).unwrap();
    let file = OutOfService::drained_file(state.path());
    let began = || fs::read_to_string(&file).unwrap().contains("began");
    assert!(!began());
    add_checksum(state.path()).unwrap();
    assert!(!began());
    // An hour later.
    let outage = format!(
        "{{\"version\":1,\"devices\":[{{\"device\":\"GPU-11111111\",\"from\":{}}}]}}",
        when::now()
    );
    fs::write(&file, sealed::seal(&outage).as_bytes()).unwrap();
    assert!(!began());
    add_checksum(state.path()).unwrap();
    assert!(began());
    // Who drains it again does not end that.
    drain(state.path(), &gpu, DrainTime::Now(when::now()), None).unwrap();
    assert!(began());
}
