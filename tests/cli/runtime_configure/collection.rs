//! Every file of the collection, configured in every way.

use super::*;

/// The files of an engine: name and text.
fn collection(engine: &str) -> Vec<(String, String)> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/engine-configs")
        .join(engine);
    let mut files: Vec<(String, String)> = fs::read_dir(directory)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .map(|path| {
            (
                path.file_name().unwrap().to_str().unwrap().to_owned(),
                fs::read_to_string(&path).unwrap(),
            )
        })
        .collect();
    files.sort();
    files
}

/// The comments of a text: what follows `#`, outside of strings.
fn comments(text: &str) -> Vec<&str> {
    let mut found = Vec::new();
    for line in text.lines() {
        let mut quote = None;
        for (at, c) in line.char_indices() {
            match (c, quote) {
                ('#', None) => {
                    found.push(line[at..].trim_end());
                    break;
                }
                ('"' | '\'', None) => quote = Some(c),
                (c, Some(open)) if c == open => quote = None,
                _ => {}
            }
        }
    }
    found
}

/// Whether the texts of `wanted` are in `text`, each as often as there.
fn has_all(text: &str, wanted: &[&str]) -> Result<(), String> {
    let found = comments(text);
    for comment in wanted {
        let count = |list: &[&str]| list.iter().filter(|other| *other == comment).count();
        if count(&found) < count(wanted) {
            return Err(format!("{comment} is lost in\n{text}"));
        }
    }
    Ok(())
}

/// Checks that `new` says all that `old` says, except at `changed`, and returns what it says in addition.
fn additions(old: &Value, new: &Value, changed: &[&[&str]], path: &mut Vec<String>) -> Vec<String> {
    if changed.iter().any(|keys| *keys == *path) {
        return Vec::new();
    }
    let (Value::Object(old), Value::Object(new)) = (old, new) else {
        assert_eq!(old, new, "{path:?}");
        return Vec::new();
    };
    let mut found = Vec::new();
    for (key, old) in old {
        path.push(key.clone());
        let new = new.get(key).unwrap_or_else(|| panic!("{path:?} is gone"));
        found.extend(additions(old, new, changed, path));
        path.pop();
    }
    for key in new.keys().filter(|key| !old.contains_key(*key)) {
        found.push([&path[..], std::slice::from_ref(key)].concat().join("/"));
    }
    found
}

/// A way to configure.
#[derive(Debug, Clone, Copy)]
struct Way {
    name: &'static str,
    is_default: bool,
    cdi: bool,
    drop_in: bool,
}

fn ways(engine: &str) -> Vec<Way> {
    let mut ways = Vec::new();
    for name in ["tranche", "nvidia"] {
        for (is_default, cdi) in [(false, true), (true, true), (true, false)] {
            for drop_in in [false, true]
                .into_iter()
                .filter(|drop_in| engine != "docker" || !drop_in)
            {
                ways.push(Way {
                    name,
                    is_default,
                    cdi,
                    drop_in,
                });
            }
        }
    }
    ways
}

/// The option for the engine's program. The installed engine reads a file of its own version in one of the ways. In the
/// others, a program takes its place that accepts everything, because the engine takes long.
fn program(bed: &Bed, file: &str, way: Way) -> String {
    let is_own = match bed.engine {
        "containerd" => file.starts_with("1."),
        "podman" => file.starts_with("4."),
        _ => true,
    };
    if is_own && way.name == "tranche" && way.is_default && way.cdi {
        return String::new();
    }
    // containerd: --config DIR/config.toml config dump; crio: --config DIR/crio.conf --config-dir DIR/crio.conf.d
    // config
    let prints = match bed.engine {
        "containerd" => "cat \"${2%config.toml}drop-in.toml\" 2> /dev/null || cat \"$2\"",
        "crio" => "cat \"$4\"/* 2> /dev/null || cat \"$2\"",
        _ => "",
    };
    programs::write(bed.at("bin/engine"), format!("#!/bin/sh\n{prints}\n"));
    bed.at("bin/engine").display().to_string()
}

