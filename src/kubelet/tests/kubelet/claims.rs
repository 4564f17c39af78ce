//! What a driver for dynamic resource allocation does for claims and the health of its devices.

mod authority;
mod node;
mod sockets;

use crate::bed::until;
use node::{DRIVER, NEVER, Node, claim};
use std::collections::BTreeSet;
use std::time::Duration;
use tranche_kubelet::dra::{DeviceHealth, Health};
use tranche_kubelet::proto::drahealth::HealthStatus;

const CDI: &str = "nvidia.com/claim=a-uid-gpu-gpu-0";

#[test]
fn a_claim_is_prepared_and_unprepared_and_both_may_be_repeated() {
    let node = Node::new();
    let _driver = node.driver();
    node.wait_registered(1);
    for _ in 0..2 {
        let results = node.kubelet.prepare(DRIVER, &[claim("a")]).unwrap();
        let devices = results["a-uid"].as_ref().unwrap();
        assert_eq!(devices.len(), 1);
        let device = &devices[0];
        assert_eq!(
            (
                device.pool_name.as_str(),
                device.device_name.as_str(),
                device.share_id.as_deref()
            ),
            ("node1", "gpu-0", Some("share"))
        );
        assert_eq!(
            (&device.request_names[..], &device.cdi_device_ids[..]),
            (&["gpu".to_owned()][..], &[CDI.to_owned()][..])
        );
    }
    assert_eq!(node.shared().prepared, BTreeSet::from([claim("a")]));
    for name in ["a", "a", "unknown"] {
        let results = node.kubelet.unprepare(DRIVER, &[claim(name)]).unwrap();
        assert_eq!(results[&claim(name).uid], Ok(()));
    }
    assert!(node.shared().prepared.is_empty());
    // The time of the second call is not before that of the first, and is one of this boot.
    let asked_at = node.shared().asked_at.clone();
    let uptime: f64 = std::fs::read_to_string("/proc/uptime")
        .unwrap()
        .split(' ')
        .next()
        .unwrap()
        .parse()
        .unwrap();
    let now = (uptime * 1000.0) as u64 + 10;
    assert!(
        asked_at[0] <= asked_at[1] && asked_at[1] <= now && now - asked_at[0] < 600_000,
        "{asked_at:?} {now}"
    );
}

#[test]
fn a_refused_claim_does_not_stop_the_others_of_its_call() {
    let node = Node::new();
    let _driver = node.driver();
    node.wait_registered(1);
    let why = "gpu-0 is held by container 262bf9f7e5a8";
    node.shared().refused.insert("b-uid".into(), why.into());
    node.shared().refused.insert("c-uid".into(), String::new());
    let claims = ["a", "b", "c", "d"].map(claim);
    let results = node.kubelet.prepare(DRIVER, &claims).unwrap();
    assert_eq!(results.len(), 4);
    assert!(results["a-uid"].is_ok() && results["d-uid"].is_ok());
    assert_eq!(results["b-uid"], Err(why.to_owned()));
    assert!(
        results["c-uid"].as_ref().is_err_and(|why| !why.is_empty()),
        "an empty text is a success"
    );
    // One after the other.
    let wanted = ["a", "b", "c", "d"].map(|name| [format!("prepare {name}"), format!("prepared {name}")]);
    assert_eq!(node.shared().calls, wanted.concat());
    assert_eq!(node.kubelet.sandbox(DRIVER, &claims[1..2]), Err(why.to_owned()));
    node.shared().refused.clear();
    assert_eq!(node.kubelet.sandbox(DRIVER, &claims[1..2]).unwrap().len(), 1);

    node.shared()
        .refused
        .insert("b-uid".into(), "the broker is away".into());
    let results = node.kubelet.unprepare(DRIVER, &claims).unwrap();
    let failed = results.iter().filter(|(_, result)| result.is_err());
    assert_eq!(
        failed.collect::<Vec<_>>(),
        [(&"b-uid".to_owned(), &Err("the broker is away".to_owned()))]
    );
    node.shared().refused.clear();
    node.kubelet.delete(DRIVER, &claims[1]);
    assert!(node.shared().prepared.is_empty());
}

