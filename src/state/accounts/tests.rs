//! Accounts in files of their own, with a program in the place of getent(1).

use super::*;
use crate::programs;
use std::fs;
use std::time::{Duration, Instant};

struct Scene {
    top: tempfile::TempDir,
}

impl Scene {
    /// Ann (1000) and Bob (1001) are in passwd; carol (70001) is known to NSS alone.
    fn new(subuid: &str) -> Self {
        let scene = Self {
            top: tempfile::tempdir().unwrap(),
        };
        scene.write(
            "passwd",
            "root:x:0:0::/:/bin/sh\nann:x:1000:1000::/:/bin/sh\nbob:x:1001:1001::/:/bin/sh\n",
        );
        scene.write("subuid", subuid);
        scene.getent(
            r#"case "$2" in carol|70001) echo 'carol:*:70001:1::/:/bin/sh';; *) exit 2;; esac; echo "$2" >> "$0.asked""#,
        );
        scene
    }

    fn write(&self, name: &str, text: &str) {
        // In the place of an earlier file, so that no two states of it look the same.
        let new = self.top.path().join(format!("{name}.new"));
        fs::write(&new, text).unwrap();
        fs::rename(new, self.top.path().join(name)).unwrap();
    }

    fn getent(&self, script: &str) {
        programs::script(self.top.path().join("getent"), script);
    }

    /// How often NSS was asked for an account that it has.
    fn asked(&self) -> usize {
        fs::read_to_string(self.top.path().join("getent.asked")).map_or(0, |text| text.lines().count())
    }

    fn accounts(&self) -> Accounts {
        let at = |name: &str| self.top.path().join(name);
        let sources = AccountSources {
            passwd: at("passwd"),
            subuid: at("subuid"),
            nsswitch: at("nsswitch"),
            getent: vec![at("missing"), at("getent")],
        };
        Accounts {
            owner: 0,
            ..Accounts::new(sources)
        }
    }
}

const RANGES: &str = "ann:100000:65536\n1001:200000:10\n1000:300000:10\nann:300000:10\nann:400000:10\nbob:400000:10\n\
                      nobody-has-this-name:500000:10\n4242:500010:10\nroot:600000:10\ncarol:700000:10\n";

#[test]
fn a_subordinate_uid_counts_as_its_owner() {
    let scene = Scene::new(RANGES);
    let accounts = scene.accounts();
    for (uid, expected) in [
        (0, Account::Owner),
        (1000, Account::User(1000)),
        (100_000, Account::User(1000)),
        (165_535, Account::User(1000)),
        (165_536, Account::User(165_536)),
        (200_003, Account::User(1001)),
        (300_000, Account::User(1000)),
        (400_000, Account::Shared),
        (500_000, Account::Shared),
        (500_010, Account::Shared),
        (600_000, Account::Shared),
        (700_000, Account::User(70_001)),
        (70_001, Account::User(70_001)),
        (u32::MAX, Account::User(u32::MAX)),
    ] {
        assert_eq!(accounts.of(uid), expected, "{uid}");
    }
}

#[test]
fn nss_is_asked_once_and_never_without_need() {
    let scene = Scene::new(RANGES);
    let accounts = scene.accounts();
    for uid in [0, 1000, 100_000, 5, 400_000] {
        accounts.of(uid);
    }
    assert_eq!(
        accounts.already_known(700_000),
        Account::Shared,
        "it was not asked for yet"
    );
    assert_eq!(scene.asked(), 0);
    for uid in 700_000..700_010 {
        assert_eq!(accounts.of(uid), Account::User(70_001));
        assert_eq!(accounts.already_known(uid), Account::User(70_001));
    }
    assert_eq!(scene.asked(), 1);
}

#[test]
fn a_uid_whose_owner_nss_does_not_say_shares_one_quota() {
    for script in [
        "exit 1",
        "exit 3",
        "kill -9 $$",
        "echo carol",
        "echo carol:x:no number:",
        "cat /dev/zero",
        // One that hangs costs its deadline once, and not for each uid.
        "exec sleep 1000",
    ] {
        let scene = Scene::new(RANGES);
        scene.getent(script);
        let accounts = scene.accounts();
        let begun = Instant::now();
        for uid in 700_000..700_010 {
            assert_eq!(accounts.of(uid), Account::Shared, "{script}");
        }
        assert!(begun.elapsed() < Duration::from_secs(60), "{script}");
        // Those whose owner is in the file do not depend on it.
        assert_eq!(
            (accounts.of(100_000), accounts.of(5)),
            (Account::User(1000), Account::User(5))
        );
    }
    let scene = Scene::new(RANGES);
    fs::remove_file(scene.top.path().join("getent")).unwrap();
    assert_eq!(scene.accounts().of(700_000), Account::Shared, "without getent");
}

