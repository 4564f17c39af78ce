//! What a person sees at a terminal: lines of 80 columns, errors of one line, and nothing that a terminal acts on.

use crate::support::{skip, strict_json};
use crate::{Said, program, tranche};
use proptest::prelude::*;
use serde_json::{Value, json};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::{Command, Stdio};

/// Characters that a terminal acts on, with text around them: colours, a title, a line of its own, a cursor that goes
/// back, C1's escape, and the marks that change the direction of text.
const HOSTILE: &str = "x\u{1b}[31my\u{1b}]0;title\u{7}z\nERROR fake\rback\u{9b}31m\u{202e}r\u{2066}i\u{200f}l\u{61c}m";

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// Whether a terminal acts on `c`.
fn acts(c: char) -> bool {
    (c.is_control() && c != '\n')
        || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{200e}' | '\u{200f}' | '\u{61c}')
}

#[test]
fn list_and_plan_fit_80_columns() {
    for inventory in [
        "sim:rtx4090",
        "sim:dgx-a100-mig",
        "sim:hgx-h200",
        "sim:gb200",
        "sim:t4x2",
    ] {
        let option = format!("--inventory={inventory}");
        let list = tranche(&["list", &option]).out;
        assert!(list.starts_with("GPU ") && list.lines().count() > 2, "{list}");
        for line in list.lines() {
            assert!(line.chars().count() <= 80, "{inventory}: {line}");
        }
        // What does not fit can be had.
        let rows: Value = serde_json::from_str(&tranche(&["list", &option, "--json"]).out).unwrap();
        let wide = tranche(&["list", &option, "--wide"]).out;
        for row in rows.as_array().unwrap() {
            let (uuid, pci) = (row["uuid"].as_str().unwrap(), row["pci"].as_str().unwrap());
            assert!(wide.contains(uuid) && wide.contains(pci), "{inventory}: {uuid}");
        }
    }
    for (inventory, policy) in [
        ("sim:t4x2", fs::read_to_string("docs/examples/config.yaml").unwrap()),
        (
            "sim:dgx-a100-mig",
            "version: v1\nsharing:\n  mps:\n    resources:\n    - {name: nvidia.com/gpu, rename: nvidia.com/gpu.shared, \
             devices: [7], replicas: 10}\n  timeSlicing:\n    resources:\n    - {name: nvidia.com/gpu, devices: [\"0:0\"], \
             replicas: 4}\n"
                .to_owned(),
        ),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("config.yaml");
        fs::write(&file, policy).unwrap();
        let arguments = ["plan", "--inventory", inventory, "--config", file.to_str().unwrap()];
        let Said { out: plan, err, .. } = tranche(&arguments);
        assert!(plan.contains("OTHERS") && plan.contains("nvidia.com/gpu"), "{plan}{err}");
        // Commands are copied, and so are never broken.
        for line in plan.lines().filter(|line| !line.starts_with("    ") || !line.contains("nvidia-")) {
            assert!(line.chars().count() <= 80, "{inventory}: {line}");
        }
    }
}

