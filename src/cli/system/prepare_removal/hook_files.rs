//! Files of OCI hooks that name tranche's programs (oci-hooks(5)). tranche writes none outside its own directory, and a
//! copy of its own in a shared one ends every start there once the program is gone.

use super::specifications::is_program;
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use tranche_inspect::engine_config::check::files_in;
use tranche_inspect::engine_config::podman::DEFAULT_HOOKS_DIR;

/// Where podman and CRI-O look by default.
pub(super) const DIRECTORIES: [&str; 2] = ["/etc/containers/oci/hooks.d", DEFAULT_HOOKS_DIR];

/// The files in `directories` whose hook is a program of tranche. What no engine can read is left out.
pub(super) fn find(directories: &[&str]) -> Vec<PathBuf> {
    let files = directories.iter().flat_map(|directory| files_in(Path::new(directory)));
    files.filter(|file| names_program(file)).collect()
}

fn names_program(file: &Path) -> bool {
    let text = fs::read(file).unwrap_or_default();
    let value: Value = serde_json::from_slice(&text).unwrap_or_default();
    // The path is in `hook` from version 1.0.0 on, and was a text before.
    let hook = value.get("hook").unwrap_or(&Value::Null);
    let path = hook.get("path").unwrap_or(hook);
    path.as_str().is_some_and(is_program)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_files_whose_hook_is_a_program_of_tranche_are_found() {
        let dir = tempfile::tempdir().unwrap();
        for (name, text) in [
            (
                "1.json",
                r#"{"version": "1.0.0", "hook": {"path": "/usr/bin/tranche-runtime"}}"#,
            ),
            ("2.json", r#"{"hook": "/opt/tranche-oci", "stages": ["prestart"]}"#),
            ("3.json", r#"{"version": "1.0.0", "hook": {"path": "/usr/bin/other"}}"#),
            ("4.json", "tranche-oci"),
        ] {
            fs::write(dir.path().join(name), text).unwrap();
        }
        let found = find(&[dir.path().to_str().unwrap(), "/nowhere"]);
        let names: Vec<_> = found.iter().map(|path| path.file_name().unwrap()).collect();
        assert_eq!(names, ["1.json", "2.json"]);
    }
}
