//! Several podman commands, one after another, against one set of specs and one state: what a person does in a shell.
//!
//! The script runs in the bed's mount namespace, where `/run/tranche` and the specs are its own. Each `step NAME
//! COMMAND…` is a result that the test looks at by name.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;

use crate::engines::{Bed, Engine, entered, limits};
use crate::programs;

/// What a step gave.
#[derive(Debug, Clone)]
pub struct Step {
    pub code: i32,
    /// Standard output and standard error, as they came.
    pub text: String,
}

/// The steps of a script, by name.
#[derive(Debug)]
pub struct Session {
    engine: Engine,
    steps: BTreeMap<String, Step>,
    said: String,
}

/// Between what a refused step said and what `tranche status` said then; session.sh writes it.
const MARK: &str = "-- status --\n";

impl Session {
    /// A step that was run.
    pub fn step(&self, name: &str) -> &Step {
        let step = self.steps.get(name);
        step.unwrap_or_else(|| panic!("no step {name} in:\n{}", self.said))
    }

    /// A step that must have succeeded: what it said.
    pub fn ok(&self, name: &str) -> &str {
        let step = self.step(name);
        assert_eq!(step.code, 0, "step {name} in:\n{}", self.said);
        &step.text
    }

    /// A step that the claim hook must have refused: why, in one line.
    ///
    /// crun throws away what a hook says, so the line is that of `tranche status`; under runc it is in podman's words
    /// too.
    pub fn refused(&self, name: &str) -> &str {
        let step = self.step(name);
        assert_ne!(step.code, 0, "step {name} in:\n{}", self.said);
        let (podman, status) = step.text.split_once(MARK).unwrap_or_default();
        let last = status.lines().find(|line| line.contains("  failure of "));
        let why = last.and_then(|last| last.split_once(": ")).map_or("", |(_, why)| why);
        assert!(!why.is_empty(), "step {name} in:\n{}", self.said);
        if self.engine == Engine::PodmanRunc {
            assert!(podman.contains(why), "step {name} in:\n{}", self.said);
        }
        why
    }
}

/// Runs a script of steps under `engine`. In it `podman` is the bed's, as `$bed/podman` is for other programs, `start
/// NAME DEVICE…` a container that sleeps, `tranche` this build's program, `$oci` the hook, `$images` a list of fresh
/// images and `$bed` the bed's directory. Every container is removed at its end.
pub fn session(bed: &Bed, engine: Engine, images: usize, script: &str) -> Session {
    let user = bed.at("root");
    for directory in ["", "run", "store", "runroot"] {
        let _ = std::fs::create_dir(user.join(directory));
    }
    let images: Vec<String> = (0..images).map(|_| bed.image(engine).display().to_string()).collect();
    let mut text = String::from("set -u\n");
    let _ = writeln!(
        text,
        "bed={bed}\noci={oci}\nexport HOME={user} XDG_RUNTIME_DIR={user}/run\nset -- {images}",
        bed = bed.at("").display(),
        oci = bed.hook().display(),
        user = user.display(),
        images = images.join(" "),
    );
    let podman = format!(
        "podman --storage-driver vfs --cgroup-manager cgroupfs --events-backend none --root {user}/store \
         --runroot {user}/runroot --runtime {runtime} \"$@\"",
        user = user.display(),
        runtime = bed.runtime(engine).display(),
    );
    let _ = writeln!(text, "podman() {{ command {podman}; }}");
    let wrapper = bed.at("podman");
    programs::script(&wrapper, &format!("exec {podman}"));
    let _ = writeln!(
        text,
        "tranche() {{ {program} \"$@\"; }}\nlimits='{limits}'",
        program = programs::built("tranche").display(),
        limits = limits().join(" "),
    );
    text.push_str(include_str!("session.sh"));
    text.push_str(script);
    // A container that is left would keep the mount namespace, and the machine's processes.
    text.push_str("\npodman rm --all --force --time 0 > /dev/null 2>&1\nexit 0\n");
    let file = bed.at("session.sh");
    std::fs::write(&file, text).unwrap();
    let output = entered(bed, &bed.specs()).args(["sh"]).arg(&file).output().unwrap();
    let said = format!(
        "{}\n{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    assert!(output.status.success(), "{said}");
    let gave_up = std::fs::read_to_string(bed.at("gave-up")).unwrap_or_default();
    assert!(gave_up.is_empty(), "never happened: {gave_up}\n{said}");
    Session {
        engine,
        steps: steps(&bed.at("steps")),
        said,
    }
}

fn steps(dir: &Path) -> BTreeMap<String, Step> {
    let mut steps = BTreeMap::new();
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        let Some(name) = path.file_name().unwrap().to_str().unwrap().strip_suffix(".code") else {
            continue;
        };
        let code = std::fs::read_to_string(&path).unwrap().trim().parse().unwrap();
        let text = std::fs::read(path.with_file_name(format!("{name}.text"))).unwrap();
        let text = String::from_utf8_lossy(&text).into_owned();
        steps.insert(name.to_owned(), Step { code, text });
    }
    steps
}
