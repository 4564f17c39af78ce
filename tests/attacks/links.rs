//! Links at every component of every path that a hook touches.

use std::path::PathBuf;

use nix::unistd::Uid;

use crate::stage::Stage;
use crate::verb::VERBS;
use crate::{both_ways, skip};

/// What a link at `component` can say; each, if it were followed as a path of the host, arrives at the host's file.
fn targets(stage: &Stage, component: &str) -> Vec<(&'static str, PathBuf)> {
    let host = stage.host(component);
    let shown = host.display().to_string();
    let depth = component.matches('/').count();
    let climb = |levels: usize| format!("{}host{component}", "../".repeat(levels)).replace("host", "outside/host");
    vec![
        ("absolute", host.clone()),
        ("relative", climb(depth + 1).into()),
        (
            "more dots than the root is deep",
            format!("{}{shown}", "../".repeat(64)).into(),
        ),
        (
            "a directory and dots",
            format!("/etc/{}{shown}", "../".repeat(64)).into(),
        ),
        ("dots in the middle", format!("/usr/../..{shown}").into()),
        (
            "text of four thousand bytes",
            format!("{}{shown}", "/./".repeat(1250)).into(),
        ),
        ("by way of another link", "/first".into()),
        ("by way of forty others", "/chain0".into()),
        ("by way of thirty others", "/chain10".into()),
        ("dangling", "/nowhere/at/all".into()),
        ("a name that is not there yet", format!("{shown}-new").into()),
        ("itself", component.into()),
        ("the root", "/".into()),
        ("where it is", ".".into()),
        ("above", "..".into()),
    ]
}

/// CVE-2024-0134 and CVE-2025-23267 among them.
#[test]
fn at_every_component_of_every_path() {
    both_ways("links::at_every_component_of_every_path", |tally, how| {
        for verb in VERBS {
            for component in verb.components() {
                let kinds = targets(&Stage::new(verb), component).len();
                // `prepare` does what the others do: they are tried with the first of the kinds.
                for kind in 0..if verb.name == "prepare" { kinds } else { 3 } {
                    let stage = Stage::new(verb);
                    let (says, target) = targets(&stage, component).remove(kind);
                    stage.link("/first", stage.host(component));
                    for n in 0..40 {
                        let next = format!("/chain{}", n + 1);
                        stage.link(&format!("/chain{n}"), if n == 39 { "/first" } else { &next });
                    }
                    stage.link(component, target);
                    stage.attack(&format!("{} {component} is a link, {says}, {how}", verb.name), tally);
                }
            }
        }
    });
}

/// A link's target may be missing outside as well: then making it would be the escape (CVE-2024-0133: empty files).
#[test]
fn to_what_the_host_does_not_have() {
    both_ways("links::to_what_the_host_does_not_have", |tally, how| {
        for verb in VERBS {
            for component in verb.components() {
                let stage = Stage::new(verb);
                let host = stage.host(component);
                if host.is_dir() {
                    std::fs::remove_dir_all(&host).unwrap();
                } else {
                    let _ = std::fs::remove_file(&host);
                }
                stage.link(component, host);
                stage.attack(&format!("{} {component} is not on the host, {how}", verb.name), tally);
            }
        }
    });
}

/// With a real /proc in the root, as every container has it by then, its magic links lead out of it.
#[test]
fn magic_links_at_every_component() {
    if !Uid::effective().is_root() {
        return skip::not_run("attacks::magic_links_at_every_component", "not root: cannot mount");
    }
    const MAGIC: [&str; 6] = [
        "/proc/self/root",
        "/proc/1/root",
        "/proc/thread-self/root",
        "/proc/self/cwd/../../..",
        "/proc/self/fd/3/../../../..",
        "/proc/1/cwd/../../../../../..",
    ];
    both_ways("links::magic_links_at_every_component", |tally, how| {
        for verb in VERBS {
            for component in verb.components().into_iter().filter(|path| !path.starts_with("/proc")) {
                for magic in &MAGIC[..if verb.name == "prepare" { MAGIC.len() } else { 2 }] {
                    let mut stage = Stage::new(verb);
                    stage.before = r#"mount --rbind /proc "$root/proc""#.to_owned();
                    let target = format!("{magic}{}", stage.host(component).display());
                    stage.link(component, target);
                    stage.attack(&format!("{} {component} is {magic}, {how}", verb.name), tally);
                }
            }
        }
    });
}