/// Configures a file in one way, twice, and takes it back. `check` gets the text and what it said before, then the
/// changed file's: the main one, or the drop-in.
fn through(engine: &'static str, name: &str, text: &str, way: Way, check: &dyn Fn(&Value, &Value, &Bed, Way)) {
    let what = format!("{engine}/{name} {way:?}");
    let is_json = engine == "docker";
    let bed = Bed::new(engine);
    fs::write(bed.main(), text).unwrap();
    fs::set_permissions(bed.main(), fs::Permissions::from_mode(0o640)).unwrap();
    let before = bed.tree();
    let mut options = vec![
        format!("--runtime-name={}", way.name),
        format!("--cdi.enabled={}", way.cdi),
    ];
    options.push(format!("--executable-path={}", program(&bed, name, way)));
    options.extend(way.is_default.then(|| "--set-as-default".to_owned()));
    let options: Vec<&str> = options.iter().map(String::as_str).collect();

    let dry = bed.configure_in(way.drop_in, &[&options[..], &["--dry-run"]].concat());
    assert_eq!(dry.code, Some(0), "{what}: {}", dry.err);
    assert_eq!(bed.tree(), before, "{what}");
    assert!(
        dry.out.starts_with("--- ") && dry.out.contains("\n+"),
        "{what}: {}",
        dry.out
    );

    let done = bed.configure_in(way.drop_in, &options);
    assert_eq!(done.code, Some(0), "{what}: {}", done.err);
    assert!(done.last().contains("is configured; "), "{what}: {}", done.err);
    let after = bed.tree();
    let changed = fs::read_to_string(bed.main()).unwrap();
    has_all(&changed, &comments(text)).unwrap_or_else(|error| panic!("{what}: {error}"));
    let endings = |text: &str| (text.matches("\r\n").count(), text.matches('\n').count());
    if let (crlf, all @ 1..) = endings(text)
        && crlf == all
    {
        assert_eq!(endings(&changed).0, endings(&changed).1, "{what}");
    }
    assert_eq!(fs::metadata(bed.main()).unwrap().mode() & 0o777, 0o640, "{what}");
    if way.drop_in {
        let drop_in = fs::read_to_string(bed.drop_in()).unwrap();
        check(&read(text, is_json), &read(&drop_in, is_json), &bed, way);
    } else {
        assert_eq!(
            fs::read_to_string(bed.main().with_extension(match engine {
                "docker" => "json.before-tranche",
                "containerd" => "toml.before-tranche",
                _ => "conf.before-tranche",
            }))
            .unwrap(),
            text,
            "{what}"
        );
        check(&read(text, is_json), &read(&changed, is_json), &bed, way);
    }

    let again = bed.configure_in(way.drop_in, &options);
    assert_eq!(
        (again.code, again.last()),
        (Some(0), &*format!("{engine}: nothing to change")),
        "{what}"
    );
    assert_eq!(bed.tree(), after, "{what}");

    let undone = bed.run("unconfigure", &bed.files(way.drop_in));
    assert_eq!(undone.code, Some(0), "{what}: {}", undone.err);
    let restored = bed.tree();
    let bytes = |tree: &BTreeMap<String, (Vec<u8>, u32, u64)>| -> Vec<(String, Vec<u8>, u32)> {
        tree.iter()
            .map(|(name, (bytes, mode, _))| (name.clone(), bytes.clone(), *mode))
            .collect()
    };
    assert_eq!(bytes(&restored), bytes(&before), "{what}: {}", undone.err);
    let nothing = bed.run("unconfigure", &bed.files(way.drop_in));
    assert!(
        nothing.code == Some(0) && nothing.err.contains("nothing to remove"),
        "{what}: {}",
        nothing.err
    );
}

fn all(engine: &'static str, least: usize, check: &dyn Fn(&Value, &Value, &Bed, Way)) {
    let files = collection(engine);
    assert!(files.len() >= least, "{}", files.len());
    for (name, text) in files {
        for way in sample::of(3, ways(engine)) {
            through(engine, &name, &text, way, check);
        }
    }
}

#[test]
fn every_file_of_docker() {
    all("docker", 10, &|old, new, bed, way| {
        let mut expected = old.clone();
        let entry = &mut expected["runtimes"][way.name];
        entry["path"] = bed.runtime().to_str().unwrap().into();
        if entry.get("runtimeArgs").is_none() {
            entry["runtimeArgs"] = json!([]);
        }
        if way.is_default {
            expected["default-runtime"] = way.name.into();
        }
        if way.cdi {
            expected["features"]["cdi"] = true.into();
        }
        assert_eq!(*new, expected);
    });
}

