//! What `make test-engines` saw in a Debian suite: the records in tests/suites/seen.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

/// The suites, the oldest first.
pub(super) const SUITES: [&str; 3] = ["bookworm", "trixie", "sid"];

/// The record of one suite.
#[derive(Debug)]
pub(super) struct Seen {
    pub(super) suite: &'static str,
    /// The day of the run.
    pub(super) date: String,
    /// The version of each package, without Debian's revision.
    pub(super) versions: BTreeMap<String, String>,
    /// What differs between versions, by program.
    pub(super) facts: BTreeMap<String, String>,
    passed: BTreeSet<String>,
    not_run: Vec<String>,
}

impl Seen {
    /// The records of all suites, in their order.
    pub(super) fn all(root: &Path) -> Vec<Seen> {
        SUITES.map(|suite| Seen::read(root, suite)).into()
    }

    fn read(root: &Path, suite: &'static str) -> Seen {
        let file = root.join(format!("tests/suites/seen/{suite}.txt"));
        let text = fs::read_to_string(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        let mut seen = Seen {
            suite,
            date: String::new(),
            versions: BTreeMap::new(),
            facts: BTreeMap::new(),
            passed: BTreeSet::new(),
            not_run: Vec::new(),
        };
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            let (word, rest) = line.split_once(' ').unwrap_or_else(|| panic!("{suite}: {line}"));
            match word {
                "date" => seen.date = rest.to_owned(),
                "version" => {
                    let (package, version) = rest.split_once(' ').unwrap();
                    seen.versions.insert(package.to_owned(), upstream(version).to_owned());
                }
                "seen" => {
                    let (program, fact) = rest.split_once(": ").unwrap();
                    seen.facts.insert(program.to_owned(), fact.to_owned());
                }
                "passed" => assert!(seen.passed.insert(rest.to_owned()), "{suite}: {line}"),
                "not-run" => seen.not_run.push(rest.to_owned()),
                _ => panic!("{suite}: {line}: not what a run that succeeded writes"),
            }
        }
        seen
    }

    /// Whether the test `FILE::NAME` below tests/ passed, and did what it tests.
    pub(super) fn has_passed(&self, test: &str) -> bool {
        let test = test.replacen(".rs::", "::", 1);
        let name = test.split_once('/').map_or(test.as_str(), |(_, name)| name);
        self.passed.contains(&test) && !self.not_run.iter().any(|line| line.starts_with(name))
    }

    /// These packages with their versions, as people write them.
    pub(super) fn shown(&self, packages: &[&str]) -> String {
        let versions = packages.iter().filter_map(|package| {
            let program = package.strip_suffix(".io").unwrap_or(package);
            Some(format!("{program} {}", self.versions.get(*package)?))
        });
        versions.collect::<Vec<_>>().join(", ")
    }
}

/// The upstream version of a Debian version such as `20.10.24+dfsg1-1+deb12u1`.
fn upstream(version: &str) -> &str {
    let without_epoch = version.split_once(':').map_or(version, |(_, rest)| rest);
    let is_part = |letter: char| letter.is_ascii_digit() || letter == '.';
    let end = without_epoch.find(|letter| !is_part(letter));
    without_epoch.get(..end.unwrap_or(without_epoch.len())).unwrap()
}
