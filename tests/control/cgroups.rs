//! Limits of memory of containers' cgroups: set before a container's program starts, removed after its claim, and
//! refused where they were promised and cannot be set.

use crate::bed::{Bed, TestCgroup, UNEQUAL};
use crate::support::skip;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::json;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use tranche_broker::control::{Control, MachineControl};
use tranche_plan::share::{Grade, Guarantee, MemoryLimitBy, Method, NoCgroupLimit};

/// Cgroups of version 2 of this machine, one for each name; `None` where it has none.
pub(crate) fn cgroups<const N: usize>(test: &str, names: [&str; N]) -> Option<[TestCgroup; N]> {
    let made: Result<Vec<TestCgroup>, String> = names
        .iter()
        .map(|name| TestCgroup::new(&format!("{test}-{name}")))
        .collect();
    match made {
        Ok(made) => made.try_into().ok(),
        Err(why) => {
            skip::not_run(&format!("control::cgroups::{test}"), &why);
            None
        }
    }
}

/// The lines of the record about cgroups.
fn limits(bed: &Bed) -> Vec<String> {
    let mut lines = bed.fake.lines();
    lines.retain(|line| line.starts_with("cgroup limit"));
    lines
}

fn limit(cgroup: &TestCgroup, what: &str) -> String {
    format!("cgroup limit {} {what}", cgroup.name())
}

fn start(bed: &Bed, control: &Control, share: &str, cgroup: &TestCgroup) {
    bed.claim_in(share, Some(cgroup));
    control.prepare(bed.key()).unwrap();
}

#[test]
fn unequal_shares_have_unequal_limits_until_the_last_claim_has_ended() {
    let Some([small, big]) = cgroups(
        "unequal_shares_have_unequal_limits_until_the_last_claim_has_ended",
        ["small", "big"],
    ) else {
        return;
    };
    let bed = Bed::with_cgroup_limits(UNEQUAL);
    let control = bed.control();
    start(&bed, &control, "small", &small);
    // The hook of the container ends now, and its program starts.
    let expected = [
        "compute mode 3".to_owned(),
        "start -f -multiuser-server".to_owned(),
        "command get_default_active_thread_percentage".to_owned(),
        "command set_default_device_pinned_mem_limit 0 4912M".to_owned(),
        "command set_default_active_thread_percentage 20".to_owned(),
        "command get_server_list".to_owned(),
        "command get_default_active_thread_percentage".to_owned(),
        "command get_default_device_pinned_mem_limit 0".to_owned(),
        limit(&small, "4912 MiB"),
    ];
    assert_eq!(bed.fake.lines(), expected);
    start(&bed, &control, "big", &big);
    let both = BTreeMap::from([(small.name(), 4912), (big.name(), 19651)]);
    assert_eq!(bed.cgroup_limits(), both);
    assert_eq!(bed.fake.lines().last(), Some(&limit(&big, "19651 MiB")));
    let shown: Vec<(String, u64, bool)> = bed
        .device(&control)
        .cgroup_limits
        .into_iter()
        .map(|limit| (limit.holder, limit.memory_mib, limit.is_set))
        .collect();
    // Messages have the first characters of a container's id.
    let container = |share: &str| format!("container container-{share}");
    assert_eq!(shown, [(container("sm"), 4912, true), (container("bi"), 19651, true)]);
    // Another claim of the same containers sets nothing anew.
    control.prepare(bed.key()).unwrap();
    assert!(control.tick().is_some());
    assert_eq!(limits(&bed).len(), 2);

    // A container whose cgroup is still there when its claim has ended.
    bed.stop("small");
    assert!(control.tick().is_some());
    assert_eq!(limits(&bed)[2..], [limit(&small, "max")]);
    assert_eq!(bed.cgroup_limits(), BTreeMap::from([(big.name(), 19651)]));
    // And one whose cgroup was removed first, together with its limit.
    bed.stop("big");
    drop(big);
    assert_eq!(control.tick(), None);
    assert_eq!(limits(&bed).len(), 3);
    bed.assert_as_it_was(&control);
}

#[test]
fn a_limit_is_removed_while_the_device_waits_for_its_next_claim() {
    let test = "a_limit_is_removed_while_the_device_waits_for_its_next_claim";
    let Some([small]) = cgroups(test, ["small"]) else {
        return;
    };
    let bed = Bed::with_cgroup_limits(&UNEQUAL.replace("grace: 0", "grace: 600"));
    let control = bed.control();
    start(&bed, &control, "small", &small);
    bed.stop("small");
    assert!(control.tick().is_some());
    assert_eq!(bed.cgroup_limits(), BTreeMap::new());
    assert!(bed.device(&control).daemon.is_some() && bed.device(&control).cgroup_limits.is_empty());
}

