//! Rules for users in a policy (`sharing.users`), as `tranche policy check` sees them.

use crate::tranche;

#[test]
fn rules_for_users_that_nobody_has_are_named_and_those_that_contradict_each_other_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("p.yaml");
    let config = format!("--config={}", file.display());
    // On this machine, because accounts are those of this machine.
    let check = |users: &str| {
        std::fs::write(&file, format!("version: v1\nsharing:\n  users: {users}\n")).unwrap();
        tranche(&["policy", "check", &config])
    };
    let said = check(
        "{groups: {root: {served: last}, tranche-nobody: {served: usual}}, users: {tranche-nobody: {waits: 1}, root: {waits: 1}}}",
    );
    let mut lines: Vec<&str> = said.err.lines().filter(|line| line.contains("sharing.users")).collect();
    lines.sort_unstable();
    assert_eq!(
        lines,
        [
            "sharing.users: group tranche-nobody was not found on this machine",
            "sharing.users: user root is root, and has no limits",
            "sharing.users: user tranche-nobody was not found on this machine"
        ]
    );
    assert_eq!(said.code, Some(0), "a warning, and the policy is valid: {said:?}");
    // To be served last is a rule, and so are shares without a whole device.
    for users in ["{default: {served: last}}", "{default: {maxShares: 3, maxDevices: 0}}"] {
        let said = check(users);
        assert_eq!(
            (said.code, said.err.contains("sharing.users")),
            (Some(0), false),
            "{said:?}"
        );
    }
    for (users, why) in [
        (
            "{default: {maxShares: 2, maxDevices: 3}}",
            "maxDevices is 3, and more than maxShares, which is 2",
        ),
        ("{default: {maxHold: 0s}}", "maxHold is 0s"),
        ("{default: {atLimit: end}}", "atLimit has no effect without maxHold"),
        (
            "{default: {maxHold: 1h, grace: 1m}}",
            "grace has no effect without atLimit: end or atIdle: end",
        ),
        ("{default: {served: first}}", "served"),
    ] {
        let said = check(users);
        let text = format!("{}{}", said.out, said.err);
        assert_eq!((said.code, text.lines().count()), (Some(4), 1), "{users}: {text}");
        assert!(text.contains(why) && text.contains(":3:"), "{users}: {text}");
    }
}

/// What earlier versions had: each entry with the key says in one line what is to be written, and the policy counts.
#[test]
fn weights_of_an_earlier_policy_are_read_and_named() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("p.yaml");
    let users = "{default: {weight: 1}, groups: {root: {weight: 0, waits: 1}}, users: {root: {weight: 3}}}";
    std::fs::write(&file, format!("version: v1\nsharing:\n  users: {users}\n")).unwrap();
    let said = tranche(&["policy", "check", &format!("--config={}", file.display())]);
    let lines: Vec<&str> = said.err.lines().filter(|line| line.contains("weight")).collect();
    let read = tranche_plan::policy::read::file(&file, None).unwrap();
    assert_eq!(
        read.policy.users.groups["root"].served(),
        tranche_plan::queue::Served::Last
    );
    assert_eq!(read.policy.users.everybody.served(), tranche_plan::queue::Served::Usual);
    let of = |entry: &str, what: &str| format!("{}: sharing.users.{entry}: {what}", file.display());
    let no_effect = "weight has no effect, because it made no difference that a user would notice; remove it";
    assert_eq!(said.code, Some(0), "{said:?}");
    assert_eq!(
        lines,
        [
            of("default", no_effect),
            of("groups.root", "weight: 0 is served: last; write that"),
            of("users.root", no_effect)
        ]
    );
}
