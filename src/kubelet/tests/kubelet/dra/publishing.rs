//! What a publisher sends to an API server, and when.

use super::divided::divided;
use super::fixtures::{DRIVER, devices, equal, held, node, whole};
use crate::bed::until;
use crate::fake_api::{FakeApi, Slices};
use serde_json::{Value, json};
use std::net::TcpListener;
use std::time::{Duration, Instant};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::{mpsc, watch};
use tranche_kubelet::dra::pace::Pacing;
use tranche_kubelet::dra::publish::Publisher;
use tranche_kubelet::ready::Ready;
use tranche_kubelet::said::{Notice, Said};
use tranche_protocol::{DraDevice, DraDevices};

/// A publisher before an API server.
struct Scene {
    api: FakeApi,
    devices: watch::Sender<Option<DraDevices>>,
    notices: mpsc::Receiver<Notice>,
    _runtime: Runtime,
}

const LEAST: Duration = Duration::from_millis(40);

impl Scene {
    fn new(devices: Vec<DraDevice>) -> Self {
        Self::before(FakeApi::start(), devices)
    }

    fn before(api: FakeApi, all: Vec<DraDevice>) -> Self {
        Self::paced(api, all, Duration::from_secs(3600))
    }

    fn paced(api: FakeApi, all: Vec<DraDevice>, probe: Duration) -> Self {
        let pacing = Pacing {
            least: LEAST,
            most: 4 * LEAST,
            probe,
            ..Pacing::default()
        };
        Self::with(api, all, pacing)
    }

    fn with(api: FakeApi, all: Vec<DraDevice>, pacing: Pacing) -> Self {
        let runtime = Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let (sender, receiver) = watch::channel(Some(devices(all)));
        let (events, notices) = mpsc::channel(64);
        let url = api.url.parse().unwrap();
        runtime.spawn(async move {
            let client = kube::Client::try_from(kube::Config::new(url)).unwrap();
            let publisher = Publisher::new(
                client,
                DRIVER,
                node(),
                Said::new(Some(events)),
                Ready::new(false, true),
                pacing,
            );
            publisher.work(receiver).await;
        });
        Self {
            api,
            devices: sender,
            notices,
            _runtime: runtime,
        }
    }

    fn set(&self, all: Vec<DraDevice>) {
        self.devices.send(Some(devices(all))).unwrap();
    }

    fn change(&self, change: impl FnOnce(&mut Slices)) {
        change(&mut self.api.cluster().slices);
        self.api.changed();
    }

    fn wait(&self, what: &str, mut is_so: impl FnMut(&Slices) -> bool) {
        until(what, || is_so(&self.api.cluster().slices));
    }

    fn wait_devices(&self, wanted: &[&str]) {
        self.wait(&format!("the devices are {wanted:?}"), |slices| {
            slices.devices() == wanted
        });
    }

    /// Waits until the watch that follows a publication is open, so that nothing is on its way.
    fn wait_watch(&self, count: usize) {
        self.wait("a watch is open", |slices| slices.reads.get("watch") >= Some(&count));
    }

    fn writes(&self) -> Vec<String> {
        self.api.cluster().slices.writes.clone()
    }

    fn notice(&mut self) -> Option<String> {
        self.notices.try_recv().ok().map(|notice| notice.text)
    }
}

fn first(slices: &Slices) -> (String, Value) {
    let (name, slice) = slices.stored.first_key_value().unwrap();
    (name.clone(), slice.clone())
}

#[test]
fn what_is_published_is_sent_once_and_a_change_gets_the_next_generation() {
    let scene = Scene::new(vec![whole(0), whole(1)]);
    scene.wait_devices(&["gpu-0", "gpu-1"]);
    scene.wait_watch(1);
    assert_eq!(scene.writes(), ["create 1", "create 1"]);
    let slice = first(&scene.api.cluster().slices).1;
    assert_eq!(slice["metadata"]["ownerReferences"][0]["kind"], "Node");
    assert_eq!(slice["metadata"]["ownerReferences"][0]["uid"], node().uid);
    assert_eq!(
        slice["spec"]["pool"],
        json!({"name": "gpu1", "generation": 1, "resourceSliceCount": 2})
    );
    // The same again is no request.
    scene.set(vec![whole(0), whole(1)]);
    scene.api.cut();
    scene.wait_watch(2);
    std::thread::sleep(4 * LEAST);
    assert_eq!(scene.writes().len(), 2);
    // One slice goes, and the one that stays counts one slice.
    scene.set(vec![whole(1)]);
    scene.wait_devices(&["gpu-1"]);
    scene.wait("all is sent", |slices| slices.writes.len() == 4);
    assert_eq!(scene.writes()[2..], ["update 2", "delete"]);
    scene.set(vec![whole(0), whole(1), whole(2)]);
    scene.wait_devices(&["gpu-0", "gpu-1", "gpu-2"]);
    assert_eq!(scene.writes()[4..], ["update 3", "create 3", "create 3"]);
    assert_eq!(scene.api.cluster().slices.generations(), [3, 3, 3]);
}

