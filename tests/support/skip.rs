//! What a run did not test, by name and with the reason, and what it saw that differs between versions.

use std::fs::{OpenOptions, read_to_string};
use std::io::Write;

/// Says that `test` does not run because of `reason`. Its caller returns after it.
///
/// The line goes past the test harness's capture. Where `TRANCHE_TEST_NOT_RUN` names a file, it goes there too: `make
/// test` shows them all at its end. With `TRANCHE_TEST_STRICT=1` a test that is not in `tests/allowed-skips.txt` fails
/// instead, so that nothing can stop being tested unseen.
pub fn not_run(test: &str, reason: &str) {
    let line = format!("not run: {test}: {reason}\n");
    // A direct write: the harness captures only what is printed by macros.
    let _ = std::io::stderr().write_all(line.as_bytes());
    if let Some(file) = std::env::var_os("TRANCHE_TEST_NOT_RUN") {
        let mut file = OpenOptions::new().append(true).create(true).open(file).unwrap();
        file.write_all(line.as_bytes()).unwrap();
    }
    if is_strict() {
        let list = read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/allowed-skips.txt")).unwrap();
        let allowed = list
            .lines()
            .filter(|l| !l.starts_with('#'))
            .any(|l| l.split(": ").next() == Some(test));
        assert!(allowed, "{line}and tests/allowed-skips.txt does not list it");
    }
}

/// Writes down what a run saw of a program that differs between versions, where `TRANCHE_TEST_SEEN` names a file:
/// `make test-engines` keeps it.
pub fn seen(program: &str, what: &str) {
    if let Some(file) = std::env::var_os("TRANCHE_TEST_SEEN") {
        let mut file = OpenOptions::new().append(true).create(true).open(file).unwrap();
        file.write_all(format!("seen {program}: {what}\n").as_bytes()).unwrap();
    }
}

/// Whether a test that cannot do everything is a failure (`TRANCHE_TEST_STRICT=1`).
pub fn is_strict() -> bool {
    std::env::var_os("TRANCHE_TEST_STRICT").is_some_and(|v| v == "1")
}
