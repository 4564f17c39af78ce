//! Devices that are taken out of service and put back, with what is held of them, with those who wait, and over a
//! reboot.

use super::killed::{killed, may_trace, steps};
use super::*;
use crate::support::until;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// GPU 0 in two turns, for which a start may wait; no policy names GPU 1.
const ONE_NAMED: &str = "\
version: v1
sharing:
  wait: 200s
  timeSlicing:
    resources:
    - {name: nvidia.com/gpu, devices: [0], replicas: 2}
";

impl Scene {
    fn drain(&self, more: &[&str]) -> Call {
        self.at_host(&[&["drain"], more].concat())
    }

    fn undrain(&self, more: &[&str]) -> Call {
        self.at_host(&[&["undrain"], more].concat())
    }

    fn out_of_service(&self) -> Vec<Value> {
        let status = self.json(&["status", "--no-gpu"]);
        status["out_of_service"].as_array().unwrap().clone()
    }
}

#[test]
fn holders_of_a_drained_device_finish_and_nothing_new_is_given() {
    let Some(scene) = Scene::new("drained_holders") else {
        return;
    };
    let share = "nvidia.com/gpu=0.1";
    let holder = scene.start(share, "aaaa1111");
    scene.create(&["--name=train", "--shares=1", "--device=0"]).run().ok();
    let said = scene.drain(&["0", "--reason=a fan"]).run();
    assert!(said.out.starts_with("gpu 0: out of service since "), "{said:?}");
    assert!(
        said.out.ends_with(" (a fan)\n") && said.err.contains("held until it is released"),
        "{said:?}"
    );
    assert!(said.err.contains("aaaa1111") && said.err.contains("train"), "{said:?}");

    let list = scene.tranche(&["list", "--inventory=sim:t4x2"]).run().ok();
    let with_note: Vec<&str> = list.lines().filter(|line| line.ends_with("out of service")).collect();
    assert!(matches!(with_note[..], [line] if line.starts_with("0 ")), "{list}");

    let other = Init::new();
    for device in ["nvidia.com/gpu=0.0", "nvidia.com/gpu=0.any", share, "nvidia.com/gpu=0"] {
        let line = scene
            .hook("createRuntime", device, "bbbb2222", other.pid())
            .run()
            .failed(1);
        assert!(
            line.contains("gpu 0") && line.contains(": out of service since ") && line.contains(" (a fan)"),
            "{line}"
        );
    }
    let line = scene
        .create(&["--name=more", "--shares=1", "--device=0"])
        .run()
        .failed(1);
    assert!(
        line.contains("gpu 0: out of service since ") && line.contains("(a fan); other devices: gpu 1"),
        "{line}"
    );
    // Code that chooses a device leaves it out.
    scene.create(&["--name=other", "--shares=1"]).run().ok();
    let list = scene.json(&["claim", "list"]);
    let mut claims = list.as_array().unwrap().iter();
    let any = claims.find(|claim| claim["name"] == "other").unwrap();
    assert_eq!(any["device"], "nvidia.com/gpu=1", "the other GPU");
    // Who holds something keeps it: a hook that runs again, and a claim that was made before.
    scene.hook("createRuntime", share, "aaaa1111", holder.pid()).run().ok();
    let user = scene.start("nvidia.com/claim=train", "cccc3333");

    let [row] = &scene.out_of_service()[..] else { panic!() };
    assert_eq!(
        (&row["device"], &row["reason"], &row["in_force"]),
        (&json!("nvidia.com/gpu=0"), &json!("a fan"), &json!(true))
    );
    let page = scene.tranche(&["status", "--no-gpu"]).run().ok();
    assert!(page.contains("OUT OF SERVICE") && page.contains("a fan"), "{page}");
    let metrics = scene.tranche(&["metrics", "--no-gpu"]).run().ok();
    assert!(
        metrics.contains("tranche_device_out_of_service{device=\"nvidia.com/gpu=0\",reason=\"a fan\"} 1"),
        "{metrics}"
    );

    drop((holder, user));
    let line = scene
        .hook("createRuntime", share, "bbbb2222", other.pid())
        .run()
        .failed(1);
    assert!(
        line.contains("out of service"),
        "what its holder has released is not given either: {line}"
    );
    let said = scene.undrain(&["0"]).run().ok();
    assert!(
        said.starts_with("gpu 0: in service; it was out of service since ") && said.ends_with(" (a fan)\n"),
        "{said}"
    );
    assert_eq!(scene.out_of_service(), [json!(null); 0]);
    scene.hook("createRuntime", share, "bbbb2222", other.pid()).run().ok();
    assert_eq!(scene.undrain(&["0"]).run().ok(), "gpu 0: is in service already\n");
}