#[test]
fn where_ranges_may_be_missing_only_accounts_count_for_themselves() {
    let scene = Scene::new(&format!("{RANGES}ann:0xF4240:10\n"));
    let accounts = scene.accounts();
    for (uid, expected) in [
        (1000, Account::User(1000)),
        (70_001, Account::User(70_001)),
        (100_000, Account::User(1000)),
        (1_000_000, Account::Shared),
        (5, Account::Shared),
    ] {
        assert_eq!(accounts.of(uid), expected, "{uid}");
    }
    let scene = Scene::new(RANGES);
    let accounts = scene.accounts();
    assert_eq!(accounts.of(5), Account::User(5));
    scene.write("nsswitch", "subid: sss\n");
    assert_eq!(
        (accounts.of(5), accounts.of(1001)),
        (Account::Shared, Account::User(1001))
    );
}

#[test]
fn a_change_of_the_files_is_seen() {
    let scene = Scene::new("");
    let accounts = scene.accounts();
    assert_eq!(accounts.of(100_000), Account::User(100_000));
    scene.write("subuid", "dan:100000:10\n");
    assert_eq!(accounts.of(100_000), Account::Shared);
    // The answer of NSS is kept for a minute, and the file is read at once.
    scene.write("passwd", "dan:x:1003:1003::/:/bin/sh\n");
    assert_eq!(accounts.of(100_000), Account::User(1003));
    fs::remove_file(scene.top.path().join("subuid")).unwrap();
    assert_eq!(accounts.of(100_000), Account::User(100_000));
}

#[test]
fn a_name_that_no_account_can_have_is_not_asked_for() {
    let long = "n".repeat(300);
    for owner in ["-s", "--help", &long] {
        let scene = Scene::new(&format!("{owner}:100000:10\n"));
        scene.getent("echo \"$2\" >> \"$0.asked\"; echo 'x:*:70001:1::/:/bin/sh'");
        assert_eq!(
            (scene.accounts().of(100_000), scene.asked()),
            (Account::Shared, 0),
            "{owner}"
        );
    }
}

#[test]
fn a_person_names_a_user_by_name_or_by_uid() {
    let scene = Scene::new("");
    let accounts = scene.accounts();
    let uid = |name: &str| accounts.user(name).map_err(|error| error.to_string());
    assert_eq!(
        (uid("ann"), uid("carol"), uid("424242")),
        (Ok(1000), Ok(70_001), Ok(424_242))
    );
    assert!(
        uid("nobody-has-this-name")
            .unwrap_err()
            .contains("not found; name a user of this machine")
    );
    scene.getent("exit 1");
    assert!(
        scene
            .accounts()
            .user("carol")
            .unwrap_err()
            .to_string()
            .contains("NSS did not say")
    );
}

#[test]
fn users_and_groups_of_the_policy_that_do_not_exist_are_named() {
    use tranche_plan::policy::{UserPolicy, UserRules};
    let scene = Scene::new("");
    scene.getent(r#"case "$1 $2" in 'passwd carol') echo 'carol:*:70001:1::/:/bin/sh';; 'passwd root') echo 'root:*:0:0::/:/bin/sh';; 'group phd') echo 'phd:x:50:';; *) exit 2;; esac"#);
    let rules = |name: &str| (name.to_owned(), UserRules::default());
    let policy = UserPolicy {
        users: ["ann", "carol", "nobody-here", "root"].map(rules).into(),
        groups: ["phd", "pdh"].map(rules).into(),
        ..UserPolicy::default()
    };
    assert_eq!(
        scene.accounts().without_effect(&policy),
        [
            "sharing.users: user nobody-here was not found on this machine",
            "sharing.users: user root is root, and has no limits",
            "sharing.users: group pdh was not found on this machine"
        ]
    );
}
