//! Containers of a host with two GPUs, of which each test splits some.

use super::*;
use crate::derive::Sharing;
use crate::share::{Unused, Wish, fit};
use std::collections::BTreeSet;
use tranche_core::ledger::OutOfService;
use tranche_core::types::{ContainerPath, HostPath};

const TURNS: &str =
    "sharing:\n  timeSlicing:\n    resources:\n    - {name: nvidia.com/gpu, devices: [0], replicas: 4}\n";
const MPS: &str = "sharing:\n  mps:\n    resources:\n    - {name: nvidia.com/gpu, devices: [0, 1], replicas: 4}\n";
const DEDICATED: &str = "sharing:\n  dedicated: {devices: [0]}\n  mps:\n    resources:\n    - {name: nvidia.com/gpu, devices: [1], replicas: 4}\n";

struct Case {
    inventory: Inventory,
    options: Options,
}

fn host(yaml: &str) -> Case {
    let inventory = crate::sim::open("t4x2").unwrap();
    let policy = crate::policy::read::parse("c.yaml", yaml).unwrap().policy;
    let plan = crate::share::plan(&policy, &inventory).unwrap();
    let sharing = Sharing {
        plan: plan.into(),
        held: BTreeSet::new(),
        out_of_service: OutOfService::default(),
        state_dir: HostPath::new("/run/tranche").unwrap(),
    };
    let options = Options {
        sharing: Some(sharing),
        ..Options::default()
    };
    Case { inventory, options }
}

fn device(index: u32) -> Device {
    Device {
        gpu: tranche_core::types::GpuIndex(index),
        mig: None,
    }
}

impl Case {
    /// The best fit for a number of shares of a GPU.
    fn fit(&self, index: u32, shares: usize) -> Fit {
        let wish = Wish {
            device: Some(device(index)),
            ..Wish::shares(shares)
        };
        fit(&self.options.sharing.as_ref().unwrap().plan, &wish, &Unused).unwrap()
    }

    fn container(&self, plain: &[u32], fits: &[(&str, &Fit)]) -> Result<Derived, ContainerError> {
        let plain: Vec<Device> = plain.iter().map(|index| device(*index)).collect();
        let reserved: Vec<ReservedShares> = fits
            .iter()
            .map(|(claim, fit)| ReservedShares {
                claim: (*claim).to_owned(),
                fit: (*fit).clone(),
                asked_as: Some("nvidia.com/gpu=0.any".to_owned()),
            })
            .collect();
        container(&self.inventory, &self.options, &plain, &reserved)
    }
}

/// The hooks of all edits together, without the program's name and the keys of devices.
fn hooks(derived: &Derived) -> Vec<String> {
    let all = derived.devices.iter().flat_map(|device| &device.edits.hooks);
    let all = derived.common.hooks.iter().chain(all);
    let words = |hook: &crate::edits::HookEdit| {
        let words = hook.args.iter().skip(2).filter(|word| !word.starts_with("--device="));
        let words: Vec<&str> = words.map(String::as_str).collect();
        match words[0] {
            "prepare" => "prepare".to_owned(),
            _ => format!("{} {}", hook.stage.as_str(), words.join(" ")),
        }
    };
    all.map(words).collect()
}

fn nodes(derived: &Derived) -> Vec<Vec<&str>> {
    let devices = derived.devices.iter();
    devices
        .map(|device| device.edits.nodes.keys().map(ContainerPath::as_str).collect())
        .collect()
}

#[test]
fn claims_and_a_whole_device_have_their_common_part_once() {
    let host = host(TURNS);
    let derived = host.container(&[1], &[("start-1", &host.fit(0, 3))]).unwrap();
    let names: Vec<&str> = derived.devices.iter().map(|device| device.name.as_str()).collect();
    assert_eq!(names, ["1", "start-1"]);
    assert_eq!(
        hooks(&derived),
        [
            "prepare",
            "poststop release",
            "createRuntime claim --label=gpu 0 --claim=start-1 --size=3/4 --as=nvidia.com/gpu=0.any"
        ]
    );
    let [whole, share] = &nodes(&derived)[..] else {
        panic!("{derived:?}");
    };
    assert!(
        whole.contains(&"/dev/nvidia1") && share.contains(&"/dev/nvidia0"),
        "{whole:?} {share:?}"
    );
    assert!(!share.contains(&"/dev/nvidiactl"), "control nodes are common");
    assert!(
        derived
            .common
            .nodes
            .keys()
            .any(|node| node.as_str() == "/dev/nvidiactl")
    );
    assert_eq!(
        derived.common.env.get("NVIDIA_VISIBLE_DEVICES"),
        None,
        "the value that asked is kept"
    );
}

#[test]
fn a_container_without_a_claim_runs_no_hook_of_claims() {
    let host = host(TURNS);
    assert_eq!(hooks(&host.container(&[1], &[]).unwrap()), ["prepare"]);
    let files = host.container(&[], &[]).unwrap();
    assert_eq!((hooks(&files), files.devices.len()), (vec!["prepare".to_owned()], 0));
    assert!(!files.common.mounts.is_empty(), "the driver's files");
    let split = hooks(&host.container(&[0], &[]).unwrap());
    assert_eq!(
        split[1..],
        [
            "poststop release",
            "createRuntime claim --label=gpu 0 --whole --as=nvidia.com/gpu=0 --of=4"
        ]
    );
}

