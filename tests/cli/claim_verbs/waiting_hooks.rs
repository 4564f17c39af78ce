//! Containers with a CDI device of a share, whose claim hooks wait because the policy says so.

use super::*;
use crate::support::{seconds_waited, until};
use std::process::Child;
use tranche_core::claims::Claims;

/// GPU 0 in two turns. A start may wait for a long time.
const TWO: &str = "\
version: v1
sharing:
  wait: 200s
  timeSlicing:
    resources:
    - {name: nvidia.com/gpu, devices: [0], replicas: 2}
";

impl Scene {
    /// A scene whose starts may wait.
    fn waiting(test: &str, policy: &str) -> Option<Scene> {
        let scene = Scene::new(&format!("waiting_hooks::{test}"))?;
        scene.policy(policy);
        scene.refresh();
        Some(scene)
    }

    fn queued(&self) -> usize {
        fs::read_dir(self.at("state/ledger/queue")).map_or(0, Iterator::count)
    }

    /// Who holds something, sorted.
    fn holders(&self) -> Vec<String> {
        let claims = Claims::open(&self.at("state")).unwrap();
        let books = claims.books().unwrap();
        let mut holders: Vec<String> = books.claims().map(|claim| claim.who()).collect();
        holders.sort();
        holders
    }

    /// Starts the claim hook of a container and does not wait for it.
    fn spawn(&self, device: &str, id: &str, init: &Init) -> Child {
        let hook = self.hook("createRuntime", device, id, init.pid());
        let mut command = Command::new(&hook.words[0]);
        command
            .args(&hook.words[1..])
            .stdin(File::open(hook.input.unwrap()).unwrap());
        command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
    }
}

/// Of fifty containers that wait for two shares, a third are killed while their hooks wait.
#[test]
fn fifty_containers_that_wait_for_two_shares_get_one_in_their_order_and_none_is_lost() {
    let Some(scene) = Scene::waiting("fifty", TWO) else {
        return;
    };
    const ANY: &str = "nvidia.com/gpu=0.any";
    let id = |number: usize| format!("c{number:03}");
    let mut running: Vec<(usize, Init)> = (0..2).map(|number| (number, scene.start(ANY, &id(number)))).collect();
    let mut waiting: Vec<(usize, Init, Child)> = Vec::new();
    for number in 2..52 {
        let init = Init::new();
        let hook = scene.spawn(ANY, &id(number), &init);
        waiting.push((number, init, hook));
        until("its hook waits", || scene.queued() == waiting.len());
    }
    let who = |running: &[(usize, Init)]| -> Vec<String> {
        let mut who: Vec<String> = running
            .iter()
            .map(|(number, _)| format!("container {}", id(*number)))
            .collect();
        who.sort();
        who
    };
    assert_eq!(
        scene.holders(),
        who(&running),
        "nobody is served while both shares are held"
    );
    for (number, _, hook) in &mut waiting {
        if *number % 3 == 2 {
            hook.kill().unwrap();
            hook.wait().unwrap();
        }
    }
    waiting.retain(|(number, ..)| number % 3 != 2);
    assert_eq!(waiting.len(), 33);
    for (number, init, mut hook) in waiting {
        // The container that has run longest ends.
        drop(running.remove(0));
        assert!(hook.wait().unwrap().success(), "container {number}");
        running.push((number, init));
        assert_eq!(scene.holders(), who(&running), "the next in the order of coming");
    }
    drop(running);
    let collected = Claims::open(&scene.at("state")).unwrap();
    collected.lock().unwrap().collect().unwrap();
    assert_eq!((scene.holders(), scene.queued()), (Vec::new(), 0));
}

#[test]
fn a_hook_that_waits_in_vain_says_for_how_long_and_who_holds_it() {
    let Some(scene) = Scene::waiting("in_vain", &TWO.replace("200s", "1s")) else {
        return;
    };
    let _init = scene.start("nvidia.com/gpu=0.1", "aaaa1111");
    let other = Init::new();
    let refused = |device: &str| scene.hook("createRuntime", device, "b", other.pid()).run().failed(1);
    let line = refused("nvidia.com/gpu=0.1");
    assert!(
        line.contains("gpu 0 share 1: container aaaa1111 holds share 1 since ") && seconds_waited(&line) >= Some(1),
        "{line}"
    );
    assert!(line.contains("free: 0"), "{line}");
    let line = refused("nvidia.com/gpu=0");
    assert!(
        line.contains("container aaaa1111") && seconds_waited(&line) >= Some(1),
        "{line}"
    );
    assert_eq!(
        (scene.holders(), scene.queued()),
        (vec!["container aaaa1111".to_owned()], 0)
    );
    // Without a time in the policy, nobody waits.
    scene.policy(&TWO.replace("  wait: 200s\n", ""));
    scene.refresh();
    let line = refused("nvidia.com/gpu=0.1");
    assert!(!line.contains("waited"), "{line}");
}

#[test]
fn a_hook_waits_behind_a_start_that_reserves_and_before_a_later_one() {
    let Some(scene) = Scene::waiting("mixed", TWO) else {
        return;
    };
    let first = scene.start("nvidia.com/gpu=0.0", "aaaa1111");
    let _other = scene.start("nvidia.com/gpu=0.1", "bbbb2222");
    let create = |name: &str| {
        let words = scene.create(&[name, "--share=0", "--of=0", "--wait=200"]).words;
        let mut command = Command::new(&words[0]);
        command
            .args(&words[1..])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .unwrap()
    };
    let mut before = create("--name=before");
    until("it waits", || scene.queued() == 1);
    let init = Init::new();
    let mut hook = scene.spawn("nvidia.com/gpu=0.0", "cccc3333", &init);
    until("the hook waits", || scene.queued() == 2);
    let mut after = create("--name=after");
    until("the last one waits", || scene.queued() == 3);
    drop(first);
    assert!(before.wait().unwrap().success());
    assert_eq!(scene.claims(), ["before"]);
    scene.tranche(&["claim", "release", "before"]).run().ok();
    assert!(hook.wait().unwrap().success());
    assert!(scene.holders().contains(&"container cccc3333".to_owned()));
    assert_eq!(scene.claims(), [""; 0]);
    drop(init);
    assert!(after.wait().unwrap().success());
    assert_eq!(scene.claims(), ["after"]);
}

/// The low-level runtime runs the hook, and the engine's program (conmon, containerd-shim) runs the low-level runtime.
#[test]
fn a_hook_stops_waiting_when_the_runtime_or_the_engine_s_program_is_killed() {
    let Some(scene) = Scene::waiting("killed_callers", TWO) else {
        return;
    };
    let _held = ["a", "b"].map(|id| scene.start("nvidia.com/gpu=0.any", id));
    let init = Init::new();
    let hook = scene.hook("createRuntime", "nvidia.com/gpu=0.any", "c", init.pid());
    // Neither shell becomes its command, because another one follows.
    const PARENT: &str = "\"$@\"; exit";
    let parent = ["sh", "-c", PARENT, "sh"];
    let grandparent = [&parent[..], &parent[..]].concat();
    for before in [&parent[..], &grandparent[..]] {
        let mut caller = Command::new(before[0]);
        caller.args(&before[1..]).args(&hook.words);
        caller.stdin(File::open(hook.input.as_ref().unwrap()).unwrap());
        let mut caller = caller.stderr(Stdio::null()).spawn().unwrap();
        until("the hook waits", || scene.queued() == 1);
        caller.kill().unwrap();
        caller.wait().unwrap();
        until("the hook stops waiting", || scene.queued() == 0);
        assert_eq!(scene.holders(), ["container a", "container b"]);
    }
}