#[test]
fn the_next_broker_finds_the_limits_and_removes_what_has_ended_meanwhile() {
    let test = "the_next_broker_finds_the_limits_and_removes_what_has_ended_meanwhile";
    let Some([small]) = cgroups(test, ["small"]) else {
        return;
    };
    let bed = Bed::with_cgroup_limits(UNEQUAL);
    let control = bed.control();
    start(&bed, &control, "small", &small);
    drop(control);
    let control = bed.control();
    control.prepare(bed.key()).unwrap();
    assert!(control.tick().is_some());
    assert_eq!(limits(&bed), [limit(&small, "4912 MiB")], "it is known to be set");
    drop(control);
    bed.stop("small");
    let control = bed.control();
    assert_eq!(control.tick(), None);
    assert_eq!(limits(&bed).last(), Some(&limit(&small, "max")));
    bed.assert_as_it_was(&control);
}

#[test]
fn limits_are_set_again_with_a_new_daemon() {
    let test = "limits_are_set_again_with_a_new_daemon";
    let Some([small]) = cgroups(test, ["small"]) else {
        return;
    };
    let bed = Bed::with_cgroup_limits(UNEQUAL);
    let control = bed.control();
    start(&bed, &control, "small", &small);
    // A driver that is loaded anew has no limits, and ends the daemon.
    std::fs::remove_file(bed.host.root.join("fake-nvml.cgroups.json")).unwrap();
    let pid = bed.pid(&control);
    kill(Pid::from_raw(pid.cast_signed()), Signal::SIGKILL).unwrap();
    let until = Instant::now() + Duration::from_secs(60);
    while bed.cgroup_limits().is_empty() {
        control.tick();
        assert!(Instant::now() < until, "{:?}", control.devices());
    }
    assert_eq!(bed.cgroup_limits(), BTreeMap::from([(small.name(), 4912)]));
    assert!(bed.pid(&control) != pid);
    bed.stop("small");
    assert_eq!(control.tick(), None);
    bed.assert_as_it_was(&control);
}

/// Why a share with this cgroup is refused; nothing stays changed after it.
#[track_caller]
fn refused(bed: &Bed, cgroup: Option<&TestCgroup>) -> String {
    let control = bed.control();
    let line = bed.refused_in(&control, "small", cgroup);
    assert!(!line.contains('\n'), "{line}");
    assert_eq!(control.tick(), None, "{:?}", control.devices());
    bed.assert_as_it_was(&control);
    line
}

#[test]
fn a_share_whose_limit_cannot_be_set_is_refused_and_nothing_stays_changed() {
    let test = "a_share_whose_limit_cannot_be_set_is_refused_and_nothing_stays_changed";
    let Some([small]) = cgroups(test, ["small"]) else {
        return;
    };
    let mut bed = Bed::with_cgroup_limits(UNEQUAL);
    let way_out = "with sharing.mps.enforcement: v2, MPS alone limits each process; see docs/explanation/mps.md";
    let begin = "gpu 0: the memory of container container-sm cannot be limited: ";
    let began = Instant::now();
    for (fault, why) in [
        (
            json!({"errors": {"nvmlDeviceSetMemoryLimits_v1": "NO_PERMISSION"}}),
            "NVML refuses it to a user who is not root",
        ),
        (
            json!({"errors": {"nvmlDeviceSetMemoryLimits_v1": "NOT_SUPPORTED"}}),
            "the GPU does not support it",
        ),
        (
            json!({"errors": {"nvmlDeviceSetMemoryLimits_v1": "NOT_FOUND"}}),
            "NVML does not find the cgroup, or the controller dmem is not enabled for it",
        ),
        (
            json!({"cgroup_limits": "forgotten"}),
            "NVML reports no limit after it was set",
        ),
    ] {
        bed.host.nvml(|config| config["faults"] = fault).unwrap();
        assert_eq!(refused(&bed, Some(&small)), format!("{begin}{why}; {way_out}"));
    }
    // A library that answers takes less than all of these together.
    let patience = std::mem::replace(&mut bed.nvml_patience, began.elapsed());
    bed.host
        .nvml(|config| config["faults"] = json!({"errors": {"nvmlDeviceSetMemoryLimits_v1": "HANG"}}))
        .unwrap();
    let seconds = bed.nvml_patience.as_secs_f32();
    let why = format!("NVML gave no answer for {seconds} s and was ended");
    assert_eq!(refused(&bed, Some(&small)), format!("{begin}{why}; {way_out}"));
    bed.nvml_patience = patience;
    bed.host.nvml(|config| config["faults"] = json!({})).unwrap();
    let line = refused(&bed, None);
    assert_eq!(line, format!("{begin}it has no cgroup of its own"));
    // The plan was made with a library that has the functions, and the library was replaced since.
    bed.host
        .nvml(|config| config["missing_symbols"] = json!(["nvmlDeviceSetMemoryLimits_v1"]))
        .unwrap();
    let line = refused(&bed, Some(&small));
    assert_eq!(
        line,
        format!("{begin}the driver's library lacks the function; {way_out}")
    );
    // Without the fault, the same share is served.
    bed.host.nvml(|config| config["missing_symbols"] = json!([])).unwrap();
    let control = bed.control();
    start(&bed, &control, "small", &small);
    assert_eq!(bed.cgroup_limits(), BTreeMap::from([(small.name(), 4912)]));
}

