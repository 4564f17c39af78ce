//! What Cargo cannot check of the boundaries inside this repository (docs/explanation/architecture.md). It checks
//! which crate uses which.
//!
//! Which module of a crate uses which is read from what each file names of `crate::`. The table lists exactly the
//! dependencies that exist, from the lowest module to the highest. A module uses only modules above its own row, so
//! there is no cycle. If a change alters a dependency, the failure prints the rows to write.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by a panic"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use walkdir::WalkDir;

/// A crate with its modules, each with the modules of the same crate that it uses, in the order of the alphabet. The
/// other crates are each one subject, whose parts may use one another.
const LAYERS: &[(&str, &[(&str, &str)])] = &[
    (
        "core",
        &[
            ("bounded", ""),
            ("text", ""),
            ("error", "text"),
            ("own_programs", "error"),
            ("types", "error text"),
            ("mps", "error"),
            ("personality", "types"),
            ("notify", ""),
            ("openmetrics", ""),
            ("sys", ""),
            ("execute", "sys"),
            ("ldcache", "error"),
            ("driver_rights", ""),
            ("elf", "error ldcache"),
            ("root", "error"),
            ("sealed", ""),
            ("ledger", "bounded error root sealed text types"),
            ("process_identity", "ledger"),
            ("messages", "error root sys text"),
            ("caller", ""),
            ("broker", "bounded error ledger types"),
            ("oci", "bounded error root"),
            ("call", "error types"),
            ("claims", "bounded call caller error ledger text types"),
        ],
    ),
    (
        "plan",
        &[
            ("yaml", ""),
            ("digest", ""),
            ("inventory", ""),
            ("edits", "inventory"),
            ("mig", "inventory yaml"),
            ("sim", "inventory"),
            ("sources", "inventory sim"),
            ("engines", ""),
            ("queue", ""),
            ("turns", "inventory"),
            ("policy", "inventory mig queue turns yaml"),
            ("hold", "policy"),
            ("idle", ""),
            ("share", "inventory mig policy turns"),
            ("access", "inventory policy share"),
            ("calendar", "policy share"),
            ("host_file", "digest inventory policy share"),
            ("reserve", "host_file inventory share"),
            ("advise", "inventory mig policy share yaml"),
            ("derive", "edits inventory policy share"),
            ("difference", "derive edits inventory reserve share"),
            ("cdi", "digest edits"),
            ("guarded", "cdi inventory policy share"),
        ],
    ),
    (
        "state",
        &[
            ("controlled", ""),
            ("log", ""),
            ("mutex", ""),
            ("node_users", ""),
            ("renew", ""),
            ("replace", ""),
            ("stop", ""),
            ("accounts", "mutex"),
            ("access", "accounts node_users replace"),
            ("calendar", "replace"),
            ("history", "replace"),
            ("claim_spec", "replace"),
            ("out_of_service", "replace"),
            ("state_file", "replace"),
            ("planning", "replace state_file"),
            ("turn_tries", "state_file"),
            ("turns", "state_file"),
            ("public_status", "controlled turns"),
            ("held", "state_file turns"),
            ("device", "held public_status"),
            ("metrics", "controlled device held public_status"),
            ("restore_failures", "replace state_file"),
            ("hold", "accounts held"),
        ],
    ),
    (
        "specs",
        &[
            ("device_files", ""),
            ("digests", ""),
            ("installed", ""),
            ("nvidia_config", ""),
            ("generate", "digests"),
            ("refresh", "device_files digests generate installed nvidia_config"),
        ],
    ),
    (
        "broker",
        &[
            ("facts", ""),
            ("own_cgroup", ""),
            ("peer", ""),
            ("sys", ""),
            ("as_user", "own_cgroup"),
            ("control", "facts peer sys"),
            ("run", "own_cgroup sys"),
            ("mig", "control facts"),
            ("turns", "control"),
            ("verbs", "mig run turns"),
            ("serve", "as_user control facts mig peer run sys turns verbs"),
            ("command_line", "control facts serve"),
        ],
    ),
    (
        "bench",
        &[
            ("way", ""),
            ("statistics", ""),
            ("schedule", ""),
            ("cell", "schedule way"),
            ("progress", "cell"),
            ("event", "schedule"),
            ("measured", "cell event schedule statistics"),
            ("verdict", "cell measured statistics way"),
            ("results", "cell measured statistics verdict way"),
            ("kept", "results verdict way"),
            ("terminal", "cell measured results statistics verdict"),
            ("picture", "cell measured results way"),
            ("compare", "cell results statistics terminal"),
            ("sweep", "cell statistics terminal way"),
            ("latency", "statistics"),
        ],
    ),
    (
        "inspect",
        &[
            ("engine_config", ""),
            ("export", ""),
            ("measured", ""),
            ("observe", ""),
            ("policy_change", ""),
            ("verify", "measured"),
            ("observed", "measured observe"),
            ("doctor", "engine_config observed"),
        ],
    ),
    (
        "kubelet",
        &[
            ("pods", ""),
            ("catalog", "pods"),
            ("allocate", "catalog"),
            ("prefer", "catalog"),
            ("reconcile", "pods"),
            ("ready", ""),
            ("registrar", ""),
            ("schedule", ""),
            ("metrics", ""),
            ("settings", ""),
            ("args", "settings"),
            ("said", ""),
            ("configurations", ""),
            ("api", "configurations said"),
            ("log", ""),
            ("proto", ""),
            ("kubelet", "pods proto"),
            ("broker", ""),
            ("cluster", "api broker configurations said settings"),
            ("socket", ""),
            ("watch", "kubelet"),
            ("command", ""),
            ("service", "allocate catalog command kubelet prefer proto"),
            (
                "plugin",
                "catalog command kubelet proto ready registrar service socket watch",
            ),
            (
                "node",
                "broker catalog command kubelet plugin pods ready reconcile said schedule settings watch",
            ),
            (
                "dra",
                "api broker metrics proto ready said schedule settings socket watch",
            ),
        ],
    ),
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

fn src() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src")
}

