//! What is printed about changes.

use crate::out;
use anyhow::Result;
use similar::TextDiff;
use tranche_inspect::engine_config::install::FileChange;

/// Prints what would be changed: a unified diff, or the new files as NVIDIA's tool does.
///
/// # Errors
/// Returns an error if standard output cannot be written.
pub(super) fn show(changes: &[FileChange], as_files: bool) -> Result<()> {
    let texts = changes.iter().map(|change| match as_files {
        true => change.after.clone().unwrap_or_default(),
        false => diff(change),
    });
    out::document(&texts.collect::<String>())
}

fn diff(change: &FileChange) -> String {
    let path = change.path().display().to_string();
    let name = |text: Option<&str>| text.map_or("/dev/null", |_| &*path).to_owned();
    let (before, after) = (change.before(), change.after.as_deref());
    let diff = TextDiff::from_lines(before.unwrap_or_default(), after.unwrap_or_default());
    diff.unified_diff().header(&name(before), &name(after)).to_string()
}

/// The line about a file whose changes were taken back.
pub(super) fn undone(change: &FileChange) -> String {
    let path = change.path().display();
    let what = match (&change.after, change.is_exact()) {
        (None, _) if change.before().is_none() => "does not exist any more; its record is removed",
        (None, _) => "removed",
        (Some(_), true) => "the original file is restored",
        (Some(_), false) => "was changed since; only what tranche wrote is removed",
    };
    match change.kept() {
        [] => format!("{path}: {what}"),
        kept => format!("{path}: {what}; {} has another value now and is kept", kept.join(", ")),
    }
}