/// The options that the runtime of a file has, and its program: what the new runtime must have, too.
fn options_of(old: &Value, plugin: &str, way: Way) -> Map<String, Value> {
    let containerd = at(old, &["plugins", plugin, "containerd"]);
    let runtimes = &containerd["runtimes"];
    let default = containerd["default_runtime_name"].as_str().unwrap_or("runc");
    let source = [way.name, default, "runc", "crun"].into_iter().find(|name| {
        let is_own = *name == way.name;
        let is_runc = runtimes[name]["runtime_type"] == "io.containerd.runc.v2";
        runtimes[name].is_object() && (is_own || (is_runc && !name.starts_with("nvidia")))
    });
    let options = source.and_then(|name| runtimes[name]["options"].as_object().cloned());
    options.unwrap_or_default()
}

#[test]
fn every_file_of_containerd() {
    all("containerd", 15, &|old, new, bed, way| {
        // A new file has the version that the installed containerd reads.
        let version = old["version"].as_u64().or(new["version"].as_u64());
        let plugin = match version.unwrap_or(2) {
            2 => "io.containerd.grpc.v1.cri",
            _ => "io.containerd.cri.v1.runtime",
        };
        let cri = at(new, &["plugins", plugin]);
        let entry = at(cri, &["containerd", "runtimes", way.name]);
        assert_eq!(entry["runtime_type"], "io.containerd.runc.v2");
        let mut options = options_of(old, plugin, way);
        options.insert("BinaryName".to_owned(), bed.runtime().to_str().unwrap().into());
        assert_eq!(entry["options"], Value::Object(options));
        for list in ["container_annotations", "pod_annotations"] {
            assert!(
                entry[list].as_array().unwrap().contains(&json!("tranche.dev/*")),
                "{entry}"
            );
        }
        let default = &at(old, &["plugins", plugin, "containerd"])["default_runtime_name"];
        if way.is_default {
            assert_eq!(cri["containerd"]["default_runtime_name"], way.name);
        } else if !way.drop_in || plugin.contains("grpc") {
            assert_eq!(cri["containerd"]["default_runtime_name"], *default);
        }
        let was = &at(old, &["plugins", plugin])["enable_cdi"];
        match (way.cdi, plugin.contains("grpc"), was) {
            (true, true, _) | (true, false, Value::Bool(false)) => assert_eq!(cri["enable_cdi"], true),
            (false, _, was) if !way.drop_in => assert_eq!(cri["enable_cdi"], *was),
            _ => {}
        }
        // containerd before 2.0 takes a table of runtimes in the place of its own, which has runc: without its default
        // runtime, the plugin does not start.
        if plugin.contains("grpc") {
            let name = cri["containerd"]["default_runtime_name"].as_str().unwrap_or("runc");
            assert!(
                cri["containerd"]["runtimes"][name].is_object(),
                "no runtime {name}: {cri}"
            );
        }
        assert_eq!(new["version"], *old.get("version").unwrap_or(&new["version"]));
        let changed = [
            &["plugins", plugin, "containerd", "runtimes", "runc"][..],
            &["plugins", plugin, "enable_cdi"],
            &["plugins", plugin, "containerd", "default_runtime_name"],
            &["plugins", plugin, "containerd", "runtimes", way.name],
            &["imports"],
        ];
        if way.drop_in {
            // The main file imports the drop-in, and nothing else in it changes.
            let main = read(&fs::read_to_string(bed.main()).unwrap(), false);
            let pattern = bed.drop_in().with_file_name("*.toml").display().to_string();
            let imports = main["imports"].as_array().unwrap();
            assert!(imports.contains(&json!(pattern)), "{imports:?}");
            let mut before = old["imports"].as_array().cloned().unwrap_or_default();
            before.push(json!(pattern));
            assert_eq!(*imports, before);
            let added = additions(old, &main, &changed[4..], &mut Vec::new());
            assert!(
                added.iter().all(|key| key == "imports" || key == "version"),
                "{added:?}"
            );
            // containerd before 2.0 takes the section of the drop-in instead of that of the main file.
            if plugin.contains("grpc") {
                let section = json!({"plugins": {plugin: at(old, &["plugins", plugin])}});
                if at(old, &["plugins", plugin]).is_object() {
                    additions(&section, new, &changed, &mut Vec::new());
                }
            }
        } else {
            let added = additions(old, new, &changed, &mut Vec::new());
            let is_ours = |key: &String| {
                ["version", "plugins"].contains(&key.as_str()) || key.starts_with(&format!("plugins/{plugin}"))
            };
            assert!(added.iter().all(is_ours), "{added:?}");
        }
    });
}

