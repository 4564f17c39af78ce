use super::*;
use std::fs;

fn dirs(files: &[(&str, &str)]) -> (tempfile::TempDir, Registry) {
    let dir = tempfile::tempdir().unwrap();
    for (name, text) in files {
        let path = dir.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    let registry = Registry::read(&[
        dir.path().join("etc"),
        dir.path().join("run"),
        dir.path().join("missing"),
    ]);
    (dir, registry)
}

fn one(devices: &[&str]) -> String {
    let mut text = "cdiVersion: 0.5.0\nkind: v.com/cards\ndevices:\n".to_owned();
    for name in devices {
        text.push_str(&format!("- name: \"{name}\"\n  containerEdits:\n    env: [X=1]\n"));
    }
    text
}

fn names(registry: &Registry) -> Vec<String> {
    registry.devices().map(|(name, _)| name.to_string()).collect()
}

#[test]
fn the_later_directory_wins_and_others_are_not_read() {
    let (_dir, registry) = dirs(&[
        ("etc/a.yaml", &one(&["0", "1"])),
        ("run/b.json", &one(&["1"])),
        ("etc/c.txt", "x"),
        ("etc/sub/d.yaml", &one(&["2"])),
    ]);
    assert_eq!(names(&registry), ["v.com/cards=0", "v.com/cards=1"]);
    assert!(
        registry
            .find(&"v.com/cards=1".parse().unwrap())
            .unwrap()
            .file
            .path
            .ends_with("run/b.json")
    );
    assert_eq!(registry.problems, []);
    assert_eq!(registry.shadowed().len(), 1);
}

#[test]
fn two_in_one_directory_are_nobodys() {
    let (_dir, registry) = dirs(&[
        ("etc/a.yaml", &one(&["0", "1"])),
        ("etc/b.yaml", &one(&["1", "2"])),
        ("run/c.yaml", &one(&["1"])),
    ]);
    assert_eq!(names(&registry), ["v.com/cards=0", "v.com/cards=2"]);
    assert_eq!(registry.problems.len(), 1);
    assert_eq!(registry.problems[0].lost, Some(vec!["v.com/cards=1".to_owned()]));
}

#[test]
fn broken_files_are_named_with_what_is_lost() {
    let (_dir, registry) = dirs(&[
        ("etc/a.yaml", &one(&["0"])),
        ("etc/b.yaml", &format!("{}  typo: 1\n", one(&["7"]))),
        (
            "etc/c.yaml",
            "cdiVersion: 0.3.0\nkind: v.com/cards\ndevices:\n- name: \"8\"\n  containerEdits:\n    env:\n    - oops\n",
        ),
        ("etc/d.json", "{"),
        ("etc/e.yml", &one(&["9"])),
    ]);
    assert_eq!(names(&registry), ["v.com/cards=0"]);
    let said: Vec<String> = registry
        .problems
        .iter()
        .map(|p| p.to_string().rsplit_once("/etc/").unwrap().1.to_owned())
        .collect();
    assert!(
        said[0].starts_with("b.yaml:7:3: ") && said[0].ends_with("; lost: v.com/cards=7"),
        "{said:?}"
    );
    assert!(
        said[1].starts_with("c.yaml:1:13: cdiVersion: 0.3.0 is declared"),
        "{said:?}"
    );
    assert!(said[1].ends_with("; lost: v.com/cards=8"), "{said:?}");
    assert!(
        said[2].starts_with("c.yaml:7:7: devices[0].containerEdits.env[0]: \"oops\""),
        "{said:?}"
    );
    assert!(
        said[3].starts_with("d.json:1:") && said[3].ends_with("; lost: every device in it"),
        "{said:?}"
    );
    assert!(said[4].starts_with("e.yml: engines read"), "{said:?}");
    assert_eq!(said.len(), 5);
}

/// Every way to write a kind that the parser reads as this one.
#[test]
fn a_file_with_devices_of_a_kind_may_define_some() {
    let kind = "v.com/cards";
    let spellings = [
        "kind: v.com/cards",
        "kind: \"v.com/cards\"",
        "kind: 'v.com/cards'",
        "kind:   v.com/cards   # cards",
        "? kind\n: v.com/cards",
        "kind: >-\n  v.com/cards",
        "kind: |-\n  v.com/cards",
        "kind: &a v.com/cards",
        "kind: !!str v.com/cards",
        "kind: \"v.com\\x2fcards\"",
        "kind: \"v.com\\/cards\"",
        "kind: \"\\u0076.com/cards\"",
        "kind: \"v.com/\\\n  cards\"",
        "\"kind\": \"v.com/cards\"",
        "kind: !!binary di5jb20vY2FyZHM=",
    ];
    let (dir, registry) = dirs(&[]);
    assert!(names(&registry).is_empty());
    let path = dir.path().join("a.yaml");
    let mut read = 0;
    for spelling in spellings {
        let text = one(&["0"]).replace("kind: v.com/cards", spelling);
        fs::write(&path, text).unwrap();
        let is_read = names(&Registry::read_file(&path)) == ["v.com/cards=0"];
        assert!(!is_read || may_define(&path, kind), "{spelling}");
        read += usize::from(is_read);
    }
    assert!(read > 10, "only {read} of the spellings are read");
    let json = r#"{"cdiVersion":"0.5.0","kind":"v.com/cards","devices":[]}"#;
    fs::write(&path, json).unwrap();
    assert!(may_define(&path, kind));
}

#[test]
fn a_file_of_another_kind_is_not_parsed() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.yaml");
    for other in ["v.com/cards.shared", "v.com/cards2", "v.com/card", "w.com/cards"] {
        fs::write(&path, one(&["0"]).replace("v.com/cards", other)).unwrap();
        assert!(!may_define(&path, "v.com/cards"), "{other}");
        assert!(may_define(&path, other));
    }
    assert!(!may_define(&dir.path().join("missing.yaml"), "v.com/cards"));
}

#[test]
fn only_the_wanted_files_are_read() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("a.yaml"), one(&["0"])).unwrap();
    fs::write(dir.path().join("b.yaml"), "?").unwrap();
    let registry = Registry::read_only(&[dir.path()], |path| path.ends_with("a.yaml"));
    assert_eq!((registry.files().len(), registry.problems.len()), (1, 0));
}
