//! Which module may use which, read from what each file names of `crate::`.
//!
//! The table lists exactly the dependencies that exist, from the lowest module to the highest. A module uses only modules
//! above its own row, so there is no cycle. If a change alters a dependency, the failure prints the rows to write.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by a panic"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::fs;
use std::path::Path;
use walkdir::WalkDir;

/// A module, and the modules that it uses, in the order of the alphabet.
const LAYERS: &[(&str, &str)] = &[
    ("bounded", ""),
    ("text", ""),
    ("error", "text"),
    ("types", "error text"),
    ("yaml", "types"),
    ("personality", "types"),
    ("program", ""),
    ("mps", ""),
    ("mutex", ""),
    ("sys", ""),
    // File formats, without paths.
    ("ldcache", "error"),
    ("elf", "error ldcache"),
    // Data.
    ("digest", "error types"),
    ("inventory", "error text types"),
    ("edits", "error inventory types"),
    ("sim", "error inventory"),
    ("sources", "bounded error inventory sim"),
    // What reads and writes files.
    ("accounts", "bounded error mutex program types"),
    ("root", "error"),
    ("ledger", "error root text types"),
    ("messages", "error root text"),
    ("caller", ""),
    ("broker", "bounded error ledger types"),
    ("oci", "bounded error root"),
    ("host", "bounded elf error inventory ldcache sys text types"),
    ("export", "edits types"),
    ("call", "error types"),
    ("engines", "types"),
    // From data to data.
    ("replace", "error"),
    ("device_files", "error inventory replace types"),
    ("policy", "bounded call error inventory text types yaml"),
    ("share", "error inventory policy text types"),
    (
        "host_file",
        "bounded digest error inventory ledger policy root share types",
    ),
    ("nvidia_config", "call error inventory policy types"),
    ("claims", "bounded caller error ledger types"),
    ("reserve", "claims error ledger share text types"),
    ("derive", "call edits error inventory policy share text types"),
    ("cdi", "call digest edits error text types"),
    (
        "claim_spec",
        "broker call cdi claims derive error inventory ledger replace reserve share text types",
    ),
    ("installed", "engines program types"),
    ("digests", "digest error inventory share"),
    ("engine_config", "digests engines error program replace types"),
    // From a host to its plan and its specifications, and what is held of it.
    ("examine", "error host inventory sources"),
    (
        "planning",
        "derive error examine inventory ledger policy replace share types",
    ),
    (
        "held",
        "bounded broker call cdi claim_spec claims error inventory ledger reserve share text types",
    ),
    (
        "generate",
        "cdi claim_spec derive digest digests edits error examine held inventory planning replace share text types",
    ),
    // What looks at the machine, and what changes it.
    ("peer", ""),
    (
        "facts",
        "derive error examine generate host_file inventory mutex planning share types",
    ),
    ("observe", "host ledger types"),
    (
        "control",
        "bounded claims error facts host inventory ledger mps mutex peer planning policy program root share sys text types",
    ),
    (
        "serve",
        "accounts bounded broker call claim_spec claims control derive error facts held ledger mutex peer policy replace reserve root share sys text types",
    ),
    (
        "observed",
        "broker claims control error examine held host host_file inventory ledger messages observe share text types",
    ),
    // From requests to the configuration of a container.
    (
        "inject",
        "call cdi claims derive edits engines error host_file inventory ledger oci policy reserve root share text types",
    ),
    (
        "refresh",
        "bounded call cdi claim_spec derive device_files digests edits engines error examine generate host host_file inject installed inventory ledger nvidia_config planning policy program replace root share text types",
    ),
    // What a program calls.
    (
        "hook",
        "broker call claims elf error ldcache ledger messages mps oci root text types",
    ),
    (
        "runtime",
        "bounded broker claims engines error host_file inject ledger messages oci personality policy root sys text types",
    ),
    (
        "run",
        "broker claims derive error held hook inventory ledger planning policy reserve share sys types",
    ),
    (
        "verify",
        "bounded claims engines error examine held inventory ledger program text types",
    ),
    (
        "doctor",
        "broker cdi control device_files digests elf engine_config engines error examine generate held hook host host_file installed inventory ledger observed planning policy root runtime share text types",
    ),
    (
        "cli",
        "accounts bounded broker call cdi claim_spec claims control derive device_files doctor edits engine_config engines error examine export facts generate held host host_file inject installed inventory ledger messages mutex observed planning policy refresh replace reserve run serve share sim text types verify",
    ),
    // Entry points for fuzzing, which are in no program.
    ("fuzzing", "broker engines error hook host inject ledger policy types"),
];

