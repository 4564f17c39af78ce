//! docs/reference/support.md is written from the rows in `support_matrix/rows.rs`, and each test that a row names
//! exists.

mod drivers;
mod rows;
mod seen;

use crate::support::bless;
use drivers::DRIVERS;
use rows::{BY_HAND, COLUMNS, FACTS, ROWS, Row};
use seen::{SUITES, Seen};
use std::fs;
use std::path::{Path, PathBuf};
use tranche_plan::engines::Engine;

/// Whether and how something was tried.
#[derive(Debug, Clone, Copy)]
enum Tried {
    /// Tests with the real program show that it works.
    Tested(&'static [&'static str]),
    /// Tests with the real program show that it is refused.
    Refused(&'static [&'static str]),
    /// Tests show a part of it, which the text names.
    Partly(&'static [&'static str], &'static str),
    /// A person tried it with the versions that the text names.
    ByHand(&'static str),
    /// It follows the program's documentation, and was not run.
    Documented(&'static str),
    /// It was not tried.
    Untried,
    /// The program has no such thing, or needs it not. The text gives the reason.
    OffersNone(&'static str),
}

use Tried::{ByHand, Documented, OffersNone, Partly, Refused, Tested, Untried};

impl Tried {
    fn cell(self) -> &'static str {
        match self {
            Tested(_) => "tested",
            Refused(_) => "refused",
            Partly(..) => "in part",
            ByHand(_) => "by hand",
            Documented(_) => "not run",
            Untried => "not tried",
            OffersNone(_) => "–",
        }
    }

    fn tests(self) -> &'static [&'static str] {
        match self {
            Tested(tests) | Refused(tests) | Partly(tests, _) => tests,
            ByHand(_) | Documented(_) | Untried | OffersNone(_) => &[],
        }
    }

    /// What the list below the table says about it.
    fn remark(self) -> Option<String> {
        let tests = self.tests().iter().map(|test| match test.strip_prefix("vm: ") {
            Some(check) => format!("\"{check}\" in tests/vm"),
            None => format!("`{test}`"),
        });
        let tests = tests.collect::<Vec<_>>().join(", ");
        match self {
            Tested(_) | Refused(_) => Some(tests),
            Partly(_, what) => Some(format!("{what}: {tests}")),
            ByHand(what) => Some(what.to_owned()),
            Documented(source) => Some(format!("by documentation only: {source}")),
            Untried => None,
            OffersNone(why) => Some(why.to_owned()),
        }
    }
}

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

const INTRODUCTION: &str = "\
# What was tried with which program

A test writes this page from `tests/cli/support_matrix/rows.rs`, and checks that each test that is named here exists.
[engines.md](../how-to/engines.md) says what must be set in each engine, and [export.md](export.md) how programs without CDI are used.

