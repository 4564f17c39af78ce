//! Any valid file: keys that nobody knows stay, and what was added is taken back.

use super::*;
use proptest::prelude::*;
use tranche_core::types::HostPath;
use tranche_inspect::engine_config::document::{ConfigFile, Syntax};
use tranche_inspect::engine_config::{Settings, containerd, crio, docker, podman};

fn settings(is_default: bool) -> Settings {
    Settings {
        name: "tranche".parse().unwrap(),
        path: "/usr/bin/tranche-runtime".to_owned(),
        is_default,
        cdi: true,
        annotations: Some("tranche.dev/"),
        hooks_dir: Some(HostPath::new("/usr/share/tranche/hooks.d").unwrap()),
    }
}

fn scalar() -> impl Strategy<Value = Value> {
    prop_oneof![
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        "[a-zA-Z0-9 #=\\[\\]{}\"'/é]{0,12}".prop_map(Value::from),
        prop::collection::vec(any::<i16>(), 0..4).prop_map(Value::from),
    ]
}

/// A table with keys that no engine has.
fn table() -> impl Strategy<Value = Value> {
    let key = "[x-z][a-z0-9.\"# -]{0,6}";
    scalar().prop_recursive(4, 32, 5, move |inner| {
        prop::collection::btree_map(key, inner, 0..5).prop_map(|entries| Value::Object(entries.into_iter().collect()))
    })
}

fn tables() -> impl Strategy<Value = Map<String, Value>> {
    prop::collection::btree_map("[x-z][a-z]{0,4}", table(), 0..5).prop_map(|entries| entries.into_iter().collect())
}

/// `entries` as TOML, with a comment on each line, and tables below headers.
fn toml(entries: &Map<String, Value>, path: &str, text: &mut String) {
    let quoted = |key: &str| serde_json::to_string(key).unwrap();
    for (key, value) in entries.iter().filter(|(_, value)| !value.is_object()) {
        text.push_str(&format!("{} = {value}   # c{}\n", quoted(key), text.len()));
    }
    for (key, value) in entries {
        let Value::Object(inner) = value else { continue };
        let path = if path.is_empty() {
            quoted(key)
        } else {
            format!("{path}.{}", quoted(key))
        };
        text.push_str(&format!("\n# h{}\n[{path}] # t\n", text.len()));
        toml(inner, &path, text);
    }
}

fn keeps(old: &Value, new: &Value) -> bool {
    match (old, new) {
        (Value::Object(old), Value::Object(new)) => old
            .iter()
            .all(|(key, value)| new.get(key).is_some_and(|new| keeps(value, new))),
        (old, new) => old == new,
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn unknown_keys_of_toml_stay(entries in tables(), is_default: bool, engine in 0..3_u8, crlf: bool) {
        let mut text = if engine == 0 { "version = 3 # v\n".to_owned() } else { String::new() };
        toml(&entries, "", &mut text);
        if crlf {
            text = text.replace('\n', "\r\n");
        }
        let settings = settings(is_default);
        let file = ConfigFile::read("file", Syntax::Toml, &text).unwrap();
        let edits = match engine {
            0 => {
                let new = containerd::Version::of_new_file(true);
                containerd::edits(&file, &file, &settings, new).unwrap()
            }
            1 => crio::edits(&file, &file, &settings).unwrap(),
            _ => podman::edits(&file, &[], &settings).unwrap(),
        };
        let changed = file.with(&edits).unwrap();
        let (old, new) = (read(&text, false), read(&changed.text, false));
        prop_assert!(keeps(&old, &new), "{}", changed.text);
        for line in text.lines().filter(|line| line.contains('#')) {
            prop_assert!(changed.text.contains(line), "{line:?} is lost: {}", changed.text);
        }
        prop_assert_eq!(&changed.with(&edits).unwrap().text, &changed.text);
        let (back, kept) = changed.without(&edits, &file).unwrap();
        prop_assert_eq!(read(&back.text, false), old);
        prop_assert!(kept.is_empty(), "{kept:?}");
        for line in text.lines().filter(|line| line.contains('#')) {
            prop_assert!(back.text.contains(line), "{line:?} is lost: {}", back.text);
        }
    }

    #[test]
    fn unknown_keys_of_json_stay(entries in tables(), is_default: bool, width in 0..3_usize) {
        let value = Value::Object(entries);
        let text = match width {
            0 => value.to_string(),
            width => serde_json::to_string_pretty(&value).unwrap().replace("  ", &"\t".repeat(width)),
        };
        // Tabs in strings are not valid JSON.
        prop_assume!(serde_json::from_str::<Value>(&text).is_ok());
        let old = read(&text, true);
        let file = ConfigFile::read("file", Syntax::Json, &text).unwrap();
        let edits = docker::edits(&file, &settings(is_default)).unwrap();
        let changed = file.with(&edits).unwrap();
        let new = read(&changed.text, true);
        prop_assert!(keeps(&old, &new), "{}", changed.text);
        prop_assert_eq!(&new["runtimes"]["tranche"]["path"], "/usr/bin/tranche-runtime");
        prop_assert_eq!(&changed.with(&edits).unwrap().text, &changed.text);
        let (back, kept) = changed.without(&edits, &file).unwrap();
        prop_assert_eq!(read(&back.text, true), old);
        prop_assert!(kept.is_empty(), "{kept:?}");
    }
}