/// An inventory, a specification and a policy with hostile names wherever a name can be.
fn hostile_places(dir: &Path) -> (String, String, String) {
    let saved = tranche(&["inventory", "--inventory=sim:t4x2"]).out;
    let mut inventory: Value = serde_json::from_str(&saved).unwrap();
    for gpu in inventory["gpus"].as_array_mut().unwrap() {
        gpu["name"] = HOSTILE.into();
    }
    inventory["warnings"] = json!([{"object": HOSTILE, "text": HOSTILE}]);
    inventory["absent"] = json!([{"what": [HOSTILE], "looked_in": [HOSTILE]}]);
    for file in inventory["driver"]["files"].as_array_mut().unwrap() {
        if file["kind"]["type"] == "config" {
            file["container"] = format!("/etc/{HOSTILE}").into();
        }
    }
    let inventory_file = dir.join("inventory.json");
    fs::write(&inventory_file, inventory.to_string()).unwrap();
    let specs = dir.join("specs");
    fs::create_dir_all(&specs).unwrap();
    let edits = json!({
        "env": [format!("A={HOSTILE}")],
        "deviceNodes": [{"path": format!("/dev/{HOSTILE}"), "hostPath": format!("/dev/{HOSTILE}")}],
        "mounts": [{"hostPath": format!("/{HOSTILE}"), "containerPath": format!("/{HOSTILE}"), "options": [HOSTILE]}],
        "hooks": [{"hookName": "createContainer", "path": format!("/{HOSTILE}"), "args": [HOSTILE]}],
    });
    let good = json!({"cdiVersion": "0.6.0", "kind": "a.org/good", "devices": [
        {"name": "one", "annotations": {"note.org/x": HOSTILE}, "containerEdits": edits}]});
    fs::write(specs.join("good.json"), good.to_string()).unwrap();
    let bad = json!({"cdiVersion": "0.6.0", "kind": "a.org/bad", "devices": [
        {"name": HOSTILE, "containerEdits": {"env": ["A=b"]}}, {"name": "two", HOSTILE: 1, "containerEdits": {}}]});
    fs::write(specs.join("bad.json"), bad.to_string()).unwrap();
    fs::write(specs.join(format!("{}.json", HOSTILE.replace('/', "_"))), "{").unwrap();
    let policy = dir.join("policy.yaml");
    fs::write(
        &policy,
        format!("version: v1\nsharing:\n  timeSlicing:\n    resources:\n    - {{name: {HOSTILE:?}, replicas: 2}}\n"),
    )
    .unwrap();
    let shown = |path: &Path| path.to_str().unwrap().to_owned();
    (shown(&inventory_file), shown(&specs), shown(&policy))
}

#[test]
fn no_verb_sends_a_terminal_what_it_acts_on() {
    let dir = tempfile::tempdir().unwrap();
    let (inventory, specs, policy) = hostile_places(dir.path());
    let (inventory, specs) = (format!("--inventory={inventory}"), format!("--spec-dir={specs}"));
    let config = format!("--config={policy}");
    let state = format!("--state-dir={}", dir.path().join(HOSTILE.replace('/', "_")).display());
    let shared = dir.path().join("shared.yaml");
    fs::write(
        &shared,
        "version: v1\nsharing:\n  timeSlicing:\n    resources:\n    - {name: nvidia.com/gpu, replicas: 2}\n",
    )
    .unwrap();
    let shared = format!("--config={}", shared.display());
    let hostile_file = format!("/nonexistent/{}", HOSTILE.replace('/', "_"));
    let commands: Vec<Vec<&str>> = vec![
        vec!["-v", "list", &inventory],
        vec!["list", &inventory, "--wide"],
        vec!["list", &inventory, "--json"],
        vec!["inventory", &inventory],
        vec!["-vv", "cdi", "generate", &inventory, "--format=json"],
        vec!["cdi", "list", &specs],
        vec!["cdi", "list", &specs, "--json"],
        vec!["cdi", "validate", &specs],
        vec!["cdi", "validate", &specs, "--json"],
        vec!["cdi", "inspect", "a.org/good=one", &specs],
        vec!["cdi", "inspect", "a.org/good=one", &specs, "--json"],
        vec!["cdi", "inspect", HOSTILE, &specs],
        vec!["cdi", "transform", "root", "--input", &hostile_file],
        vec!["plan", &inventory, &shared],
        vec!["plan", &inventory, &shared, "--json"],
        vec!["policy", "check", &inventory, &config],
        vec!["policy", "check", "--config", &hostile_file],
        vec!["status", &state],
        vec!["claim", "list", &state],
        vec!["list", HOSTILE],
        vec![HOSTILE],
        vec!["cdi", "generate", "--device-id", HOSTILE],
    ];
    let mut said = 0;
    for command in commands {
        let Said { out, err, .. } = tranche(&command);
        // One of them fails, and prints no JSON.
        if command.contains(&"--json") && !out.is_empty() {
            strict_json::check(&out);
        }
        for (name, text) in [("stdout", out), ("stderr", err)] {
            said += usize::from(text.contains("\\u{202e}") || text.contains("\\u202e"));
            let found: Vec<char> = text.chars().filter(|c| acts(*c)).collect();
            assert!(
                found.is_empty(),
                "{command:?}: {name}: {found:?}\n{}",
                text.escape_debug()
            );
            let fake = text.lines().any(|line| line.starts_with("ERROR fake"));
            assert!(!fake, "{command:?}: {name}: a name began a line of its own\n{text}");
        }
    }
    // They did say the names: silence would have passed all of this.
    assert!(said >= 15, "{said}");
}

