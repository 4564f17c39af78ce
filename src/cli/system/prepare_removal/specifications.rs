//! The specifications that need tranche's programs.

use std::path::{Path, PathBuf};
use tranche_plan::cdi::Spec;
use tranche_plan::cdi::header;
use tranche_plan::cdi::registry::{Loaded, Registry};

/// The programs that specifications of tranche name.
const PROGRAMS: [&str; 2] = ["tranche-oci", "tranche-runtime"];

/// Specifications that need tranche's programs.
pub(super) struct FoundSpecifications {
    /// Those that tranche wrote.
    pub(super) own: Vec<PathBuf>,
    /// Those of other programs and people.
    pub(super) foreign: Vec<PathBuf>,
}

/// Looks for them in `dirs`. A file that no engine can read keeps no container from starting, and is left out.
pub(super) fn find(dirs: &[PathBuf]) -> FoundSpecifications {
    let registry = Registry::read(dirs);
    let needs = |file: &&Loaded| is_own(file) || names_program(&file.spec);
    let (own, foreign): (Vec<&Loaded>, Vec<&Loaded>) =
        registry.files().iter().filter(needs).partition(|file| is_own(file));
    let paths = |files: Vec<&Loaded>| files.into_iter().map(|file| file.path.clone()).collect();
    FoundSpecifications {
        own: paths(own),
        foreign: paths(foreign),
    }
}

/// Whether tranche wrote it. JSON has no comments, so a specification in JSON is tranche's if it names its hook.
fn is_own(file: &Loaded) -> bool {
    let is_json = file.path.extension().is_some_and(|extension| extension == "json");
    header::is_by_tranche(&file.comments) || (is_json && names_program(&file.spec))
}

fn names_program(spec: &Spec) -> bool {
    let edits = spec.devices.iter().map(|device| &device.edits).chain([&spec.edits]);
    let mut hooks = edits.flat_map(|edits| &edits.hooks);
    hooks.any(|hook| is_program(&hook.path))
}

/// Whether `path` is that of a program of tranche, or of a link to one: tranche-nvidia-compat has links with NVIDIA's
/// names.
pub(super) fn is_program(path: &str) -> bool {
    let path = Path::new(path);
    let is_named = |path: &Path| {
        path.file_name()
            .is_some_and(|name| PROGRAMS.iter().any(|program| name == *program))
    };
    is_named(path) || path.canonicalize().is_ok_and(|target| is_named(&target))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn only_files_that_tranche_wrote_are_its_own() {
        let dir = tempfile::tempdir().unwrap();
        let spec = |kind: &str, hook: &str| {
            format!(
                "cdiVersion: 0.5.0\nkind: {kind}\ndevices:\n- name: a\n  containerEdits:\n    hooks:\n    - {{hookName: \
                 createContainer, path: {hook}}}\n"
            )
        };
        let json = r#"{"cdiVersion": "0.5.0", "kind": "a.b/json", "devices": [{"name": "a", "containerEdits":
            {"hooks": [{"hookName": "poststop", "path": "/opt/tranche-oci"}]}}]}"#;
        let link = dir.path().join("nvidia-cdi-hook");
        std::os::unix::fs::symlink("tranche-oci", &link).unwrap();
        fs::write(dir.path().join("tranche-oci"), "").unwrap();
        let files = [
            (
                "a.yaml",
                format!(
                    "# Made by tranche 0.0.1\n{}",
                    spec("a.b/made", "/usr/bin/nvidia-cdi-hook")
                ),
            ),
            ("b.yaml", spec("a.b/hand", "/usr/bin/tranche-oci")),
            ("c.yaml", spec("a.b/other", "/usr/bin/nvidia-cdi-hook")),
            ("d.json", json.to_owned()),
            ("e.yaml", "# Made by tranche 0.0.1\nkind: [\n".to_owned()),
            ("f.yaml", spec("a.b/linked", link.to_str().unwrap())),
        ];
        files
            .iter()
            .for_each(|(name, text)| fs::write(dir.path().join(name), text).unwrap());
        let found = find(&[dir.path().to_owned()]);
        let names = |paths: &[PathBuf]| -> Vec<String> {
            let names = paths
                .iter()
                .map(|path| path.file_name().unwrap().to_str().unwrap().to_owned());
            names.collect()
        };
        assert_eq!(names(&found.own), ["a.yaml", "d.json"]);
        assert_eq!(names(&found.foreign), ["b.yaml", "f.yaml"]);
    }
}
