//! Links at every component of every path that a hook touches.

use std::path::PathBuf;

use crate::can_mount;
use crate::stage::Stage;
use crate::trial::Attack;
use crate::verb::VERBS;

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
    Attack::new(
        "links::at_every_component_of_every_path",
        "a component of a path is a link to the host: absolute, climbing, by way of other links, dangling, a loop",
    )
    .run(|trial| {
        for verb in VERBS {
            trial.twin(&Stage::new(verb));
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
                    trial.attack(&format!("{} {component} is a link, {says}", verb.name), &stage);
                }
            }
        }
    });
}

/// A link's target may be missing outside as well: then making it would be the escape (CVE-2024-0133: empty files).
#[test]
fn to_what_the_host_does_not_have() {
    Attack::new(
        "links::to_what_the_host_does_not_have",
        "a component is a link to a place of the host where nothing is yet, so that making it is the escape",
    )
    .run(|trial| {
        for verb in VERBS {
            trial.twin(&Stage::new(verb));
            for component in verb.components() {
                let stage = Stage::new(verb);
                let host = stage.host(component);
                if host.is_dir() {
                    std::fs::remove_dir_all(&host).unwrap();
                } else {
                    let _ = std::fs::remove_file(&host);
                }
                stage.link(component, host);
                trial.attack(&format!("{} {component} is not on the host", verb.name), &stage);
            }
        }
    });
}

/// With a real /proc in the root, as every container has it by then, its magic links lead out of it.
#[test]
fn magic_links_at_every_component() {
    if !can_mount("magic_links_at_every_component") {
        return;
    }
    const MAGIC: [&str; 6] = [
        "/proc/self/root",
        "/proc/1/root",
        "/proc/thread-self/root",
        "/proc/self/cwd/../../..",
        "/proc/self/fd/3/../../../..",
        "/proc/1/cwd/../../../../../..",
    ];
    Attack::new(
        "links::magic_links_at_every_component",
        "a component is a link through /proc/PID/root, cwd or fd, which leave any root",
    )
    .run(|trial| {
        for verb in VERBS {
            trial.twin(&Stage::new(verb));
            for component in verb.components().into_iter().filter(|path| !path.starts_with("/proc")) {
                for magic in &MAGIC[..if verb.name == "prepare" { MAGIC.len() } else { 2 }] {
                    let mut stage = Stage::new(verb);
                    stage.before = r#"mount --rbind /proc "$root/proc""#.to_owned();
                    let target = format!("{magic}{}", stage.host(component).display());
                    stage.link(component, target);
                    trial.attack(&format!("{} {component} is {magic}", verb.name), &stage);
                }
            }
        }
    });
}

/// runc's CVE-2026-41579 and crun's CVE-2026-47766, as far as a hook works in the same image.
#[test]
fn whole_directories_of_the_image() {
    const WHOLE: [&str; 6] = ["/dev", "/etc", "/run", "/usr", "/lib64", "/lib"];
    Attack::new(
        "links::whole_directories_of_the_image",
        "CVE-2026-41579, CVE-2026-47766: /dev, /etc, /run, /usr and /lib of the image are links, all of them at once",
    )
    .run(|trial| {
        for verb in VERBS {
            trial.twin(&Stage::new(verb));
            for kind in 0..targets(&Stage::new(verb), "/etc").len() {
                let stage = Stage::new(verb);
                let mut says = "";
                for directory in WHOLE {
                    let (kind, target) = targets(&stage, directory).remove(kind);
                    stage.link(directory, target);
                    says = kind;
                }
                trial.attack(&format!("{} in an image of links, {says}", verb.name), &stage);
            }
            // To each other: what is made in one is found in the next.
            let stage = Stage::new(verb);
            for (directory, next) in WHOLE.iter().zip(WHOLE.iter().cycle().skip(1)) {
                stage.link(directory, next);
            }
            trial.attack(&format!("{} in an image of links, a ring", verb.name), &stage);
        }
    });
}
