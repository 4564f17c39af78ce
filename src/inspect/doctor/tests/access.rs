//! Device nodes that the policy closes.

use super::*;
use tranche_state::access::{Enforcement, Opened};
use tranche_state::node_users::NodeUser;

#[test]
fn closed_nodes_that_are_not_in_force_or_do_not_bind_a_user() {
    let enforced = |enforcement, has_option| {
        move |subject: &mut DoctorSubject, _: &Path| {
            subject.policy.devices = 1;
            subject.inventory.gpus[0].node.as_mut().unwrap().mode = Some(0o666);
            (subject.access.enforcement, subject.access.has_option) = (enforcement, has_option);
        }
    };
    let fix = fires(
        Finding::AccessNotInForce,
        "/dev/nvidia0",
        enforced(Enforcement::NotInForce, false),
    );
    assert!(fix.is_command() && fix.text() == "tranche system protect", "{fix:?}");
    let fix = fires(
        Finding::AccessNotInForce,
        "/dev/nvidia0",
        enforced(Enforcement::NotInForce, true),
    );
    assert!(fix.text().contains("initramfs"), "{fix:?}");
    let fix = fires(Finding::NodesOpen, "/dev/nvidia0", |subject, top| {
        enforced(Enforcement::InForce, true)(subject, top);
        subject.access.open = vec!["/dev/nvidia0".to_owned()];
    });
    assert_eq!(fix.text(), "tranche cdi refresh");
    fires(Finding::AccessOfSeats, "uaccess", |subject, _| {
        subject.policy.devices = 1;
        subject.access.enforcement = Enforcement::InForce;
        let found = "device nodes: have the tag uaccess".to_owned();
        subject.access.seat = Some(FoundError { found, hint: None });
    });
    for (finding, is_of_system) in [(Finding::AccessOfService, true), (Finding::AccessWithoutClaim, false)] {
        let fix = fires(finding, "of uid 997 has /dev/nvidia0 open", |subject, _| {
            subject.policy.devices = 1;
            subject.access.enforcement = Enforcement::InForce;
            let process = NodeUser {
                pid: 812,
                command: "dcgm-exporter".into(),
                uid: 997,
                gids: [997].into(),
                unit: None,
                is_of_system,
                nodes: [(195, 0)].into(),
            };
            let nodes = vec!["/dev/nvidia0".to_owned()];
            subject.access.opened = vec![Opened { process, nodes }];
        });
        assert_eq!(
            fix.text().contains("add 997 to sharing.monitors.users"),
            is_of_system,
            "{fix:?}"
        );
    }
    fires(Finding::AccessByDocker, "ann, bob", |subject, _| {
        subject.policy.devices = 1;
        subject.access.enforcement = Enforcement::InForce;
        subject.access.docker = vec!["ann".to_owned(), "bob".to_owned()];
    });
}