#[test]
fn a_kubelet_that_supports_v1beta1_only_uses_that() {
    let mut node = Node::asleep();
    node.kubelet.state().supported = vec!["v1beta1.DRAPlugin"];
    node.kubelet.start();
    let driver = node.driver();
    node.wait_registered(1);
    let endpoint = driver.settings.socket().display().to_string();
    assert_eq!(
        node.kubelet.registered(DRIVER),
        [(endpoint, "v1beta1.DRAPlugin".to_owned())]
    );
    assert_eq!(node.kubelet.sandbox(DRIVER, &[claim("a")]).unwrap(), [CDI]);
    node.shared().refused.insert("b-uid".into(), "held".into());
    let results = node.kubelet.prepare(DRIVER, &[claim("b")]).unwrap();
    assert_eq!(results["b-uid"], Err("held".to_owned()));
    node.kubelet.delete(DRIVER, &claim("a"));
    assert!(node.shared().prepared.is_empty());
}

#[test]
fn a_kubelet_that_supports_no_version_is_an_event() {
    let mut node = Node::asleep();
    node.kubelet.state().supported = vec!["v2.DRAPlugin"];
    node.kubelet.start();
    let mut driver = node.driver();
    let event = driver.event();
    assert_eq!((event.is_fault, event.reason), (true, "RegistrationRefused"));
    assert!(event.text.contains("is supported"), "{}", event.text);
    // It tries again and again, which is one event.
    until("it was refused again", || node.kubelet.state().failures.len() > 3);
    assert!(driver.events.try_recv().is_err());
    assert_eq!(node.kubelet.registered(DRIVER), []);
}

#[test]
fn a_restarted_kubelet_prepares_the_claims_of_new_sandboxes_again() {
    let mut node = Node::new();
    let driver = node.driver();
    node.wait_registered(1);
    let identities = || {
        driver
            .socket_files()
            .map(|path| std::os::unix::fs::MetadataExt::ino(&path.metadata().unwrap()))
    };
    let before = identities();
    for _ in 0..2 {
        assert_eq!(node.kubelet.sandbox(DRIVER, &[claim("a")]).unwrap(), [CDI]);
    }
    let prepared = |node: &Node| node.shared().asked_at.len();
    assert_eq!(prepared(&node), 1, "a kubelet remembers what it has prepared");
    for restart in 2..4 {
        node.kubelet.stop();
        node.kubelet.start();
        node.wait_registered(1);
        assert_eq!(node.kubelet.sandbox(DRIVER, &[claim("a")]).unwrap(), [CDI]);
        assert_eq!(prepared(&node), restart);
        until("the health is read again", || {
            node.kubelet.state().health.len() >= restart
        });
    }
    assert_eq!(identities(), before, "the sockets stay");
    node.kubelet.delete(DRIVER, &claim("a"));
    assert!(node.shared().prepared.is_empty());
}

#[test]
fn the_health_is_sent_at_once_and_at_each_change() {
    let node = Node::new();
    let driver = node.driver();
    let first = |at: usize| {
        until("the health is sent", || node.kubelet.state().health.len() > at);
        let message = node.kubelet.state().health[at].clone();
        assert_eq!(message.devices.len(), 1);
        let device = &message.devices[0];
        let id = device.device.clone().unwrap();
        assert_eq!((id.pool_name.as_str(), id.device_name.as_str()), ("node1", "gpu-0"));
        assert!(device.last_updated_time > 1_700_000_000);
        (device.health(), device.message.clone())
    };
    assert_eq!(first(0), (HealthStatus::Healthy, String::new()));
    for (health, wanted) in [
        (Health::Unhealthy, HealthStatus::Unhealthy),
        (Health::Unknown, HealthStatus::Unknown),
    ] {
        let count = node.kubelet.state().health.len();
        let message = "Xid 79 ".repeat(200);
        driver.health.send_modify(|devices| {
            devices[0].health = health;
            devices[0].message = message.clone();
        });
        let (health, shown) = first(count);
        assert_eq!((health, shown.len()), (wanted, 1024));
        assert!(message.starts_with(shown.strip_suffix("...").unwrap()));
    }
    assert_eq!(driver.settings.times.resend, NEVER);
    assert_eq!(node.kubelet.state().health.len(), 3);
}

#[test]
fn the_health_is_sent_again_if_nothing_changes() {
    let node = Node::new();
    let mut settings = node.settings(None);
    settings.times.resend = Duration::from_millis(20);
    let driver = node.start(settings);
    until("it was sent five times", || node.kubelet.state().health.len() >= 5);
    driver
        .health
        .send_replace(vec![DeviceHealth::default(), DeviceHealth::default()]);
    until("the new list is sent", || {
        let state = node.kubelet.state();
        state.health.last().is_some_and(|message| message.devices.len() == 2)
    });
}
