//! What `tranche status` and `tranche claim list` show.

use super::*;
use crate::support::until;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

#[test]
fn names_as_typed_what_is_free_and_who_holds_the_rest() {
    let Some(scene) = Scene::new("shown::names_as_typed_what_is_free_and_who_holds_the_rest") else {
        return;
    };
    let before = scene.tranche(&["status"]).run().ok();
    assert!(before.contains("nvidia.com/gpu=0  0 of 4  0–3\n"), "{before}");
    assert!(
        before.contains("nvidia.com/gpu=1  0 of 2  big, small\n") && before.contains("no share is held\n"),
        "{before}"
    );
    scene.name_containers(&[("0123456789abcdef", "train")]);
    let init = scene.start("nvidia.com/gpu=0.1", "0123456789abcdef");
    scene.create(&["--name=later", "--memory=1Gi", "--ttl=1000"]).run().ok();
    let status = scene.tranche(&["status"]).run().ok();
    assert!(status.contains("nvidia.com/gpu=0  1 of 4  0, 2, 3\n"), "{status}");
    assert!(status.contains("nvidia.com/gpu=1  1 of 2  big\n"), "{status}");
    let line = status.lines().find(|l| l.starts_with("nvidia.com/gpu=0.1 ")).unwrap();
    let cells: Vec<&str> = line.split("  ").map(str::trim).filter(|c| !c.is_empty()).collect();
    assert_eq!(
        cells[..5],
        ["nvidia.com/gpu=0.1", "0.1", "train (0123456789ab)", "held", "0"],
        "{status}"
    );
    let line = status
        .lines()
        .find(|l| l.starts_with("nvidia.com/claim=later "))
        .unwrap();
    assert!(
        line.contains("1.small") && line.contains(" - ") && line.contains("reserved"),
        "{status}"
    );
    assert!(status.lines().all(|l| l.chars().count() <= 100), "{status}");

    let json = scene.json(&["status"]);
    let device = &json["devices"][0];
    assert_eq!(device["device"], "nvidia.com/gpu=0");
    assert_eq!(
        (&device["held"], &device["free"]),
        (&json!(["1"]), &json!(["0", "2", "3"]))
    );
    assert_eq!(device["held_whole"], false);
    let claims = json["claims"].as_array().unwrap();
    let claim = claims.iter().find(|c| c["cdi"] == "nvidia.com/gpu=0.1").unwrap();
    assert_eq!(claim["container"]["name"], "train");
    assert_eq!(claim["container"]["pid"], init.pid());
    assert_eq!(
        (&claim["state"], &claim["device"], &claim["shares"]),
        (&json!("held"), &json!("nvidia.com/gpu=0"), &json!(["1"]))
    );
    assert_eq!(
        (&claim["strategy"], &claim["memory_mib"], &claim["name"]),
        (&json!("time-slicing"), &Value::Null, &Value::Null)
    );

    let list = scene.tranche(&["claim", "list"]).run().ok();
    let lines: Vec<Vec<&str>> = list
        .lines()
        .map(|l| l.split("  ").map(str::trim).filter(|c| !c.is_empty()).collect())
        .collect();
    assert_eq!(
        lines[0],
        ["CLAIM", "SHARES", "MEMORY", "COMPUTE", "STATE", "HOLDER", "LEFT"]
    );
    assert_eq!(
        lines[1][..6],
        ["later", "1.small", "2.0 GiB", "20%", "reserved", "-"],
        "{list}"
    );
    assert_eq!(lines[1][6], "16 min", "{list}");
    let show = scene.json(&["claim", "show", "later"]);
    assert_eq!(
        (&show["memory_mib"], &show["compute_percent"], &show["ttl"]),
        (&json!(2048), &json!(20), &json!(1000))
    );
    assert_eq!(show["spec_file"], json!(scene.spec("later")));
    let left = show["seconds_left"].as_u64().unwrap();
    assert!((900..=1000).contains(&left), "{left}");
    let text = scene.tranche(&["claim", "show", "later"]).run().ok();
    assert!(text.starts_with("claim  ") && !text.contains("\n\n"), "{text}");
    assert!(
        text.contains("nvidia.com/claim=later") && text.contains("kept for the next container"),
        "{text}"
    );
    let line = scene.tranche(&["claim", "show", "never"]).run().failed(2);
    assert!(line.contains("claim never: not found; there are later"), "{line}");
}

