//! The dashboard and the alert rules of packaging/monitoring, judged by Prometheus' own program.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by a panic")]

use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use tranche_state::metrics::catalogue::{ALL, FamilyKind};
use tranche_test_support::skip::not_run;

const RULES: &str = include_str!("../packaging/monitoring/rules.yaml");
const DASHBOARD: &str = include_str!("../packaging/monitoring/dashboard.json");

/// The words of PromQL behind which a list of labels may follow.
const BEFORE_LABELS: [&str; 6] = ["on", "ignoring", "group_left", "group_right", "by", "without"];

/// The other words beside functions (prometheus.io/docs/prometheus/latest/querying/operators).
const WORDS: [&str; 7] = ["and", "or", "unless", "bool", "offset", "inf", "nan"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).to_owned()
}

/// The values of each key `expr` in the dashboard.
fn of_dashboard(value: &Value, found: &mut Vec<String>) {
    match value {
        Value::Object(object) => {
            found.extend(object.get("expr").map(|expr| expr.as_str().unwrap().to_owned()));
            object.values().for_each(|value| of_dashboard(value, found));
        }
        Value::Array(values) => values.iter().for_each(|value| of_dashboard(value, found)),
        _ => {}
    }
}

fn dashboard() -> Vec<String> {
    let mut found = Vec::new();
    of_dashboard(&serde_json::from_str(DASHBOARD).unwrap(), &mut found);
    found
}

/// The expressions of the rules: each is in the line of its key, or in the deeper lines below it.
fn rules() -> Vec<String> {
    let mut found = Vec::new();
    let mut lines = RULES.lines().peekable();
    while let Some(line) = lines.next() {
        let Some((indent, first)) = line.split_once("expr: ") else {
            continue;
        };
        let mut expression = first.trim_start_matches(">-").to_owned();
        while let Some(more) = lines.next_if(|line| line.starts_with(&format!("{indent}  "))) {
            expression.push_str(more);
        }
        found.push(expression);
    }
    found
}

/// The names of metrics in an expression: names that are no label, function or word of the language.
fn metrics(expression: &str) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    let mut rest = expression;
    let mut is_list = false;
    while let Some(c) = rest.chars().next() {
        let length = rest
            .find(|c: char| !c.is_ascii_alphanumeric() && c != '_')
            .unwrap_or(rest.len());
        let (word, behind) = rest.split_at(length);
        match c {
            '{' => rest = rest.split_once('}').unwrap().1,
            '[' => rest = rest.split_once(']').unwrap().1,
            _ if length == 0 => {
                is_list &= c != ')';
                rest = &rest[c.len_utf8()..];
            }
            _ => {
                // An aggregation may have its labels before its argument.
                let next = behind.trim_start();
                let is_call = ["(", "by ", "without "].iter().any(|start| next.starts_with(start));
                let is_before_labels = BEFORE_LABELS.contains(&word);
                is_list |= is_before_labels && is_call;
                let is_word = is_before_labels || WORDS.contains(&word);
                if !c.is_ascii_digit() && !is_call && !is_word && !is_list {
                    names.insert(word.to_owned());
                }
                rest = behind;
            }
        }
    }
    names
}

#[test]
fn names_are_found_in_expressions() {
    let expression = "sum by (a, b) (x{c=\"d\"}) * on (e) group_left (f) max_over_time(y[2h]) - time() > bool 7";
    assert_eq!(metrics(expression), ["x", "y"].map(str::to_owned).into());
}

#[test]
fn each_expression_asks_for_metrics_that_exist() {
    let known = ALL.iter().map(|family| match family.kind {
        FamilyKind::Gauge | FamilyKind::Histogram => family.name.to_owned(),
        FamilyKind::Counter => format!("{}_total", family.name),
    });
    let known: BTreeSet<String> = known.collect();
    let (rules, dashboard) = (rules(), dashboard());
    assert_eq!(rules.len(), RULES.matches("- alert:").count());
    assert!(dashboard.len() > 10, "{dashboard:?}");
    for expression in rules.iter().chain(&dashboard) {
        let names = metrics(expression);
        assert!(!names.is_empty(), "{expression}");
        let unknown: Vec<&String> = names.difference(&known).collect();
        assert!(unknown.is_empty(), "{expression}: {unknown:?}");
    }
}

/// promtool with these words; `None` without promtool.
fn promtool(words: &[&str]) -> Option<()> {
    let output = match Command::new("promtool").args(words).output() {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            not_run("monitoring::prometheus_accepts_all_of_it", "no promtool");
            return None;
        }
        output => output.unwrap(),
    };
    assert!(output.status.success(), "{words:?}: {output:?}");
    Some(())
}

#[test]
fn prometheus_accepts_all_of_it() {
    let at = |name: &str| root().join(name).display().to_string();
    let Some(()) = promtool(&["check", "rules", &at("packaging/monitoring/rules.yaml")]) else {
        return;
    };
    promtool(&["test", "rules", &at("tests/data/alerts.yaml")]);
    // Each expression of the dashboard as a rule, whose expression is parsed.
    let mut text = "groups:\n- name: dashboard\n  rules:\n".to_owned();
    for (number, expression) in dashboard().iter().enumerate() {
        let expression = serde_json::to_string(expression).unwrap();
        text.push_str(&format!("  - {{record: panel_{number}, expr: {expression}}}\n"));
    }
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("dashboard.yaml");
    fs::write(&file, text).unwrap();
    promtool(&["check", "rules", &file.display().to_string()]);
}
