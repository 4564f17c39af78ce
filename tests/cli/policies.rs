//! Policies: files that others have written, mistakes, and what `tranche plan` and `tranche policy check` make of them.

use crate::{Said, tranche};
use std::path::Path;
use tranche_core::error::Error;
use tranche_plan::inventory::Inventory;
use tranche_plan::policy::read;
use tranche_plan::share::{Plan, plan};

fn inventory(name: &str) -> Inventory {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("src/plan/sim/{name}.json"));
    serde_json::from_str(&std::fs::read_to_string(file).unwrap()).unwrap()
}

fn planned(yaml: &str, inventory: &Inventory) -> Result<Plan, Error> {
    plan(&read::parse("policy.yaml", yaml)?.policy, inventory)
}

fn plugin_file(name: &str) -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/data/device-plugin/{name}.yaml"))
}

#[test]
fn a_plan_without_a_policy_says_what_there_is_and_how_to_begin() {
    let said = tranche(&["plan", "--inventory=sim:t4x2"]);
    assert_eq!((said.code, said.err.as_str()), (Some(0), ""), "{said:?}");
    for part in ["\nnvidia.com/gpu=1  Tesla T4", "write to /etc/tranche/config.yaml:\n"] {
        assert!(said.out.contains(part), "{part}: {}", said.out);
    }
    // What is offered works.
    let (_, policy) = said.out.split_once("config.yaml:\n").unwrap();
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("config.yaml");
    std::fs::write(&file, policy).unwrap();
    let config = format!("--config={}", file.display());
    let planned = tranche(&["plan", "--inventory=sim:t4x2", &config]);
    assert!(planned.out.contains("2 equal shares"), "{planned:?}");
    let json = tranche(&["plan", "--inventory=sim:t4x2", "--json"]);
    let json: serde_json::Value = serde_json::from_str(&json.out).unwrap();
    assert_eq!(json["devices"], serde_json::json!([]));
}

#[test]
fn keys_are_read_in_any_letter_case_as_go_reads_them() {
    let read = read::file(&plugin_file("any-letter-case"), None).unwrap();
    let warnings = read.warnings.join("\n");
    assert_eq!(read.warnings.len(), 1, "{warnings}");
    assert!(
        warnings.contains(".yaml:5:1: \"somethingNew\" is unknown"),
        "{warnings}"
    );
    let plan = plan(&read.policy, &inventory("hgx-h200")).unwrap();
    assert!(
        plan.devices
            .iter()
            .all(|d| d.shares.len() == 4 && d.kind.to_string() == "nvidia.com/gpu.shared")
    );
    // Within sharing a key that is unknown decides over what a container gets, so it is an error.
    for (yaml, says) in [
        (
            "sharing:\n  timeSlice: {}\n",
            "p.yaml:2:3: \"timeSlice\" is unknown in sharing; did you mean timeSlicing?",
        ),
        (
            "sharing:\n  mps:\n    Replicas: 2\n",
            "p.yaml:3:5: \"Replicas\" is unknown in sharing.mps; ",
        ),
        (
            "sharing:\n  mps: {resources: []}\n  MPS: {}\n",
            "p.yaml:3:3: sharing: \"mps\" and \"MPS\" are the same key; ",
        ),
    ] {
        let said = read::parse("p.yaml", yaml).unwrap_err().to_string();
        assert!(said.starts_with(says), "{said}");
    }
    // An empty section is no section, however it is written.
    for empty in [
        "mps:",
        "mps: {}",
        "timeSlicing:",
        "timeSlicing: {}",
        "dedicated: {}",
        "overcommit: {}",
    ] {
        let read = read::parse("p.yaml", &format!("sharing:\n  {empty}\n")).unwrap();
        assert!(read.policy.splits.is_empty(), "{empty}");
    }
}

#[test]
fn mig_strategy_single_shares_mig_devices() {
    let dgx = inventory("dgx-a100-mig");
    let single = plan(
        &read::file(&plugin_file("mig-strategy-single"), None).unwrap().policy,
        &dgx,
    )
    .unwrap();
    let migs = single.devices.iter().filter(|d| d.device.mig.is_some()).count();
    assert_eq!((migs, dgx.mig_devices().count() > 0), (dgx.mig_devices().count(), true));
    assert!(single.devices.iter().all(|d| d.shares.len() == 3));
    let none =
        "flags: {migStrategy: none}\nsharing: {timeSlicing: {resources: [{name: nvidia.com/gpu, replicas: 3}]}}\n";
    let none = planned(none, &dgx).unwrap();
    assert!(!none.devices.is_empty() && none.devices.iter().all(|d| d.device.mig.is_none()));
}