/// A line of `tranche claim list`, put together from an entry of its JSON.
fn row_of(claim: &Value) -> [String; 7] {
    let or_dash = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
    let device = claim["device"].as_str().unwrap().split_once('=').unwrap().1;
    let shares: Vec<String> = claim["shares"]
        .as_array()
        .unwrap()
        .iter()
        .map(|share| format!("{device}.{}", share.as_str().unwrap()))
        .collect();
    let process = &claim["process"];
    let program = process["program"].as_str();
    [
        or_dash(claim["name"].as_str().map(str::to_owned)),
        if claim["whole"] == true {
            device.to_owned()
        } else {
            shares.join(", ")
        },
        or_dash(claim["memory_mib"].as_u64().map(|mib| format!("{}.0 GiB", mib / 1024))),
        or_dash(claim["compute_percent"].as_u64().map(|percent| format!("{percent}%"))),
        claim["state"].as_str().unwrap().to_owned(),
        or_dash(program.map(|program| format!("{program} (process {})", process["pid"]))),
        or_dash(claim["seconds_left"].as_u64().map(|left| format!("{} min", left / 60))),
    ]
}

#[test]
fn the_json_of_claim_list_has_what_its_table_has() {
    let Some(scene) = Scene::new("shown::the_json_of_claim_list_has_what_its_table_has") else {
        return;
    };
    scene.create(&["--name=later", "--memory=1Gi", "--ttl=3659"]).run().ok();
    scene.create(&["--name=two", "--shares=2", "--of=0"]).run().ok();
    // The start of a container is neither in the table nor in the JSON.
    let _init = scene.start("nvidia.com/gpu=0.3", "0123456789abcdef");
    let run = scene.at_host(&["run", "--share=0.any"]);
    let mut run = Command::new(&run.words[0])
        .args(&run.words[1..])
        .args(["--", "sleep", "1000"])
        .env_clear()
        .env("PATH", "/usr/bin:/bin")
        .stdin(Stdio::null())
        .spawn()
        .unwrap();
    until("the program holds its share", || {
        let held = scene.json(&["status", "--no-gpu"]);
        let claims = held["claims"].as_array().unwrap();
        // While the program is started, the share is reserved for the process that starts it.
        let held = claims
            .iter()
            .any(|claim| !claim["process"].is_null() && claim["state"] == "held");
        held || run.try_wait().unwrap().is_some()
    });
    let list = scene.tranche(&["claim", "list"]).run().ok();
    let json = scene.json(&["claim", "list"]);
    let held = scene.json(&["status", "--no-gpu"]);
    let program = held["claims"]
        .as_array()
        .unwrap()
        .iter()
        .find_map(|c| c["process"]["pid"].as_i64());
    if let Some(pid) = program {
        kill(Pid::from_raw(i32::try_from(pid).unwrap()), Signal::SIGKILL).unwrap();
    }
    run.wait().unwrap();

    let rows = |line: &str| -> Vec<String> {
        let cells = line.split("  ").map(str::trim).filter(|cell| !cell.is_empty());
        cells.map(str::to_owned).collect()
    };
    let table: Vec<Vec<String>> = list.lines().skip(1).map(rows).collect();
    let of_json: Vec<[String; 7]> = json.as_array().unwrap().iter().map(row_of).collect();
    assert_eq!(table, of_json, "{list}{json}");
    assert_eq!(table.len(), 3, "{list}");
    let pid = program.unwrap();
    assert!(
        of_json.iter().any(|row| row[5] == format!("sleep (process {pid})")),
        "{json}"
    );
    // Each of them is the same claim as in `status`, with all fields.
    for claim in json.as_array().unwrap() {
        let of_status = held["claims"]
            .as_array()
            .unwrap()
            .iter()
            .find(|of| of["cdi"] == claim["cdi"]);
        assert_eq!(of_status.map(field_names), Some(field_names(claim)), "{json}");
    }
}

/// The names of the fields of an entry.
fn field_names(entry: &Value) -> Vec<&String> {
    entry.as_object().unwrap().keys().collect()
}

#[test]
fn a_whole_device_is_not_free_in_parts() {
    let Some(scene) = Scene::new("shown::a_whole_device_is_not_free_in_parts") else {
        return;
    };
    let _init = scene.start("nvidia.com/gpu=0", "aaaa1111");
    let status = scene.tranche(&["status"]).run().ok();
    assert!(
        status.contains("nvidia.com/gpu=0  whole") && !status.contains("0–3"),
        "{status}"
    );
    let json = scene.json(&["status"]);
    assert_eq!(json["devices"][0]["free"], json!([]));
    assert_eq!(json["devices"][0]["held_whole"], true);
}

