//! How the kubelet finds the driver, and what becomes of its sockets.

use super::node::{DRIVER, Node, claim};
use crate::bed::until;
use crate::fake_kubelet::dra::wire::GoClient;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use tranche_kubelet::proto::pluginregistration as api;

const OLD: &str = "0b5ee5c8-0a34-4e8a-9d0a-0d5f4e7a8f11";
const NEW: &str = "5f0c7c9e-43f2-4f0e-8f52-3f2c1a7d9b22";

#[test]
fn the_kubelet_finds_the_driver_and_both_of_its_versions() {
    let node = Node::new();
    let driver = node.driver();
    node.wait_registered(1);
    let endpoint = node.dir().join("plugins/gpu.tranche.dev/dra.sock");
    assert_eq!(driver.socket_files()[0], endpoint);
    let wanted = api::PluginInfo {
        r#type: "DRAPlugin".into(),
        name: DRIVER.into(),
        endpoint: endpoint.display().to_string(),
        supported_versions: ["v1.DRAPlugin", "v1beta1.DRAPlugin", "v1alpha1.DRAResourceHealth"]
            .map(str::to_owned)
            .into(),
    };
    assert_eq!(node.kubelet.state().infos, [wanted]);
    assert_eq!(node.kubelet.registered(DRIVER)[0].1, "v1.DRAPlugin");
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(driver.socket_files().map(|path| mode(&path)), [0o600, 0o600]);
    // A mask of the process may take more away.
    assert_eq!(mode(endpoint.parent().unwrap()) & 0o727, 0o700);
    assert_eq!(node.sockets(), ["dra.sock", "gpu.tranche.dev-reg.sock"]);
    driver.stop();
    assert_eq!(node.sockets(), [""; 0]);
    node.wait_registered(0);
    let refused = node.kubelet.prepare(DRIVER, &[claim("a")]).unwrap_err();
    assert!(refused.message().contains("is not registered"));
}

#[test]
fn the_server_announces_no_size_of_the_table() {
    let node = Node::asleep();
    let driver = node.driver();
    until("the driver listens", || driver.settings.registration_socket().exists());
    let mut client = GoClient::dial(&driver.settings.registration_socket()).unwrap();
    let settings = client.settings().unwrap();
    assert!(!settings.is_empty());
    assert!(settings.iter().all(|(id, _)| *id != 1), "{settings:?}");
}

#[test]
fn of_two_instances_the_newer_one_is_called_and_the_one_that_ends_takes_its_own_sockets_with_it() {
    let node = Node::new();
    let old = node.start(node.settings(Some(OLD)));
    node.wait_registered(1);
    assert_eq!(node.kubelet.sandbox(DRIVER, &[claim("a")]).unwrap().len(), 1);
    let new = node.start(node.settings(Some(NEW)));
    node.wait_registered(2);
    let names = |uid: &str| [format!("dra-{uid}.sock"), format!("{DRIVER}-{uid}-reg.sock")];
    let both = {
        let mut both = [names(OLD), names(NEW)].concat();
        both.sort();
        both
    };
    assert_eq!(node.sockets(), both);
    old.stop();
    assert_eq!(node.sockets(), names(NEW));
    node.wait_registered(1);
    let endpoint = new.settings.socket().display().to_string();
    assert_eq!(node.kubelet.registered(DRIVER)[0].0, endpoint);
    // The new one unprepares what the old one has prepared.
    node.kubelet.delete(DRIVER, &claim("a"));
    assert!(node.shared().prepared.is_empty());
    new.stop();
    assert_eq!(node.sockets(), [""; 0]);
}

#[test]
fn stale_sockets_of_killed_instances_are_removed_and_other_files_stay() {
    let node = Node::new();
    let killed = [None, Some(OLD)].map(|uid| node.start(node.settings(uid)));
    node.wait_registered(2);
    drop(killed);
    assert_eq!(node.sockets().len(), 4);
    let registry = node.dir().join("plugins_registry");
    let keep = |name: &str| registry.join(name);
    let _live = UnixListener::bind(keep("gpu.tranche.dev-5f0c7c9e43f24f0e8f523f2c1a7d9b33-reg.sock")).unwrap();
    drop(UnixListener::bind(keep("other.example.com-reg.sock")).unwrap());
    drop(UnixListener::bind(keep(".gpu.tranche.dev-reg.sock")).unwrap());
    let file = keep("gpu.tranche.dev-5f0c7c9e43f24f0e8f523f2c1a7d9b44-reg.sock");
    fs::write(&file, "not a socket").unwrap();
    let new = node.start(node.settings(Some(NEW)));
    until("the new one is registered", || {
        let endpoint = new.settings.socket().display().to_string();
        node.kubelet
            .registered(DRIVER)
            .iter()
            .any(|(found, _)| *found == endpoint)
    });
    assert_eq!(
        node.sockets(),
        [
            format!("dra-{NEW}.sock"),
            "gpu.tranche.dev-5f0c7c9e-43f2-4f0e-8f52-3f2c1a7d9b22-reg.sock".into(),
            "gpu.tranche.dev-5f0c7c9e43f24f0e8f523f2c1a7d9b33-reg.sock".into(),
            "gpu.tranche.dev-5f0c7c9e43f24f0e8f523f2c1a7d9b44-reg.sock".into(),
            "other.example.com-reg.sock".into(),
        ]
    );
    assert!(!keep(".gpu.tranche.dev-reg.sock").exists());
    assert_eq!(fs::read_to_string(file).unwrap(), "not a socket");
}

#[test]
fn the_stale_socket_of_a_killed_instance_is_replaced() {
    let node = Node::new();
    let killed = node.driver();
    node.wait_registered(1);
    drop(killed);
    let driver = node.driver();
    until("the driver answers", || {
        node.kubelet.prepare(DRIVER, &[claim("a")]).is_ok()
    });
    driver.stop();
    assert_eq!(node.sockets(), [""; 0]);
}

#[test]
fn a_file_at_the_place_of_a_socket_stays_and_is_reported() {
    let node = Node::new();
    let at: PathBuf = node.settings(None).socket();
    fs::create_dir_all(at.parent().unwrap()).unwrap();
    fs::write(&at, "not a socket").unwrap();
    let mut driver = node.driver();
    let event = driver.event();
    assert_eq!(event.reason, "DriverUnavailable");
    assert!(
        event.text.contains("dra.sock") && event.text.contains("it is not a socket"),
        "{}",
        event.text
    );
    assert_eq!(fs::read_to_string(&at).unwrap(), "not a socket");
    assert_eq!(node.kubelet.registered(DRIVER), []);
    fs::remove_file(&at).unwrap();
    node.wait_registered(1);
}

#[test]
fn sockets_and_directories_that_vanish_are_made_anew() {
    let node = Node::new();
    let driver = node.driver();
    node.wait_registered(1);
    let [socket, registration] = driver.socket_files();
    for gone in [&socket, &registration] {
        fs::remove_file(gone).unwrap();
        until("it is back", || gone.exists());
    }
    for gone in [&socket, &registration] {
        // At once: the driver would make a new socket while the old ones are removed.
        fs::rename(gone.parent().unwrap(), node.dir().join("gone")).unwrap();
        until("it is back", || gone.exists());
        fs::remove_dir_all(node.dir().join("gone")).unwrap();
    }
    // The kubelet dials the new socket.
    until("the driver answers", || {
        node.kubelet.prepare(DRIVER, &[claim("a")]).is_ok()
    });
    driver.stop();
    assert_eq!(node.sockets(), [""; 0]);
}