#[test]
fn mps_wins_over_time_slicing_of_the_same_devices_with_a_warning() {
    let read = read::file(&plugin_file("mps-and-time-slicing"), None).unwrap();
    let plan = plan(&read.policy, &inventory("t4x2")).unwrap();
    let strategies: Vec<String> = plan.devices.iter().map(|d| d.method.strategy().to_string()).collect();
    assert_eq!(strategies, ["mps", "mps"]);
    assert!(plan.devices.iter().all(|d| d.shares.len() == 4));
    let [warning] = plan.warnings.as_slice() else {
        panic!("{:?}", plan.warnings)
    };
    assert!(
        warning.ends_with(".yaml:6:7: timeSlicing has no effect on gpu 0, 1, which mps shares at line 10: mps wins"),
        "{warning}"
    );
    // Two entries of one section are a mistake, wherever they meet.
    let twice = "sharing:\n  mps:\n    resources:\n    - {name: nvidia.com/gpu, replicas: 2}\n    - {name: nvidia.com/gpu, devices: [1], replicas: 4}\n";
    let said = planned(twice, &inventory("t4x2")).unwrap_err().to_string();
    assert!(
        said.starts_with("policy.yaml:5:7: gpu 1: two entries share it: this one and that at line 4; "),
        "{said}"
    );
}

#[test]
fn a_whole_config_map_is_read() {
    let file = plugin_file("config-map");
    let hgx = inventory("hgx-h200");
    let shares = |key| {
        let read = read::file(&file, key).unwrap();
        (
            plan(&read.policy, &hgx).unwrap().devices[0].shares.len(),
            read.warnings.len(),
        )
    };
    assert_eq!(shares(Some("a100-40gb")), (8, 0));
    assert_eq!(shares(None), (2, 1), "default, and a line that says so");
    let said = read::file(&file, Some("h100")).unwrap_err().to_string();
    assert!(
        said.contains("has no key \"h100\"; it has a100-40gb, default"),
        "{said}"
    );

    // A place is that in the file which a person edits.
    let text = std::fs::read_to_string(&file).unwrap();
    let wrong = text.replace("replicas: 8", "replicas: 1");
    let said = read::parse_key("m.yaml", &wrong, Some("a100-40gb"))
        .unwrap_err()
        .to_string();
    assert!(said.starts_with("m.yaml:13:21: replicas: too few; "), "{said}");
    let wrong = text.replace("replicas: 2", "replicas: 2: 3");
    let said = read::parse_key("m.yaml", &wrong, None).unwrap_err().to_string();
    assert!(said.starts_with("m.yaml:20:"), "{said}");
    let quoted = "kind: ConfigMap\ndata:\n  a: \"sharing: {mps: 7}\"\n";
    let said = read::parse_key("m.yaml", quoted, None).unwrap_err().to_string();
    assert!(said.starts_with("m.yaml:3:6: "), "{said}");

    let several = text.replace("default:", "other:");
    let said = read::parse_key("m.yaml", &several, None).unwrap_err().to_string();
    assert!(
        said.contains("; give --config-key with one of a100-40gb, other"),
        "{said}"
    );
    let said = read::parse_key("m.yaml", "version: v1\n", Some("a"))
        .unwrap_err()
        .to_string();
    assert!(said.contains("leave --config-key out"), "{said}");
    let Said { code, out, err } = tranche(&[
        "plan",
        "--json",
        "--inventory=sim:hgx-h200",
        "--config-key=a100-40gb",
        &format!("--config={}", file.display()),
    ]);
    assert_eq!(code, Some(0), "{err}");
    let json: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!(json["devices"][0]["shares"]["count"], 8);
}

