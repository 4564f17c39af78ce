//! Compute instances of one GPU instance, which share its memory.

use super::*;

/// The host `dgx-a100-mig`, whose GPU 2 has three compute instances in one GPU instance and two in another.
fn on_compute_instances(sharing: &str) -> Result<Plan> {
    plan(
        &policy(&format!("sharing:\n{sharing}")),
        &crate::sim::open("dgx-a100-mig").unwrap(),
    )
}

#[test]
fn a_compute_instance_beside_others_of_its_gpu_instance_is_not_dedicated() {
    let refused = on_compute_instances("  dedicated: {devices: [\"2:0\"]}\n")
        .unwrap_err()
        .to_string();
    assert!(
        refused.contains(
            "gpu 2:0: cannot be dedicated: it shares the memory and the errors of GPU instance 1 of gpu 2 with 2:1, 2:2"
        ),
        "{refused}"
    );
    let alone = on_compute_instances("  dedicated: {devices: [\"4:0\", \"0:0\"]}\n").unwrap();
    assert!(
        alone
            .devices
            .iter()
            .all(|device| device.shares.distinct()[0].guarantees.memory.grade == Grade::Hard)
    );
}

#[test]
fn compute_instances_promise_the_memory_of_their_gpu_instance_once() {
    let mps = |devices: &str, sizes: &str| {
        on_compute_instances(&format!(
            "  mps:\n    resources:\n    - {{name: nvidia.com/gpu, devices: [{devices}], {sizes}}}\n"
        ))
    };
    let three = "\"2:0\", \"2:1\", \"2:2\"";
    let refused = mps(three, "replicas: 2").unwrap_err().to_string();
    assert!(
        refused.contains("shares of the compute instances of GPU instance 1 of gpu 2 ask for 58.8 GiB of 19.6 GiB")
            && refused.contains("overcommit.memory to 3"),
        "{refused}"
    );
    let fits = mps(three, "shares: [{name: a, memory: 6Gi, compute: 100%}]").unwrap();
    for device in &fits.devices {
        let Guarantees {
            memory,
            bandwidth,
            faults,
            compute,
            ..
        } = &device.shares.distinct()[0].guarantees;
        assert_eq!(
            (memory.grade, device.memory_left.mib()),
            (Grade::Advisory, fits.devices[0].memory_left.mib())
        );
        for shared in [memory, bandwidth, faults] {
            assert!(
                shared.grade < Grade::Hard && shared.by.ends_with("; against other GPU instances: hard"),
                "{}",
                shared.by
            );
        }
        assert!(
            compute.by.ends_with("; against other MIG instances: hard"),
            "{}",
            compute.by
        );
    }
    assert!(
        fits.devices[0].memory_left.mib() < 3 * 1024,
        "{}",
        fits.devices[0].memory_left.mib()
    );
    // One of the others is given without a limit.
    let with_another = mps("\"2:0\", \"2:1\"", "shares: [{name: a, memory: 6Gi, compute: 100%}]").unwrap();
    let memory = &with_another.devices[0].shares.distinct()[0].guarantees.memory;
    assert_eq!((memory.grade, memory.root), (Grade::None, Grade::None));
    assert!(
        memory
            .by
            .starts_with("2:2 of GPU instance 1 of gpu 2 has no limit of memory"),
        "{}",
        memory.by
    );
}
