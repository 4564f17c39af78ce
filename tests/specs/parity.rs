//! Our specification of each test host against what NVIDIA's generator gives there, fact by fact: `tests/parity/`.

use crate::support::{facts_of_spec, fake_host, parity, skip};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

use facts_of_spec::facts;
use parity::{Parity, compare, parse};

/// Each list: its file's name without `.txt` (HOST, or HOST.MODE) and what it says.
fn lists() -> Vec<(String, Parity)> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/parity");
    let mut lists: Vec<(String, Parity)> = fs::read_dir(directory)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|e| e == "txt"))
        .map(|path| {
            let name = path.file_stem().unwrap().to_string_lossy().into_owned();
            let parity = parse(&fs::read_to_string(&path).unwrap()).unwrap_or_else(|e| panic!("{name}: {e}"));
            (name, parity)
        })
        .collect();
    lists.sort_by(|a, b| a.0.cmp(&b.0));
    lists
}

fn host_of(list: &str) -> &str {
    list.split('.').next().unwrap_or(list)
}

/// Our specification of a host, with the options of the list.
///
/// A driver root given there means that of the host: it becomes one of this machine, as do the other parts of the host,
/// and the directory is taken out of what comes back.
fn generate(root: &Path, arguments: &[String]) -> Result<Value, String> {
    let root = root.to_str().unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_tranche"));
    // NVIDIA's generator writes what is left where a GPU is lost.
    command
        .args(["cdi", "generate", "--degraded", "--format", "json"])
        .env_clear();
    if arguments.iter().any(|a| a == "--driver-root") {
        command.args([format!("--proc-root={root}/proc"), format!("--sys-root={root}/sys")]);
        let mut is_root = false;
        for argument in arguments {
            command.arg(if is_root {
                format!("{root}{argument}")
            } else {
                argument.clone()
            });
            is_root = argument == "--driver-root" || argument == "--dev-root";
        }
    } else {
        command.args(["--root", root]).args(arguments);
    }
    let output = command.output().unwrap();
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into_owned());
    }
    let text = String::from_utf8(output.stdout).unwrap().replace(root, "");
    serde_json::from_str(&text).map_err(|e| format!("{e}: {text}"))
}

