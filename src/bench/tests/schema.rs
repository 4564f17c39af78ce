//! The schema of files of results, which people check with tools of their own, and the files that the project keeps.

use super::gpu::{Cheats, results, run};
use crate::results::Results;
use serde_json::Value;
use std::path::{Path, PathBuf};

fn directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../benches/results")
}

fn schema() -> Value {
    let text = std::fs::read_to_string(directory().join("schema.json")).unwrap();
    serde_json::from_str(&text).unwrap()
}

/// What of `value` does not conform to `schema`. Of JSON Schema, it knows the words that our schema uses, and fails for
/// any other one.
fn wrong(value: &Value, schema: &Value, root: &Value, at: &str) -> Vec<String> {
    let mut found = Vec::new();
    let words = schema.as_object().unwrap();
    let mut fail = |why: String| found.push(format!("{at}: {why}"));
    let mut inside = Vec::new();
    for (word, rule) in words {
        match word.as_str() {
            "$schema" | "$id" | "title" | "description" | "$defs" => {}
            "$ref" => {
                let name = rule.as_str().unwrap().strip_prefix("#/$defs/").unwrap();
                inside.push((value.clone(), root["$defs"][name].clone(), at.to_owned()));
            }
            "type" => {
                let is = |name: &Value| match name.as_str().unwrap() {
                    "object" => value.is_object(),
                    "array" => value.is_array(),
                    "string" => value.is_string(),
                    "boolean" => value.is_boolean(),
                    "null" => value.is_null(),
                    "integer" => value.is_u64() || value.is_i64(),
                    "number" => value.is_number(),
                    other => panic!("{other}"),
                };
                let names = rule.as_array().cloned().unwrap_or(vec![rule.clone()]);
                if !names.iter().any(is) {
                    fail(format!("is not of {rule}"));
                }
            }
            "const" if value != rule => fail(format!("is not {rule}")),
            "const" => {}
            "enum" if !rule.as_array().unwrap().contains(value) => fail(format!("is not one of {rule}")),
            "enum" => {}
            "minimum" if value.as_f64().is_some_and(|number| number < rule.as_f64().unwrap()) => {
                fail("is too small".into())
            }
            "minimum" => {}
            "pattern" => {
                let pattern = regex::Regex::new(rule.as_str().unwrap()).unwrap();
                if value.as_str().is_some_and(|text| !pattern.is_match(text)) {
                    fail(format!("does not match {rule}"));
                }
            }
            "anyOf" => {
                let fits = |one: &Value| wrong(value, one, root, at).is_empty();
                if !rule.as_array().unwrap().iter().any(fits) {
                    fail(format!("fits none of {rule}"));
                }
            }
            "items" => {
                for (number, item) in value.as_array().into_iter().flatten().enumerate() {
                    inside.push((item.clone(), rule.clone(), format!("{at}[{number}]")));
                }
            }
            "required" => {
                let missing = rule
                    .as_array()
                    .unwrap()
                    .iter()
                    .filter(|name| value.get(name.as_str().unwrap()).is_none());
                missing.for_each(|name| fail(format!("has no {name}")));
            }
            "properties" => {
                for (name, field) in value.as_object().into_iter().flatten() {
                    if let Some(rule) = rule.get(name) {
                        inside.push((field.clone(), rule.clone(), format!("{at}.{name}")));
                    }
                }
            }
            "additionalProperties" => {
                assert_eq!(rule, false);
                let known = words["properties"].as_object().unwrap();
                let fields = value.as_object().into_iter().flatten();
                fields
                    .filter(|(name, _)| !known.contains_key(*name))
                    .for_each(|(name, _)| fail(format!("has {name}")));
            }
            other => panic!("the test does not know {other} of JSON Schema"),
        }
    }
    for (value, rule, at) in inside {
        found.extend(wrong(&value, &rule, root, &at));
    }
    found
}

fn wrong_in(value: &Value) -> Vec<String> {
    let schema = schema();
    wrong(value, &schema, &schema, "file")
}

fn json(results: &Results) -> Value {
    serde_json::from_str(&results.text().unwrap()).unwrap()
}

#[test]
fn a_written_file_conforms_to_the_schema() {
    let mut broken = run(Cheats {
        starves: true,
        throttled: true,
        ..Cheats::default()
    });
    broken.left_out.push(broken.cells[0].0);
    broken.host.mig = None;
    for results in [results(Cheats::default()), Results::new(broken)] {
        assert_eq!(wrong_in(&json(&results)), Vec::<String>::new());
    }
}

/// Every word that a file may have, and no other.
#[test]
fn the_schema_knows_every_field_and_every_word() {
    let schema = schema();
    let good = json(&results(Cheats::default()));
    for (name, definition) in schema["$defs"].as_object().unwrap() {
        if let Some(properties) = definition.get("properties") {
            let names: Vec<&String> = properties.as_object().unwrap().keys().collect();
            let required: Vec<&str> = definition["required"]
                .as_array()
                .unwrap()
                .iter()
                .map(|n| n.as_str().unwrap())
                .collect();
            assert_eq!(names, required, "{name}: each field is always written");
            assert_eq!(definition["additionalProperties"], false, "{name}");
        }
    }
    let words = |name: &str| -> Vec<String> {
        let words = schema["$defs"][name]["enum"].as_array().unwrap().iter();
        words.map(|word| word.as_str().unwrap().to_owned()).collect()
    };
    let all = |all: &[&str]| all.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
    assert_eq!(
        words("neighbour"),
        crate::cell::Neighbour::ALL
            .iter()
            .map(ToString::to_string)
            .collect::<Vec<_>>()
    );
    assert_eq!(
        words("outcome"),
        crate::verdict::Outcome::ALL
            .iter()
            .map(ToString::to_string)
            .collect::<Vec<_>>()
    );
    assert_eq!(words("grade"), all(&["none", "advisory", "soft", "hard"]));
    assert_eq!(words("guarantee"), all(&["memory", "compute", "bandwidth", "faults"]));
    for (pointer, bad) in [
        ("/version", serde_json::json!(2)),
        ("/cells/3/p99_ms/median", serde_json::json!("1")),
        ("/cells/3/cell/neighbour", serde_json::json!("hog")),
        ("/cells/3/cell/way", serde_json::json!("mps-5")),
        ("/ways/3/shares/0/verdicts/0/promised", serde_json::json!("firm")),
        ("/host/memory_mib", serde_json::json!(-1)),
        (
            "/length",
            serde_json::json!({"measure_s": 1, "warm_up_s": 1, "repeats": 1}),
        ),
        ("/date", serde_json::json!("today")),
    ] {
        let mut changed = good.clone();
        *changed.pointer_mut(pointer).unwrap() = bad;
        assert_eq!(wrong_in(&changed).len(), 1, "{pointer}: {:?}", wrong_in(&changed));
    }
}

/// What people may rely on was measured long enough, has the name of its GPU, and is what this version writes.
#[test]
fn the_results_that_are_kept_are_valid() {
    for entry in std::fs::read_dir(directory()).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        if path.extension().is_none_or(|extension| extension != "json") || name == "schema.json" {
            continue;
        }
        let text = std::fs::read_to_string(&path).unwrap();
        let results = Results::read(&name, &text).unwrap();
        assert_eq!(
            wrong_in(&serde_json::from_str(&text).unwrap()),
            Vec::<String>::new(),
            "{name}"
        );
        assert_eq!(results.file_name(), name);
        assert!(!results.indicative, "{name} is indicative: measure with --full");
    }
}
