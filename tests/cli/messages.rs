//! What hooks say is kept for `tranche status`, whatever an engine does with their standard error.

use crate::program;
use crate::support::{programs, scene, skip, strict_json};
use std::fs;
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::path::Path;
use std::process::Command;

use scene::{Ended, Scene};
use serde_json::Value;

const OCI: &str = env!("CARGO_BIN_EXE_tranche-oci");

/// Runs `tranche-oci hook ARGUMENTS` for a container `id`, with messages in the scene's state directory.
fn hook(scene: &Scene, id: &str, arguments: &[&str]) -> Ended {
    let state = scene
        .state()
        .replace(r#""id":"c""#, &format!(r#""id":{}"#, Value::from(id)));
    let mut command = Command::new(OCI);
    command
        .arg("hook")
        .args(arguments)
        .arg("--state-dir")
        .arg(scene.state_dir())
        .env_clear();
    scene::run(command, state.as_bytes())
}

fn status(state_dir: &Path, arguments: &[&str]) -> String {
    let mut command = program(&["status"]);
    command.args(arguments).arg("--state-dir").arg(state_dir);
    let ended = scene::run(command, b"");
    ended.silent();
    ended.stdout
}

/// Container, hook, severity and text of what `tranche status` shows.
fn shown(state_dir: &Path) -> Vec<[String; 4]> {
    let text = status(state_dir, &["--json"]);
    strict_json::check(&text);
    let all: Value = serde_json::from_str(&text).unwrap();
    let messages = all["messages"].as_array().unwrap().clone();
    let text = |message: &Value, key: &str| message[key].as_str().unwrap().to_owned();
    messages
        .iter()
        .map(|message| ["container", "hook", "severity", "text"].map(|key| text(message, key)))
        .collect()
}

#[test]
fn every_hook_keeps_what_it_says() {
    let scene = Scene::new();
    let long = "x".repeat(5000);
    let cases: [(&str, &[&str], u8, [&str; 4]); 8] = [
        (
            "c1",
            &["prepare", "--shine=1"],
            0,
            ["c1", "prepare", "remark", "--shine: unknown option, ignored"],
        ),
        (
            "c2",
            &["prepare", "--link", "x"],
            2,
            [
                "c2",
                "prepare",
                "failure",
                "--link x: is not TARGET::PATH with an absolute path in normal form",
            ],
        ),
        (
            "c3",
            &["create-symlinks", "--shine=1"],
            0,
            ["c3", "create-symlinks", "remark", "--shine: unknown option, ignored"],
        ),
        (
            "c4",
            &["chmod", "--path=/a"],
            2,
            ["c4", "chmod", "failure", "chmod: --mode is missing"],
        ),
        (
            "c5",
            &["polish"],
            0,
            ["c5", "", "remark", "polish: unknown hook, ignored"],
        ),
        (
            "c6",
            &["claim", "--shine=1"],
            2,
            ["c6", "claim", "failure", "--shine: unknown option of a claim"],
        ),
        (
            "c7",
            &["release", "--share=a", "--shine=1"],
            0,
            ["c7", "release", "failure", "--shine: unknown option of a claim"],
        ),
        (
            &long,
            &["polish"],
            0,
            [&long, "", "remark", "polish: unknown hook, ignored"],
        ),
    ];
    for (id, arguments, code, message) in cases {
        let ended = hook(&scene, id, arguments);
        assert_eq!(ended.code, i32::from(code), "{arguments:?}: {}", ended.stderr);
        assert!(ended.stderr.contains(message[3]), "{arguments:?}: {}", ended.stderr);
        let shown = shown(scene.state_dir());
        let [container, rest @ ..] = shown.last().unwrap();
        assert_eq!(rest, &message[1..], "{arguments:?}");
        assert!(message[0].starts_with(container.trim_end_matches('…')), "{container}");
        assert!(container.len() < 300);
    }
    assert_eq!(shown(scene.state_dir()).len(), cases.len());
    let text = status(scene.state_dir(), &["--messages"]);
    assert!(
        text.contains("container c2\n") && text.contains("failure of prepare: --link x: is not TARGET::PATH"),
        "{text}"
    );
}

#[test]
fn the_last_failure_comes_first_and_containers_that_are_gone_are_counted() {
    let scene = Scene::new();
    for (id, arguments) in [
        ("c1", &["chmod", "--path=/a"][..]),
        ("c2", &["prepare", "--link", "x"]),
        ("c3", &["polish"]),
    ] {
        hook(&scene, id, arguments);
    }
    let text = status(scene.state_dir(), &[]);
    let lines: Vec<&str> = text.lines().collect();
    assert!(
        lines[0].starts_with("last failure, ") && lines[0].ends_with(" s ago, of container c2:"),
        "{text}"
    );
    assert!(
        lines[1].contains("failure of prepare: --link x: is not TARGET::PATH"),
        "{text}"
    );
    assert!(!text.contains("c1") && !text.contains("c3"), "{text}");
    assert!(
        text.ends_with("\nmessages of 3 other containers: tranche status --messages\n"),
        "{text}"
    );
    let all = status(scene.state_dir(), &["--messages"]);
    assert!(
        all.contains("container c1\n") && all.contains("container c3\n"),
        "{all}"
    );
}

#[test]
fn a_hook_that_has_nothing_to_say_keeps_nothing() {
    let scene = Scene::new();
    hook(&scene, "c", &["prepare"]).silent();
    hook(&scene, "c", &["noop"]).silent();
    assert_eq!(fs::read_dir(scene.state_dir()).unwrap().count(), 0);
    assert_eq!(shown(scene.state_dir()), [[""; 4]; 0]);
}

#[test]
fn names_of_an_image_act_on_nobodys_terminal() {
    let scene = Scene::new();
    let name = "/etc/\u{1b}]0;x\u{7}\u{202e}b\u{9b}2J\n[ok]";
    fs::create_dir_all(scene.image("/etc")).unwrap();
    fs::create_dir(scene.image(name)).unwrap();
    let ended = hook(&scene, "\u{1b}c\u{202e}", &["prepare", "--link", &format!("a::{name}")]);
    assert_eq!(ended.code, 1);
    for text in [status(scene.state_dir(), &[]), status(scene.state_dir(), &["--json"])] {
        assert!(text.contains("\\u{202e}b") || text.contains("\\\\u{202e}b"), "{text}");
        let acts = |c: char| c != '\n' && (c.is_control() || ('\u{2028}'..='\u{202e}').contains(&c));
        assert!(!text.contains(acts) && !text.contains("\n[ok]"), "{text:?}");
    }
}

#[test]
fn a_place_that_cannot_be_used_costs_nobody_a_start() {
    let scene = Scene::new();
    let other = tempfile::tempdir().unwrap();
    let place = |name: &str| other.path().join(name);
    fs::write(place("file"), "").unwrap();
    fs::create_dir(place("open")).unwrap();
    fs::set_permissions(place("open"), fs::Permissions::from_mode(0o777)).unwrap();
    fs::create_dir_all(place("theirs/messages")).unwrap();
    chown(place("theirs"), Some(12345), None).unwrap_or_default();
    fs::set_permissions(place("theirs/messages"), fs::Permissions::from_mode(0o755)).unwrap();
    for name in ["file", "open", "theirs"] {
        let mut command = Command::new(OCI);
        command
            .args(["hook", "prepare", "--shine=1", "--state-dir"])
            .arg(place(name))
            .env_clear();
        let ended = scene::run(command, scene.state().as_bytes());
        assert_eq!(ended.code, 0, "{name}");
        assert_eq!(
            ended.stderr, "tranche-oci: hook prepare: --shine: unknown option, ignored\n",
            "{name}"
        );
    }
    for empty in ["open", "theirs/messages"] {
        assert_eq!(fs::read_dir(place(empty)).unwrap().count(), 0, "{empty}");
    }
}

#[test]
fn a_state_directory_is_made_where_a_link_of_the_administrator_leads() {
    let scene = Scene::new();
    fs::create_dir(scene.at("disk")).unwrap();
    symlink("disk", scene.at("link")).unwrap();
    let state_dir = scene.at("link/a/b");
    let mut command = Command::new(OCI);
    command
        .args(["hook", "prepare", "--shine=1", "--state-dir"])
        .arg(&state_dir)
        .env_clear();
    assert_eq!(scene::run(command, scene.state().as_bytes()).code, 0);
    assert!(scene.at("disk/a/b/messages/c.jsonl").is_file());
    assert_eq!(shown(&state_dir).len(), 1);
}

#[test]
fn a_limit_on_the_size_of_files_ends_no_hook() {
    let scene = Scene::new();
    let mut command = Command::new("sh");
    command.args([
        "-c",
        "ulimit -f 0; exec \"$@\"",
        "sh",
        OCI,
        "hook",
        "prepare",
        "--shine=1",
        "--state-dir",
    ]);
    command.arg(scene.state_dir());
    let ended = scene::run(command, scene.state().as_bytes());
    assert_eq!((ended.code, ended.stderr.lines().count()), (0, 1), "{}", ended.stderr);
    assert_eq!(shown(scene.state_dir()), [[""; 4]; 0]);
}

#[test]
fn a_hundred_hooks_at_once_are_all_heard() {
    let scene = Scene::new();
    std::thread::scope(|scope| {
        for number in 0..10 {
            let scene = &scene;
            scope.spawn(move || {
                for hook_number in 0..10 {
                    let id = format!("c{}", hook_number % 5);
                    assert_eq!(
                        hook(scene, &id, &["prepare", &format!("--shine-{number}-{hook_number}")]).code,
                        0
                    );
                }
            });
        }
    });
    let mut texts: Vec<String> = shown(scene.state_dir()).into_iter().map(|[.., text]| text).collect();
    texts.sort();
    let said = |number| (0..10).map(move |n| format!("--shine-{number}-{n}: unknown option, ignored"));
    let mut all: Vec<String> = (0..10).flat_map(said).collect();
    all.sort();
    assert_eq!(texts, all);
}

#[test]
fn a_user_namespace_keeps_messages_with_its_user() {
    let test = "messages::a_user_namespace_keeps_messages_with_its_user";
    if !nix::unistd::Uid::effective().is_root() {
        return skip::not_run(test, "not root: cannot become another user");
    }
    const USER: u32 = 65533;
    let scene = Scene::new();
    fs::set_permissions(scene.at(""), fs::Permissions::from_mode(0o755)).unwrap();
    let state = scene.at("state.json");
    fs::write(&state, scene.state()).unwrap();
    let program = scene.at("tranche-oci");
    programs::install(OCI, &program);
    // /run is this test's own: one user's run-time files, and a directory of root's that he cannot enter.
    let script = r#"
        mount -t tmpfs -o mode=755 tmpfs /run && mkdir -p /run/tranche /run/user/65533 && chmod 700 /run/user/65533 &&
        chown 65533:65533 /run/user/65533 || exit 77
        as() { setpriv --reuid 65533 --regid 65533 --clear-groups "$@"; }
        as unshare --user --map-root-user true || exit 77
        as unshare --user --map-root-user "$1" hook prepare --shine=1 < "$2" || exit 1
        as unshare --user --map-root-user "$1" hook prepare --again=1 < "$2" || exit 1
        find /run/tranche /run/user -printf '%p %m %U\n' | sort
        cat /run/user/65533/tranche/messages/c.jsonl
        echo "$(as env XDG_RUNTIME_DIR=/run/user/65533 "$3" status --messages)"
        echo "$(as env -i "$3" status --json)"
    "#;
    let mut command = Command::new("unshare");
    command.args(["-m", "--propagation", "private", "sh", "-c", script, "sh"]);
    let tranche = crate::support::installed::command_line(&scene.at(""));
    command.args([program.as_os_str(), state.as_os_str(), tranche.as_os_str()]);
    let ended = scene::run(command, b"");
    if ended.code == 77 {
        return skip::not_run(test, "may not make a mount namespace or a user namespace");
    }
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    let lines: Vec<&str> = ended.stdout.lines().collect();
    let path = |path: &str, mode: &str, uid: u32| format!("{path} {mode} {uid}");
    assert_eq!(
        lines[..6],
        [
            path("/run/tranche", "755", 0),
            path("/run/user", "755", 0),
            path("/run/user/65533", "700", USER),
            path("/run/user/65533/tranche", "700", USER),
            path("/run/user/65533/tranche/messages", "700", USER),
            path("/run/user/65533/tranche/messages/c.jsonl", "600", USER),
        ],
        "{}",
        ended.stdout
    );
    assert_eq!(
        ended
            .stdout
            .matches("remark of prepare: --shine: unknown option")
            .count(),
        1,
        "{}",
        ended.stdout
    );
    assert_eq!(
        ended
            .stdout
            .matches("\"text\": \"--again: unknown option, ignored\"")
            .count(),
        1,
        "{}",
        ended.stdout
    );
}
