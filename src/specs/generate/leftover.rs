//! Files that an earlier `cdi generate` wrote beside its output and that this run does not write. If `rename` is
//! removed from a policy, the file of the other kind remains, and engines would still start containers with its shares.

use std::path::{Path, PathBuf};
use tranche_core::error::{Context, Result};
use tranche_plan::cdi::Spec;
use tranche_plan::cdi::directory::entries;
use tranche_plan::cdi::header;
use tranche_plan::cdi::registry::{Loaded, Registry};
use tranche_state::claim_spec::claim_of;

/// The comment that marks a file beside `output`. A file that a person copied here, or that was made with an `--output`
/// of its own, does not have it.
pub(super) fn mark(output: &Path) -> String {
    let name = output.file_name().unwrap_or_default().to_string_lossy();
    format!("{MARK}{name}")
}

const MARK: &str = "Written beside ";

/// The file that `--output` named when `file` was written: itself, or the one that it was written beside.
pub(super) fn output_of(file: &Loaded) -> PathBuf {
    let name = file.comments.iter().find_map(|line| line.strip_prefix(MARK));
    name.map_or_else(|| file.path.clone(), |name| file.path.with_file_name(name))
}

/// Removes the files that were written beside `output` and are not in `written`, and returns them.
///
/// `name` returns the file that `generate` writes beside `output` for the kind of a specification.
///
/// # Errors
/// Returns an error if the directory cannot be listed or a file cannot be removed.
pub(super) fn remove(
    output: &Path,
    written: &[&Path],
    name: impl Fn(&Spec) -> Option<PathBuf>,
) -> Result<Vec<PathBuf>> {
    let dir = output.parent().filter(|d| !d.as_os_str().is_empty());
    let dir = dir.unwrap_or(Path::new("."));
    let stem = output.file_stem().unwrap_or_default().to_string_lossy();
    let mut removed = Vec::new();
    for path in entries(dir) {
        let path = path.about(dir.display(), "cannot be listed")?;
        let file = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let is_beside = file
            .strip_prefix(&*stem)
            .is_some_and(|rest| rest.starts_with(['-', '.']))
            && (file.ends_with(".yaml") || file.ends_with(".json"));
        let path = output.with_file_name(&file);
        if is_beside && path != output && !written.contains(&path.as_path()) && is_own(&path, output, &name) {
            std::fs::remove_file(&path).about(path.display(), "cannot be removed")?;
            removed.push(path);
        }
    }
    Ok(removed)
}

/// Whether `generate --output OUTPUT` wrote `path`: it has the name of such a file, and its header has the mark. JSON
/// has no comments, so there every device must be a share; only such a file has nothing but shares.
fn is_own(path: &Path, output: &Path, name: &impl Fn(&Spec) -> Option<PathBuf>) -> bool {
    let read = Registry::read_file(path);
    let Some(file) = read.files().first() else {
        return false;
    };
    let expected = name(&file.spec).map(|p| p.with_extension(""));
    if expected != Some(path.with_extension("")) {
        return false;
    }
    let mark = mark(output);
    let made = header::is_by_tranche(&file.comments);
    let is_json = path.extension().is_some_and(|e| e == "json");
    let shares_alone = || file.spec.devices.iter().all(|d| claim_of(d).is_some());
    (made && file.comments.contains(&mark)) || (is_json && !file.spec.devices.is_empty() && shares_alone())
}
