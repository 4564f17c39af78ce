//! What the cluster says: a ConfigMap and the label of the node. What it gets: events.

use crate::bed::{Bed, Plugin, Process, until};
use crate::fake_api::{FakeApi, NODE};
use crate::offers::whole;
use std::collections::BTreeSet;
use std::fs;
use std::net::TcpListener;
use std::path::PathBuf;
use std::time::Duration;
use tranche_kubelet::{ClusterSettings, Settings, Times};

/// The calls for which the chart asks for rights. tests/chart compares its roles with the same file.
const CALLS: &str = include_str!("../../../../tests/chart/calls.txt");

/// A node of a cluster that has a ConfigMap.
struct Scene {
    bed: Bed,
    api: FakeApi,
}

impl Scene {
    fn new(configurations: &[(&str, &str)]) -> Self {
        let scene = Self {
            bed: Bed::new(vec![whole("GPU-0")]),
            api: FakeApi::start(),
        };
        scene.api.write_config(&scene.bed.at("kubeconfig"));
        fs::create_dir(scene.config_dir()).unwrap();
        for (key, text) in configurations {
            scene.write(key, text);
        }
        scene
    }

    fn config_dir(&self) -> PathBuf {
        self.bed.at("config")
    }

    /// As the kubelet does it: the old text or the new one, and never half of one.
    fn write(&self, key: &str, text: &str) {
        let temporary = self.bed.at("written");
        fs::write(&temporary, text).unwrap();
        fs::rename(temporary, self.config_dir().join(key)).unwrap();
    }

    fn process(&self, options: &[&str]) -> Process {
        let config_dir = format!("--config-dir={}", self.config_dir().display());
        let node = format!("--node={NODE}");
        let all: Vec<&str> = [config_dir.as_str(), node.as_str()]
            .into_iter()
            .chain(options.iter().copied())
            .collect();
        self.bed
            .process_with(&all, &[("KUBECONFIG", &self.bed.at("kubeconfig"))])
    }

    fn wait_policy(&self, text: Option<&str>) {
        until(&format!("the policy is {text:?}"), || {
            self.bed.broker.node().policy.as_deref() == text
        });
    }

    /// A GPU does not work any more, and an event says so.
    fn gpu_fails(&self) {
        let broker = &self.bed.broker;
        broker.change(|offers| offers[0].unhealthy = Some("Xid 79".into()));
        self.api.wait_event("DeviceUnhealthy", "nvidia.com/gpu GPU-0: Xid 79");
    }
}

#[test]
fn the_label_of_the_node_names_its_configuration() {
    let scene = Scene::new(&[("a", "# a"), ("b", "# b"), ("default", "# default")]);
    let process = scene.process(&[]);
    scene.wait_policy(Some("# default"));
    scene.api.label(Some("a"));
    scene.wait_policy(Some("# a"));
    scene.api.wait_event(
        "PolicyTaken",
        "the configuration a of the cluster is the policy of this node",
    );
    // A watch ends after some minutes, and what happens meanwhile is seen by the next one.
    scene.api.cut();
    scene.api.label(Some("b"));
    scene.wait_policy(Some("# b"));
    scene.api.label(None);
    scene.wait_policy(Some("# default"));
    scene.write("default", "# changed");
    scene.wait_policy(Some("# changed"));
    // The last event is about what counts, also if it counted before.
    let taken = "the configuration default of the cluster is the policy of this node";
    until("each time is an event", || {
        let cluster = scene.api.cluster();
        cluster.events.iter().filter(|event| event["note"] == taken).count() == 3
    });
    let warnings = process.log().into_iter().filter(|line| line.starts_with(" WARN"));
    assert_eq!(warnings.collect::<Vec<_>>(), [""; 0]);
}

/// What is published between the two would be scheduled, and could not be prepared.
#[test]
fn the_offers_follow_a_policy_of_the_cluster_at_once() {
    let scene = Scene::new(&[("a", "# a")]);
    let settings = Settings {
        cluster: ClusterSettings {
            config_dir: Some(scene.config_dir()),
            ..ClusterSettings::default()
        },
        times: Times {
            period: Duration::from_secs(3600),
            ..scene.bed.settings().times
        },
        ..scene.bed.settings()
    };
    let _plugin = Plugin::start(settings);
    scene.wait_policy(Some("# a"));
    until("the offers are read", || scene.bed.broker.node().looks >= 1);
    std::thread::sleep(Duration::from_millis(300));
    let before = scene.bed.broker.node().looks;
    scene.write("a", "# b");
    scene.wait_policy(Some("# b"));
    until("the broker is asked again", || scene.bed.broker.node().looks > before);
}

