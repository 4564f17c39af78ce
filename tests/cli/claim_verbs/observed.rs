//! What `tranche status`, `top` and `metrics` show of the GPUs: the fake driver's library says it about real processes.

use super::*;
use crate::support::fake_host;
use std::io::{BufRead, BufReader};

/// A scene, and the test host whose GPUs have the same UUIDs.
pub(super) struct Machine {
    pub(super) scene: Scene,
    host: fake_host::Host,
}

impl Machine {
    pub(super) fn new(test: &str) -> Option<Machine> {
        let scene = Scene::new(&format!("observed::{test}"))?;
        let host = fake_host::build("t4x2-old-driver", &scene.at("host")).unwrap();
        Some(Machine { scene, host })
    }

    /// `tranche` with these arguments, on that host.
    pub(super) fn call(&self, arguments: &[&str]) -> Call {
        let root = format!("--root={}", self.host.root.display());
        self.scene.tranche(&[arguments, &[&root]].concat())
    }

    pub(super) fn json(&self, arguments: &[&str]) -> Value {
        let out = self.call(&[arguments, &["--json"]].concat()).run().ok();
        crate::support::strict_json::check(&out);
        serde_json::from_str(&out).unwrap()
    }

    /// Lets the library say that GPU `index` does this.
    pub(super) fn does(&self, index: usize, processes: Value, more: Value) {
        let change = |config: &mut Value| {
            let gpu = &mut config["gpus"][index];
            gpu["processes"] = processes;
            for (key, value) in more.as_object().unwrap() {
                gpu[key] = value.clone();
            }
        };
        self.host.nvml(change).unwrap();
    }

    fn kinds(&self) -> Vec<String> {
        let status = self.json(&["status"]);
        let deviations = status["deviations"].as_array().unwrap();
        deviations
            .iter()
            .map(|one| one["kind"].as_str().unwrap().to_owned())
            .collect()
    }
}

#[test]
fn each_holder_has_the_memory_and_the_utilisation_of_its_processes() {
    let Some(machine) = Machine::new("each_holder_has_the_memory_and_the_utilisation_of_its_processes") else {
        return;
    };
    let scene = &machine.scene;
    scene.name_containers(&[("aaaa1111", "train")]);
    let train = scene.start("nvidia.com/gpu=0.1", "aaaa1111");
    let idle = scene.start("nvidia.com/gpu=0.2", "bbbb2222");
    let stranger = Init::new();
    let processes = json!([
        {"pid": train.pid(), "kind": "compute", "memory_mib": 512, "sm": 37},
        {"pid": train.pid(), "kind": "graphics", "memory_mib": 512},
        {"pid": stranger.pid(), "kind": "compute", "memory_mib": 64, "sm": 2},
    ]);
    machine.does(
        0,
        processes,
        json!({"used_mib": 700, "utilization": {"gpu": 40, "memory": 5}}),
    );
    let status = machine.json(&["status"]);
    let usage = |cdi: &str| {
        let claims = status["claims"].as_array().unwrap();
        claims.iter().find(|claim| claim["cdi"] == cdi).unwrap()["usage"].clone()
    };
    assert_eq!(
        usage("nvidia.com/gpu=0.1"),
        json!({"processes": 1, "memory_mib": 512, "busy_percent": 37})
    );
    assert_eq!(
        usage("nvidia.com/gpu=0.2"),
        json!({"processes": 0, "memory_mib": 0, "busy_percent": 0})
    );
    let gpu = &status["gpus"][0];
    for (field, value) in [
        ("device", json!("nvidia.com/gpu=0")),
        ("memory_mib", json!(15109)),
        ("memory_used_mib", json!(700)),
        ("busy_percent", json!(40)),
        ("memory_busy_percent", json!(5)),
        ("compute_mode", json!("default")),
        ("processes", json!(2)),
        ("hides_mps_clients", json!(false)),
    ] {
        assert_eq!(gpu[field], value, "{field}");
    }
    assert_eq!(status["gpus"].as_array().unwrap().len(), 2);
    let deviations = status["deviations"].as_array().unwrap();
    assert_eq!(deviations.len(), 1, "{deviations:?}");
    assert_eq!(
        (&deviations[0]["kind"], &deviations[0]["device"]),
        (&json!("process-without-claim"), &json!("nvidia.com/gpu=0"))
    );
    let text = deviations[0]["text"].as_str().unwrap();
    assert_eq!(
        text,
        format!("process {} (sleep) uses it without a claim", stranger.pid())
    );

    let page = machine.call(&["status"]).run().ok();
    let line = |begin: &str| {
        page.lines()
            .find(|line| line.starts_with(begin))
            .unwrap_or_else(|| panic!("{page}"))
    };
    let held = line("nvidia.com/gpu=0.1 ");
    assert!(
        held.contains("512 MiB  37%") && held.contains("train (aaaa1111)"),
        "{page}"
    );
    assert!(page.contains("nvidia.com/gpu=0  700 of 15109 MiB  40%   2"), "{page}");
    assert!(
        page.contains("not as expected:\n  nvidia.com/gpu=0: process "),
        "{page}"
    );
    drop(idle);

    // The same by doctor, which a person asks who sees only that something is wrong.
    let doctor = |said: &str| {
        let out = machine.call(&["doctor", "--json"]).run().out;
        let report: Value = serde_json::from_str(&out).unwrap();
        let checks = report["checks"].as_array().unwrap().iter();
        let of_use: Vec<&Value> = checks
            .filter(|check| check["check"] == "use of shared devices")
            .collect();
        assert_eq!(of_use.len(), 1, "{of_use:?}");
        assert!(of_use[0]["found"].as_str().unwrap().contains(said), "{of_use:?}");
        of_use[0]["result"].as_str().unwrap().to_owned()
    };
    let found = format!(
        "nvidia.com/gpu=0: process {} (sleep) uses it without a claim",
        stranger.pid()
    );
    assert_eq!(doctor(&found), "wrong");
    machine.does(
        0,
        json!([{"pid": train.pid(), "kind": "compute", "memory_mib": 512, "sm": 37}]),
        json!({}),
    );
    assert_eq!(doctor("there are 1"), "good");

    // NVML is not asked.
    let status = machine.json(&["status", "--no-gpu"]);
    assert_eq!(
        (&status["gpus"], &status["claims"][0]["usage"]),
        (&Value::Null, &Value::Null)
    );
    assert_eq!(status["deviations"], json!([]));
}