#[test]
fn a_share_that_does_not_fit_beside_an_earlier_policy_s_is_not_free() {
    let test = "shown::a_share_that_does_not_fit_beside_an_earlier_policy_s_is_not_free";
    let Some(scene) = Scene::new(test) else { return };
    // Three quarters of GPU 0 by turns, and 60% of GPU 1 by limits.
    let _turns: Vec<Init> = (0..3)
        .map(|n| scene.start(&format!("nvidia.com/gpu=0.{n}"), &format!("turn{n}")))
        .collect();
    scene
        .create(&["--name=big", "--shares=1", "--of=1", "--memory=8Gi"])
        .run()
        .ok();
    let devices = |policy: &str, expected: &[(&str, &[&str])]| {
        scene.policy(policy);
        scene.refresh();
        let status = scene.json(&["status"]);
        for (device, free) in expected {
            let all = status["devices"].as_array().unwrap();
            let shown = all.iter().find(|d| d["device"] == *device).unwrap();
            assert_eq!(shown["free"], json!(free), "{device}: {status}");
            // The daemon of a share under MPS does not run here. Of the others, exactly those that are free can start.
            let by_turns = *device == "nvidia.com/gpu=0";
            for share in shown["shares"].as_array().unwrap().iter().filter(|_| by_turns) {
                let name = share.as_str().unwrap();
                let init = Init::new();
                let hook = scene.hook(
                    "createRuntime",
                    &format!("{device}.{name}"),
                    &format!("try{name}"),
                    init.pid(),
                );
                assert_eq!(hook.run().code == Some(0), free.contains(&name), "{device}.{name}");
            }
        }
    };
    let policy = |turns: u32, small: &str| {
        POLICY
            .replace("replicas: 4", &format!("replicas: {turns}"))
            .replace(
                "name: big, compute: 60%, memory: 8Gi",
                "name: main, compute: 60%, memory: 4Gi",
            )
            .replace("name: small, compute: 20%, memory: 2Gi", small)
    };
    // Of GPU 1, 60% of compute are held: main does not fit, small does.
    let small = "name: small, compute: 20%, memory: 2Gi";
    devices(
        &policy(4, small),
        &[("nvidia.com/gpu=0", &["3"]), ("nvidia.com/gpu=1", &["small"])],
    );
    // Two of eight fit into the quarter that is left, and each of the eight is free.
    let eight = ["0", "1", "2", "3", "4", "5", "6", "7"];
    devices(&policy(8, small), &[("nvidia.com/gpu=0", &eight)]);
    let status = scene.json(&["status"]);
    assert_eq!(status["devices"][0]["free_together"], 2, "{status}");
    let page = scene.tranche(&["status"]).run().ok();
    assert!(page.contains("  0–7 (2 fit together)\n"), "{page}");
    let large = "name: small, compute: 20%, memory: 9Gi";
    devices(
        &policy(2, large),
        &[("nvidia.com/gpu=0", &[]), ("nvidia.com/gpu=1", &[])],
    );
    let line = scene.tranche(&["status"]).run().ok();
    assert!(
        line.contains("nvidia.com/gpu=0  0 of 2, 3 of an earlier policy  -\n"),
        "{line}"
    );
}

#[test]
fn a_name_does_not_reach_the_terminal_as_it_is() {
    let Some(scene) = Scene::new("shown::a_name_does_not_reach_the_terminal_as_it_is") else {
        return;
    };
    let id = "evil\u{1b}[2J\u{202e}id";
    scene.name_containers(&[(id, "na\u{1b}]0;x\u{7}me\nline\u{2066}")]);
    let _init = scene.start("nvidia.com/gpu=0.1", id);
    let status = scene.tranche(&["status"]).run().ok();
    let list = scene.tranche(&["claim", "release", "0.1"]).run().failed(1);
    for text in [&status, &list] {
        assert!(text.contains("na\\u{1b}]0;x\\u{7}me\\nline\\u{2066}"), "{text:?}");
        assert!(
            text.chars()
                .all(|c| c == '\n' || !(c.is_control() || "\u{202e}\u{2066}".contains(c))),
            "{text:?}"
        );
    }
    let json = scene.json(&["status"]);
    assert_eq!(json["claims"][0]["container"]["id"], id, "programs get it as it is");
}