/// What `arguments` show on a terminal, with `variables` set; `None` where no program makes one.
fn on_a_terminal(test: &str, variables: &[(&str, &str)], arguments: &[&str]) -> Option<String> {
    let quoted: Vec<String> = [&[env!("CARGO_BIN_EXE_tranche")], arguments]
        .concat()
        .iter()
        .map(|word| format!("'{}'", word.replace('\'', "'\\''")))
        .collect();
    let mut command = Command::new("script");
    command.args(["-qec", &quoted.join(" "), "/dev/null"]).env_clear();
    command
        .env("PATH", "/usr/bin:/bin")
        .env("SHELL", "/bin/sh")
        .envs(variables.iter().copied());
    match command.stdin(Stdio::null()).output() {
        Ok(output) => Some(text(&output.stdout).replace("\r\n", "\n")),
        Err(error) => {
            skip::not_run(&format!("terminal::{test}"), &format!("script: {error}"));
            None
        }
    }
}

#[test]
fn a_specification_is_written_as_it_is_and_shown_without_what_a_terminal_acts_on() {
    let dir = tempfile::tempdir().unwrap();
    let (inventory, ..) = hostile_places(dir.path());
    let arguments = ["cdi", "generate", "--quiet", &format!("--inventory={inventory}")];
    let piped = tranche(&arguments).out;
    let file = dir.path().join("x.yaml").display().to_string();
    assert_eq!(tranche(&[&arguments[..], &["--output", &file]].concat()).code, Some(0));
    assert_eq!(fs::read_to_string(&file).unwrap(), piped);
    let test = "a_specification_is_written_as_it_is_and_shown_without_what_a_terminal_acts_on";
    let Some(shown) = on_a_terminal(test, &[], &arguments) else {
        return;
    };
    assert!(shown.contains("cdiVersion") && shown.contains("fake"), "{shown}");
    assert_eq!(
        shown.chars().filter(|c| acts(*c)).count(),
        0,
        "{}",
        shown.escape_debug()
    );
}

#[test]
fn colours_are_for_a_terminal_without_no_color() {
    let test = "colours_are_for_a_terminal_without_no_color";
    let dir = tempfile::tempdir().unwrap();
    let (inventory, ..) = hostile_places(dir.path());
    let arguments = ["list", &format!("--inventory={inventory}")];
    let term = ("TERM", "xterm-256color");
    let Some(coloured) = on_a_terminal(test, &[term], &arguments) else {
        return;
    };
    // Our own colour around the level, and nothing of the names.
    assert!(
        coloured.contains("\u{1b}[33m WARN\u{1b}[0m "),
        "{}",
        coloured.escape_debug()
    );
    assert_eq!(coloured.matches('\u{1b}').count(), 2, "{}", coloured.escape_debug());
    for variables in [&[term, ("NO_COLOR", "1")][..], &[("TERM", "dumb")]] {
        let plain = on_a_terminal(test, variables, &arguments).unwrap();
        assert!(plain.contains(" WARN "), "{plain}");
        assert_eq!(
            plain.chars().filter(|c| acts(*c)).count(),
            0,
            "{}",
            plain.escape_debug()
        );
    }
    // clap's errors and help have colours of their own on a terminal.
    for arguments in [&["list", "--jsno"][..], &["list", "--help"]] {
        let plain = on_a_terminal(test, &[term, ("NO_COLOR", "1")], arguments).unwrap();
        assert_eq!(
            plain.chars().filter(|c| acts(*c)).count(),
            0,
            "{}",
            plain.escape_debug()
        );
    }
}

