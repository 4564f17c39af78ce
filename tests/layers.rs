//! Which module may know which: read from what each file names of `crate::`.
//!
//! The table is in order, and a module may know only those above it: so there is no circle, and what a change can reach
//! is seen here.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a test fails by a panic, and says what it does"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// A module, and whom it may know.
const LAYERS: &[(&str, &[&str])] = &[
    ("text", &[]),
    ("error", &["text"]),
    ("types", &["error"]),
    ("call", &["types", "error"]),
    ("yaml", &["types"]),
    ("personality", &[]),
    ("sys", &["types", "error"]),
    // What files say, whoever reads them.
    ("ldcache", &["error"]),
    ("elf", &["ldcache", "error"]),
    // Data.
    ("inventory", &["types", "text", "error"]),
    ("edits", &["inventory", "types", "error"]),
    ("sim", &["inventory", "text", "error"]),
    ("sources", &["sim", "inventory", "types", "error"]),
    // What is reached on behalf of somebody else.
    ("root", &["sys", "types", "error"]),
    ("ledger", &["sys", "text", "types", "error"]),
    ("messages", &["root", "text", "error"]),
    ("oci", &["root", "error"]),
    (
        "host",
        &["inventory", "root", "sys", "ldcache", "elf", "text", "types", "error"],
    ),
    // From data to data.
    ("policy", &["yaml", "types", "text", "error"]),
    ("share", &["inventory", "policy", "types", "text", "error"]),
    ("claims", &["ledger", "share", "text", "types", "error"]),
    (
        "derive",
        &[
            "share",
            "policy",
            "call",
            "edits",
            "inventory",
            "text",
            "types",
            "error",
        ],
    ),
    ("cdi", &["call", "edits", "yaml", "types", "text", "error"]),
    (
        "hook",
        &[
            "root", "sys", "oci", "call", "ledger", "claims", "messages", "ldcache", "elf", "text", "types", "error",
        ],
    ),
    (
        "control",
        &["share", "host", "ledger", "sys", "inventory", "types", "error"],
    ),
    // Shim and precreate hook: from a request to an edited container.
    (
        "inject",
        &[
            "oci",
            "cdi",
            "derive",
            "ledger",
            "share",
            "inventory",
            "edits",
            "types",
            "error",
        ],
    ),
    (
        "cli",
        &[
            "text",
            "error",
            "types",
            "sys",
            "ldcache",
            "elf",
            "inventory",
            "edits",
            "sim",
            "sources",
            "root",
            "ledger",
            "messages",
            "oci",
            "host",
            "policy",
            "share",
            "derive",
            "call",
            "cdi",
            "claims",
            "control",
            "inject",
        ],
    ),
    // Doors for those who throw bytes at parsers; never in a program.
    (
        "fuzzing",
        &[
            "error",
            "types",
            "ldcache",
            "elf",
            "inventory",
            "oci",
            "host",
            "ledger",
            "policy",
            "cdi",
            "hook",
            "control",
        ],
    ),
];

/// The files of `src`, by the module at the top that they belong to; the two programs belong to none.
fn files() -> BTreeMap<String, Vec<PathBuf>> {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut found: BTreeMap<String, Vec<PathBuf>> = BTreeMap::new();
    let mut waiting = vec![src.clone()];
    while let Some(directory) = waiting.pop() {
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                waiting.push(path);
                continue;
            }
            let inside = path.strip_prefix(&src).unwrap();
            let first = inside.components().next().unwrap().as_os_str().to_str().unwrap();
            let module = first.strip_suffix(".rs").unwrap_or(first);
            // Tests may know whom they like.
            if path.extension().is_some_and(|e| e == "rs")
                && !["lib", "main", "bin"].contains(&module)
                && !path.ends_with("tests.rs")
            {
                found.entry(module.to_owned()).or_default().push(path);
            }
        }
    }
    found
}

/// The modules that `text` names: `crate::a`, `crate::{a::b, c}`.
fn named(text: &str) -> BTreeSet<String> {
    let code: Vec<&str> = text
        .lines()
        .take_while(|line| !line.starts_with("#[cfg(test)]"))
        .map(|line| line.split("//").next().unwrap_or_default())
        .collect();
    let code = code.join("\n");
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

#[test]
fn each_module_knows_only_those_it_may() {
    let files = files();
    assert!(files.len() > 10, "{files:?}");
    for (module, files) in files {
        let Some((_, allowed)) = LAYERS.iter().find(|(name, _)| *name == module) else {
            panic!("src/{module}: say in the table of this test whom it may know");
        };
        for file in files {
            for name in named(&fs::read_to_string(&file).unwrap()) {
                assert!(
                    name == module || allowed.contains(&name.as_str()),
                    "{}: {module} may not know {name}",
                    file.display()
                );
            }
        }
    }
}

#[test]
fn there_is_no_circle() {
    for (at, (module, allowed)) in LAYERS.iter().enumerate() {
        for name in *allowed {
            let above = LAYERS[..at].iter().any(|(other, _)| other == name);
            assert!(above, "{module} may know {name}, which is not above it");
        }
    }
}

#[test]
fn names_are_read_as_rust_reads_them() {
    let text = "use crate::a::b;\nuse crate::{c::{x, y}, d,\n e};\n// crate::no\nlet z = crate::f::g();\n#[cfg(test)]\ncrate::h";
    assert_eq!(named(text).into_iter().collect::<String>(), "acdef");
}