/// What no program may wait for or read without end.
#[test]
fn a_policy_is_read_from_regular_files_of_bounded_size() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    nix::unistd::mkfifo(&at("fifo"), nix::sys::stat::Mode::S_IRUSR).unwrap();
    std::fs::write(at("large"), vec![b'#'; (1 << 20) + 1]).unwrap();
    std::fs::write(at("latin"), b"version: v1 # \xe9\n").unwrap();
    let cases = [
        (at("fifo"), "is not a regular file; "),
        ("/dev/urandom".into(), "is not a regular file; "),
        (dir.path().into(), "is not a regular file; "),
        (at("large"), "is larger than 1048576 bytes"),
        (at("latin"), "is not UTF-8 text; "),
        (at("missing"), "not found; "),
    ];
    for (file, says) in cases {
        let config = format!("--config={}", file.display());
        for verb in [&["policy", "check"][..], &["plan"], &["cdi", "generate"]] {
            let Said { code, out, err } = tranche(&[verb, &["--inventory=sim:hgx-h200", &config]].concat());
            assert_eq!(
                (code, out.as_str(), err.lines().count()),
                (Some(1), "", 1),
                "{verb:?} {err}"
            );
            assert!(err.contains(&format!("{}: {says}", file.display())), "{err}");
        }
    }
}

#[test]
fn a_number_of_parts_is_a_count_that_has_room_in_a_number() {
    for (n, says) in [
        ("0", "too few; a device is split into at least 2"),
        ("1", "too few; a device is split into at least 2"),
        ("4294967295", "too many"),
        ("18446744073709551615", "too many"),
    ] {
        let yaml = format!("sharing:\n  timeSlicing:\n    resources:\n    - {{name: gpu, replicas: {n}}}\n");
        let said = read::parse("p.yaml", &yaml).unwrap_err().to_string();
        assert!(said.starts_with(&format!("p.yaml:4:29: replicas: {says}")), "{said}");
    }
    for n in [1024, 16_384, 4_294_967_294] {
        let yaml = format!("sharing:\n  timeSlicing:\n    resources:\n    - {{name: gpu, replicas: {n}}}\n");
        assert_eq!(planned(&yaml, &inventory("t4x2")).unwrap().devices[0].shares.len(), n);
    }
}

#[test]
fn a_plan_fits_80_columns_and_shows_first_what_a_root_tenant_gets() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("p.yaml");
    let text = "\
sharing:
  mps:
    daemon: external
    resources:
    - {name: nvidia.com/gpu, devices: [0, 1], replicas: 10}
    - {name: nvidia.com/gpu, devices: [2], shares: [{name: big, memory: 80%, compute: 80%}, {name: small, memory: 70%, compute: 20%}]}
  timeSlicing:
    interval: long
    resources:
    - {name: nvidia.com/gpu, devices: [3, 42], replicas: 100}
  dedicated: {devices: [4]}
  overcommit: {memory: 1.5}
";
    std::fs::write(&file, text).unwrap();
    let config = format!("--config={}", file.display());
    let plan = |more: &[&str]| {
        let Said { code, out, err } = tranche(&[&["plan", "--inventory=sim:hgx-h200", &config], more].concat());
        assert_eq!(code, Some(0), "{err}");
        out
    };
    let out = plan(&[]);
    let is_command =
        |line: &str| line.starts_with("    ") && (line.contains("nvidia-smi") || line.contains("nvidia-cuda-mps"));
    for line in out.lines().filter(|line| !is_command(line)) {
        assert!(line.chars().count() <= 80, "{line}");
    }
    let paragraphs: Vec<&str> = out.split("\n\n").collect();
    let of = |title: &str| {
        let found = paragraphs.iter().find(|p| p.starts_with(title));
        *found.unwrap_or_else(|| panic!("no {title} in\n{out}"))
    };
    // Equal devices are said once, and how to start the daemon of each.
    let equal = of("gpu 0, 1: ");
    assert!(
        equal.contains("10 equal shares\n  memory is promised 1.5 times\n"),
        "{equal}"
    );
    assert!(
        equal.contains("nvidia.com/gpu=0.any") && equal.contains("nvidia.com/gpu=0.0 … 9"),
        "{equal}"
    );
    assert_eq!(equal.matches("nvidia-cuda-mps-control -d").count(), 2, "{equal}");
    let row = |paragraph: &str, name: &str| -> Vec<String> {
        let table = paragraph.split("BECAUSE").nth(1).unwrap();
        let line = table.lines().find(|line| line.trim_start().starts_with(name)).unwrap();
        line.split_whitespace().take(3).map(str::to_owned).collect()
    };
    assert!(equal.contains("ROOT      OTHERS    BECAUSE"), "{equal}");
    assert_eq!(row(equal, "memory"), ["memory", "advisory", "soft"]);
    assert_eq!(row(equal, "faults"), ["faults", "none", "none"]);
    let unequal = of("gpu 2: ");
    assert!(
        unequal.contains("memory is promised 1.5 times") && unequal.contains("nvidia.com/gpu=2.big"),
        "{unequal}"
    );
    let turns = of("gpu 3: ");
    assert!(
        turns.contains("0 equal shares")
            && !turns.contains("3.0")
            && turns.contains("the broker sets the length of a turn"),
        "{turns}"
    );
    assert_eq!(row(turns, "faults"), ["faults", "soft", "soft"]);
    let dedicated = of("gpu 4: ");
    assert!(
        dedicated.contains("dedicated: for one container at a time") && !dedicated.contains("promised"),
        "{dedicated}"
    );
    assert_eq!(row(dedicated, "memory"), ["memory", "hard", "hard"]);
    let rest = paragraphs.last().unwrap().replace("\n  ", " ");
    let not_used = out.matches("Not in use: ").count();
    assert_eq!(not_used, 2, "{out}");
    assert!(
        rest.contains(&format!("Not offered: {}:10:43: device 42", file.display())),
        "{rest}"
    );
    assert!(
        rest.contains("shared by all containers that request it: gpu 5, 6, 7\n"),
        "{rest}"
    );

    let json: serde_json::Value = serde_json::from_str(&plan(&["--json"])).unwrap();
    let big = &json["devices"][2];
    assert_eq!(
        (&big["memory_promised"], &big["compute_promised"]),
        (&150.into(), &100.into())
    );
    assert_eq!(big["shares"][0]["guarantees"]["memory"]["root"], "advisory");
    assert_eq!(big["shares"][0]["guarantees"]["memory"]["grade"], "soft");
    assert_eq!(json["absent"][0]["asked"], "device 42");
    assert_eq!(json["devices"][4]["method"]["strategy"], "dedicated");
}

