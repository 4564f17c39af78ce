//! The reference library's answers: the ones in tests/data/cdi-injection.jsonl, and, where `TRANCHE_CDI_REFERENCE`
//! names a program around the library (tests/oracle/reference.go), those to generated cases as well.

use super::cases::case;
use super::{Case, Outcome, Place, data, ours, same};
use crate::support::bless;
use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::TestRunner;
use serde_json::{Value, json};
use std::io::Write;
use std::process::{Command, Stdio};

/// A case and what the reference library makes of it.
#[derive(Debug, serde::Serialize, serde::Deserialize)]
struct Answered {
    case: Case,
    outcome: Outcome,
}

/// How many generated cases the program is asked.
fn asked() -> usize {
    let cases = std::env::var("PROPTEST_CASES").ok().and_then(|text| text.parse().ok());
    cases.unwrap_or(2000)
}

/// What the program answers to `cases`.
fn ask(program: &str, cases: &[Case]) -> Vec<Outcome> {
    let places: Vec<Place> = cases.iter().map(Place::of).collect();
    let questions: Vec<String> = places
        .iter()
        .zip(cases)
        .map(|(place, case)| json!({"Dirs": place.dirs(), "Devices": case.devices, "Config": case.config}).to_string())
        .collect();
    let mut child = Command::new(program)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let writer = std::thread::spawn(move || stdin.write_all((questions.join("\n") + "\n").as_bytes()));
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap().unwrap();
    let lines = String::from_utf8(output.stdout).unwrap();
    let answers: Vec<Outcome> = lines
        .lines()
        .zip(&places)
        .map(|(line, place)| {
            let answer: Value = serde_json::from_str(line).unwrap();
            let found = answer["devices"].as_array().into_iter().flatten();
            Outcome {
                found: found.map(|name| name.as_str().unwrap().to_owned()).collect(),
                config: (answer["error"] == "").then(|| place.leave(&answer["config"])),
            }
        })
        .collect();
    assert_eq!(answers.len(), cases.len(), "{program}: {:?}", output.status);
    answers
}

/// Generated cases.
fn generated(count: usize) -> Vec<Case> {
    let mut runner = TestRunner::deterministic();
    (0..count)
        .map(|_| case().new_tree(&mut runner).unwrap().current())
        .collect()
}

#[test]
fn injection_equals_that_of_the_reference_library() {
    let file = data("cdi-injection.jsonl");
    if let Ok(program) = std::env::var("TRANCHE_CDI_REFERENCE") {
        let cases = generated(asked());
        let answers = ask(&program, &cases);
        let differences: Vec<String> = cases
            .iter()
            .zip(&answers)
            .filter_map(|(case, theirs)| same(case, ours(case), theirs.clone()).err())
            .collect();
        let injected = answers.iter().filter(|answer| answer.config.is_some()).count();
        eprintln!(
            "{} cases, {injected} injected, {} differ",
            cases.len(),
            differences.len()
        );
        assert!(differences.is_empty(), "{}", differences.join("\n\n"));
        if bless::is_on() {
            let lines: Vec<String> = cases
                .into_iter()
                .zip(answers)
                .filter(|(case, _)| serde_json::to_string(case).unwrap().len() < 2500)
                .take(150)
                .map(|(case, outcome)| serde_json::to_string(&Answered { case, outcome }).unwrap() + "\n")
                .collect();
            std::fs::write(&file, lines.concat()).unwrap();
        }
    }
    let text = std::fs::read_to_string(&file).unwrap();
    let answered: Vec<Answered> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(answered.len() == 150);
    for Answered { case, outcome } in answered {
        same(&case, ours(&case), outcome).unwrap_or_else(|difference| panic!("{difference}"));
    }
}