#[test]
fn we_give_what_nvidia_s_generator_gives_but_for_what_the_lists_say() {
    let mut wrong = Vec::new();
    for (name, parity) in lists().iter().filter(|(_, parity)| parity.none.is_none()) {
        let directory = tempfile::tempdir().unwrap();
        let host = fake_host::build(host_of(name), directory.path()).unwrap();
        if let Some(missing) = host.not_made.first() {
            return skip::not_run("parity", &missing.why);
        }
        match generate(&host.root, &parity.arguments) {
            Ok(spec) => wrong.extend(
                compare(parity, &facts(&spec))
                    .iter()
                    .map(|line| format!("{name}: {line}")),
            ),
            Err(why) => wrong.push(format!("{name}: {why}")),
        }
    }
    assert!(wrong.is_empty(), "{} lines:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn with_nvidia_s_hook_a_container_has_the_same_links() {
    for name in ["workstation-rtx4090", "hgx-h200"] {
        let directory = tempfile::tempdir().unwrap();
        let host = fake_host::build(name, directory.path()).unwrap();
        if let Some(missing) = host.not_made.first() {
            return skip::not_run("parity_of_hooks", &missing.why);
        }
        let links = |hook: &str| -> Vec<String> {
            let spec = generate(&host.root, &["--hook-path".to_owned(), hook.to_owned()]).unwrap();
            facts(&spec).into_iter().filter(|f| f.contains(" link ")).collect()
        };
        let ours = links("/usr/bin/tranche-oci");
        assert!(
            ours.iter().any(|l| l.contains("/dev/dri/by-path/")),
            "{name}: {ours:#?}"
        );
        assert_eq!(links("/usr/bin/nvidia-cdi-hook"), ours, "{name}");
    }
}

#[test]
fn every_host_has_a_list_and_every_list_a_host() {
    let hosts: BTreeSet<String> = fake_host::names().unwrap().into_iter().collect();
    let listed: BTreeSet<String> = lists().iter().map(|(name, _)| host_of(name).to_owned()).collect();
    assert_eq!(hosts, listed);
}

#[test]
fn a_list_has_each_fact_once_and_in_order() {
    for (name, parity) in lists() {
        for facts in [&parity.both, &parity.theirs, &parity.ours] {
            assert!(facts.is_sorted_by(|a, b| a < b), "{name}: not sorted, or a line twice");
        }
        assert!(
            !parity.theirs.iter().any(|f| parity.both.contains(f)),
            "{name}: a fact of both generators, and of NVIDIA's alone"
        );
        assert_eq!(
            parity.none.is_some(),
            parity.both.is_empty(),
            "{name}: either facts, or why there are none"
        );
    }
}

#[test]
fn facts_are_what_a_specification_does_and_not_how_it_is_written() {
    let mounted = ["ro", "nosuid", "nodev", "rbind", "rprivate"];
    let spec = json!({
        "cdiVersion": "0.7.0", "kind": "nvidia.com/gpu",
        "devices": [
            {"name": "GPU-1", "containerEdits": {"deviceNodes": [{"path": "/dev/nvidia0", "permissions": "rwm"}]}},
            {"name": "0", "containerEdits": {"deviceNodes": [{"path": "/dev/nvidia0", "major": 195, "minor": 0}]}},
            {"name": "1", "annotations": {"a": "b"}, "containerEdits": {
                "deviceNodes": [{"path": "/dev/nvidia1", "hostPath": "/d/dev/nvidia1", "gid": 44, "permissions": "rw"}],
                "additionalGids": [44]}},
            {"name": "all", "containerEdits": {"deviceNodes": [{"path": "/dev/dri/card0"}, {"path": "/dev/dri/card0"}]}},
        ],
        "containerEdits": {
            "env": ["A=b"],
            "mounts": [
                {"hostPath": "/usr/lib/libcuda.so.1.2", "containerPath": "/usr/lib/libcuda.so.1.2", "options": mounted},
                {"hostPath": "/d/socket", "containerPath": "/socket", "options": ["noexec", "bind"]},
            ],
            "hooks": [
                {"hookName": "createContainer", "path": "/a/tranche-oci", "args":
                    ["tranche-oci", "hook", "prepare", "--link", "libcuda.so.1.2::/usr/lib/libcuda.so.1",
                     "--ldcache-dir=/usr/lib", "--by-path", "pci-0000:01:00.0-card::/dev/dri/card0"]},
                {"hookName": "createContainer", "path": "/c", "args":
                    ["nvidia-ctk", "hook", "update-ldcache", "--folder", "/usr/lib"]},
                {"hookName": "poststop", "path": "/b", "args": ["b", "release", "--quiet", "now"]},
            ],
        },
    });
    let wanted = "\
all link /dev/dri/by-path/pci-0000:01:00.0-card -> ../card0
all node /dev/dri/card0
common env A=b
common hook prepare
common hook release at poststop
common ldcache /usr/lib
common link /usr/lib/libcuda.so.1 -> libcuda.so.1.2
common mount /d/socket -> /socket options=bind,noexec
common mount /usr/lib/libcuda.so.1.2
common quiet now
device 0 node /dev/nvidia0
device 1 annotation a=b
device 1 group 44
device 1 node /dev/nvidia1 from /d/dev/nvidia1 rw
device 1 owner /dev/nvidia1 gid=44
device GPU-1 is 0
spec kind nvidia.com/gpu
spec version 0.7.0";
    assert_eq!(facts(&spec).join("\n"), wanted);
}

#[test]
fn a_comparison_finds_each_kind_of_difference() {
    let parity = parse(
        "# how it was made\nargs --mode gds\n\ncommon env A=b\ncommon env C=d\n\
         - common hook chmod # we do not need it\n- common hook old # not any more\n\
         + common mount /usr/share/*.json # they forget it\n+ device 7 * # never there\n",
    )
    .unwrap();
    assert_eq!(parity.arguments, ["--mode", "gds"]);
    let ours = [
        "common env A=b",
        "common env X=y",
        "common hook old",
        "common mount /usr/share/a/b.json",
    ];
    let ours: Vec<String> = ours.map(str::to_owned).to_vec();
    assert_eq!(
        compare(&parity, &ours),
        [
            "we do not give: common env C=d",
            "no difference any more: - common hook old",
            "they do not give: common env X=y",
            "no difference any more: + device 7 *",
        ]
    );
    assert!(compare(&parse("a\nb\n").unwrap(), &["a".to_owned(), "b".to_owned()]).is_empty());
    assert_eq!(parse("a\n- b\n").unwrap_err(), "line 2: no reason");
    assert_eq!(parse("none # it fails\n").unwrap().none.as_deref(), Some("it fails"));
}