/// What each module of a crate uses of the same crate.
fn sources(of: &str) -> Modules {
    let src = src().join(of);
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
        // A file of tests or benchmarks may use any module.
        if path.extension().is_none_or(|e| e != "rs")
            || ["lib", "main", "build", "fuzzing"].contains(&module)
            || inside
                .components()
                .any(|c| c.as_os_str() == "tests" || c.as_os_str() == "benches")
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
        let _ = writeln!(text, "    no row for {module}: there is no {module}.rs");
    }
    text
}

#[test]
fn the_table_lists_exactly_the_dependencies_that_exist() {
    for (name, rows) in LAYERS {
        let wrong = corrections(&modules(rows), &sources(name));
        assert!(
            wrong.is_empty(),
            "tests/layers.rs: if this change of the dependencies is meant, these are the new rows of {name}:\n{wrong}"
        );
    }
}

#[test]
fn a_module_uses_only_modules_above_its_row() {
    for (name, rows) in LAYERS {
        for (at, (module, uses)) in rows.iter().enumerate() {
            for used in uses.split_whitespace() {
                let above = rows[..at].iter().any(|(other, _)| *other == used);
                assert!(
                    above,
                    "{name}: {module} uses {used}, which has no row above that of {module}"
                );
            }
        }
    }
}

/// The programs are in one package, so Cargo lets each of them use every crate.
#[test]
fn a_program_names_only_its_own_crates() {
    let programs: [(&str, &[&str]); 7] = [
        ("bin/tranche-driver.rs", &["tranche_driver"]),
        ("bin/tranche-oci.rs", &["tranche_core", "tranche_hook"]),
        ("bin/tranche-runtime.rs", &["tranche_inject"]),
        ("bin/tranche-broker.rs", &["tranche_broker", "tranche_core"]),
        ("bin/tranche-web.rs", &["tranche_core", "tranche_web"]),
        ("main.rs", &["tranche_cli", "tranche_state"]),
        ("kubelet/main.rs", &["tranche_core", "tranche_kubelet"]),
    ];
    for (program, crates) in programs {
        let text = code(&fs::read_to_string(src().join(program)).unwrap());
        let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        let named: BTreeSet<&str> = words.filter(|word| word.starts_with("tranche_")).collect();
        assert_eq!(named, BTreeSet::from_iter(crates.iter().copied()), "src/{program}");
    }
}

