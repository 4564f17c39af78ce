//! `tranche advise`: what it prints and writes, and its exit codes. The cases and the property of all wishes are in
//! src/plan/advise/tests.

use crate::support::bless;
use crate::tranche;
use std::fs;
use std::path::Path;
use tranche_plan::advise::rules;

const TWO_SERVICES: [&str; 6] = ["--kind", "service", "--count", "2", "--memory", "7Gi"];

/// Runs `tranche advise`; returns the exit code, and what it printed to stdout and stderr.
fn advise(arguments: &[&str]) -> (i32, String, String) {
    let said = tranche(&[&["advise"], arguments].concat());
    (said.code.unwrap(), said.out, said.err)
}

fn on<'a>(inventory: &'a str, arguments: &[&'a str]) -> Vec<&'a str> {
    [&["--inventory", inventory], arguments].concat()
}

#[test]
fn the_page_has_the_rules_of_the_program() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/explanation/advice.md");
    let text = fs::read_to_string(&page).unwrap();
    let (before, rest) = text.split_once("cli advise -->\n").unwrap();
    let (_, after) = rest.split_once("<!-- end of rules").unwrap();
    let expected = format!("{before}cli advise -->\n\n{}\n<!-- end of rules{after}", rules::table());
    assert!(
        bless::is_expected(&page, &expected),
        "expected in {}:\n{}",
        page.display(),
        rules::table()
    );
}

#[test]
fn the_text_has_at_most_80_columns_and_says_once_that_nothing_was_measured() {
    for inventory in [
        "sim:rtx4090",
        "sim:dgx-a100-mig",
        "sim:hgx-h200",
        "sim:gb200",
        "sim:t4x2",
    ] {
        let (code, text, _) = advise(&on(
            inventory,
            &["--kind", "notebook", "--count", "5", "--memory", "2Gi"],
        ));
        assert_eq!(code, 0, "{text}");
        assert_eq!(
            text.matches("nothing was measured on this machine").count(),
            1,
            "{text}"
        );
        let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
        for part in [
            "(rule notebook; it rests on",
            "Runners-up, and what each gives up:",
            "The policy: version: v1 sharing:",
        ] {
            assert!(words.contains(part), "{part}: {text}");
        }
        let wide = text.lines().find(|line| line.chars().count() > 80);
        assert_eq!(wide, None);
    }
}

#[test]
fn what_is_written_passes_policy_check_and_nothing_is_overwritten_unasked() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("config.yaml");
    let written = file.to_str().unwrap();
    let arguments = [&on("sim:rtx4090", &TWO_SERVICES)[..], &["--write", written]].concat();
    let (code, text, said) = advise(&arguments);
    assert_eq!((code, said), (0, format!("{written}: written\n")));
    let policy = fs::read_to_string(&file).unwrap();
    assert!(text.contains(&policy) && !text.contains("advise … --write"), "{text}");
    assert!(
        text.contains(&format!("  cp {written} /etc/tranche/config.yaml\n")),
        "{text}"
    );
    let check = tranche(&["policy", "check", "--inventory", "sim:rtx4090", "--config", written]);
    assert_eq!(check.code, Some(0), "{check:?}");

    fs::write(&file, "mine").unwrap();
    let (code, text, said) = advise(&arguments);
    assert_eq!((code, text.as_str()), (2, ""));
    assert!(said.contains("config.yaml: exists; give --force"), "{said}");
    assert_eq!(fs::read_to_string(&file).unwrap(), "mine");
    let (code, ..) = advise(&[&arguments[..], &["--force"]].concat());
    assert_eq!((code, fs::read_to_string(&file).unwrap()), (0, policy));
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
}

#[test]
fn a_layout_is_shown_as_mig_apply_takes_it() {
    let (code, text, _) = advise(&on(
        "sim:hgx-h200",
        &["--kind", "service", "--tenants", "3", "--memory", "60Gi"],
    ));
    assert_eq!(code, 0, "{text}");
    let command = text.lines().find(|line| line.contains("mig apply")).unwrap();
    assert_eq!(command, "  tranche mig apply --layout 0:2x3g.71gb --layout 1:3g.71gb");
    let layouts = [
        "mig",
        "plan",
        "--inventory",
        "sim:hgx-h200",
        "--layout",
        "0:2x3g.71gb",
        "--layout",
        "1:3g.71gb",
    ];
    let planned = tranche(&layouts);
    // Something is to be changed.
    assert_eq!(planned.code, Some(4), "{planned:?}");
    assert!(planned.out.contains("gpu 1: create 3g.71gb"), "{planned:?}");
}

#[test]
fn json_has_the_policy_and_the_reasons() {
    let (code, text, _) = advise(&[&on("sim:rtx4090", &TWO_SERVICES)[..], &["--json"]].concat());
    let json: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!((code, json["choices"][0]["rule"].as_str()), (0, Some("sized-service")));
    assert_eq!(json["choices"][0]["ask"].as_array().unwrap().len(), 2);
    assert!(json["policy"].as_str().unwrap().contains("memory: 7Gi") && json["measured"].is_null());
}

#[test]
fn an_exit_code_says_what_was_wrong_in_one_line() {
    let dir = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let file = dir.path().join(name);
        fs::write(&file, text).unwrap();
        file.to_str().unwrap().to_owned()
    };
    let contradicts = file("w.yaml", "wishes:\n- {name: a, kind: training, latency: bounded}\n");
    let sim = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/plan/sim/t4x2.json");
    let mut host: serde_json::Value = serde_json::from_str(&fs::read_to_string(sim).unwrap()).unwrap();
    host["gpus"] = serde_json::json!([]);
    let without_gpu = file("host.json", &host.to_string());
    for (expected, arguments, says) in [
        (
            2,
            on("sim:t4x2", &[&contradicts]),
            "w.yaml:2:3: a: kind: training and latency: bounded contradict each other",
        ),
        (
            1,
            on("sim:t4x2", &["/no-such-wishes.yaml"]),
            "/no-such-wishes.yaml: not found; tranche advise --help has an example",
        ),
        (
            2,
            on("sim:t4x2", &["--kind", "service", "--whole-gpu", "--compute", "10"]),
            "contradict each other",
        ),
        (
            2,
            on("sim:t4x2", &["--kind", "service", &contradicts]),
            "cannot be used with",
        ),
        (2, on("sim:t4x2", &[]), "WISHES"),
        (1, on("sim:t4x2", &["/nonexistent/w.yaml"]), "/nonexistent/w.yaml"),
        (3, on(&without_gpu, &TWO_SERVICES), ""),
        (
            4,
            on("sim:t4x2", &["--kind", "service", "--memory", "99Gi", "--count", "2"]),
            "not possible on this machine",
        ),
    ] {
        let (code, text, said) = advise(&arguments);
        assert_eq!((code, text.as_str()), (expected, ""), "{arguments:?}: {said}");
        assert!(said.contains(says) && said.lines().count() == 1, "{said}");
    }
}
