//! Wishes that cannot be read, or contradict each other.

use super::*;

#[test]
fn what_is_wrong_is_said_in_one_line_with_its_place() {
    for (text, says) in [
        ("wishes: []", "w.yaml: has no wish"),
        ("wishes: [{kind: notebok}]", "w.yaml:1:17: kind \"notebok\""),
        ("wishes: [{name: a}]", "w.yaml:1:10: "),
        (
            "wishes: [{kind: service, memry: 7Gi}]",
            "w.yaml:1:26: \"memry\" is unknown in a wish; did you mean memory?",
        ),
        (
            "wishes: [{kind: service, memory: 7Gx}]",
            "w.yaml:1:34: \"7Gx\": not a valid size of memory",
        ),
        (
            "wishes: [{kind: service, memory: 7}]",
            "w.yaml:1:10: service1: memory is less than 1 MiB",
        ),
        (
            "wishes: [{kind: service, compute: 140%}]",
            "w.yaml:1:35: 140%: a share is 1% to 100%",
        ),
        (
            "wishes: [{kind: service, count: 0}]",
            "w.yaml:1:33: service1: count: 0 wishes for nothing",
        ),
        (
            "wishes: [{kind: service, count: 513}]",
            "w.yaml: wishes for 513 containers; 1 to 512 are possible",
        ),
        (
            "{version: v2, wishes: [{kind: service}]}",
            "w.yaml:1:11: version: \"v2\" is unknown",
        ),
        (
            "wishes:\n- {name: a, kind: service, wholeGpu: true, compute: 40%}",
            "w.yaml:2:3: a: wholeGpu: true and compute: 40% contradict each other",
        ),
        (
            "wishes: [{name: a, kind: training, latency: bounded}]",
            "a: kind: training and latency: bounded contradict each other",
        ),
        (
            "wishes: [{name: a, kind: service, tenant: x}]",
            "a: trust: team and tenant: x contradict each other",
        ),
        (
            "{trust: none, wishes: [{kind: service, tenant: x}, {kind: training, tenant: x}]}",
            "w.yaml: trust: none and tenant: x in every wish contradict each other",
        ),
        (
            "wishes: [{name: a, kind: service}, {name: a, kind: training}]",
            "w.yaml:1:36: a: two wishes have this name",
        ),
        (
            "wishes: [{name: any, kind: service}]",
            "w.yaml:1:10: any: not a name for shares",
        ),
        (
            "wishes: [{name: a123456789b123456789c123456789d12345678, kind: service, count: 2}]",
            ": not a name for shares",
        ),
        ("wishes: [{kind: service", "w.yaml:1:"),
    ] {
        let error = line(&read("w.yaml", text).unwrap_err());
        assert!(error.contains(says) && !error.contains('\n'), "{text}: {error}");
    }
}

#[test]
fn a_wish_has_defaults() {
    let wishes = read("w.yaml", "wishes: [{kind: service}, {kind: notebook, count: 2}]").unwrap();
    let names: Vec<&str> = wishes.workloads.iter().map(|one| one.name.as_str()).collect();
    assert_eq!(
        (names, wishes.containers(), wishes.trust),
        (vec!["service1", "notebook2"], 3, Trust::Team)
    );
}