#[test]
fn the_default_of_the_chart_counts_without_a_label() {
    let scene = Scene::new(&[("a", "# a"), ("default", "# default")]);
    let _process = scene.process(&["--config-default=a"]);
    scene.wait_policy(Some("# a"));
}

#[test]
fn what_is_wrong_leaves_the_last_good_configuration_and_is_an_event() {
    let scene = Scene::new(&[("a", "# a"), ("b", "wrong")]);
    scene.api.label(Some("a"));
    let _process = scene.process(&[]);
    scene.wait_policy(Some("# a"));
    scene.api.label(Some("b"));
    scene.api.wait_event(
        "PolicyRefused",
        "the configuration b is not taken, and the policy of this node stays as it is: ",
    );
    scene.api.label(Some("x"));
    scene
        .api
        .wait_event("PolicyRefused", "names the configuration x, and the ConfigMap has a, b");
    assert_eq!(scene.bed.broker.node().policy.as_deref(), Some("# a"));
    scene.write("b", "# b");
    scene.api.label(Some("b"));
    scene.wait_policy(Some("# b"));
}

#[test]
fn without_a_label_that_is_known_the_policy_stays_as_it_is() {
    let scene = Scene::new(&[("default", "# default")]);
    scene.bed.broker.node().policy = Some("# of yesterday".into());
    scene.api.cluster().is_forbidden = true;
    let process = scene.process(&[]);
    process.wait_log("the label nvidia.com/device-plugin.config of this node is not known: ");
    // The plugin serves the kubelet all the same.
    scene.bed.wait_allocatable(1);
    assert_eq!(scene.bed.broker.node().policy.as_deref(), Some("# of yesterday"));
    scene.api.cluster().is_forbidden = false;
    scene.wait_policy(Some("# default"));
}

#[test]
fn without_a_config_map_the_policy_of_the_cluster_is_removed() {
    let bed = Bed::new(vec![whole("GPU-0")]);
    bed.broker.node().policy = Some("# of yesterday".into());
    let process = bed.process();
    process.wait_log("the policy that the cluster had for this node is removed");
    assert_eq!(bed.broker.node().policy, None);
}

#[test]
fn a_device_that_does_not_work_is_an_event_and_the_calls_are_those_of_the_chart() {
    let scene = Scene::new(&[("default", "# default")]);
    let _process = scene.process(&[]);
    scene.bed.wait_allocatable(1);
    scene.gpu_fails();
    let wrong = "config.yaml:3:1: unknown key; the policy of the last refresh stays in force";
    scene.bed.broker.node().wrong_policy = Some(wrong.to_owned());
    scene.bed.broker.change(|_| ());
    scene.api.wait_event("PolicyInvalid", wrong);
    scene.bed.wait_allocatable(0);
    let wanted: BTreeSet<String> = CALLS
        .lines()
        .filter(|line| !line.starts_with('#'))
        // The others are those of the driver (driver.rs).
        .filter(|line| !line.contains("resource.k8s.io") && !line.contains("nodefeatures") && *line != "get nodes")
        .map(str::to_owned)
        .collect();
    until("each call of the list was made", || {
        scene.api.cluster().calls.is_superset(&wanted)
    });
    assert_eq!(scene.api.cluster().calls, wanted);
}

#[test]
fn an_event_without_an_answer_keeps_no_later_one() {
    let scene = Scene::new(&[("default", "# default")]);
    scene.api.cluster().lost_events = 1;
    let process = scene.process(&[]);
    process.wait_log("the API server takes no events: the API server does not answer: nothing came within 5 s");
    scene.bed.wait_allocatable(1);
    scene.gpu_fails();
}

#[test]
fn an_api_server_that_is_away_costs_events_alone() {
    let scene = Scene::new(&[]);
    fs::write(scene.bed.at("kubeconfig"), "no configuration").unwrap();
    let process = scene.process(&[]);
    process.wait_log("no access to the API server: ");
    scene.bed.wait_allocatable(1);
}

#[test]
fn an_api_server_that_does_not_answer_is_one_line_with_the_reason() {
    let mut scene = Scene::new(&[("default", "# default")]);
    // Nobody listens on the port of a listener that is gone.
    let gone = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    scene.api.url = format!("http://{gone}");
    scene.api.write_config(&scene.bed.at("kubeconfig"));
    let process = scene.process(&[]);
    let start = " WARN the label nvidia.com/device-plugin.config of this node is not known: ";
    process.wait_log(start);
    let log = process.log();
    let faults: Vec<_> = log.iter().filter(|line| !line.starts_with(" INFO")).collect();
    assert!(
        faults[0].starts_with(start) && faults[0].contains("Connection refused"),
        "{log:#?}"
    );
    assert_eq!(faults.len(), 1, "{log:#?}");
}