#[test]
fn a_damaged_book_is_not_an_empty_one() {
    let Some(scene) = Scene::new("shown::a_damaged_book_is_not_an_empty_one") else {
        return;
    };
    let _init = scene.start("nvidia.com/gpu=0.1", "aaaa1111");
    let book = names_in(&scene.at("state/ledger"))
        .into_iter()
        .find(|n| n.starts_with("GPU-"))
        .unwrap();
    fs::write(scene.at("state/ledger").join(&book), "?").unwrap();
    let said = scene.tranche(&["status"]).run();
    assert_eq!(said.code, Some(1));
    assert!(
        said.err.contains(&book) && !said.out.contains("no share is held"),
        "{said:?}"
    );
    assert!(!said.out.contains("0–3"), "what is free is not known: {said:?}");
    let said = scene.tranche(&["status", "--json"]).run();
    assert_eq!(said.code, Some(1));
    let json: Value = serde_json::from_str(&said.out).unwrap();
    assert_eq!(json["problems"].as_array().unwrap().len(), 1);
    assert_eq!(scene.tranche(&["claim", "list"]).run().code, Some(1));
    assert_eq!(
        scene.tranche(&["claim", "show", "x"]).run().code,
        Some(1),
        "it may be in that book"
    );
}

#[test]
fn who_is_not_root_is_told_so() {
    let Some(scene) = Scene::new("shown::who_is_not_root_is_told_so") else {
        return;
    };
    let program = crate::support::installed::command_line(&scene.at(""));
    let mode = std::os::unix::fs::PermissionsExt::from_mode;
    fs::set_permissions(scene.top.path(), mode(0o755)).unwrap();
    scene.create(&["--name=one", "--shares=1", "--of=0"]).run().ok();
    let config = scene.option("config", "policy.yaml");
    for verb in [
        &["status"][..],
        &["claim", "list"],
        &["claim", "show", "one"],
        &["claim", "release", "one"],
        &["claim", "gc"],
        &[
            "claim",
            "create",
            "--name=two",
            "--shares=1",
            "--inventory=sim:t4x2",
            &config,
        ],
    ] {
        for state in ["state", "none/yet"] {
            let mut words = vec![
                "setpriv".to_owned(),
                "--reuid=65534".into(),
                "--regid=65534".into(),
                "--clear-groups".into(),
            ];
            words.push(program.display().to_string());
            words.extend(verb.iter().map(|w| (*w).to_owned()));
            words.push(scene.option("state-dir", state));
            let line = Call { words, input: None }.run().failed(1);
            // What the broker does for users needs a broker; the rest needs root.
            let is_refused = match verb[..] {
                ["claim", "gc"] | ["status"] => {
                    line.contains("only root can see, take and release them") && line.contains("as root")
                }
                _ => line.contains("the claims of users other than root") && line.contains("tranche-broker.socket"),
            };
            assert!(is_refused, "{verb:?}: {line}");
        }
    }
    assert_eq!(scene.claims(), ["one"]);
}

/// What no host.json says is unknown. It need not be of an earlier policy.
#[test]
fn without_host_json_a_held_share_is_not_of_an_earlier_policy() {
    let test = "shown::without_host_json_a_held_share_is_not_of_an_earlier_policy";
    let Some(scene) = Scene::new(test) else { return };
    let _init = scene.start("nvidia.com/gpu=0.1", "aaaa1111");
    fs::remove_file(scene.at("state/host.json")).unwrap();
    let json = scene.json(&["status"]);
    let device = &json["devices"][0];
    assert_eq!(
        (&device["policy_known"], &device["held"]),
        (&json!(false), &json!(["1"])),
        "{json}"
    );
    assert_eq!(
        (&device["held_of_earlier_policy"], &device["free"]),
        (&json!([]), &json!([]))
    );
    let deviations: Vec<&Value> = json["deviations"].as_array().unwrap().iter().collect();
    assert!(
        matches!(deviations[..], [one] if one["kind"] == "host-file"
            && one["text"].as_str().unwrap().contains("tranche cdi refresh")),
        "{json}"
    );
    let status = scene.tranche(&["status"]).run().ok();
    let line = status.lines().find(|line| line.starts_with("GPU-")).unwrap();
    assert!(
        line.ends_with("  1     unknown") && !status.contains("earlier policy"),
        "{status}"
    );
    // The refresh says what the policy is, and then a share that it lacks is one of an earlier policy.
    scene.policy(&POLICY.replace("replicas: 4", "replicas: 2"));
    scene.refresh();
    let device = scene.json(&["status"])["devices"][0].clone();
    assert_eq!(
        (&device["policy_known"], &device["held_of_earlier_policy"]),
        (&json!(true), &json!(["1"])),
        "{device}"
    );
}