#[test]
fn memory_of_mps_clients_that_the_driver_does_not_tell_apart_is_not_made_up() {
    let Some(machine) = Machine::new("memory_of_mps_clients_that_the_driver_does_not_tell_apart_is_not_made_up") else {
        return;
    };
    // The kernel takes a process's name from the file that it was started from.
    let program = machine.scene.at("nvidia-cuda-mps-server");
    programs::install("/bin/sleep", &program);
    let mut server = Command::new(&program).arg("600").stdin(Stdio::null()).spawn().unwrap();
    let processes = json!([{"pid": server.id(), "kind": "compute", "memory_mib": 900}]);
    machine.does(1, processes, json!({}));
    let status = machine.json(&["status"]);
    assert_eq!(status["gpus"][1]["hides_mps_clients"], true);
    assert_eq!(status["deviations"], json!([]), "the server is nobody's");
    let page = machine.call(&["status"]).run().ok();
    server.kill().unwrap();
    server.wait().unwrap();
    assert!(
        page.contains("nvidia.com/gpu=1: this driver reports the memory of MPS clients as that of their server\n"),
        "{page}"
    );
}

#[test]
fn a_driver_that_hangs_costs_what_it_would_say_and_the_exit_code() {
    let Some(machine) = Machine::new("a_driver_that_hangs_costs_what_it_would_say_and_the_exit_code") else {
        return;
    };
    let _init = machine.scene.start("nvidia.com/gpu=0.1", "aaaa1111");
    machine
        .host
        .nvml(|config| config["faults"]["init"] = "hang".into())
        .unwrap();
    let said = machine.call(&["status", "--gpu-timeout=0.3"]).run();
    assert_eq!(said.code, Some(1), "{said:?}");
    assert!(said.out.contains("nvidia.com/gpu=0  1 of 4  0, 2, 3\n"), "{said:?}");
    assert!(
        said.err.contains("NVML gave no complete answer") && said.err.contains("within 0.3 s"),
        "{said:?}"
    );
    machine.call(&["status", "--no-gpu"]).run().ok();
}