#[test]
fn a_limit_that_the_driver_rounds_is_accepted_and_shown() {
    let test = "a_limit_that_the_driver_rounds_is_accepted_and_shown";
    let Some([small]) = cgroups(test, ["small"]) else {
        return;
    };
    let bed = Bed::with_cgroup_limits(UNEQUAL);
    bed.host
        .nvml(|config| config["faults"]["cgroup_limits"] = json!("rounded"))
        .unwrap();
    let control = bed.control();
    start(&bed, &control, "small", &small);
    let remark = "NVML reports a limit of 5120 MiB for container container-sm, and 4912 MiB was set";
    assert_eq!(bed.device(&control).problems, [remark]);
}

#[test]
fn a_limit_that_cannot_be_removed_is_shown_until_it_is() {
    let test = "a_limit_that_cannot_be_removed_is_shown_until_it_is";
    let Some([small]) = cgroups(test, ["small"]) else {
        return;
    };
    let bed = Bed::with_cgroup_limits(UNEQUAL);
    let control = bed.control();
    start(&bed, &control, "small", &small);
    bed.stop("small");
    bed.host
        .nvml(|config| config["faults"]["errors"]["nvmlDeviceSetMemoryLimits_v1"] = json!("NO_PERMISSION"))
        .unwrap();
    assert!(control.tick().is_some());
    let device = bed.device(&control);
    let problem = "gpu 0: the limit of container container-sm cannot be removed: NVML refuses it to a user who is not \
                   root";
    assert_eq!(device.problems, [problem]);
    assert!(device.daemon.is_none() && bed.mode() == Some(0), "the rest is put back");
    bed.host.nvml(|config| config["faults"] = json!({})).unwrap();
    assert_eq!(control.tick(), None);
    bed.assert_as_it_was(&control);
}

/// What the plan says about the memory of the first share.
fn memory(bed: &Bed) -> (Option<MemoryLimitBy>, Guarantee, Vec<String>) {
    let facts = bed.facts();
    let split = &facts.plan.devices[0];
    let by = match &split.method {
        Method::Mps(mps) => Some(mps.memory),
        _ => None,
    };
    let guarantees = split.shares.distinct()[0].guarantees.clone();
    (by, guarantees.memory, guarantees.not_available)
}

#[test]
fn where_something_is_missing_mps_alone_limits_and_the_plan_says_why() {
    let test = "where_something_is_missing_mps_alone_limits_and_the_plan_says_why";
    let Some([small]) = cgroups(test, ["small"]) else {
        return;
    };
    let with_limits = || Bed::with_cgroup_limits(UNEQUAL);
    let (by, guarantee, not_used) = memory(&with_limits());
    assert_eq!(by, Some(MemoryLimitBy::Cgroup));
    assert_eq!((guarantee.grade, guarantee.root), (Grade::Hard, Grade::Soft));
    assert!(guarantee.by.contains("(not measured here)"), "{}", guarantee.by);
    assert!(
        !not_used.iter().any(|line| line.starts_with("memory: ")),
        "{not_used:?}"
    );

    let v2 = UNEQUAL.replace("grace: 0", "grace: 0\n    enforcement: v2");
    let without_symbol = with_limits();
    without_symbol
        .host
        .nvml(|config| config["missing_symbols"] = json!(["nvmlDeviceGetMemoryLimits_v1"]))
        .unwrap();
    without_symbol.discover(UNEQUAL);
    let version_1 = with_limits();
    std::fs::remove_file(version_1.host.path("/sys/fs/cgroup/cgroup.controllers")).unwrap();
    version_1.discover(UNEQUAL);
    for (bed, lack, word) in [
        (Bed::with_cgroup_limits(&v2), NoCgroupLimit::Policy, "enforcement: v2"),
        (Bed::upgraded("580.95.05", UNEQUAL), NoCgroupLimit::Driver, "driver 615"),
        (
            without_symbol,
            NoCgroupLimit::Library,
            "lacks nvmlDeviceSetMemoryLimits_v1",
        ),
        (version_1, NoCgroupLimit::CgroupV1, "needs cgroup v2"),
    ] {
        let (by, guarantee, not_used) = memory(&bed);
        assert_eq!(by, Some(MemoryLimitBy::Mps(lack)));
        assert_eq!(
            (guarantee.grade, guarantee.root),
            (Grade::Soft, Grade::Advisory),
            "{lack:?}"
        );
        assert!(
            not_used
                .iter()
                .any(|line| line.starts_with("memory: ") && line.contains(word)),
            "{not_used:?}"
        );
        let control = bed.control();
        start(&bed, &control, "small", &small);
        assert_eq!(limits(&bed), Vec::<String>::new(), "{lack:?}");
        bed.stop("small");
        assert_eq!(control.tick(), None);
        bed.assert_as_it_was(&control);
    }
}