#[test]
fn every_file_of_crio() {
    all("crio", 5, &|old, new, bed, way| {
        let runtime = at(new, &["crio", "runtime"]);
        let entry = &runtime["runtimes"][way.name];
        assert_eq!(entry["runtime_path"], bed.runtime().to_str().unwrap());
        assert_eq!(entry["runtime_type"], "oci");
        let before = at(old, &["crio", "runtime"]);
        // The monitor of the present runtime, and what its containers may ask for.
        for model in ["crun", "runc"] {
            let model = &before["runtimes"][model];
            if model.is_object() {
                for key in ["monitor_path", "monitor_env", "allowed_annotations", "runtime_root"] {
                    assert_eq!(entry[key], model[key], "{key}");
                }
                break;
            }
        }
        match (way.is_default, way.drop_in) {
            (true, _) => assert_eq!(runtime["default_runtime"], way.name),
            (false, true) => assert_eq!(runtime["default_runtime"], Value::Null),
            (false, false) => assert_eq!(runtime["default_runtime"], before["default_runtime"]),
        }
        if !way.drop_in {
            let changed = [&["crio", "runtime", "default_runtime"][..]];
            additions(old, new, &changed, &mut Vec::new());
        }
    });
}

#[test]
fn every_file_of_podman() {
    all("podman", 5, &|old, new, bed, way| {
        let engine = &new["engine"];
        assert_eq!(engine["runtimes"][way.name], json!([bed.runtime()]));
        let hooks = engine["hooks_dir"].as_array().unwrap();
        assert!(hooks.contains(&json!("/usr/share/tranche/hooks.d")), "{hooks:?}");
        // A list replaces those of earlier files and podman's own, unless these say that later ones are appended.
        let before = old["engine"]["hooks_dir"].as_array().cloned();
        let appends = before
            .as_ref()
            .is_some_and(|list| list.contains(&json!({"append": true})));
        let present = before.unwrap_or_else(|| vec![json!("/usr/share/containers/oci/hooks.d")]);
        if !(appends && way.drop_in) {
            for dir in &present {
                assert!(hooks.contains(dir), "{dir}: {hooks:?}");
            }
        } else {
            assert_eq!(hooks.len(), 1, "{hooks:?}");
        }
        assert!(
            engine["runtime_supports_json"]
                .as_array()
                .unwrap()
                .contains(&json!(way.name))
        );
        match (way.is_default, way.drop_in) {
            (true, _) => assert_eq!(engine["runtime"], way.name),
            (false, true) => assert_eq!(engine["runtime"], Value::Null),
            (false, false) => assert_eq!(engine["runtime"], old["engine"]["runtime"]),
        }
        if !way.drop_in {
            let changed = [
                &["engine", "hooks_dir"][..],
                &["engine", "runtime"],
                &["engine", "runtime_supports_json"],
            ];
            additions(old, new, &changed, &mut Vec::new());
        }
    });
}

#[test]
fn the_check_of_comments_and_values_finds_what_is_lost() {
    assert_eq!(comments("a = \"#x\" # one\n# two\nb = '#' "), ["# one", "# two"]);
    assert!(has_all("# one\n", &["# one", "# one"]).is_err());
    let (old, new) = (json!({"a": {"b": 1}}), json!({"a": {"b": 1, "c": 2}}));
    assert_eq!(additions(&old, &new, &[], &mut Vec::new()), ["a/c"]);
    let lost = std::panic::catch_unwind(|| additions(&new, &old, &[], &mut Vec::new()));
    assert!(lost.is_err());
}