#[test]
fn a_device_that_no_policy_names_is_refused_by_a_hook_of_its_own() {
    let Some(scene) = Scene::new("drained_plain") else {
        return;
    };
    scene.policy(ONE_NAMED);
    scene.refresh();
    let has_all = || {
        Registry::read(&[scene.at("cdi")])
            .find(&"nvidia.com/gpu=all".parse().unwrap())
            .is_some()
    };
    assert!(has_all());
    scene.drain(&["1", "--reason=a fan"]).run().ok();
    scene.refresh();
    assert!(!has_all(), "all has no device left");
    let container = Init::new();
    let start = scene.hook("createRuntime", "nvidia.com/gpu=1", "aaaa1111", container.pid());
    let line = start.run().failed(1);
    assert!(
        line.contains("gpu 1: out of service since ") && line.contains("(a fan)"),
        "{line}"
    );
    // The hook of the time before lets it start.
    scene.undrain(&["1"]).run().ok();
    start.run().ok();
    scene.refresh();
    assert!(has_all());
}

#[test]
fn a_start_that_waits_for_a_drained_device_ends_at_once_with_the_reason() {
    let Some(scene) = Scene::new("drained_waiter") else {
        return;
    };
    scene.policy(ONE_NAMED);
    scene.refresh();
    let _holder = scene.start("nvidia.com/gpu=0.1", "aaaa1111");
    let waiter = Init::new();
    let hook = scene.hook("createRuntime", "nvidia.com/gpu=0.1", "bbbb2222", waiter.pid());
    std::thread::scope(|threads| {
        let said = threads.spawn(|| hook.run());
        until("its hook waits", || {
            fs::read_dir(scene.at("state/ledger/queue")).is_ok_and(|queue| queue.count() == 1)
        });
        let began = Instant::now();
        scene.drain(&["0"]).run().ok();
        let line = said.join().unwrap().failed(1);
        assert!(line.contains("out of service since "), "{line}");
        assert!(began.elapsed() < Duration::from_secs(60), "it waited on");
    });
}