#[test]
fn what_differs_from_the_expected_state_is_named() {
    let Some(machine) = Machine::new("what_differs_from_the_expected_state_is_named") else {
        return;
    };
    let scene = &machine.scene;
    assert_eq!(machine.kinds(), [""; 0]);
    // Reserved for one process, and nobody holds it.
    machine.does(1, json!([]), json!({"compute_mode": 3}));
    assert_eq!(machine.kinds(), ["exclusive-without-claim"]);
    let text = machine.json(&["status"])["deviations"][0]["text"]
        .as_str()
        .unwrap()
        .to_owned();
    assert!(
        text.contains("EXCLUSIVE_PROCESS") && text.contains("nvidia-smi -i GPU-"),
        "{text}"
    );
    machine.does(1, json!([]), json!({"compute_mode": 0}));
    // An earlier policy.
    let _init = scene.start("nvidia.com/gpu=0.3", "aaaa1111");
    scene.policy(&POLICY.replace("replicas: 4", "replicas: 2"));
    scene.refresh();
    assert_eq!(machine.kinds(), ["earlier-policy"]);
    // A file that no longer describes the host.
    fs::write(scene.at("state/host.json"), "{").unwrap();
    assert_eq!(machine.kinds(), ["host-file"], "what the policy has now is unknown");
    let status = machine.json(&["status"]);
    assert_eq!(status["host_file"]["current"], false);
    assert!(
        status["host_file"]["problem"]
            .as_str()
            .unwrap()
            .contains("tranche cdi refresh"),
        "{status}"
    );
}

