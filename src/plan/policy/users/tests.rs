use super::*;

fn rules(served: Served) -> UserRules {
    UserRules {
        served: Some(served),
        ..UserRules::default()
    }
}

#[test]
fn a_user_s_own_entry_counts_before_the_groups_and_these_before_everybody() {
    let waits = |waits| UserRules {
        waits: Some(waits),
        ..UserRules::default()
    };
    let policy = UserPolicy {
        everybody: UserRules {
            max_wait: Some(WaitTime::seconds(9)),
            ..rules(Served::Usual)
        },
        groups: [
            ("phd", rules(Served::Last)),
            ("staff", rules(Served::Usual)),
            ("guest", waits(1)),
        ]
        .map(|(name, rules)| (name.to_owned(), rules))
        .into(),
        users: [("ann".to_owned(), rules(Served::Last))].into(),
    };
    let of = |name, groups: &[&str]| {
        let groups: Vec<String> = groups.iter().map(ToString::to_string).collect();
        policy.rules_of(name, &groups)
    };
    assert_eq!(of(Some("bob"), &[]).served(), Served::Usual);
    assert_eq!(of(Some("bob"), &["phd", "other"]).served(), Served::Last);
    assert_eq!(of(Some("bob"), &["phd", "staff", "other"]).served(), Served::Usual);
    let ann = of(Some("ann"), &["staff", "guest"]);
    assert_eq!(
        (ann.served(), ann.waits(), ann.max_wait()),
        (Served::Last, 1, Duration::from_secs(9))
    );
    assert_eq!(of(None, &[]).waits(), 4);
}

#[test]
fn a_limit_names_the_entry_that_gives_it() {
    let shares = |max_shares| UserRules {
        max_shares: Some(max_shares),
        ..UserRules::default()
    };
    let policy = UserPolicy {
        everybody: UserRules {
            max_devices: Some(1),
            ..shares(2)
        },
        groups: [("phd", shares(3)), ("staff", shares(9))]
            .map(|(name, rules)| (name.to_owned(), rules))
            .into(),
        users: [("ann".to_owned(), shares(0))].into(),
    };
    let of = |name, groups: &[&str]| {
        let groups: Vec<String> = groups.iter().map(ToString::to_string).collect();
        let limits = policy.limits_of(name, &groups);
        [limits.shares, limits.devices].map(|one| one.map(|Sourced { value, from }| format!("{value} {from}")))
    };
    let texts = |shares: &str| [Some(shares.to_owned()), Some("1 sharing.users.default".to_owned())];
    assert_eq!(of(Some("ann"), &["staff"]), texts("0 sharing.users.users.ann"));
    assert_eq!(
        of(Some("bob"), &["staff", "phd"]),
        texts("9 sharing.users.groups.staff")
    );
    assert_eq!(of(None, &["other"]), texts("2 sharing.users.default"));
    assert_eq!(UserPolicy::default().limits_of(Some("ann"), &[]), UserLimits::default());
}

#[test]
fn what_contradicts_itself_is_refused_with_its_place() {
    let read = |text: &str| crate::policy::read::parse("p.yaml", &format!("version: v1\nsharing:\n{text}"));
    let policy = read(
        "  users:\n    default: {maxWait: 1s}\n    groups:\n      phd: {served: last}\n    users:\n      ann: {waits: 1}\n",
    );
    let policy = policy.unwrap().policy;
    assert_eq!(policy.users.everybody.max_wait, Some(WaitTime::seconds(1)));
    assert_eq!(policy.users.groups["phd"], rules(Served::Last));
    assert_eq!(policy.users.users["ann"].waits, Some(1));
    for (text, line) in [
        (
            "  queue: {reserveFor: 2h}\n",
            "p.yaml:3:10: queue: reserveFor is 2h, and more than reserveAtMost, which is 1h",
        ),
        (
            "  queue: {halfLife: 1s}\n",
            "p.yaml:3:10: queue: halfLife is 1s; write at least 1m",
        ),
        (
            "  users:\n    groups:\n      phd: {maxDevices: 3, maxShares: 2}\n",
            "p.yaml:5:12: groups: maxDevices is 3, and more than maxShares, which is 2: a whole device counts as one share",
        ),
        (
            "  users:\n    default: {maxHold: 0s}\n",
            "maxHold is 0s, and would end what has just begun",
        ),
        (
            "  users:\n    default: {atLimit: end}\n",
            "p.yaml:4:14: default: atLimit has no effect without maxHold",
        ),
        (
            "  users:\n    default: {maxHold: 1h, grace: 1s}\n",
            "grace has no effect without atLimit: end or atIdle: end",
        ),
        (
            "  users:\n    default: {idle: 1h, atLimit: end}\n",
            "atLimit has no effect without maxHold",
        ),
        (
            "  users:\n    default: {maxHold: 1h, atIdle: end}\n",
            "atIdle has no effect without idle",
        ),
        (
            "  users:\n    default: {idle: 59m, atIdle: end}\n",
            "idle is 59m; with atIdle: end it is at least 1h, because work also loads data and compiles",
        ),
        (
            "  users:\n    default: {idle: 9h, maxHold: 8h}\n",
            "p.yaml:4:14: default: idle is 9h, and more than maxHold, which is 8h",
        ),
        ("  users:\n    default: {served: first}\n", "p.yaml:4:23: served: "),
        (
            "  users:\n    groups:\n      phd: {weigth: 1}\n",
            "\"weigth\" is unknown in an entry of sharing.users",
        ),
        ("  users: {groups: 3}\n", "names with values"),
    ] {
        let refused = tranche_core::error::line(&read(text).unwrap_err());
        assert!(refused.contains(line), "{refused}");
    }
}

/// Somebody who writes `maxHold: 8` means hours, and `atLimit: end` would end all work after eight seconds.
#[test]
fn a_time_without_a_unit_ends_nobody_s_work_and_is_a_warning() {
    let read = |rules: &str| {
        let text = format!("version: v1\nsharing:\n  users:\n    default: {{{rules}}}\n");
        crate::policy::read::parse("p.yaml", &text).unwrap()
    };
    let at_limit = |rules: &str| {
        let limits = read(rules).policy.users.limits_of(None, &[]);
        limits.hold.or(limits.idle).unwrap().value
    };
    let eight = WaitTime::seconds(8);
    for (rules, at, warning) in [
        (
            "maxHold: 8, atLimit: end",
            AtLimit::Warn,
            Some("maxHold: 8 has no unit and means 8s; write 8s, 8m or 8h, and atLimit: end only warns until then"),
        ),
        (
            "idle: 8, atIdle: end",
            AtLimit::Warn,
            Some("idle: 8 has no unit and means 8s; write 8s, 8m or 8h, and atIdle: end only warns until then"),
        ),
        (
            "maxHold: 8, atLimit: release",
            AtLimit::Release,
            Some("maxHold: 8 has no unit and means 8s; write 8s, 8m or 8h"),
        ),
        ("maxHold: 8s, atLimit: end", AtLimit::End, None),
    ] {
        let limit = at_limit(rules);
        assert_eq!((limit.most, limit.at_limit), (eight, at), "{rules}");
        let warnings = read(rules).warnings;
        let expected: Vec<String> = warning
            .iter()
            .map(|warning| format!("p.yaml: sharing.users.default: {warning}"))
            .collect();
        assert_eq!(warnings, expected, "{rules}");
        // host.json has the policy as it was written.
        let users = read(rules).policy.users;
        let again: UserPolicy = serde_json::from_str(&serde_json::to_string(&users).unwrap()).unwrap();
        assert_eq!(again, users);
    }
}