#[test]
fn a_reboot_puts_nothing_back_into_service() {
    let Some(scene) = Scene::new("drained_reboot") else {
        return;
    };
    scene.drain(&["0", "--reason=a fan"]).run().ok();
    // Of /run, nothing is left; what outlives a boot is elsewhere on a machine, and below in this scene.
    for entry in fs::read_dir(scene.at("state"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
    {
        if !entry.ends_with("kept") {
            fs::remove_dir_all(&entry).or_else(|_| fs::remove_file(&entry)).unwrap();
        }
    }
    assert_eq!(scene.out_of_service().len(), 1);
    let container = Init::new();
    let start = scene.hook("createRuntime", "nvidia.com/gpu=0.1", "aaaa1111", container.pid());
    assert!(start.run().failed(1).contains("(a fan)"));
}

#[test]
fn administrators_who_drain_and_undrain_at_once_lose_nothing() {
    let Some(scene) = Scene::new("drained_at_once") else {
        return;
    };
    std::thread::scope(|threads| {
        for number in 0..6 {
            let scene = &scene;
            threads.spawn(move || {
                let own = format!("GPU-0000000{number}-0000-0000-0000-000000000000");
                let reason = format!("--reason=administrator {number}");
                for _ in 0..3 {
                    scene.drain(&[&own, &reason]).run().ok();
                    let said = scene.undrain(&[&own]).run().ok();
                    assert!(said.contains(&format!("(administrator {number})")), "{said}");
                }
                scene.drain(&[&own, "0"]).run().ok();
            });
        }
    });
    // Each its own, and the one of all of them once.
    assert_eq!(scene.out_of_service().len(), 7);
    scene.undrain(&["all"]).run().ok();
    assert_eq!(scene.out_of_service().len(), 0);
}

#[test]
fn a_device_is_in_service_until_the_time_that_was_given() {
    let Some(scene) = Scene::new("drained_at") else { return };
    let (first, second) = (Init::new(), Init::new());
    let start = |id: &str, init: &Init| {
        scene
            .hook("createRuntime", "nvidia.com/gpu=0.any", id, init.pid())
            .run()
    };
    let soon = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs() + 4;
    let clock = format!("{:02}:{:02}:{:02}", soon / 3600 % 24, soon / 60 % 60, soon % 60);
    let said = scene.drain(&["0", "--at", &clock]).run().ok();
    assert!(
        said.contains("gpu 0: out of service from ") && said.contains(&clock),
        "{said}"
    );
    start("aaaa1111", &first).ok();
    assert_eq!(scene.out_of_service()[0]["in_force"], json!(false));
    until("its time has come", || {
        scene.out_of_service()[0]["in_force"] == json!(true)
    });
    let line = start("bbbb2222", &second).failed(1);
    assert!(
        line.contains("out of service since ") && line.contains(&clock),
        "{line}"
    );
}

#[test]
fn bad_input_changes_nothing_and_is_one_line() {
    let Some(scene) = Scene::new("drained_bad") else { return };
    for (arguments, code, why) in [
        (&["7"][..], 2, "device 7: not found"),
        (&["0", "7"], 2, "device 7: not found"),
        (&["0", "--at=yesterday"], 2, "--at yesterday: is not a time"),
        (&["0", "--at=2020-01-01T08:00"], 2, "has passed"),
        (&["0", "--reason=a\nb"], 2, "--reason: has more than one line"),
    ] {
        let line = scene.drain(arguments).run().failed(code);
        assert!(line.contains(why), "{arguments:?}: {line}");
        assert_eq!(scene.out_of_service().len(), 0, "{arguments:?}");
    }
    fs::create_dir_all(scene.at("state/kept")).unwrap();
    fs::write(scene.at("state/kept/out-of-service.json"), "{").unwrap();
    let container = Init::new();
    let start = scene.hook("createRuntime", "nvidia.com/gpu=0.1", "aaaa1111", container.pid());
    for line in [start.run().failed(1), scene.drain(&["0"]).run().failed(1)] {
        assert!(
            line.contains("out-of-service.json") && line.contains("tranche undrain all"),
            "{line}"
        );
    }
    scene.undrain(&["all"]).run().ok();
    start.run().ok();
}

#[test]
fn a_killed_command_leaves_the_device_in_service_or_out_of_it_and_can_be_repeated() {
    let test = "drained_killed";
    let Some(scene) = Scene::new(test) else { return };
    if !may_trace(test) {
        return;
    }
    fs::remove_file(scene.at("state/host.json")).unwrap();
    let drain = |scene: &Scene| scene.drain(&["0", "--reason=a fan"]);
    let undrain = |scene: &Scene| scene.undrain(&["0"]);
    let drain_steps = steps(&scene, &drain(&scene));
    let undrain_steps = steps(&scene, &undrain(&scene));
    assert!(
        drain_steps.len() >= 8 && undrain_steps.len() >= 2,
        "{drain_steps:?} {undrain_steps:?}"
    );
    for (is_drain, step) in drain_steps
        .iter()
        .map(|step| (true, step))
        .chain(undrain_steps.iter().map(|step| (false, step)))
    {
        let scene = Scene::new(test).unwrap();
        // Without it, the verb has no refresh run, whose own steps are killed elsewhere.
        fs::remove_file(scene.at("state/host.json")).unwrap();
        if !is_drain {
            drain(&scene).run().ok();
        }
        let call = if is_drain { drain(&scene) } else { undrain(&scene) };
        killed(&call, step);
        // The file is the old one or the new one, and what a start gets agrees with what status says.
        let out = scene.out_of_service();
        assert!(out.len() <= 1, "{step:?}: {out:?}");
        let init = Init::new();
        let start = scene.hook("createRuntime", "nvidia.com/gpu=0.0", "aaaa1111", init.pid());
        match &out[..] {
            [] => {
                start.run().ok();
            }
            [one] => {
                assert_eq!(one["reason"], "a fan", "{step:?}");
                let line = start.run().failed(1);
                assert!(line.contains("(a fan)"), "{step:?}: {line}");
            }
            _ => unreachable!(),
        }
        // The same command again finishes what was begun.
        call.run().ok();
        assert_eq!(scene.out_of_service().len(), usize::from(is_drain), "{step:?}");
    }
}
