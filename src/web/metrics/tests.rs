use super::*;
use crate::intake::tests::{Scene, gpu, uptime};
use std::fs;
use tranche_core::ledger::events::EventKind;

/// What a broker wrote of a device with four shares, of which two are held, and an MPS daemon.
fn status(device: &str) -> String {
    format!(
        r#"{{"version":1,"written":1700000000,"devices":[{{"device":"{device}","key":"{}","strategy":"mps",
           "shares":["0","1","2","3"],"count":4,"free":["2","3"],"free_together":2,"readable":true,
           "claims":[{{"shares":["0"],"state":"held","since":1700000001}},
                     {{"shares":["1"],"state":"reserved","since":1700000002}}],
           "daemon":{{"state":"running","since":1700000000,"restarts":2}},
           "turns":{{"is_held":true,"suspended":2,"host_memory_bytes":5368709120,"changes":7,"last_change_ms":1500}}}}]}}"#,
        gpu(0)
    )
}

fn lines(text: &str) -> Vec<&str> {
    text.lines().filter(|line| !line.starts_with('#')).collect()
}

#[test]
fn it_is_what_everybody_may_know() {
    let mut scene = Scene::new();
    let state = scene.top.path().to_owned();
    scene.take_as(uptime() - 90, &gpu(0), 1, 40_000, "secret");
    let locked = scene.ledger.lock().unwrap().recording(uptime() - 60);
    locked.note_device(EventKind::Waits, 0, &gpu(0), 40_000);
    drop(locked);
    scene.look();
    // Without a broker, what it would say is missing.
    let text = metrics(&scene.database, &state, Names::Tranche).unwrap();
    assert!(
        text.contains("tranche_problems 1\n") && text.ends_with("# EOF\n"),
        "{text}"
    );
    fs::write(state.join("status.json"), status("nvidia.com/gpu=0")).unwrap();
    let text = metrics(&scene.database, &state, Names::Tranche).unwrap();
    let mut found = lines(&text);
    let waited = found
        .iter()
        .position(|line| line.starts_with("tranche_longest"))
        .unwrap();
    let waited: f64 = found.remove(waited).rsplit(' ').next().unwrap().parse().unwrap();
    assert!((60.0..120.0).contains(&waited), "{waited}");
    let build = format!("tranche_build_info{{version=\"{PROGRAM_VERSION}\"}} 1");
    let expected = [
        &build,
        "tranche_problems 0",
        "tranche_device_shares{device=\"nvidia.com/gpu=0\"} 4",
        "tranche_device_shares_held{device=\"nvidia.com/gpu=0\"} 2",
        "tranche_device_shares_free{device=\"nvidia.com/gpu=0\"} 2",
        "tranche_device_shares_of_earlier_policy{device=\"nvidia.com/gpu=0\"} 0",
        "tranche_device_held_whole{device=\"nvidia.com/gpu=0\"} 0",
        "tranche_device_readable{device=\"nvidia.com/gpu=0\"} 1",
        "tranche_device_turn_held{device=\"nvidia.com/gpu=0\"} 1",
        "tranche_device_turn_suspended{device=\"nvidia.com/gpu=0\"} 2",
        "tranche_device_turn_host_memory_bytes{device=\"nvidia.com/gpu=0\"} 5368709120",
        "tranche_device_turn_changes_total{device=\"nvidia.com/gpu=0\"} 7",
        "tranche_device_turn_last_change_seconds{device=\"nvidia.com/gpu=0\"} 1.5",
        "tranche_claim_held{device=\"nvidia.com/gpu=0\",shares=\"0\",strategy=\"mps\",claim=\"\",container=\"\",container_name=\"\"} 1",
        "tranche_claim_held{device=\"nvidia.com/gpu=0\",shares=\"1\",strategy=\"mps\",claim=\"\",container=\"\",container_name=\"\"} 0",
        "tranche_claim_start_time_seconds{device=\"nvidia.com/gpu=0\",shares=\"0\"} 1700000001",
        "tranche_claim_start_time_seconds{device=\"nvidia.com/gpu=0\",shares=\"1\"} 1700000002",
        "tranche_waiters 1",
        "tranche_mps_daemon_running{device=\"nvidia.com/gpu=0\"} 1",
        "tranche_mps_daemon_restarts_total{device=\"nvidia.com/gpu=0\"} 2",
    ];
    assert_eq!(found, expected);
}

#[test]
fn devices_have_the_labels_of_others_as_far_as_everybody_knows_them() {
    let mut scene = Scene::new();
    let state = scene.top.path().to_owned();
    scene.look();
    fs::write(state.join("status.json"), status("nvidia.com/gpu=0")).unwrap();
    let key = gpu(0);
    for (names, labels) in [
        (Names::Otel, format!("hw_id=\"{key}\"")),
        (Names::Dcgm, format!("gpu=\"0\",UUID=\"{key}\"")),
    ] {
        let text = metrics(&scene.database, &state, names).unwrap();
        let expected = format!("tranche_device_shares_held{{device=\"nvidia.com/gpu=0\",{labels}}} 2\n");
        assert!(text.contains(&expected), "{text}");
    }
}
