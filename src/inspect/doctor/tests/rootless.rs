//! What users need for engines of their own.

use super::*;

#[test]
fn users_who_cannot_run_engines_of_their_own() {
    let users = |top: &Path| {
        write(top, "/etc/subuid", "ada:100000:65536\n");
        write(top, "/usr/bin/newuidmap", "");
        write(top, "/proc/sys/user/max_user_namespaces", "15000\n");
    };
    is_good("rootless engines", "users can", |_, top| users(top));
    fires(Finding::IdMapMissing, "newuidmap was not found", |_, top| {
        users(top);
        fs::remove_file(top.join("usr/bin/newuidmap")).unwrap();
    });
    fires(Finding::NamespacesForbidden, "max_user_namespaces is 0", |_, top| {
        users(top);
        write(top, "/proc/sys/user/max_user_namespaces", "0\n");
    });
    fires(
        Finding::NamespacesForbidden,
        "unprivileged_userns_clone is 0",
        |_, top| {
            users(top);
            write(top, "/proc/sys/kernel/unprivileged_userns_clone", "0\n");
        },
    );
    let restricted = "/proc/sys/kernel/apparmor_restrict_unprivileged_userns";
    fires(
        Finding::NamespacesForbidden,
        "apparmor_restrict_unprivileged_userns is 1",
        |_, top| {
            users(top);
            write(top, restricted, "1\n");
        },
    );
    is_good("rootless engines", "users can", |_, top| {
        users(top);
        write(top, restricted, "1\n");
        write(top, "/etc/apparmor.d/podman", "");
    });
}

#[test]
fn what_users_need_for_engines_of_their_own() {
    let ids = |top: &Path| write(top, "/etc/subuid", "ada:100000:65536\n");
    let with_map = |top: &Path| {
        ids(top);
        write(top, "/usr/bin/newuidmap", "");
    };
    let powerless = |nosuid: Option<&str>| PowerlessProgram {
        path: "/usr/bin/newuidmap".into(),
        nosuid: nosuid.map(PathBuf::from),
    };
    let fix = fires(
        Finding::IdMapPowerless,
        "newuidmap has neither the setuid bit",
        |subject, top| {
            with_map(top);
            subject.id_maps.powerless = vec![powerless(None)];
        },
    );
    assert_eq!(fix, Fix::command("chmod u+s /usr/bin/newuidmap"));
    let fix = fires(
        Finding::IdMapPowerless,
        "which is mounted with nosuid",
        |subject, top| {
            with_map(top);
            subject.id_maps.powerless = vec![powerless(Some("/usr"))];
        },
    );
    assert_eq!(fix, Fix::command("mount -o remount,suid /usr"));
    let fix = fires(Finding::UserWithoutIds, "user bob has no ids", |subject, top| {
        with_map(top);
        subject.id_maps.without_ids = Some("bob".to_owned());
        subject.id_maps.first_free = 165_536;
    });
    let ids = "--add-subuids 165536-231071 --add-subgids 165536-231071";
    assert_eq!(fix, Fix::command(format!("usermod {ids} bob")));
    let fix = fires(Finding::BrokerPrivate, "has mode 0600", |subject, _| {
        subject.private_socket = Some(("/run/tranche/broker.sock".into(), 0o600));
    });
    assert_eq!(fix, Fix::command("chmod 0666 /run/tranche/broker.sock"));
}
