//! What `tranche plan` says of the memory of shares: what keeps it, and whose it is.

use crate::support::fake_host;
use crate::{Said, tranche};

/// The plan of one device of a workstation with driver 615 and, if `has_cgroup_v2`, cgroups of version 2.
fn plan_of_615(has_cgroup_v2: bool, key: &str) -> String {
    let top = tempfile::tempdir().unwrap();
    let at = top.path().join("host");
    let host = fake_host::build_with_driver("workstation-rtx4090", "615.71.09", &at).unwrap();
    if has_cgroup_v2 {
        std::fs::create_dir_all(host.path("/sys/fs/cgroup")).unwrap();
        std::fs::write(host.path("/sys/fs/cgroup/cgroup.controllers"), "memory pids\n").unwrap();
    }
    let file = top.path().join("config.yaml");
    let text = format!(
        "version: v1\nsharing:\n  mps:\n{key}    resources:\n    - name: nvidia.com/gpu\n      shares:\n      \
         - {{name: big, compute: 80%, memory: 60%}}\n      - {{name: small, compute: 20%, memory: 30%}}\n"
    );
    std::fs::write(&file, text).unwrap();
    let (root, config) = (
        format!("--root={}", host.root.display()),
        format!("--config={}", file.display()),
    );
    let Said { code, out, err } = tranche(&["plan", &root, &config]);
    assert_eq!(code, Some(0), "{err}");
    out
}

const WITH_CGROUP_LIMITS: &str = "\
gpu 0: NVIDIA GeForce RTX 4090, 23.9 GiB, mps, 2 shares
  nvidia.com/gpu=0.big    14.3 GiB, up to 80% of compute
  nvidia.com/gpu=0.small  7.1 GiB, up to 20% of compute
  nvidia.com/gpu=0        the whole device, while no share is held
  left over: 2457 MiB of memory, 0% of compute
             ROOT      OTHERS    BECAUSE
  memory     soft      hard      the driver's limit of the container's cgroup
                                 (not measured here); managed memory is not
                                 counted
  compute    advisory  soft      MPS active thread percentage, device in
                                 EXCLUSIVE_PROCESS; a ceiling, not a reservation
  bandwidth  none      none      only MIG divides bandwidth
  faults     none      none      one fault ends every client of the device; its
                                 own daemon keeps it on this device
  not measured here; tranche bench 0 measures it
  gpu 0: while a share is held, the broker sets the compute mode
    EXCLUSIVE_PROCESS, runs an MPS daemon in /run/tranche/mps/0 and limits the
    memory of the cgroup of each container
  a process that is started by exec has the limits of the largest claim that is
    held on the device, and not those of its share: at most 100% of compute

Not in use: compute: ceilings of MPS v3 namespaces (driver 615): a process
  leaves one by naming an SM partition, and none can be changed while it has
  clients
Not in use: compute: static SM partition (CUDA 13.1, Ampere)
ROOT: what holds against a container whose user is root on the host, in no user
  namespace, which is the default of engines that run as root. OTHERS: what
  holds against any other container.
";

const WITHOUT_CGROUP_LIMITS: &str = "\
  memory     advisory  soft      MPS limit of each process, device in
                                 EXCLUSIVE_PROCESS; a process can raise it to
                                 the largest claim's
";

#[test]
fn a_plan_says_what_keeps_the_memory_of_a_share() {
    assert_eq!(plan_of_615(true, ""), WITH_CGROUP_LIMITS);
    let cgroup = "Not in use: memory: hard limit of the container's cgroup: ";
    for (has_cgroup_v2, key, why) in [
        (true, "    enforcement: v2\n", "the policy says\n  enforcement: v2\n"),
        (false, "", "it needs cgroup v2 in\n  /sys/fs/cgroup\n"),
    ] {
        let plan = plan_of_615(has_cgroup_v2, key);
        assert!(plan.contains(WITHOUT_CGROUP_LIMITS), "{plan}");
        assert!(plan.contains(&format!("{cgroup}{why}")), "{plan}");
        assert!(
            !plan.contains("(not measured") && !plan.contains("limits the memory"),
            "{plan}"
        );
    }
}

/// A limit of memory on a GPU that has none of its own is one of RAM, which a program can get around.
#[test]
fn a_share_of_a_gpu_without_memory_of_its_own_is_one_of_ram() {
    let directory = tempfile::tempdir().unwrap();
    let host = fake_host::build("dgx-spark", &directory.path().join("host")).unwrap();
    let root = format!("--root={}", host.root.display());
    let config = directory.path().join("config.yaml");
    let config_is = format!("--config={}", config.display());
    let state = format!("--state-dir={}", directory.path().join("state").display());
    let plan = |strategy: &str, more: &[&str]| {
        let text = format!("sharing:\n  {strategy}:\n    resources:\n    - {{name: nvidia.com/gpu, replicas: 4}}\n");
        std::fs::write(&config, text).unwrap();
        let Said { code, out, err } = tranche(&[&["plan", &root, &config_is, &state], more].concat());
        assert_eq!(code, Some(0), "{err}");
        out
    };
    let text = plan("mps", &[]);
    let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
    for part in [
        "gpu 0: NVIDIA GB10, 119.6 GiB of RAM, mps, 4 equal shares",
        "nvidia.com/gpu=0.any 29.9 GiB of RAM, up to 25% of compute",
        "memory none advisory MPS limit of each process",
        "the memory is the machine's RAM: programs of the processor use it too",
    ] {
        assert!(words.contains(part), "{part}: {text}");
    }
    let json: serde_json::Value = serde_json::from_str(&plan("mps", &["--json"])).unwrap();
    let device = &json["devices"][0];
    assert_eq!(
        (&device["uses_system_memory"], &device["shares"]["each"]["memory"]),
        (&true.into(), &serde_json::json!(30_643_u64 << 20))
    );
    assert!(plan("timeSlicing", &[]).contains("119.6 GiB of RAM, time-slicing"));
    let listed = tranche(&["list", &root]).out;
    assert!(
        listed.contains("119.6 GiB") && listed.contains("memory is RAM, coherent"),
        "{listed}"
    );
}