#[test]
fn an_error_is_one_line_whatever_was_typed() {
    let wrong = std::ffi::OsStr::from_bytes(b"--\xff\xfe");
    let many: Vec<String> = (0..64).map(|n| format!("--device-id={n}")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    for arguments in [
        &[][..],
        &["cdi"],
        &["frob"],
        &["list", "--jsno"],
        &["list", "--nvml-deadline", "soon"],
        &["cdi", "inspect"],
        &[
            "cdi",
            "generate",
            "--no-hooks",
            "--hook-path=/x",
            "--inventory=sim:t4x2",
        ],
        &["cdi", "generate", "--mode"],
        &["cdi", "generate", "--inventory=sim:hgx-h200", "--device-id=99"],
        &[&["cdi", "generate", "--inventory=sim:hgx-h200"], &many[..]].concat(),
    ] {
        let Said { code, out, err: said } = tranche(arguments);
        assert_eq!((code, said.lines().count()), (Some(2), 1), "{arguments:?}: {said}");
        assert_eq!(out, "");
        assert!(said.starts_with("tranche: ") && !said.contains("Usage:"), "{said}");
        assert!(said.contains("--help") || said.contains("this host has"), "{said}");
    }
    let mut command = program(&[]);
    command.arg(wrong);
    let Said { code, err, .. } = crate::said(command);
    assert_eq!((code, err.lines().count()), (Some(2), 1), "{err}");
    // Eight GPUs and many more names: five are named.
    let said = tranche(&["cdi", "generate", "--inventory=sim:dgx-a100-mig", "--device-id=99"]).err;
    assert!(said.contains("this host has 0, 1, 2, 3, 4 and "), "{said}");
    assert!(said.contains(" more"), "{said}");
    // Help that was asked for is a result.
    let help = tranche(&["cdi", "generate", "--help"]);
    assert_eq!((help.code, help.err.as_str()), (Some(0), ""));
    assert!(help.out.contains("Usage:"));
    // The page of `tranche`, which packages have, begins with the same line.
    let help = tranche(&["--help"]).out;
    assert!(help.starts_with(env!("CARGO_PKG_DESCRIPTION")), "{help}");
}

/// Each verb's help below `words`, with the words that lead to it.
fn helps(words: &[&str]) -> Vec<(String, String)> {
    let help = tranche(&[words, &["--help"]].concat()).out;
    let verbs = help.split("Commands:\n").nth(1).unwrap_or_default().to_owned();
    let mut found = vec![(words.join(" "), help)];
    for line in verbs.lines().take_while(|line| !line.is_empty()) {
        let verb = line.strip_prefix("  ").and_then(|rest| rest.split(' ').next());
        if let Some(verb) = verb.filter(|verb| !verb.is_empty() && *verb != "help") {
            found.extend(helps(&[words, &[verb]].concat()));
        }
    }
    found
}

#[test]
fn a_verb_s_own_options_come_before_those_of_the_program() {
    let helps = helps(&[]);
    assert!(helps.len() >= 19, "{}", helps.len());
    for (verb, help) in helps {
        let options = help.split("\nOptions:\n").nth(1).unwrap();
        // A help of several paragraphs has empty lines between the options.
        let options = options
            .lines()
            .take_while(|line| line.is_empty() || line.starts_with(' '));
        let lines = options.filter(|line| line.trim_start().starts_with('-'));
        let names: Vec<&str> = lines
            .clone()
            .filter_map(|line| line.split_whitespace().find(|word| word.starts_with("--")))
            .collect();
        let options = lines.collect::<Vec<_>>().join("\n");
        let at = |name: &str| names.iter().position(|n| n.trim_end_matches("...") == name).unwrap();
        let (verbose, quiet, debug, help) = (at("--verbose"), at("--quiet"), at("--debug"), at("--help"));
        assert_eq!(
            (quiet, debug, help),
            (verbose + 1, verbose + 2, verbose + 3),
            "{verb}: {options}"
        );
        assert!(
            names.len() - help <= 2,
            "{verb}: nothing but --version follows: {options}"
        );
    }
}

proptest! {
    #[test]
    fn whatever_a_name_is_nothing_of_it_acts(name in any::<String>()) {
        let shown = tranche_core::text::shown(&name);
        prop_assert!(!shown.chars().any(|c| acts(c) || c == '\n'), "{}", shown.escape_debug());
        let json = serde_json::to_string(&name).unwrap();
        let json = tranche_core::text::shown_json(&json);
        prop_assert!(!json.chars().any(acts));
        prop_assert_eq!(serde_json::from_str::<String>(&json).unwrap(), name.clone());
        let error = tranche_core::error::Error::usage(&name, &name).hint(&name).to_string();
        prop_assert!(!error.chars().any(|c| acts(c) || c == '\n'));
    }
}
