//! docs/reference/support.md is written from the rows in `support_matrix/rows.rs`, and each test that a row names
//! exists.

mod rows;
mod seen;

use crate::support::bless;
use rows::{BY_HAND, COLUMNS, FACTS, ROWS, Row};
use seen::{SUITES, Seen};
use std::fs;
use std::path::PathBuf;
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
            Partly(..) => "partly",
            ByHand(_) => "by hand",
            Documented(_) => "not run",
            Untried => "untried",
            OffersNone(_) => "–",
        }
    }

    fn tests(self) -> &'static [&'static str] {
        match self {
            Tested(tests) | Refused(tests) | Partly(tests, _) => tests,
            ByHand(_) | Documented(_) | Untried | OffersNone(_) => &[],
        }
    }

    /// What has to be said in addition to the word in the cell.
    fn remark(self) -> Option<&'static str> {
        match self {
            Tested(_) | Refused(_) | Untried => None,
            Partly(_, text) | ByHand(text) | Documented(text) | OffersNone(text) => Some(text),
        }
    }

    /// The tests, with what they do not show.
    fn shown_by(self) -> Option<String> {
        let tests = self.tests().iter().map(|test| match test.strip_prefix("vm: ") {
            Some(check) => format!("\"{check}\" in tests/vm"),
            None => format!("`{test}`"),
        });
        let tests = tests.collect::<Vec<_>>().join(", ");
        match self {
            Tested(_) | Refused(_) => Some(tests),
            Partly(_, text) => Some(format!("{text}: {tests}")),
            ByHand(_) | Documented(_) | Untried | OffersNone(_) => None,
        }
    }
}

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// What is written stands between these lines. The rest of the page is written by hand.
const BEGIN: &str = "<!-- written by make bless -->\n";
const END: &str = "<!-- end of what make bless writes -->\n";

/// The page with the tests, up to its list.
const TESTED: &str = "\
# Tests of the support matrix

This page has the tests behind each cell of [support.md](../reference/support.md#the-matrix), with the versions and dates of their last runs. A test
writes it from `tests/cli/support_matrix/rows.rs` and the records in `tests/suites/seen`.
";

/// What the cells of the matrix say.
const WORDS: &str = "\
**tested**, **refused**: a test starts containers with the real program, or shows the one line that refuses them.
**partly**: the list below has the bounds. **by hand**: a person tried it once. **not run**: by the program's
documentation. **untried**: it may work. **–**: not there, or not needed.
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

/// The matrix, with what its cells mean.
fn matrix(seen: &[Seen]) -> String {
    let mut text = format!("{}\n{WORDS}\n", versions(seen));
    for (name, what) in COLUMNS {
        text += &format!("- **{name}**: {what}\n");
    }
    let names = COLUMNS.map(|(name, _)| name).join(" | ");
    text += &format!("\n| program | {names} |\n|---{}|\n", "|---".repeat(COLUMNS.len()));
    for Row { program, tried, .. } in &ROWS {
        text += &format!("| {program} | {} |\n", tried.map(Tried::cell).join(" | "));
    }
    text += "\n";
    let mut reasons = Vec::new();
    for row in &ROWS {
        // Cells of a row that need the same remark share one.
        let mut remarks: Vec<(Vec<&str>, &str)> = Vec::new();
        for ((name, _), tried) in COLUMNS.iter().zip(row.tried) {
            match (tried, tried.remark()) {
                (_, None) => {}
                (OffersNone(reason), _) if reasons.contains(&reason) => {}
                (OffersNone(reason), _) => reasons.push(reason),
                (_, Some(remark)) => match remarks.iter_mut().find(|(_, text)| *text == remark) {
                    Some((names, _)) => names.push(name),
                    None => remarks.push((vec![name], remark)),
                },
            }
        }
        let remarks = remarks
            .iter()
            .map(|(names, text)| format!("{}: {text}", names.join(", ")));
        let remarks = remarks.collect::<Vec<_>>().join(". ");
        if !remarks.is_empty() {
            text += &format!("- **{}**: {remarks}\n", row.program);
        }
    }
    text + &format!("- **–**: {}\n", reasons.join("; "))
}

/// `page` with the present matrix between its marks.
fn with_matrix(page: &str, seen: &[Seen]) -> String {
    let (before, rest) = page.split_once(BEGIN).expect("the page has no mark for the matrix");
    let (_, after) = rest.split_once(END).expect("the page has no mark after the matrix");
    format!("{before}{BEGIN}{}{END}{after}", matrix(seen))
}

/// The page with the tests.
fn tested(seen: &[Seen]) -> String {
    let mut page = TESTED.to_owned();
    for row in &ROWS {
        page += &format!("\n## {}\n\n", row.program);
        if !row.packages.is_empty() {
            let runs = seen.iter().map(|seen| match seen.shown(row.packages) {
                nothing if nothing.is_empty() => format!("{}: not in this suite", seen.suite),
                versions => format!("{}, {}: {versions}", seen.suite, seen.date),
            });
            page += &format!("- versions: {}\n", runs.collect::<Vec<_>>().join("; "));
        }
        for ((name, _), tried) in COLUMNS.iter().zip(row.tried) {
            if let Some(tests) = tried.shown_by() {
                page += &format!("- {name}: {tests}{}\n", passed_in(seen, tried.tests()));
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
    let engines = fs::read_to_string(root().join("docs/how-to/engines.md")).unwrap();
    assert!(
        engines.contains(&facts),
        "docs/how-to/engines.md has not this list:\n{facts}"
    );
}

#[test]
fn the_support_matrix_is_the_page_that_is_kept() {
    let seen = Seen::all(&root());
    let support = "docs/reference/support.md";
    let page = with_matrix(&fs::read_to_string(root().join(support)).unwrap(), &seen);
    for (file, text) in [(support, page), ("docs/maintaining/tested.md", tested(&seen))] {
        assert!(
            bless::is_expected(&root().join(file), &text),
            "{file}: not what the rows give; run make bless:\n{text}"
        );
    }
}