#[test]
fn the_example_of_a_policy_is_one() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/examples/config.yaml");
    let read = read::file(&file, None).unwrap();
    assert_eq!(read.warnings, [""; 0]);
    let plan = plan(&read.policy, &inventory("hgx-h200")).unwrap();
    let shares: Vec<usize> = plan.devices.iter().map(|d| d.shares.len()).collect();
    assert_eq!(shares, [4, 2, 1]);
    assert_eq!(plan.notes, [""; 0]);
}

#[test]
fn a_check_says_the_same_to_programs() {
    let check = |file: &Path| {
        let config = format!("--config={}", file.display());
        let Said { code, out, err } = tranche(&["policy", "check", "--json", "--inventory=sim:t4x2", &config]);
        let json: serde_json::Value = serde_json::from_str(&out).unwrap_or_else(|e| panic!("{e}: {out}{err}"));
        (code, json)
    };
    let (code, json) = check(&plugin_file("mps-and-time-slicing"));
    assert_eq!(
        (code, json["problems"].as_array().unwrap().len()),
        (Some(0), 0),
        "{json}"
    );
    assert_eq!((&json["split_devices"], &json["shares"]), (&2.into(), &8.into()));
    assert!(json["warnings"][0].as_str().unwrap().contains("mps wins"), "{json}");
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("p.yaml");
    std::fs::write(&file, "sharing:\n  dedicated: {devices: [0, 7]}\n  dedicate: {}\n").unwrap();
    let (code, json) = check(&file);
    assert_eq!(code, Some(4));
    assert!(
        json["problems"][0]
            .as_str()
            .unwrap()
            .contains(":3:3: \"dedicate\" is unknown"),
        "{json}"
    );
    std::fs::write(&file, "sharing:\n  dedicated: {devices: [0, 7]}\n").unwrap();
    let (code, json) = check(&file);
    assert_eq!(
        (code, &json["dedicated_devices"], &json["shares"]),
        (Some(4), &1.into(), &0.into())
    );
    assert!(
        json["problems"][0]
            .as_str()
            .unwrap()
            .contains(":2:28: device 7: not found"),
        "{json}"
    );
}

