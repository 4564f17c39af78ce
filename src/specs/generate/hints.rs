//! Hints for the person who writes a specification, about engines of current distributions.

use std::path::{Path, PathBuf};
use tranche_core::types::CdiVersion;
use tranche_plan::cdi::directory::entries;
use tranche_plan::cdi::encode::Format;
use tranche_plan::cdi::registry::{Registry, may_define};
use tranche_plan::cdi::{Problem, Spec, build};
use tranche_plan::edits::Derived;
use tranche_state::claim_spec::is_same;

/// Why an engine that reads CDI 0.5, as podman 4.3 does, will call the devices of `spec` unresolvable, and what to do
/// about it; `None` where such an engine reads it.
pub(super) fn for_old_engines(derived: &Derived, spec: &Spec) -> Option<String> {
    let version: CdiVersion = spec.version.parse().ok()?;
    if version <= CdiVersion::V0_5 {
        return None;
    }
    let calls = "engines that read CDI 0.5 (podman 4.3) call its devices unresolvable";
    Some(match build(derived, Some(CdiVersion::V0_5)) {
        Ok((_, left_out)) => {
            let mut what: Vec<String> = left_out.iter().map(|one| one.what.clone()).collect();
            what.sort();
            what.dedup();
            let what = tranche_core::text::some(&what);
            format!(
                "{} needs CDI {version} for {what}; {calls}; for such engines, add --cdi-version 0.5, which leaves \
                 this out",
                spec.kind
            )
        }
        Err(_) => format!("{} needs CDI {version} for its name; {calls}", spec.kind),
    })
}

/// Why engines do not find devices of `spec`, which was written to `file`: other files of the directory define the same
/// ones. One line for each set of files. In a directory that is not one of `read`, those that engines read, files do
/// not affect each other: in `/tmp`, for example.
pub(super) fn conflicts(file: &Path, spec: &Spec, read: &[PathBuf]) -> Vec<String> {
    let directory = file.parent().filter(|parent| !parent.as_os_str().is_empty());
    let directory = directory.unwrap_or(Path::new("."));
    if !read.iter().any(|read| is_same(read, directory)) {
        return Vec::new();
    }
    let is_written = |path: &Path| path.file_name() == file.file_name();
    let may_define = |path: &Path| may_define(path, &spec.kind);
    // Most files have devices of another kind, and are not parsed. A file that cannot be read defines nothing.
    let mut others = entries(directory).filter_map(|path| path.ok());
    if !others.any(|path| Format::of_path(&path).is_some() && !is_written(&path) && may_define(&path)) {
        return Vec::new();
    }
    let registry = Registry::read_only(&[directory], |path| is_written(path) || may_define(path));
    let names: Vec<String> = spec
        .devices
        .iter()
        .map(|one| format!("{}={}", spec.kind, one.name))
        .collect();
    let loses_one = |problem: &&Problem| names.iter().any(|name| problem.loses(name));
    registry
        .problems
        .iter()
        .filter(loses_one)
        .map(ToString::to_string)
        .collect()
}

/// The topmost directory on the way to `file` that does not exist yet, and so will be created.
pub(super) fn missing_directory(file: &Path) -> Option<PathBuf> {
    let directories = file.ancestors().skip(1).filter(|dir| !dir.as_os_str().is_empty());
    directories.take_while(|dir| !dir.exists()).last().map(Path::to_owned)
}