#[test]
fn only_the_crate_of_the_kubelet_brings_an_async_runtime() {
    let mut users = Vec::new();
    for entry in WalkDir::new(src()) {
        let entry = entry.unwrap();
        if entry.file_name() == "Cargo.toml" {
            let text = fs::read_to_string(entry.path()).unwrap();
            let brings = |name: &str| text.lines().any(|line| line.starts_with(name));
            if ["tokio", "tonic", "hyper"].into_iter().any(brings) {
                users.push(entry.path().strip_prefix(src()).unwrap().to_owned());
            }
        }
    }
    assert_eq!(users, [Path::new("kubelet/Cargo.toml")]);
    let root = fs::read_to_string(src().join("../Cargo.toml")).unwrap();
    assert!(
        !root.contains("tranche-kubelet = "),
        "the programs of a host could use it"
    );
}

#[test]
fn only_files_in_a_directory_sys_may_have_unsafe_code() {
    let mut found = BTreeSet::new();
    for entry in WalkDir::new(src()) {
        let entry = entry.unwrap();
        if entry.file_type().is_file() {
            let text = String::from_utf8_lossy(&fs::read(entry.path()).unwrap()).into_owned();
            // The path of the checkout may have a directory `sys`.
            let inside = entry.path().strip_prefix(src()).unwrap();
            if code(&text).contains("unsafe_code") {
                let is_of_sys = inside.components().any(|part| part.as_os_str() == "sys");
                assert!(is_of_sys, "src/{} sets the lint of unsafe code", inside.display());
                found.insert(inside.to_owned());
            }
        }
    }
    assert!(!found.is_empty(), "no file with unsafe code was found");
}

/// What a program inherits is decided in one place.
#[test]
fn one_module_executes_programs() {
    // The program of `tranche run` is the user's own, and keeps the user's terminal.
    let allowed = ["broker/run/start.rs", "core/execute.rs"];
    let mut found = BTreeSet::new();
    for entry in WalkDir::new(src()) {
        let entry = entry.unwrap();
        let inside = entry.path().strip_prefix(src()).unwrap().to_owned();
        let is_for_tests = inside.components().any(|part| {
            ["tests", "benches", "tests.rs"]
                .iter()
                .any(|name| part.as_os_str() == *name)
        });
        if !entry.file_type().is_file() || is_for_tests || inside.extension().is_none_or(|e| e != "rs") {
            continue;
        }
        let code = code(&fs::read_to_string(entry.path()).unwrap());
        let words: String = code.split_whitespace().collect();
        if ["Command::new(", "posix_spawn", "libc::exec", "libc::system("]
            .iter()
            .any(|call| words.contains(call))
        {
            found.insert(inside.to_str().unwrap().to_owned());
        }
    }
    assert_eq!(found.into_iter().collect::<Vec<_>>(), allowed);
}

#[test]
fn the_map_in_the_documentation_of_a_crate_names_every_module() {
    for (name, _) in LAYERS {
        let lib = fs::read_to_string(src().join(name).join("lib.rs")).unwrap();
        // What is only for tests or for fuzzing is in no program.
        let declarations = lib.lines().zip(lib.lines().skip(1));
        let declared: BTreeSet<&str> = declarations
            .filter(|(before, _)| !before.starts_with("#["))
            .filter_map(|(_, line)| line.strip_prefix("pub mod ")?.strip_suffix(';'))
            .collect();
        let map: BTreeSet<&str> = lib
            .lines()
            .filter_map(|line| line.strip_prefix("//! | [`")?.split_once('`'))
            .map(|(module, _)| module)
            .collect();
        assert!(declared.len() > 5, "{declared:?}");
        assert_eq!(
            map, declared,
            "src/{name}/lib.rs: the map (left) has not one row, \"| [`module`] | what it does |\", for each module (right)"
        );
        let sources = sources(name);
        let sources: BTreeSet<&str> = sources.keys().map(String::as_str).collect();
        assert_eq!(
            declared, sources,
            "src/{name}/lib.rs (left) does not declare the modules in its directory (right)"
        );
    }
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
        "    (\"a\", \"\"),\n    (\"b\", \"a\"),\n    no row for gone: there is no gone.rs\n"
    );
}