#[test]
fn those_who_wait_are_listed_in_their_order() {
    let Some(machine) = Machine::new("those_who_wait_are_listed_in_their_order") else {
        return;
    };
    let scene = &machine.scene;
    let _init = scene.start("nvidia.com/gpu=0.1", "aaaa1111");
    let words = scene
        .create(&["--name=later", "--share=1", "--of=0", "--wait=600"])
        .words;
    let mut waiting = Command::new(&words[0])
        .args(&words[1..])
        .stdin(Stdio::null())
        .spawn()
        .unwrap();
    let listed = || machine.json(&["status"])["waiters"].clone();
    let until = std::time::Instant::now() + std::time::Duration::from_secs(60);
    while listed() == json!([]) && std::time::Instant::now() < until {
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    let waiters = listed();
    let page = machine.call(&["status"]).run().ok();
    waiting.kill().unwrap();
    waiting.wait().unwrap();
    let waiter = &waiters[0];
    assert_eq!(
        waiter["wants"],
        json!([{"device": "nvidia.com/gpu=0", "shares": ["1"]}])
    );
    assert_eq!(
        (&waiter["pid"], &waiter["command"]),
        (&json!(waiting.id()), &json!("tranche"))
    );
    assert!(page.contains("nvidia.com/gpu=0 (1)"), "{page}");
    assert_eq!(listed(), json!([]));
}

#[test]
fn a_user_sees_what_the_broker_wrote_and_how_old_it_is() {
    let Some(machine) = Machine::new("a_user_sees_what_the_broker_wrote_and_how_old_it_is") else {
        return;
    };
    let scene = &machine.scene;
    let mode = std::os::unix::fs::PermissionsExt::from_mode;
    let program = crate::support::installed::command_line(&scene.at(""));
    fs::set_permissions(scene.top.path(), mode(0o755)).unwrap();
    let _init = scene.start("nvidia.com/gpu=0.1", "secret");
    let now = std::time::UNIX_EPOCH.elapsed().unwrap().as_secs();
    let claim = json!({"shares": ["1"], "state": "held", "since": now - 50});
    let status = json!({"version": 1, "written": now - 7200, "devices": [{
        "device": "nvidia.com/gpu=0", "key": "GPU-da1435d3-36d6-f363-f134-290ab6a9a640", "strategy": "mps",
        "shares": ["0", "1"], "free": ["0"], "readable": true, "claims": [claim],
        "daemon": {"state": "failed", "since": now - 7200, "restarts": 3}}]});
    let file = scene.at("state/status.json");
    fs::write(&file, status.to_string()).unwrap();
    fs::set_permissions(&file, mode(0o644)).unwrap();
    let as_nobody = |more: &[&str]| {
        let before = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"].map(str::to_owned);
        let mut words = before.to_vec();
        words.push(program.display().to_string());
        words.extend(["status", "--no-gpu"].map(str::to_owned));
        words.extend(more.iter().map(|word| (*word).to_owned()));
        words.push(scene.option("state-dir", "state"));
        Call { words, input: None }.run()
    };
    let page = as_nobody(&[]).ok();
    assert!(
        page.starts_with("written by the broker 2 h 0 min ago; who holds what is shown to root\n"),
        "{page}"
    );
    assert!(page.contains("nvidia.com/gpu=0  1 of 2  0\n"), "{page}");
    assert!(page.contains("nvidia.com/gpu=0  failed  2 h 0 min  3"), "{page}");
    assert!(
        page.contains("not as expected:\n  nvidia.com/gpu=0: its MPS daemon does not run"),
        "{page}"
    );
    assert!(!page.contains("secret"), "{page}");
    let json: Value = serde_json::from_str(&as_nobody(&["--json"]).ok()).unwrap();
    assert_eq!(json["written"], now - 7200);
    assert_eq!(json["devices"][0]["held"], json!(["1"]));
    assert_eq!((&json["claims"], &json["problems"]), (&json!([]), &json!([])));
    fs::write(&file, "{").unwrap();
    let said = as_nobody(&[]);
    assert_eq!(said.code, Some(1));
    assert!(
        said.err.contains("status.json: is damaged") && said.err.contains("only root"),
        "{said:?}"
    );
}

#[test]
fn pages_follow_one_another_until_nobody_reads() {
    let Some(machine) = Machine::new("pages_follow_one_another_until_nobody_reads") else {
        return;
    };
    let words = machine.call(&["status", "--no-gpu", "--watch=0.2"]).words;
    let mut watching = Command::new(&words[0])
        .args(&words[1..])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(watching.stdout.take().unwrap()).lines();
    let begins = lines
        .map(|line| line.unwrap())
        .filter(|line| line.starts_with("--- 20"))
        .take(3);
    assert_eq!(begins.count(), 3);
    // The pipe is closed now, and the program ends by itself.
    assert_eq!(watching.wait().unwrap().code(), Some(0));
    let line = machine.call(&["status", "--watch=0.1"]).run().failed(2);
    assert!(line.contains("shorter than 0.2 seconds"), "{line}");
}

#[test]
fn top_has_a_line_for_each_process_and_holder_by_memory() {
    let Some(machine) = Machine::new("top_has_a_line_for_each_process_and_holder_by_memory") else {
        return;
    };
    let scene = &machine.scene;
    scene.name_containers(&[("aaaa1111", "train")]);
    let train = scene.start("nvidia.com/gpu=0.1", "aaaa1111");
    let _idle = scene.start("nvidia.com/gpu=0.2", "bbbb2222");
    let stranger = Init::new();
    let processes = json!([
        {"pid": stranger.pid(), "kind": "graphics", "memory_mib": 64},
        {"pid": train.pid(), "kind": "compute", "memory_mib": 512, "sm": 37},
    ]);
    machine.does(
        0,
        processes,
        json!({"used_mib": 700, "utilization": {"gpu": 40, "memory": 5}}),
    );
    let top = machine.json(&["top"]);
    let rows: Vec<[&Value; 5]> = top
        .as_array()
        .unwrap()
        .iter()
        .map(|row| ["pid", "kind", "memory_mib", "busy_percent", "container"].map(|key| &row[key]))
        .collect();
    let null = Value::Null;
    assert_eq!(
        rows,
        [
            [
                &json!(train.pid()),
                &json!("C"),
                &json!(512),
                &json!(37),
                &json!("aaaa1111")
            ],
            [&json!(stranger.pid()), &json!("G"), &json!(64), &json!(0), &null],
            [&null, &null, &null, &null, &json!("bbbb2222")],
        ]
    );
    assert_eq!(
        (&top[0]["command"], &top[0]["container_name"]),
        (&json!("sleep"), &json!("train"))
    );
    let page = machine.call(&["top", "--once"]).run().ok();
    assert!(
        page.starts_with("nvidia.com/gpu=0: 700 of 15109 MiB, 40% busy\n"),
        "{page}"
    );
    let lines: Vec<&str> = page
        .lines()
        .filter(|line| line.contains("MiB  ") || line.ends_with("0.2"))
        .collect();
    assert_eq!(lines.len(), 3, "{page}");
    assert!(
        lines[0].contains("512 MiB  37%  sleep    train (aaaa1111)  nvidia.com/gpu=0.1"),
        "{page}"
    );
    // A description of a machine says nothing about processes, and what is held here is shown.
    let described = scene.tranche(&["top", "--once", "--inventory=sim:t4x2"]).run().ok();
    assert!(described.contains("train (aaaa1111)"), "{described}");
}
