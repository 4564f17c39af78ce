//! The table of docs/reference/metrics.md is that of the program.

use super::catalogue::{ALL, FamilyKind};
use std::collections::BTreeSet;

#[test]
fn the_documentation_has_exactly_these_metrics() {
    let text = include_str!("../../../docs/reference/metrics.md");
    let rows: Vec<Vec<&str>> = text
        .lines()
        .filter(|line| line.starts_with("| `tranche_"))
        .map(|line| line.trim_matches('|').split(" | ").map(str::trim).collect())
        .collect();
    let expected: Vec<Vec<String>> = ALL
        .iter()
        .map(|family| {
            let suffix = if family.kind == FamilyKind::Counter {
                "_total"
            } else {
                ""
            };
            let labels: Vec<String> = family.labels.iter().map(|label| format!("`{label}`")).collect();
            vec![
                format!("`{}{suffix}`", family.name),
                family.kind.as_str().to_owned(),
                family.unit().unwrap_or("-").to_owned(),
                if labels.is_empty() {
                    "-".to_owned()
                } else {
                    labels.join(", ")
                },
                family.help.to_owned(),
            ]
        })
        .collect();
    let shown: Vec<String> = expected.iter().map(|row| format!("| {} |", row.join(" | "))).collect();
    assert_eq!(
        rows,
        expected,
        "docs/reference/metrics.md; the rows of the program are\n{}",
        shown.join("\n")
    );
}

#[test]
fn names_are_unique_and_of_the_form_that_collectors_accept() {
    let names: BTreeSet<&str> = ALL.iter().map(|family| family.name).collect();
    assert_eq!(names.len(), ALL.len());
    for family in ALL {
        let is_name = |text: &str| {
            !text.is_empty() && text.chars().all(|c| c.is_ascii_lowercase() || c == '_') && !text.starts_with('_')
        };
        assert!(
            is_name(family.name) && family.name.starts_with("tranche_"),
            "{}",
            family.name
        );
        assert!(family.labels.iter().all(|label| is_name(label)), "{}", family.name);
        // Readers take these for parts of other types (OpenMetrics 1.0, "Metric Family").
        for suffix in ["_total", "_created", "_count", "_sum", "_bucket"] {
            assert!(!family.name.ends_with(suffix), "{}", family.name);
        }
    }
}
