//! The table of the documentation.

use super::rows::{Expected, ROWS, Row};
use std::fs;
use std::path::Path;

const HEAD: &str =
    "| example of NVIDIA's driver (`demo/specs`) | on a node with | what becomes of it |\n|---|---|---|\n";

/// The directories of the examples, as the names of the files here have them.
const DIRECTORIES: [&str; 2] = ["consumable-shares", "extended-resources"];

#[test]
fn the_documentation_has_the_same_table() {
    let page = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/how-to/dra.md")).unwrap();
    let wanted: String = lines();
    let (_, after) = page.split_once(HEAD).expect("the page has the table");
    let table = after.split("\n\n").next().unwrap();
    assert_eq!(format!("{table}\n"), wanted);
}

/// The lines of the table: one for all nodes on which the same becomes of an example.
fn lines() -> String {
    let mut lines: Vec<(String, Vec<&str>, String)> = Vec::new();
    for row in ROWS {
        let (example, result) = (example(row.file), result(row));
        match lines.iter_mut().find(|line| (&line.0, &line.2) == (&example, &result)) {
            Some((_, nodes, _)) => nodes.push(row.machine.words),
            None => lines.push((example, vec![row.machine.words], result)),
        }
    }
    let line = |(example, nodes, result): &(String, Vec<&str>, String)| {
        format!("| {example} | {} | {result} |\n", nodes.join(", or "))
    };
    lines.iter().map(line).collect()
}

fn result(row: &Row) -> String {
    match row.expected {
        Expected::Works(_) => "works".to_owned(),
        // Why it is so and what to do follow in the message.
        Expected::Refused(why) => {
            let what = why.split(';').next().unwrap_or(why);
            format!("refused: `{}`", what.split(" under ").next().unwrap_or(what))
        }
        Expected::Pending { why, .. } => format!("pending: {why}"),
    }
}

fn example(file: &str) -> String {
    if let Some(changed) = file.strip_suffix("-selected") {
        return format!("`{changed}` with a selector by `strategy` for each request");
    }
    let inside = |dir: &&str| {
        file.strip_prefix(*dir)?
            .strip_prefix('-')
            .map(|name| format!("`{dir}/{name}`"))
    };
    DIRECTORIES
        .iter()
        .find_map(inside)
        .unwrap_or_else(|| format!("`{file}`"))
}
