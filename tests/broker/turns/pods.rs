//! Pods of Kubernetes that have a GPU by turns: the device plugin reserves a place for each, and containers enter it.

use super::first::hook_of;
use super::*;

/// The cgroups of a kubelet with one pod, each before the one that it is in.
struct Kubelet {
    pod: TestCgroup,
    _pods: TestCgroup,
    _top: TestCgroup,
}

impl Kubelet {
    fn new() -> Self {
        let below = |above: &TestCgroup, name: &str| {
            let cgroup = TestCgroup(above.0.join(name));
            fs::create_dir(&cgroup.0).unwrap();
            cgroup
        };
        // A kubelet of this machine removes pods that it does not know, from cgroups of its own.
        let top = TestCgroup::of_controller("devices", "kubelet").unwrap();
        let pods = below(&top, "kubepods");
        Self {
            pod: below(&pods, "pod"),
            _pods: pods,
            _top: top,
        }
    }

    /// A container of the pod that has the place `number`.
    fn container(&self, turns: &Turns, number: u32) -> Container {
        let program = TurnsClient::without_context(&turns.library());
        let cgroup = TestCgroup(self.pod.0.join(program.pid().to_string()));
        fs::create_dir(&cgroup.0).unwrap();
        Turns::made_in(cgroup, number, program)
    }
}

/// What the device plugin asks about the pod that has the place `number`.
fn ask(turns: &Turns, command: &str, number: u32) -> Result<Value, String> {
    let pod = json!({"namespace": "shop", "name": format!("web-{number}")});
    let devices = [format!("{GPU}.{number}")];
    turns.bed.scene.ask(0, command, json!({"pod": pod, "devices": devices}))
}

/// A container of that pod is started, and waits for its turn.
fn start(turns: &Turns, container: &Container) {
    let number = container.number;
    let annotations = json!({"io.kubernetes.cri.sandbox-namespace": "shop",
        "io.kubernetes.cri.sandbox-name": format!("web-{number}")});
    let hook = hook_of(turns, container, &number.to_string(), "60s", annotations);
    let output = hook.wait_with_output().unwrap();
    assert!(output.status.success(), "{output:?}\n{}", turns.logged());
}

#[test]
fn pods_have_the_gpu_by_turns_and_a_container_that_is_started_again_has_the_place_of_its_pod() {
    let test = "pods_have_the_gpu_by_turns_and_a_container_that_is_started_again_has_the_place_of_its_pod";
    let Some(turns) = Turns::new(test) else {
        return;
    };
    let kubelet = Kubelet::new();
    for number in 0..2 {
        ask(&turns, "reserve", number).unwrap();
    }
    assert_eq!(
        turns.resident(),
        None,
        "a pod without a container has nothing to suspend"
    );
    let mut first = kubelet.container(&turns, 0);
    start(&turns, &first);
    turns.await_resident(0);
    assert_eq!(first.program.ask(&format!("take {}", 40 * MIB)), "taken");
    for _ in 0..2 {
        // The second pod's container, and the one that the kubelet starts in its place.
        let mut second = kubelet.container(&turns, 1);
        start(&turns, &second);
        assert!(second.may_open(&turns) && !first.may_open(&turns), "{}", turns.logged());
        assert_eq!(second.program.ask(&format!("take {}", 40 * MIB)), "taken");
        drop(second);
        first.program.tell("call");
        assert_eq!(turns.said(&mut first), "called");
        assert_eq!(first.program.ask("check"), "good");
        assert_eq!(turns.bed.scene.claims().len(), 2, "the place stays reserved");
    }
    ask(&turns, "give-up", 1).unwrap();
    assert_eq!(turns.bed.scene.claims().len(), 1);
    assert!(first.may_open(&turns));
}