#[test]
fn a_share_under_mps_has_its_limits_in_sum_and_nothing_else_in_its_container() {
    let host = host(MPS);
    let (two, other) = (host.fit(0, 2), host.fit(1, 1));
    let derived = host.container(&[], &[("start-1", &two)]).unwrap();
    let edits = &derived.devices[0].edits;
    assert_eq!(edits.env["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"], "50");
    assert!(edits.env["CUDA_MPS_PIPE_DIRECTORY"].contains("mps"));
    assert_eq!(edits.mounts.len(), 1, "the pipe directory");
    assert!(edits.mounts.values().all(|mount| mount.options[0] == "ro"));
    let read_only = self::host(&MPS.replace("mps:\n", "mps:\n    pipe: read-only\n"));
    let read_only = read_only.container(&[], &[("start-1", &two)]).unwrap();
    let mounts = &read_only.devices[0].edits.mounts;
    assert!(
        mounts.len() == 1 && mounts.values().all(|mount| mount.options[0] == "ro"),
        "{mounts:?}"
    );
    let claim = hooks(&derived).pop().unwrap();
    assert!(
        claim.contains("--alone") && claim.contains("--daemon=/run/tranche/mps/0"),
        "{claim}"
    );
    let line = |plain: &[u32], fits: &[(&str, &Fit)]| host.container(plain, fits).unwrap_err().to_string();
    let refused = "gpu 0: this container has an MPS share of it and asks for gpu 1 as well, and a container with an MPS \
                   share can have nothing else; give each device a container of its own, or ask for several shares of \
                   one device";
    assert_eq!(line(&[], &[("start-1", &two), ("start-2", &other)]), refused);
    assert_eq!(line(&[1], &[("start-1", &two)]), refused);
    let same = line(&[0], &[("start-1", &two)]);
    assert!(
        same.contains("asks for gpu 0 as well") && same.contains("ask once for several shares"),
        "{same}"
    );
}

#[test]
fn the_hook_of_a_share_that_may_be_waited_for_has_more_time() {
    let claims = |yaml: &str| -> Vec<(String, Option<u32>)> {
        let Case { inventory, options } = host(yaml);
        let derived = crate::derive::derive(&inventory, &options).unwrap();
        let devices = derived.by_kind().into_iter().flat_map(|kind| kind.devices);
        let hooks = devices.flat_map(|device| device.edits.hooks);
        let claims = hooks.filter(|hook| hook.args.iter().any(|word| word == "claim"));
        claims.map(|hook| (hook.args.join(" "), hook.timeout)).collect()
    };
    let without = claims(TURNS);
    assert!(!without.is_empty());
    assert!(
        without
            .iter()
            .all(|(words, timeout)| !words.contains("--wait") && *timeout == Some(30))
    );
    let with = claims(&format!("{TURNS}  wait: 1500ms\n"));
    assert_eq!(with.len(), without.len());
    assert!(
        with.iter()
            .all(|(words, timeout)| words.contains(" --wait=1s500ms") && *timeout == Some(32)),
        "{with:?}"
    );
    // In addition to the time for the broker.
    let managed = claims(&format!("{MPS}  wait: 30s\n"));
    let expected = Some(30 + 30 + ClaimCall::PREPARING);
    assert!(
        !managed.is_empty() && managed.iter().all(|(_, timeout)| *timeout == expected),
        "{managed:?}"
    );
}

#[test]
fn a_hidden_or_unknown_device_is_refused() {
    let host = host(&format!("{TURNS}  wholeDevice: hide\n"));
    let line = |plain: &[u32]| host.container(plain, &[]).unwrap_err().to_string();
    assert!(
        line(&[0]).starts_with("gpu 0: the policy splits it and hides"),
        "{}",
        line(&[0])
    );
    assert_eq!(line(&[7]), "gpu 7: not found");
}

#[test]
fn a_dedicated_device_comes_with_every_program_however_it_is_claimed() {
    let host = host(DEDICATED);
    let mut plain = host.container(&[0], &[]).unwrap();
    let mut reserved = host.container(&[], &[("start-1", &host.fit(0, 1))]).unwrap();
    for derived in [&mut plain, &mut reserved] {
        assert_eq!(hooks(derived).len(), 3);
        derived.devices[0].edits.hooks.clear();
    }
    assert_eq!(
        (&plain.common, &plain.devices[0].edits),
        (&reserved.common, &reserved.devices[0].edits)
    );
    let programs = &reserved.devices[0].edits.mounts;
    assert!(
        programs
            .keys()
            .any(|path| path.file_name() == "nvidia-cuda-mps-control"),
        "{programs:?}"
    );
    let share = host.container(&[], &[("start-1", &host.fit(1, 1))]).unwrap();
    let all = share.common.mounts.keys().chain(share.devices[0].edits.mounts.keys());
    assert!(
        all.into_iter()
            .all(|path| path.file_name() != "nvidia-cuda-mps-control")
    );
}
