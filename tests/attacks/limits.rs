//! The container's limits on resources: crun applies them to hooks. An image or its user chooses them.

use std::path::PathBuf;

use crate::stage::Stage;
use crate::trial::Attack;
use crate::verb::VERBS;

/// Limits as prlimit(1) takes them, and whether a program with a loader can start under them.
const LIMITS: [(&str, bool); 12] = [
    ("--fsize=0:0", true),
    ("--fsize=16:16", true),
    ("--fsize=4096:4096", true),
    ("--nofile=8:8", true),
    ("--nproc=0:0", true),
    ("--memlock=0:0", true),
    ("--sigpending=0:0", true),
    ("--stack=16384:16384", false),
    ("--nofile=3:3", false),
    ("--nofile=4:4", false),
    ("--nofile=6:6", false),
    ("--data=1048576:1048576", false),
];

/// What is in the image, without times.
fn content(stage: &Stage) -> Vec<(PathBuf, String)> {
    let inside = stage.scene.inside().into_iter();
    inside
        .map(|(path, text)| {
            let mut words: Vec<&str> = text.splitn(4, ' ').collect();
            words.remove(2);
            (path, words.join(" "))
        })
        .collect()
}

/// The root is served, or it is as it was and one line says why.
#[test]
fn of_the_container() {
    let shipped = std::env::var_os("TRANCHE_OCI_STATIC").is_some();
    Attack::new(
        "limits::of_the_container",
        "the container's limits (files of 0 bytes, 3 open files, no memory) let the hook stop in the middle",
    )
    .run(|trial| {
        for verb in VERBS {
            trial.twin(&Stage::new(verb));
            for (limit, _) in LIMITS.iter().filter(|(_, loader)| shipped || *loader) {
                let mut stage = Stage::new(verb);
                stage.wrapper = ["prlimit", limit].map(Into::into).to_vec();
                let before = content(&stage);
                trial.attack_and(&format!("{} {limit}", verb.name), &stage, |ended| {
                    let mut wrong = Vec::new();
                    let undone = crate::control::missing(&stage, ended);
                    if ended.code == 0 && ended.stderr.is_empty() && !undone.is_empty() {
                        wrong.push(format!("it says nothing of {}", undone.join(", ")));
                    }
                    if ended.code != 0 && content(&stage) != before {
                        wrong.push("it failed, and the image is another".to_owned());
                    }
                    wrong
                });
            }
        }
    });
}
