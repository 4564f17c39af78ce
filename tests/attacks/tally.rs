//! How many attacks were tried, and which of them got through.

use std::fs::OpenOptions;
use std::io::Write;
use std::time::Duration;

/// The attacks of one test.
#[derive(Default)]
pub(crate) struct Tally {
    tried: usize,
    /// Those after which the hook ended with success: it did its work another way, or left it with a line.
    served: usize,
    escaped: Vec<String>,
    longest: Duration,
}

impl Tally {
    /// Counts an attack that ended with this exit code; `wrong` is what it achieved.
    pub(crate) fn count(&mut self, name: &str, code: i32, took: Duration, wrong: &[String]) {
        self.tried += 1;
        self.served += usize::from(code == 0);
        self.longest = self.longest.max(took);
        if !wrong.is_empty() {
            let line = format!("escaped: {name}: {}", wrong.join("; "));
            // At once, past the harness's capture: the test goes on, and may be stopped before its end.
            let _ = writeln!(std::io::stderr(), "{line}");
            self.escaped.push(line);
        }
    }

    pub(crate) fn add(&mut self, other: Tally) {
        self.tried += other.tried;
        self.served += other.served;
        self.escaped.extend(other.escaped);
        self.longest = self.longest.max(other.longest);
    }

    /// Says the number, past the harness's capture, and fails if an attack got through.
    ///
    /// Where `TRANCHE_TEST_ATTACKS` names a file the line goes there too: `make test` adds them up at its end.
    pub(crate) fn finish(self, test: &str) {
        let (tried, escaped) = (self.tried, self.escaped.len());
        let line = format!(
            "attacks::{test}: {tried} attacks tried, {escaped} escaped (the hook served {} of these starts and refused {}; \
             the slowest took {} ms)\n",
            self.served,
            tried - self.served,
            self.longest.as_millis()
        );
        let _ = std::io::stderr().write_all(line.as_bytes());
        if let Some(file) = std::env::var_os("TRANCHE_TEST_ATTACKS") {
            let mut file = OpenOptions::new().append(true).create(true).open(file).unwrap();
            file.write_all(line.as_bytes()).unwrap();
        }
        assert!(tried > 0, "nothing was tried");
        assert_eq!(escaped, 0, "\n{}", self.escaped.join("\n"));
    }
}
