//! docs/reference/nvidia-keys.md: it has every key that NVIDIA's programs read, and says of each what tranche does
//! with it.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use tranche_plan::policy::read;
use tranche_specs::nvidia_config;

/// A row of the page.
struct Row {
    key: String,
    example: String,
    here: String,
}

/// The page or the list, of which a section begins with a line `## NAME`.
fn text(file: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(file)).unwrap()
}

fn section<'t>(text: &'t str, name: &str) -> &'t str {
    let from = text.split_once(&format!("\n## {name}\n")).unwrap().1;
    from.split("\n## ").next().unwrap()
}

fn rows(name: &str) -> Vec<Row> {
    let page = text("docs/reference/nvidia-keys.md");
    let rows = section(&page, name).lines().filter(|line| line.starts_with("| `"));
    let row = |line: &str| {
        let cells: Vec<&str> = line.split(" | ").collect();
        let code = |cell: &str| cell.trim_start_matches("| ").trim_matches('`').to_owned();
        Row {
            key: code(cells[0]),
            example: code(cells[1]),
            here: cells[2].to_owned(),
        }
    };
    rows.map(row).collect()
}

/// What became of an example: the words of the page for it, and the message.
fn words(outcome: Result<Vec<String>, String>) -> (&'static [&'static str], String) {
    match outcome {
        Ok(warnings) if warnings.is_empty() => (&["unchanged", "different"], String::new()),
        Ok(warnings) => (&["no effect"], warnings.join("\n")),
        Err(error) => (&["refused"], error),
    }
}

fn check(name: &str, read: impl Fn(&str) -> Result<Vec<String>, String>) {
    let rows = rows(name);
    assert!(rows.len() > 40, "{name}: {}", rows.len());
    for Row { key, example, here } in rows {
        let (expected, said) = words(read(&example));
        assert!(expected.contains(&here.as_str()), "{key}: {example}: {here}: {said}");
        if !said.is_empty() {
            let names = key.split('.').rev().any(|part| said.contains(part));
            assert!(names, "{key}: {said}");
        }
        let last = key.rsplit('.').next().unwrap();
        assert!(example.contains(last), "{key} is not in {example}");
    }
}

#[test]
fn the_page_has_every_key_of_the_list() {
    let list = text("tests/data/nvidia-keys.txt");
    for name in [
        "The device plugin",
        "The container toolkit",
        "The driver for dynamic resource allocation",
    ] {
        let listed: BTreeSet<String> = section(&list, name)
            .lines()
            .filter(|line| !line.is_empty())
            .map(str::to_owned)
            .collect();
        let shown: BTreeSet<String> = rows(name).into_iter().map(|row| row.key).collect();
        assert_eq!(shown, listed, "{name}");
    }
}

#[test]
fn the_keys_of_the_device_plugin_do_what_the_page_says() {
    check("The device plugin", |example| {
        let read = read::parse("c.yaml", &format!("{example}\n"));
        read.map(|read| read.warnings).map_err(|error| error.to_string())
    });
}

#[test]
fn the_keys_of_the_container_toolkit_do_what_the_page_says() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("config.toml");
    check("The container toolkit", |example| {
        fs::write(&file, format!("{example}\n")).unwrap();
        let read = nvidia_config::read(&file);
        read.map(|read| read.warnings).map_err(|error| error.to_string())
    });
}