#[test]
fn a_check_and_a_plan_say_for_how_long_users_may_hold_something_and_what_comes_then() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("p.yaml");
    let text =
        "version: v1\nsharing:\n  dedicated: {devices: [0]}\n  users:\n    default: {maxHold: 8h, atLimit: end}\n";
    std::fs::write(&file, text).unwrap();
    let config = format!("--config={}", file.display());
    let limit = "sharing.users.default: maxHold 8h, then SIGTERM, and SIGKILL 30s later";
    for command in [&["policy", "check"][..], &["plan"]] {
        let words = [command, &["--inventory=sim:hgx-h200", &config]].concat();
        let Said { code, out, err } = tranche(&words);
        assert_eq!(code, Some(0), "{err}");
        assert!(out.lines().any(|line| line == limit), "{out}");
    }
    let Said { out, .. } = tranche(&["policy", "check", "--json", "--inventory=sim:hgx-h200", &config]);
    let json: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!(json["limits"], serde_json::json!([limit]));
}

#[test]
fn a_check_that_finds_something_says_where_and_exits_with_four() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("p.yaml");
    let config = format!("--config={}", file.display());
    let check = |text: &str| {
        std::fs::write(&file, text).unwrap();
        let Said { code, out, err } = tranche(&["policy", "check", "--inventory=sim:hgx-h200", &config]);
        assert!(err.lines().count() <= 1 && out.lines().count() == 1, "{out}{err}");
        (code, format!("{out}{err}"))
    };
    let entry = |text: &str| {
        check(&format!(
            "version: v1\nsharing:\n  mps:\n    resources:\n    - {{name: nvidia.com/gpu, devices: [0], {text}}}\n"
        ))
    };
    let (code, said) = entry("replicas: 4");
    assert_eq!((code, said.contains("4 shares of 1 device")), (Some(0), true), "{said}");
    for (text, says) in [
        ("replica: 4", "did you mean replicas?"),
        ("shares: [{name: a, memory: 0Gi}]", "memory"),
        ("shares: [{name: a, compute: 0%}]", "compute"),
        ("shares: [{name: a, compute: 101%}]", "101%"),
        ("shares: [{name: a, memory: 7Q}]", "7Q"),
        (
            "shares: [{name: a, memory: 900Gi}]",
            ":5:53: gpu 0: share a asks for 900.0 GiB of 140.4 GiB; lower it",
        ),
        (
            "shares: [{name: a, memory: 7000}]",
            "memory: \"7000\": has no unit, so it is in bytes",
        ),
        (
            "rename: nvidia.com/claim, replicas: 2",
            ":5:52: rename: nvidia.com/claim is the kind of claims",
        ),
        ("rename: claim, replicas: 2", "nvidia.com/claim is the kind of claims"),
        ("replicas: 61", "gpu 0: 61 shares, and MPS serves"),
        (
            "shares: [{name: any}]",
            "\"any\" has a meaning of its own in device names; choose another",
        ),
        ("shares: [{name: None}]", "has a meaning of its own"),
        ("shares: [{name: all}]", "has a meaning of its own"),
        (
            "shares: [{name: a, compute: 60%}, {name: b, compute: 60%}]",
            "gpu 0: shares ask for 120% of 100% compute: a 60%, b 60%; lower one, or set overcommit.compute to 1.2",
        ),
        ("shares: [{name: a.b}]", "a.b"),
        ("shares: [{name: \"a::b\"}]", "a::b"),
        ("shares: [{name: \"7\"}]", "letter"),
        ("replicas: 2, devices: [9]", "devices"),
        ("replicas: two", "two"),
    ] {
        let (code, said) = entry(text);
        assert!(code == Some(4) && said.contains(says), "{text}: {code:?} {said}");
        assert!(said.starts_with(&format!("{}:5:", file.display())), "{text}: {said}");
    }
    let (code, said) = check(
        "version: v1\nsharing:\n  timeSlicing:\n    resources:\n    - {name: nvidia.com/gpu, replicas: 2}\n    - {name: nvidia.com/gpu, devices: [3], replicas: 4}\n",
    );
    assert!(
        code == Some(4) && said.contains(":6:7: gpu 3: two entries share it: this one and that at line 5; "),
        "{said}"
    );
    let (code, said) = check(
        "version: v1\nsharing:\n  timeSlicing:\n    resources:\n    - {name: nvidia.com/gpu, devices: [42], replicas: 2}\n",
    );
    assert!(
        code == Some(4) && said.contains("device 42: not found; this host has "),
        "{said}"
    );
    let (code, said) = check(
        "version: v1\nsharing:\n  timeSlicing:\n    resources:\n    - {name: nvidia.com/gpu, devices: [MIG-00000000-dead-beef], replicas: 2}\n",
    );
    assert!(
        code == Some(4) && said.contains("the UUID of a MIG device changes with every MIG layout"),
        "{said}"
    );
}
