//! A month with and without reservations for later.

use std::path::Path;
use tranche_test_support::queue::{months, table_of_months};

#[test]
fn in_a_month_with_a_calendar_nothing_overlaps_and_everybody_is_served() {
    let months = months(0..3);
    for (seed, [without, drain, early, end]) in months.iter().enumerate() {
        assert_eq!(without.unserved, 0);
        for outcome in [drain, early, end] {
            assert_eq!((outcome.overlaps, outcome.unserved), (0, 0), "{seed}: {outcome:?}");
            assert!((0.33..0.35).contains(&outcome.reserved), "{seed}: {outcome:?}");
            // C2: the first who waits is passed by reservations for no longer than they may follow one another, and
            // for as long as a session lasts.
            assert!(outcome.standstill < 24.0 + 8.0, "{seed}: {outcome:?}");
        }
        // What is known to end in time, or is ended, is gone when the time comes.
        assert_eq!((early.planned[1], end.planned[1]), (0.0, 0.0), "{seed}");
        assert!((early.ended, end.ended > 0) == (0, true), "{seed}");
    }
    // The table that `make bench` writes is that of the rules of now.
    let table = table_of_months(&months);
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/maintaining/simulations.md");
    let page = std::fs::read_to_string(page).unwrap();
    assert!(
        page.contains(&table),
        "docs/maintaining/simulations.md is to have:\n{table}"
    );
}