#[test]
fn slices_that_were_published_before_a_restart_are_kept() {
    let scene = Scene::new(vec![whole(0), whole(1)]);
    scene.wait_devices(&["gpu-0", "gpu-1"]);
    scene.wait_watch(1);
    let api = scene.api.clone();
    drop(scene);
    let scene = Scene::before(api, vec![whole(0), whole(1)]);
    scene.wait("it has read them", |slices| slices.reads.values().eq([&2, &2]));
    std::thread::sleep(4 * LEAST);
    assert_eq!(scene.writes().len(), 2);
    // Without the answer of a broker, nothing is changed.
    let _ = scene.devices.send(None);
    std::thread::sleep(4 * LEAST);
    assert_eq!(scene.writes().len(), 2);
}

#[test]
fn slices_that_the_kubelet_deletes_are_restored_at_their_generation() {
    let scene = Scene::new(vec![whole(0), whole(1)]);
    scene.wait_devices(&["gpu-0", "gpu-1"]);
    scene.wait_watch(1);
    scene.change(Slices::wipe);
    scene.wait_devices(&["gpu-0", "gpu-1"]);
    assert_eq!(scene.writes(), ["create 1"; 4]);
    let name = first(&scene.api.cluster().slices).0;
    scene.change(|slices| slices.put(&name, Value::Null));
    scene.wait_devices(&["gpu-0", "gpu-1"]);
    assert_eq!(scene.writes(), ["create 1"; 5]);
}

#[test]
fn what_another_program_changes_is_restored_ever_more_slowly() {
    let scene = Scene::new(vec![whole(0)]);
    scene.wait_devices(&["gpu-0"]);
    scene.wait_watch(1);
    let spoil = |scene: &Scene| {
        let (name, mut slice) = first(&scene.api.cluster().slices);
        slice["spec"]["devices"][0]["name"] = json!("spoiled");
        scene.change(|slices| slices.put(&name, slice));
    };
    let begin = Instant::now();
    for _ in 0..5 {
        spoil(&scene);
        scene.wait_devices(&["gpu-0"]);
    }
    // 1 + 1 + 2 + 4 times the shortest pause, each up to a quarter less.
    assert!(begin.elapsed() > 6 * LEAST * 3 / 4, "{:?}", begin.elapsed());
    assert_eq!(scene.writes()[1..], ["update 1"; 5]);
    // A slice of the pool that is not this program's is deleted, and a newer generation of it is outdone.
    let (_, mut other) = first(&scene.api.cluster().slices);
    other["spec"]["pool"]["generation"] = json!(7);
    scene.change(|slices| slices.put("other", other));
    scene.wait("it is alone again", |slices| slices.stored.len() == 1);
    assert_eq!(scene.api.cluster().slices.generations(), [8]);
}

#[test]
fn a_conflict_and_a_forgotten_version_are_read_again() {
    let mut scene = Scene::new(vec![whole(0)]);
    scene.wait_devices(&["gpu-0"]);
    scene.wait_watch(1);
    scene.change(|slices| slices.conflicts = 1);
    scene.set(vec![whole(1)]);
    scene.wait_devices(&["gpu-1"]);
    scene.wait("it was read again", |slices| slices.reads["list"] == 2);
    scene.change(Slices::forget);
    scene.wait("it was read again", |slices| slices.reads["list"] == 3);
    scene.set(vec![whole(2)]);
    scene.wait_devices(&["gpu-2"]);
    assert_eq!(scene.notice(), None);
}

