//! YAML and JSON as engines read them.
//!
//! tests/data/yaml-spellings.jsonl has texts of specifications in every spelling that was thought of, and what the
//! reference library (tags.cncf.io/container-device-interface v1.1.0 with sigs.k8s.io/yaml 1.4.0, written in Go) reads
//! in each: the specification as JSON, or nothing where the library refuses the file.

use serde_json::{Map, Value};
use tranche_plan::cdi::parse;
use tranche_plan::cdi::validate::validate;

#[derive(serde::Deserialize)]
struct Spelling {
    text: String,
    spec: Option<Value>,
}

/// What tranche reads where the library refuses the file.
const READ: [&str; 8] = [
    // Fields until version 1.0.0, which engines with an older library read.
    "enableCMT",
    "enableMBM",
    // YAML 1.2 has these, and YAML 1.1 does not.
    "%FOO bar",
    "[?A=b]",
    "[A=b?]",
    "[:A=b]",
    "-\tA=b",
    "\t{\"cdiVersion\"",
];

/// What tranche refuses where the library reads the file.
const REFUSED: [&str; 2] = [
    "x, !!binary YQ==",
    // A map in YAML 1.2.
    "[A=b:]",
];

/// `value` without what JSON leaves out or not as it likes: nothing, and empty texts, lists and maps. A number that is
/// 0 is left out by the library, except for those that may be missing.
fn bare(value: &Value) -> Value {
    const MAY_BE_ZERO: [&str; 4] = ["fileMode", "uid", "gid", "timeout"];
    match value {
        Value::Object(fields) => {
            let fields = fields.iter().map(|(name, value)| (name, bare(value)));
            let is_nothing = |name: &str, value: &Value| match value {
                Value::Null | Value::Bool(false) => true,
                Value::String(text) => text.is_empty(),
                Value::Array(items) => items.is_empty(),
                Value::Object(fields) => fields.is_empty(),
                value => value.as_i64() == Some(0) && !MAY_BE_ZERO.contains(&name),
            };
            let fields = fields.filter(|(name, value)| !is_nothing(name, value));
            Value::Object(fields.map(|(name, value)| (name.clone(), value)).collect::<Map<_, _>>())
        }
        Value::Array(items) => items.iter().map(bare).collect(),
        value => value.clone(),
    }
}

#[test]
fn each_spelling_means_what_it_means_to_engines() {
    let spellings: Vec<Spelling> = include_str!("../data/yaml-spellings.jsonl")
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let mut wrong = Vec::new();
    for Spelling { text, spec } in &spellings {
        let read = parse::spec(text.as_bytes()).map_err(|refusal| refusal.to_string());
        let valid = read.and_then(|spec| match validate(&spec).first() {
            None => Ok(spec),
            Some(fault) => Err(fault.to_string()),
        });
        let is_in = |list: &[&str]| list.iter().any(|part| text.contains(part));
        if is_in(&READ) || is_in(&REFUSED) {
            assert_eq!(
                (valid.is_ok(), spec.is_some()),
                (is_in(&READ), is_in(&REFUSED)),
                "{text}"
            );
            continue;
        }
        let theirs = spec.as_ref().map(bare);
        let ours = valid
            .as_ref()
            .ok()
            .map(|spec| bare(&serde_json::to_value(spec).unwrap()));
        if ours != theirs {
            let shown = |spec: Option<Value>| spec.map_or("refused".to_owned(), |spec| spec.to_string());
            let why = valid.err().unwrap_or_default();
            wrong.push(format!(
                "{text}\n engines: {}\n tranche: {} {why}\n",
                shown(theirs),
                shown(ours)
            ));
        }
    }
    assert!(
        wrong.is_empty(),
        "{} of {}:\n{}",
        wrong.len(),
        spellings.len(),
        wrong.join("\n")
    );
}
