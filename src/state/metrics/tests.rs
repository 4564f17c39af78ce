//! The list of docs/reference/metrics.md is that of the program.

use super::catalogue::{ALL, FamilyKind};
use std::collections::BTreeSet;

#[test]
fn the_documentation_has_exactly_these_metrics() {
    let text = include_str!("../../../docs/reference/metrics.md");
    let rows: Vec<&str> = text.lines().filter(|line| line.starts_with("- `tranche_")).collect();
    let expected: Vec<String> = ALL
        .iter()
        .map(|family| {
            let suffix = if family.kind == FamilyKind::Counter {
                "_total"
            } else {
                ""
            };
            let unit = family.unit().map_or(String::new(), |unit| format!(" in {unit}"));
            let labels: Vec<String> = family.labels.iter().map(|label| format!("`{label}`")).collect();
            let labels = match labels.is_empty() {
                true => String::new(),
                false => format!("; {}", labels.join(", ")),
            };
            let kind = family.kind.as_str();
            format!("- `{}{suffix}` ({kind}{unit}{labels}): {}", family.name, family.help)
        })
        .collect();
    assert_eq!(
        rows,
        expected,
        "docs/reference/metrics.md; the rows of the program are\n{}",
        expected.join("\n")
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