#[test]
fn a_watch_that_is_cut_goes_on_where_it_was() {
    let scene = Scene::new(vec![whole(0)]);
    scene.wait_devices(&["gpu-0"]);
    scene.wait_watch(1);
    scene.api.cut();
    scene.change(Slices::wipe);
    scene.wait_devices(&["gpu-0"]);
    assert_eq!(scene.api.cluster().slices.reads["list"], 1);
}

#[test]
fn devices_that_are_held_unhealthy_or_withdrawn_are_published_so() {
    let scene = Scene::new(vec![whole(0), whole(1)]);
    scene.wait_devices(&["gpu-0", "gpu-1"]);
    let (mut taken, mut broken) = (whole(0), whole(1));
    taken.held = vec![held(None, None, None)];
    broken.unhealthy = Some("Xid 79".into());
    scene.set(vec![taken, broken]);
    let keys = |slices: &Slices| -> Vec<Value> {
        let specs = slices.specs().into_iter();
        specs
            .map(|spec| spec["devices"][0]["taints"][0]["key"].clone())
            .collect()
    };
    scene.wait("both have a taint", |slices| {
        keys(slices) == ["gpu.tranche.dev/held", "gpu.tranche.dev/unhealthy"]
    });
    // The time that the server adds to a taint is no difference.
    scene.api.cut();
    std::thread::sleep(4 * LEAST);
    assert_eq!(scene.writes()[2..], ["create 1 dry", "update 2", "update 2"]);
    scene.set(vec![whole(0), whole(1)]);
    scene.wait("no device has a taint", |slices| {
        keys(slices) == [Value::Null, Value::Null]
    });
    scene.set(Vec::new());
    scene.wait_devices(&[]);
}

#[test]
fn a_device_out_of_service_has_a_taint_with_the_reason_that_evicts_nobody() {
    let scene = Scene::new(vec![whole(0)]);
    scene.wait_devices(&["gpu-0"]);
    let mut drained = whole(0);
    drained.out_of_service = Some("out of service since 2026-11-25 10:00:00 UTC (a fan)".into());
    scene.set(vec![drained]);
    scene.wait("it has a taint", |slices| {
        let taint = &slices.specs()[0]["devices"][0]["taints"][0];
        let is_it = taint["key"] == "gpu.tranche.dev/out-of-service" && taint["effect"] == "NoSchedule";
        is_it && taint["value"] == "since-2026-11-25-10-00-00-UTC-a-fan"
    });
    scene.set(vec![whole(0)]);
    scene.wait("it has none", |slices| {
        slices.specs()[0]["devices"][0]["taints"].is_null()
    });
}

#[test]
fn an_api_server_that_drops_fields_gets_plain_devices_and_all_of_them_when_it_keeps_them() {
    let api = FakeApi::start();
    api.cluster().slices.drops_gated = true;
    let mut scene = Scene::paced(api, vec![equal(0, 2)], Duration::from_millis(300));
    scene.wait_devices(&["gpu-0-share-0", "gpu-0-share-1"]);
    assert!(scene.notice().unwrap().starts_with("the API server drops fields"));
    let mut taken = equal(0, 2);
    taken.held = vec![held(Some("0"), None, None)];
    scene.set(vec![taken]);
    scene.wait_devices(&["gpu-0-share-1"]);
    let asked = |slices: &Slices| slices.writes.iter().filter(|write| write.ends_with(" dry")).count();
    scene.wait("it is asked again", |slices| asked(slices) > 2);
    scene.change(|slices| slices.drops_gated = false);
    scene.wait_devices(&["gpu-0"]);
    assert!(scene.notice().is_none(), "one event says it");
    // A server of an older version takes the place of this one. It keeps what a slice has, and drops what is new.
    scene.change(|slices| {
        slices.drops_gated = true;
        slices.wipe();
    });
    scene.wait_devices(&["gpu-0-share-1"]);
}