`make test-engines SUITE=…` runs the tests with the engines of Debian 12 (bookworm), Debian 13 (trixie) and Debian unstable
(sid), in a root of that suite, and writes what it saw to `tests/suites/seen`; the versions and dates below are from there.
`make test` uses the programs that are installed, and lists a test whose program is missing as \"not run\". The GPU and NVML are
fakes in all of them, and so is the MPS daemon but for the tests that [Drivers](#drivers) names. No cell of the matrix is about a
real GPU.
";

/// What the cells of the matrix say.
const WORDS: &str = "\
| word | meaning |
|---|---|
| tested | a test starts containers with the real program |
| in part | a test shows a part, which the list below names |
| refused | a test shows that the container does not start, and that one line says why |
| by hand | a person tried it once, with the versions that the list below names |
| not run | it follows the program's documentation, and nobody ran it |
| not tried | it may work |
| – | the program does not have it, or does not need it; the list below gives the reason |
";

/// The engines and their versions, the same in each document that lists them.
fn versions(seen: &[Seen]) -> String {
    let mut table =
        "| engine | bookworm, at each change | trixie | sid | by hand, once |\n|---|---|---|---|---|\n".to_owned();
    for (engine, package, by_hand) in BY_HAND {
        let cells = seen
            .iter()
            .map(|seen| seen.versions.get(package).map_or("–", String::as_str));
        table += &format!("| {engine} | {} | {by_hand} |\n", cells.collect::<Vec<_>>().join(" | "));
    }
    table
}

/// What differs between the versions, and needs a hand or not.
fn facts(seen: &[Seen]) -> String {
    let mut table = format!(
        "| engine | {} |\n|---{}|\n",
        SUITES.join(" | "),
        "|---".repeat(SUITES.len())
    );
    for (program, package) in FACTS {
        let cells = seen.iter().map(|seen| {
            let version = seen.versions.get(package).map_or("–", String::as_str);
            let fact = seen.facts.get(program).map_or("–", String::as_str);
            format!("{version}: {fact}")
        });
        table += &format!("| {program} | {} |\n", cells.collect::<Vec<_>>().join(" | "));
    }
    table
}

/// The page.
fn page() -> String {
    let seen = Seen::all(&root());
    let mut page = format!(
        "{INTRODUCTION}\n{}\n{WORDS}\n| column | what is tried |\n|---|---|\n",
        versions(&seen)
    );
    for (name, what) in COLUMNS {
        page += &format!("| {name} | {what} |\n");
    }
    let names = COLUMNS.map(|(name, _)| name).join(" | ");
    page += &format!(
        "\n## The matrix\n\n| program | {names} |\n|---{}|\n",
        "|---".repeat(COLUMNS.len())
    );
    for Row { program, tried, .. } in &ROWS {
        page += &format!("| {program} | {} |\n", tried.map(Tried::cell).join(" | "));
    }
    page += &format!("\n{DRIVERS}\n## Tests and reasons\n");
    for row in &ROWS {
        page += &format!("\n### {}\n\n", row.program);
        if !row.packages.is_empty() {
            let runs = seen.iter().map(|seen| match seen.shown(row.packages) {
                nothing if nothing.is_empty() => format!("{}: not in this suite", seen.suite),
                versions => format!("{}, {}: {versions}", seen.suite, seen.date),
            });
            page += &format!("- versions: {}\n", runs.collect::<Vec<_>>().join("; "));
        }
        for ((name, _), tried) in COLUMNS.iter().zip(row.tried) {
            if let Some(remark) = tried.remark() {
                page += &format!("- {name}: {remark}{}\n", passed_in(&seen, tried.tests()));
            }
        }
    }
    page
}

/// In which suites all of `tests` passed that run in suites. Nothing, if none of them does.
fn passed_in(seen: &[Seen], tests: &[&str]) -> String {
    let of_suites: Vec<&&str> = tests
        .iter()
        .filter(|test| seen.iter().any(|seen| seen.has_passed(test)))
        .collect();
    if of_suites.is_empty() {
        return String::new();
    }
    let passed = seen
        .iter()
        .filter(|seen| of_suites.iter().all(|test| seen.has_passed(test)));
    format!(
        "; passed in {}",
        passed.map(|seen| seen.suite).collect::<Vec<_>>().join(", ")
    )
}

/// Why the test that `row` names does not show what the row says, if so.
fn wrong(test: &str, row: &Row) -> Option<String> {
    if let Some(check) = test.strip_prefix("vm: ") {
        let checks = fs::read_to_string(root().join("tests/vm/checks.txt")).unwrap();
        return (!checks.lines().any(|line| line == check)).then(|| format!("{check}: not in tests/vm/checks.txt"));
    }
    let (file, name) = test.split_once("::")?;
    let Ok(text) = fs::read_to_string(root().join("tests").join(file)) else {
        return Some(format!("{file}: not found"));
    };
    if !text.contains(&format!("#[test]\nfn {name}() {{")) {
        return Some(format!("{test}: not a test of that file"));
    }
    let is_about = row.marks.iter().any(|mark| text.contains(mark));
    (!is_about).then(|| format!("{file}: does not name {}", row.marks.join(" or ")))
}

#[test]
fn each_test_of_the_matrix_exists() {
    let mut tests = 0;
    for row in &ROWS {
        for tried in row.tried {
            assert_eq!(
                tried.tests().is_empty(),
                !matches!(tried, Tested(_) | Refused(_) | Partly(..))
            );
            for test in tried.tests() {
                assert_eq!(wrong(test, row), None, "{}", row.program);
                tests += 1;
            }
        }
    }
    assert!(tests > 30, "{tests}");
    let row = &ROWS[0];
    for missing in [
        "vm: engines: podman with nothing",
        "engines/generated.rs::no_such_test",
        "engines/no_such_file.rs::all_are_all",
        "cli/export.rs::lxc_gives_what_is_exported",
    ] {
        assert!(wrong(missing, row).is_some(), "{missing}");
    }
}

#[test]
fn every_document_has_what_the_runs_saw() {
    let seen = Seen::all(&root());
    let (versions, facts) = (versions(&seen), facts(&seen));
    for engine in Engine::ALL {
        let title = engine.facts().title;
        assert!(versions.contains(&format!("\n| {title} |")), "{title} is not listed");
    }
    for (document, table) in [
        ("README.md", &versions),
        ("docs/how-to/engines.md", &versions),
        ("docs/how-to/engines.md", &facts),
    ] {
        let text = fs::read_to_string(root().join(document)).unwrap();
        assert!(text.contains(table.as_str()), "{document} has not this list:\n{table}");
    }
}

#[test]
fn the_support_matrix_is_the_page_that_is_kept() {
    let file = Path::new("docs/reference/support.md");
    let text = page();
    assert!(
        bless::is_expected(&root().join(file), &text),
        "{}: not what the rows give; run make bless:\n{text}",
        file.display()
    );
}
