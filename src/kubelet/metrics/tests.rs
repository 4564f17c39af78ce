use super::*;

fn value(text: &str, series: &str) -> String {
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
    line.unwrap_or_else(|| panic!("{series} in\n{text}")).to_owned()
}

#[test]
fn what_ends_is_in_one_bucket_and_all_above_it() {
    let metrics = Metrics::default();
    metrics.ended(Operation::Prepare, Duration::from_millis(5), None);
    metrics.ended(Operation::Prepare, Duration::from_millis(6), Some(Reason::Held));
    metrics.ended(Operation::Prepare, Duration::from_secs(50), Some(Reason::Held));
    let text = metrics.text();
    let bucket = |le: &str| format!("tranche_dra_operation_seconds_bucket{{operation=\"prepare\",le=\"{le}\"}}");
    for (le, count) in [
        ("0.002", "0"),
        ("0.005", "1"),
        ("0.01", "2"),
        ("45", "2"),
        ("+Inf", "3"),
    ] {
        assert_eq!(value(&text, &bucket(le)), count, "{le}");
    }
    let prepare = "{operation=\"prepare\"}";
    assert_eq!(
        value(&text, &format!("tranche_dra_operation_seconds_count{prepare}")),
        "3"
    );
    assert_eq!(
        value(&text, &format!("tranche_dra_operation_seconds_sum{prepare}")),
        "50.011"
    );
    let failures = |reason: &str| format!("tranche_dra_failures_total{{operation=\"prepare\",reason=\"{reason}\"}}");
    assert_eq!(value(&text, &failures("held")), "2");
    assert_eq!(value(&text, &failures("api-server")), "0");
}

#[test]
fn an_operation_that_is_dropped_was_abandoned() {
    let metrics = Metrics::default();
    Running::begin(&metrics, Operation::Prepare).end(None);
    drop(Running::begin(&metrics, Operation::Unprepare));
    let text = metrics.text();
    let of = |operation: &str| {
        let series = format!("tranche_dra_failures_total{{operation=\"{operation}\",reason=\"abandoned\"}}");
        value(&text, &series)
    };
    assert_eq!((of("prepare"), of("unprepare")), ("0".to_owned(), "1".to_owned()));
}

/// The rows of the section about the driver.
#[test]
fn the_documentation_has_these_metrics_and_reasons() {
    let page = include_str!("../../../docs/reference/metrics.md");
    for family in [ALLOCATIONS, FAILURES, TIMES] {
        let name = match family.kind {
            FamilyKind::Counter => format!("`{}_total`", family.name),
            _ => format!("`{}`", family.name),
        };
        let row = page.lines().find(|line| line.contains(&name));
        let row = row.unwrap_or_else(|| panic!("{name}"));
        assert!(
            family.labels.iter().all(|label| row.contains(&format!("`{label}`"))),
            "{row}"
        );
    }
    for reason in Reason::ALL {
        assert!(page.contains(&format!("`{reason}`")), "{reason}");
    }
}