#[test]
fn an_api_server_without_counters_gets_no_instance_that_does_not_exist() {
    let all = |taken: bool| DraDevices {
        divided: vec![divided(1, "a30")],
        ..devices([match taken {
            true => DraDevice {
                held: vec![held(None, None, None)],
                ..whole(0)
            },
            false => whole(0),
        }])
    };
    let api = FakeApi::start();
    api.cluster().slices.drops_counters = true;
    let mut scene = Scene::paced(api, Vec::new(), Duration::from_millis(300));
    scene.devices.send(Some(all(false))).unwrap();
    scene.wait_devices(&["gpu-0"]);
    let said = scene.notice().unwrap();
    assert!(
        said.starts_with("the API server drops the counters") && !said.contains('\n'),
        "{said}"
    );
    // The other gates are on.
    scene.devices.send(Some(all(true))).unwrap();
    let is_tainted = |slices: &Slices| {
        slices
            .specs()
            .iter()
            .any(|spec| !spec["devices"][0]["taints"].is_null())
    };
    scene.wait("the device has a taint", is_tainted);
    scene.change(|slices| slices.drops_counters = false);
    scene.wait("the instances are there", |slices| slices.devices().len() > 1);
    assert!(scene.notice().is_none(), "one event says it");
    let specs = scene.api.cluster().slices.specs();
    assert_eq!(specs[0]["sharedCounters"][0]["name"], "gpu-1");
    // What is published is what was sent: nothing is sent again.
    scene.api.cut();
    let writes = scene.writes().len();
    std::thread::sleep(4 * LEAST);
    assert_eq!(scene.writes().len(), writes);
    // An API server of an older version takes its place.
    scene.change(|slices| {
        slices.drops_counters = true;
        slices.wipe();
    });
    scene.wait_devices(&["gpu-0"]);
}

#[test]
fn an_api_server_that_is_away_is_one_line_and_gets_the_last_state_when_it_is_back() {
    let mut scene = Scene::new(vec![whole(0)]);
    scene.wait_devices(&["gpu-0"]);
    scene.change(|slices| slices.refuses = 500);
    scene.set(vec![whole(1)]);
    scene.wait("it is tried again", |slices| slices.reads["list"] > 4);
    scene.set(vec![whole(2)]);
    scene.change(|slices| slices.refuses = 0);
    scene.wait_devices(&["gpu-2"]);
    assert!(scene.notice().unwrap().contains("cannot be published"));
    assert_eq!(scene.notice(), None);
}

#[test]
fn an_api_server_that_starts_later_gets_the_slices() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let mut api = FakeApi::start();
    let url = std::mem::replace(&mut api.url, format!("http://{address}"));
    let mut scene = Scene::before(api, vec![whole(0)]);
    until("nobody answers", || scene.notice().is_some());
    assert_ne!(scene.api.url, url);
    scene.api = FakeApi::listen(TcpListener::bind(address).unwrap());
    scene.wait_devices(&["gpu-0"]);
}

#[test]
fn changes_within_a_moment_are_one_publication() {
    let scene = Scene::new(vec![whole(0)]);
    scene.wait_devices(&["gpu-0"]);
    scene.wait_watch(1);
    for minor in 1..=20 {
        scene.set(vec![whole(minor)]);
    }
    scene.wait_devices(&["gpu-20"]);
    assert!(scene.writes().len() <= 3, "{:?}", scene.writes());
}

#[test]
fn a_call_that_is_never_answered_is_made_again() {
    let pacing = Pacing {
        least: LEAST,
        most: 4 * LEAST,
        answer: Duration::from_millis(500),
        ..Pacing::default()
    };
    let mut scene = Scene::with(FakeApi::start(), vec![whole(0)], pacing);
    scene.wait_watch(1);
    // A change, the list that follows, and the next watch.
    for lost in 1..=3 {
        scene.change(|slices| slices.lost = lost);
        let devices: Vec<_> = (0..=lost).map(whole).collect();
        scene.set(devices);
        let count = usize::try_from(lost).unwrap() + 1;
        scene.wait("it is published", |slices| slices.devices().len() == count);
    }
    let said = scene.notice().unwrap();
    assert!(
        said.contains("the API server does not answer: nothing came within 0.5 s"),
        "{said}"
    );
}

#[test]
fn slices_belong_to_a_node_that_was_made_anew() {
    let scene = Scene::new(vec![whole(0)]);
    scene.wait_watch(1);
    // The node is deleted, and its slices with it. Its kubelet registers it again.
    scene.api.cluster().node_uid = Some("later");
    scene.change(Slices::wipe);
    scene.wait_devices(&["gpu-0"]);
    let owner = first(&scene.api.cluster().slices).1["metadata"]["ownerReferences"][0].clone();
    assert_eq!(owner["uid"], "later");
}
