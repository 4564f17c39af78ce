//! What the device plugin of Kubernetes asks, and containers of pods that enter what was reserved for them. A pod's
//! container is a process in the kubelet's cgroups, with the annotations of a CRI runtime in the state that its hook
//! reads.

use crate::limits::refresh;
use crate::scene::{ANN, GPU_0, GPU_1, Scene, Sleeper};
use crate::support::until;
use nix::sys::signal::Signal;
use serde_json::{Value, json};
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use tranche_protocol::Offers;

/// The cgroup of a pod, which ends with this.
struct PodCgroup(PathBuf);

impl PodCgroup {
    fn new() -> PodCgroup {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let top = Path::new("/sys/fs/cgroup");
        let top = match top.join("cgroup.controllers").exists() {
            true => top.to_owned(),
            false => top.join("pids"),
        };
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        // Behind a `cgroupRoot` of its own: a kubelet of this machine removes pods that it does not know.
        let path = top.join(format!("tranche-test-{}-{number}/kubepods/pod", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        PodCgroup(path)
    }

    /// A process that is the container `name` of the pod.
    fn container(&self, name: &str) -> Sleeper {
        let init = Sleeper::new(0);
        let cgroup = self.0.join(name);
        fs::create_dir_all(&cgroup).unwrap();
        fs::write(cgroup.join("cgroup.procs"), init.pid().to_string()).unwrap();
        init
    }
}

impl Drop for PodCgroup {
    fn drop(&mut self) {
        for entry in fs::read_dir(&self.0).into_iter().flatten().flatten() {
            // Files of a cgroup cannot be removed; a process that was killed is in its cgroup for a moment.
            let mut tries = 0..1000;
            while entry.path().is_dir() && fs::remove_dir(entry.path()).is_err() && tries.next().is_some() {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        for directory in self.0.ancestors().take(3) {
            let _ = fs::remove_dir(directory);
        }
    }
}

fn pod(name: &str) -> Value {
    json!({"namespace": "shop", "name": name})
}

fn annotations(name: &str) -> Value {
    json!({"io.kubernetes.cri.sandbox-namespace": "shop", "io.kubernetes.cri.sandbox-name": name})
}

/// Starts the hook of a container, which claims `share` of GPU 0.
fn hook(scene: &Scene, share: &str, id: &str, init: &Sleeper, annotations: Value) -> Child {
    let mut command = Command::new(scene.at("tranche-oci"));
    command.args(["hook", "claim", "--label=gpu 0", "--size=1/10", "--of=10"]);
    command.arg(format!("--device={GPU_0}")).arg(format!("--share={share}"));
    command.arg(scene.option("state-dir", "state"));
    command.env_clear().stdin(Stdio::piped()).stderr(Stdio::piped());
    let mut hook = command.spawn().unwrap();
    let bundle = scene.at(id);
    let state = json!({"id": id, "bundle": bundle, "pid": init.pid(), "annotations": annotations});
    hook.stdin
        .take()
        .unwrap()
        .write_all(state.to_string().as_bytes())
        .unwrap();
    hook
}

/// As [`hook`], to its end. Returns what it says if it refuses.
fn enter(scene: &Scene, share: &str, id: &str, init: &Sleeper, annotations: Value) -> Result<(), String> {
    ended(hook(scene, share, id, init, annotations))
}

fn ended(hook: Child) -> Result<(), String> {
    let output = hook.wait_with_output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    output.status.success().then_some(()).ok_or(said)
}

fn reserve(scene: &Scene, name: &str, ids: &[String]) -> Result<Value, String> {
    scene.ask(0, "reserve", json!({"pod": pod(name), "devices": ids}))
}

fn give_up(scene: &Scene, name: &str, ids: &[String]) {
    let given = scene.ask(0, "give-up", json!({"pod": pod(name), "devices": ids}));
    assert_eq!(given, Ok(json!({})));
}

fn offers(scene: &Scene) -> Offers {
    serde_json::from_value(scene.ask(0, "offers", json!({})).unwrap()).unwrap()
}

/// Who has the part with this id.
fn who(scene: &Scene, id: &str) -> Option<String> {
    offers(scene)
        .offers
        .iter()
        .find_map(|offer| offer.taken(id).map(|taken| taken.by.clone()))
}

fn id(share: u32) -> String {
    format!("{GPU_0}.{share}")
}

#[test]
fn the_plugin_sees_what_there_is_and_who_has_it() {
    let Some(scene) = Scene::new("the_plugin_sees_what_there_is_and_who_has_it") else {
        return;
    };
    let all = offers(&scene).offers;
    let seen: Vec<_> = all
        .iter()
        .map(|o| (o.resource.as_str(), o.device.as_str(), o.count(), o.one_share))
        .collect();
    assert_eq!(
        seen,
        [("nvidia.com/gpu", GPU_0, 10, false), ("nvidia.com/gpu", GPU_1, 2, true)]
    );
    assert!(
        all.iter()
            .all(|offer| offer.taken.is_empty() && offer.unhealthy.is_none()),
        "{all:?}"
    );
    scene.claim(ANN, "train").unwrap();
    reserve(&scene, "web-0", &[id(7)]).unwrap();
    assert_eq!(who(&scene, &id(0)).as_deref(), Some("claim 65534.train"));
    assert_eq!(who(&scene, &id(7)).as_deref(), Some("pod shop/web-0"));
    assert_eq!(who(&scene, &id(1)), None);
}

#[test]
fn a_pod_that_has_a_share_of_a_drained_device_keeps_it_and_no_other_pod_gets_one() {
    let Some(scene) = Scene::new("a_pod_that_has_a_share_of_a_drained_device_keeps_it_and_no_other_pod_gets_one")
    else {
        return;
    };
    reserve(&scene, "a", &[id(0)]).unwrap();
    let drained = scene.tranche_of_root(&["drain", "0", "--reason=a fan"]);
    assert!(drained.status.success(), "{drained:?}");
    let why = |gpu: &str| {
        let all = offers(&scene).offers;
        let offer = all.into_iter().find(|offer| offer.gpu == gpu).unwrap();
        assert_eq!(offer.unhealthy, None);
        offer.out_of_service
    };
    assert!(why(GPU_0).is_some_and(|why| why.starts_with("out of service since ") && why.ends_with("(a fan)")));
    assert_eq!(why(GPU_1), None);
    let refused = reserve(&scene, "b", &[id(1)]).unwrap_err();
    assert!(
        refused.contains("gpu 0: out of service since ") && refused.contains("(a fan)"),
        "{refused}"
    );
    // Its kubelet asks again for what the pod has, and a container of the pod starts.
    reserve(&scene, "a", &[id(0)]).unwrap();
    let pod = PodCgroup::new();
    let init = pod.container("c");
    enter(&scene, "0", "c", &init, annotations("a")).unwrap();
    let other = Sleeper::new(0);
    assert!(
        enter(&scene, "1", "d", &other, json!({}))
            .unwrap_err()
            .contains("(a fan)")
    );
    let mut undrain = Command::new(scene.at("tranche"));
    undrain
        .args(["undrain", "0", "--inventory=sim:t4x2"])
        .arg(scene.option("state-dir", "state"));
    assert!(undrain.env_clear().status().unwrap().success());
    assert_eq!(why(GPU_0), None);
    reserve(&scene, "b", &[id(1)]).unwrap();
}

#[test]
fn a_pod_keeps_its_share_and_nobody_else_gets_it() {
    let Some(scene) = Scene::new("a_pod_keeps_its_share_and_nobody_else_gets_it") else {
        return;
    };
    reserve(&scene, "web-0", &[id(3)]).unwrap();
    reserve(&scene, "web-0", &[id(3)]).expect("it is asked for before every start of a container");
    let podman = Sleeper::new(0);
    let refused = enter(&scene, "3", "podman", &podman, json!({})).unwrap_err();
    assert!(refused.contains("pod shop/web-0 holds share 3 since"), "{refused}");
    // What an image can write makes no container of a pod.
    let refused = enter(&scene, "3", "podman", &podman, annotations("web-0")).unwrap_err();
    assert!(refused.contains("pod shop/web-0 holds share 3"), "{refused}");
    let cgroup = PodCgroup::new();
    let other = cgroup.container("other");
    let refused = enter(&scene, "3", "other", &other, annotations("web-1")).unwrap_err();
    assert!(refused.contains("pod shop/web-0 holds share 3"), "{refused}");
    for name in ["init", "app", "app-again"] {
        let container = cgroup.container(name);
        enter(&scene, "3", name, &container, annotations("web-0")).unwrap();
        let second = enter(&scene, "3", "second", &other, annotations("web-0"));
        assert!(second.is_err(), "two containers at one time");
        drop(container);
        assert_eq!(
            who(&scene, &id(3)).as_deref(),
            Some("pod shop/web-0"),
            "{name} has ended"
        );
    }
    give_up(&scene, "web-0", &[id(3)]);
    enter(&scene, "3", "podman", &podman, json!({})).unwrap();
}

#[test]
fn a_reservation_outlives_a_reboot_and_ends_when_it_is_given_up() {
    let Some(mut scene) = Scene::new("a_reservation_outlives_a_reboot_and_ends_when_it_is_given_up") else {
        return;
    };
    reserve(&scene, "web-0", &[id(3), id(4)]).unwrap();
    scene.claim(ANN, "train").unwrap();
    give_up(&scene, "web-0", &[id(4)]);
    // The last change before the boot is one that adds something.
    reserve(&scene, "web-1", &[id(6)]).unwrap();
    scene.stop(Signal::SIGTERM);
    // A reboot: of the state directory, only what is kept elsewhere is still there.
    fs::remove_dir_all(scene.at("state/ledger")).unwrap();
    fs::remove_file(scene.at("state/broker.sock")).ok();
    // The first to look is the hook of another container, before any broker runs.
    let podman = Sleeper::new(0);
    let refused = enter(&scene, "3", "podman", &podman, json!({})).unwrap_err();
    assert!(refused.contains("pod shop/web-0 holds share 3 since"), "{refused}");
    let refused = enter(&scene, "6", "podman", &podman, json!({})).unwrap_err();
    assert!(refused.contains("pod shop/web-1 holds share 6 since"), "{refused}");
    enter(&scene, "4", "podman", &podman, json!({})).expect("it was given up");
    scene.start();
    assert_eq!(who(&scene, &id(0)), None, "a claim of a user ends with the machine");
    let cgroup = PodCgroup::new();
    let container = cgroup.container("app");
    enter(&scene, "3", "app", &container, annotations("web-0")).unwrap();
}

#[test]
fn a_share_of_an_earlier_policy_is_listed_and_given_up_by_its_id() {
    let Some(scene) = Scene::new("a_share_of_an_earlier_policy_is_listed_and_given_up_by_its_id") else {
        return;
    };
    reserve(&scene, "web-0", &[id(3)]).unwrap();
    let whole = "version: v1\nsharing: {dedicated: {devices: all}}\n";
    fs::write(scene.at("policy.yaml"), whole).unwrap();
    refresh(&scene);
    until("the device is whole", || who(&scene, GPU_0).is_some());
    let refused = reserve(&scene, "web-1", &[GPU_0.to_owned()]).unwrap_err();
    assert!(refused.contains("pod shop/web-0"), "{refused}");
    let reserved = offers(&scene).reserved.unwrap();
    let reserved: Vec<(&str, &str)> = reserved.iter().map(|one| (&*one.id, &*one.pod.name)).collect();
    assert_eq!(reserved, [(&*id(3), "web-0")]);
    give_up(&scene, "web-0", &[id(3)]);
    assert_eq!(offers(&scene).reserved, Some(Vec::new()));
    reserve(&scene, "web-1", &[GPU_0.to_owned()]).unwrap();
}

#[test]
fn what_is_given_up_while_a_container_uses_it_ends_with_that_container() {
    let Some(scene) = Scene::new("what_is_given_up_while_a_container_uses_it_ends_with_that_container") else {
        return;
    };
    reserve(&scene, "web-0", &[id(3)]).unwrap();
    let cgroup = PodCgroup::new();
    let container = cgroup.container("app");
    enter(&scene, "3", "app", &container, annotations("web-0")).unwrap();
    give_up(&scene, "web-0", &[id(3)]);
    let refused = reserve(&scene, "web-1", &[id(3)]).unwrap_err();
    assert!(refused.contains("pod shop/web-0"), "{refused}");
    drop(container);
    reserve(&scene, "web-1", &[id(3)]).unwrap();
}

#[test]
fn all_devices_of_a_pod_are_reserved_or_none() {
    let Some(scene) = Scene::new("all_devices_of_a_pod_are_reserved_or_none") else {
        return;
    };
    let podman = Sleeper::new(0);
    enter(&scene, "5", "podman", &podman, json!({})).unwrap();
    let refused = reserve(&scene, "web-0", &[id(4), id(5)]).unwrap_err();
    assert!(
        refused.contains("held") && refused.contains("by container podman"),
        "{refused}"
    );
    assert_eq!(who(&scene, &id(4)), None);
    for (ids, says) in [
        ([id(77)], "is not offered to Kubernetes any more"),
        (["GPU-1".to_owned()], "is not offered to Kubernetes any more"),
    ] {
        let refused = reserve(&scene, "web-0", &ids).unwrap_err();
        assert!(refused.contains(says), "{refused}");
    }
    let odd = scene.ask(
        0,
        "reserve",
        json!({"pod": {"namespace": "a/b", "name": "c"}, "devices": [id(1)]}),
    );
    assert!(odd.unwrap_err().contains("not valid in Kubernetes"));
    for command in ["offers", "reserve", "give-up"] {
        let refused = scene.ask(ANN, command, json!({"pod": pod("web-0"), "devices": [id(1)]}));
        assert!(refused.unwrap_err().contains("only root may ask"), "{command}");
    }
}

/// The kubelet has allocated a share, and a container of podman asks for the same one in the same moment.
#[test]
fn a_pod_and_podman_contend_200_times_and_one_of_them_has_the_share() {
    let Some(scene) = Scene::new("a_pod_and_podman_contend_200_times_and_one_of_them_has_the_share") else {
        return;
    };
    let cgroup = PodCgroup::new();
    let mut won = [0, 0];
    for round in 0..200_u64 {
        let (app, podman) = (cgroup.container(&format!("app{round}")), Sleeper::new(0));
        let other = hook(&scene, "3", &format!("podman{round}"), &podman, json!({}));
        // The later the kubelet asks, the more often podman is first.
        std::thread::sleep(Duration::from_micros(round % 40 * 100));
        let reserved = reserve(&scene, "web-0", &[id(3)]);
        let entered = match &reserved {
            Ok(_) => enter(&scene, "3", &format!("app{round}"), &app, annotations("web-0")),
            Err(refused) => Err(refused.clone()),
        };
        let other = ended(other);
        match (&entered, &other) {
            (Ok(()), Err(refused)) => assert!(refused.contains("pod shop/web-0 holds share 3"), "{refused}"),
            (Err(refused), Ok(())) => assert!(refused.contains("by container podman"), "{refused}"),
            both => panic!("round {round}: {both:?}"),
        }
        won[usize::from(other.is_ok())] += 1;
        drop((app, podman));
        give_up(&scene, "web-0", &[id(3)]);
    }
    assert!(
        won.iter().all(|times| *times > 0),
        "{won:?}: one of them never came first"
    );
}

/// What was refused is not held, what is answered with ok outlives a boot, and asking again makes the promise again.
#[test]
fn a_reservation_that_cannot_be_kept_is_refused_and_not_held() {
    let Some(mut scene) = Scene::new("kubernetes::a_reservation_that_cannot_be_kept_is_refused_and_not_held") else {
        return;
    };
    let of_gpu_1 = format!("{GPU_1}.0");
    reserve(&scene, "web-0", &[id(0)]).unwrap();
    let places = scene.let_nothing_be_kept();
    // Twice, as the plugin asks again after ten seconds.
    for _ in 0..2 {
        let refused = reserve(&scene, "web-1", &[id(1)]).unwrap_err();
        assert!(refused.contains("cannot be replaced"), "{refused}");
        assert_eq!(who(&scene, &id(1)), None);
        // Nor is what the pod had before promised anew.
        reserve(&scene, "web-0", &[id(0)]).unwrap_err();
        assert_eq!(who(&scene, &id(0)).as_deref(), Some("pod shop/web-0"));
    }
    // Another GPU is not concerned.
    reserve(&scene, "web-2", std::slice::from_ref(&of_gpu_1)).unwrap();
    for place in places {
        fs::remove_dir_all(place).unwrap();
    }
    reserve(&scene, "web-0", &[id(0)]).unwrap();
    reserve(&scene, "web-1", &[id(1)]).unwrap();
    scene.stop(Signal::SIGTERM);
    fs::remove_dir_all(scene.at("state/ledger")).unwrap();
    scene.start();
    for (share, name) in [(id(0), "web-0"), (id(1), "web-1"), (of_gpu_1, "web-2")] {
        assert_eq!(who(&scene, &share), Some(format!("pod shop/{name}")), "{share}");
    }
}