type Modules = BTreeMap<String, BTreeSet<String>>;

fn modules(rows: &[(&str, &str)]) -> Modules {
    let row = |(module, uses): &(&str, &str)| {
        let uses = uses.split_whitespace().map(str::to_owned).collect();
        ((*module).to_owned(), uses)
    };
    let modules: Modules = rows.iter().map(row).collect();
    assert_eq!(modules.len(), rows.len(), "a module has two rows");
    modules
}

/// What each module directly below `src` uses. The programs (`main.rs`, `bin`) are not modules.
fn sources() -> Modules {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut found = Modules::new();
    for entry in WalkDir::new(&src) {
        let entry = entry.unwrap();
        let path = entry.path();
        let inside = path.strip_prefix(&src).unwrap();
        let first = inside
            .components()
            .next()
            .map_or("", |c| c.as_os_str().to_str().unwrap());
        let module = first.strip_suffix(".rs").unwrap_or(first);
        // A file of tests may use any module.
        if path.extension().is_none_or(|e| e != "rs")
            || ["lib", "main", "bin"].contains(&module)
            || inside.components().any(|c| c.as_os_str() == "tests")
            || path.ends_with("tests.rs")
        {
            continue;
        }
        let uses = found.entry(module.to_owned()).or_default();
        uses.extend(named(&fs::read_to_string(path).unwrap()));
        uses.remove(module);
    }
    found
}

/// The lines of `text` without comments and without the items that are only compiled for tests.
fn code(text: &str) -> String {
    let mut code = String::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        if line.starts_with("#[cfg(test)]") {
            let item = lines.by_ref().find(|line| !line.starts_with("#["));
            // An item with a body ends with a line that begins with its closing bracket.
            if item.is_some_and(|item| !item.ends_with(';') && !item.ends_with('}')) {
                lines.by_ref().find(|line| line.starts_with('}'));
            }
            continue;
        }
        code.push_str(line.split("//").next().unwrap_or_default());
        code.push('\n');
    }
    code
}

/// The modules that `text` names: `crate::a`, `crate::{a::b, c}`.
fn named(text: &str) -> BTreeSet<String> {
    let code = code(text);
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let mut found = BTreeSet::new();
    for (at, mark) in code.match_indices("crate::") {
        let rest = &code[at + mark.len()..];
        let Some(list) = rest.strip_prefix('{') else {
            found.insert(rest.chars().take_while(|c| is_name(*c)).collect());
            continue;
        };
        let mut depth = 0;
        let mut name = String::new();
        // A name counts at the list's own level, and where it begins: `{a::{b, c}, d}` names a and d.
        let mut begins = true;
        for c in list.chars() {
            match c {
                '{' => depth += 1,
                '}' if depth == 0 => break,
                '}' => depth -= 1,
                ',' if depth == 0 => {
                    found.insert(std::mem::take(&mut name));
                    begins = true;
                }
                c if depth == 0 && begins && is_name(c) => name.push(c),
                c if depth == 0 && !c.is_whitespace() => begins = false,
                _ => {}
            }
        }
        found.insert(name);
    }
    found.retain(|name| !name.is_empty());
    found
}

