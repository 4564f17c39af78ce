//! tranche's own ways to ask.

use super::*;

#[test]
fn a_part_of_a_device_is_asked_for_by_its_size() {
    check(&[
        (
            "TRANCHE_MEMORY=8Gi TRANCHE_COMPUTE=30%",
            "environment memory:8192Mi compute:30%",
        ),
        (
            "@tranche.dev/memory=8Gi @tranche.dev/compute=30",
            "annotation memory:8192Mi compute:30%",
        ),
        ("TRANCHE_SHARES=3", "environment shares:3"),
        (
            "@tranche.dev/shares=3 @tranche.dev/wait=1m30s",
            "annotation shares:3 wait:90000ms",
        ),
        ("@tranche.dev/memory=8Gi accept:never", "annotation memory:8192Mi"),
        ("@tranche.dev/memory=8Gi mode:legacy", "annotation memory:8192Mi"),
        (
            "TRANCHE_MEMORY=8Gi accept:privileged privileged",
            "environment memory:8192Mi",
        ),
        ("TRANCHE_MEMORY=8Gi accept:privileged", "nothing"),
        ("TRANCHE_MEMORY= @tranche.dev/memory=~", "nothing"),
        (
            "NVIDIA_VISIBLE_DEVICES=0.any TRANCHE_WAIT=30s",
            "environment 0.any wait:30000ms",
        ),
        (
            "NVIDIA_VISIBLE_DEVICES=0.any @tranche.dev/wait=0",
            "environment 0.any wait:0ms",
        ),
        ("TRANCHE_GPU=1 @tranche.dev/unknown=1", "nothing"),
    ]);
}

#[test]
fn the_devices_say_of_which_device_the_part_is() {
    let line = |devices: &str| format!("TRANCHE_MEMORY=8Gi NVIDIA_VISIBLE_DEVICES={devices}");
    for (devices, expected) in [
        ("", "environment memory:8192Mi"),
        ("all", "environment memory:8192Mi"),
        ("void", "environment memory:8192Mi"),
        ("nvidia.com/gpu=all", "environment memory:8192Mi"),
        ("1", "environment memory:8192Mi of:1"),
        ("0:1", "environment memory:8192Mi of:0:1"),
        ("1.any", "environment memory:8192Mi of:1"),
        ("nvidia.com/gpu=1", "environment memory:8192Mi of:1"),
        ("nvidia.com/gpu=1.any,1", "environment memory:8192Mi of:1"),
        ("GPU-8188460b", "environment memory:8192Mi of:GPU-8188460b"),
        // Devices of other kinds come in addition.
        ("1,x.com/nic=a", "environment x.com/nic=a memory:8192Mi of:1"),
        ("x.com/nic=a", "environment x.com/nic=a memory:8192Mi"),
    ] {
        check(&[(&line(devices), expected)]);
    }
    check(&[
        (
            "@cdi.k8s.io/a=nvidia.com/gpu=2 @tranche.dev/shares=2",
            "annotation shares:2 of:2",
        ),
        (
            "@tranche.dev/memory=1Gi @cdi.k8s.io/a=2 mode:cdi",
            "annotation memory:1024Mi of:2",
        ),
        // An environment that may not ask says nothing about the device either.
        (
            "@tranche.dev/memory=1Gi NVIDIA_VISIBLE_DEVICES=2 accept:never",
            "annotation memory:1024Mi",
        ),
    ]);
    for (devices, expected) in [
        ("0,1", "names 2 devices"),
        ("0,nvidia.com/gpu=1", "names 2 devices"),
        ("none", "names no device"),
        ("0.big", "names the share 0.big"),
        ("0::3", "names the share 0.3"),
        ("nvidia.com/gpu=0.big", "names the share 0.big"),
        ("gpu0", "names \"nvidia.com/gpu=gpu0\""),
    ] {
        let expected = format!(
            "NVIDIA_VISIBLE_DEVICES: {expected}, but TRANCHE_MEMORY asks for a part of one device by its size; name one \
             device, such as 0, or all for any; or leave TRANCHE_MEMORY out"
        );
        assert_eq!(refused(&line(devices)), expected);
    }
}

#[test]
fn an_annotation_wins_over_the_environment_and_the_contradiction_is_noted() {
    let found = asked("@tranche.dev/memory=8Gi TRANCHE_MEMORY=4Gi");
    assert_eq!(shown(&found), "annotation memory:8192Mi");
    assert_eq!(
        found.notes,
        ["TRANCHE_MEMORY=4Gi is ignored, because the annotation tranche.dev/memory is 8Gi"]
    );
    // The same amount in other words is no contradiction.
    assert!(asked("@tranche.dev/memory=8Gi TRANCHE_MEMORY=8192MiB").notes.is_empty());
    assert_eq!(asked("@tranche.dev/memory=8Gi TRANCHE_MEMORY=x").notes.len(), 1);
    assert_eq!(
        asked("TRANCHE_WAIT=30s").notes,
        ["TRANCHE_WAIT has no effect, because the container asks for no device"]
    );
}

#[test]
fn an_amount_that_is_invalid_is_refused_with_its_name() {
    for (word, expected) in [
        ("TRANCHE_MEMORY=8", "TRANCHE_MEMORY: is invalid: \"8\": has no unit"),
        (
            "TRANCHE_MEMORY=30%",
            "TRANCHE_MEMORY: is invalid: \"30%\": not a size of memory",
        ),
        (
            "TRANCHE_MEMORY=0Gi",
            "TRANCHE_MEMORY: is invalid: \"0Gi\": is less than 1 MiB",
        ),
        (
            "TRANCHE_COMPUTE=0",
            "TRANCHE_COMPUTE: is invalid: 0%: a share is 1% to 100%",
        ),
        ("TRANCHE_COMPUTE=101%", "TRANCHE_COMPUTE: is invalid: 101%"),
        (
            "TRANCHE_SHARES=0",
            "TRANCHE_SHARES: is invalid: \"0\": not a number of shares",
        ),
        (
            "TRANCHE_SHARES=0.big",
            "TRANCHE_SHARES: is invalid: \"0.big\": not a number of shares",
        ),
        (
            "@tranche.dev/wait=soon",
            "annotation tranche.dev/wait: is invalid: \"soon\": not a time to wait",
        ),
    ] {
        let line = refused(word);
        assert!(line.starts_with(expected), "{line}");
    }
}
