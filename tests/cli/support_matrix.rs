//! docs/support.md is written from the rows in `support_matrix/rows.rs`, and each test that a row names exists.

mod rows;

use crate::support::bless;
use rows::{COLUMNS, ROWS, Row};
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
[engines.md](engines.md) says what must be set in each engine, and [export.md](export.md) how programs without CDI are used.

The tests use the programs that are installed; below are those of Debian 12, with bubblewrap 0.8, systemd 252 and LXC 5.0. A
test whose program is not installed is listed as \"not run\" by `make test`. The GPU, NVML and the MPS daemon are fakes in all
of them. No cell of this page is about a real GPU.
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
const VERSIONS: &str = "\
| engine | tests, at each change | by hand, once |
|---|---|---|
| podman | 4.3.1 | 5.4.2, 5.8.2 |
| docker | 20.10 | 26.1, 28.5, 29 |
| containerd | 1.6 | 1.7, 2.1, 2.4 |
| CRI-O | – | 1.33, 1.37 |
| under them | crun 1.8.1, runc 1.1.5 | crun 1.28, runc 1.3.6 |
";

/// The page.
fn page() -> String {
    let mut page = format!("{INTRODUCTION}\n{VERSIONS}\n{WORDS}\n| column | what is tried |\n|---|---|\n");
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
    page += "\n## Tests and reasons\n";
    for Row { program, tried, .. } in &ROWS {
        page += &format!("\n### {program}\n\n");
        for ((name, _), tried) in COLUMNS.iter().zip(tried) {
            if let Some(remark) = tried.remark() {
                page += &format!("- {name}: {remark}\n");
            }
        }
    }
    page
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
fn every_document_has_the_same_list_of_engines() {
    for engine in Engine::ALL {
        let title = engine.facts().title;
        assert!(VERSIONS.contains(&format!("\n| {title} |")), "{title} is not listed");
    }
    for document in ["README.md", "docs/engines.md"] {
        let text = fs::read_to_string(root().join(document)).unwrap();
        assert!(text.contains(VERSIONS), "{document} has not this list:\n{VERSIONS}");
    }
}

#[test]
fn the_support_matrix_is_the_page_that_is_kept() {
    let file = Path::new("docs/support.md");
    let text = page();
    assert!(
        bless::is_expected(&root().join(file), &text),
        "{}: not what the rows give; run make bless:\n{text}",
        file.display()
    );
}