/// What to change in the table so that it says what the sources do.
fn corrections(table: &Modules, sources: &Modules) -> String {
    let mut text = String::new();
    for (module, uses) in sources {
        if table.get(module) != Some(uses) {
            let uses: Vec<&str> = uses.iter().map(String::as_str).collect();
            let _ = writeln!(text, "    ({module:?}, {:?}),", uses.join(" "));
        }
    }
    for module in table.keys().filter(|module| !sources.contains_key(*module)) {
        let _ = writeln!(text, "    no row for {module}: there is no src/{module}.rs");
    }
    text
}

#[test]
fn the_table_lists_exactly_the_dependencies_that_exist() {
    let wrong = corrections(&modules(LAYERS), &sources());
    assert!(
        wrong.is_empty(),
        "tests/layers.rs: if this change of the dependencies is meant, these are the new rows of the table:\n{wrong}"
    );
}

#[test]
fn a_module_uses_only_modules_above_its_row() {
    for (at, (module, uses)) in LAYERS.iter().enumerate() {
        for used in uses.split_whitespace() {
            let above = LAYERS[..at].iter().any(|(other, _)| *other == used);
            assert!(above, "{module} uses {used}, which has no row above that of {module}");
        }
    }
}

/// Any other program calls the same functions with plain options.
#[test]
fn only_the_command_line_names_clap() {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    for entry in WalkDir::new(&src) {
        let entry = entry.unwrap();
        let inside = entry.path().strip_prefix(&src).unwrap();
        let is_of_cli = inside.starts_with("cli") || inside == Path::new("cli.rs");
        if entry.file_type().is_file() && !is_of_cli {
            let text = String::from_utf8_lossy(&fs::read(entry.path()).unwrap()).into_owned();
            let names_clap = code(&text).contains("clap::");
            assert!(!names_clap, "src/{} names clap", inside.display());
        }
    }
}

#[test]
fn the_map_in_the_crate_s_documentation_names_every_module() {
    let lib = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("src/lib.rs")).unwrap();
    // A file of the tests' support is in no program.
    let declarations = lib.lines().zip(lib.lines().skip(1));
    let declared: BTreeSet<&str> = declarations
        .filter(|(before, _)| !before.starts_with("#[path = \"../tests/"))
        .filter_map(|(_, line)| line.trim_start_matches("pub ").strip_prefix("mod ")?.strip_suffix(';'))
        .collect();
    let map: BTreeSet<&str> = lib
        .lines()
        .filter_map(|line| {
            line.strip_prefix("//! | ")?
                .trim_start_matches('[')
                .strip_prefix('`')?
                .split_once('`')
        })
        .map(|(module, _)| module)
        .collect();
    assert!(declared.len() > 10, "{declared:?}");
    assert_eq!(
        map, declared,
        "src/lib.rs: the map (left) has not one row, \"| [`module`] | what it does |\", for each module (right)"
    );
    let sources = sources();
    let sources: BTreeSet<&str> = sources.keys().map(String::as_str).collect();
    assert_eq!(
        declared, sources,
        "src/lib.rs (left) does not declare the modules in src (right)"
    );
}

#[test]
fn names_are_read_as_rust_reads_them() {
    let text = "use crate::a::b;\n#[cfg(test)]\nmod tests;\nuse crate::{c::{x, y}, d,\n e};\n// crate::no\n\
                #[cfg(test)]\nuse crate::no;\nlet z = crate::f::g();\n#[cfg(test)]\n#[allow(x)]\nmod t {\n    \
                crate::no\n}\nuse crate::h;\n#[cfg(test)]\nuse crate::{\n    no,\n};\ncrate::i";
    assert_eq!(named(text).into_iter().collect::<String>(), "acdefhi");
}

#[test]
fn each_difference_is_printed_as_the_row_to_write() {
    let sources = modules(&[("a", ""), ("b", "a"), ("c", "a b")]);
    assert_eq!(corrections(&sources, &sources), "");
    let table = modules(&[("a", "b"), ("c", "a b"), ("gone", "a")]);
    assert_eq!(
        corrections(&table, &sources),
        "    (\"a\", \"\"),\n    (\"b\", \"a\"),\n    no row for gone: there is no src/gone.rs\n"
    );
}
