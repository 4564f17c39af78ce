//! How a person takes the change of a file back without tranche.

use super::edit::Edit;
use super::record::Beside;
use std::path::Path;
use tranche_core::text::some;

/// What a person does with the file `path`, which `tranche runtime configure` has changed: the settings to remove, and
/// the command that restores the file as a whole.
pub fn by_hand(path: &Path) -> String {
    let file = std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let beside = Beside::of(&file);
    let record = beside.record().ok().flatten();
    let (file, backup, kept) = (quoted(&file), quoted(&beside.backup), quoted(&beside.record));
    let command = match &record {
        Some(record) if record.created => format!("rm {file} {kept}"),
        _ if beside.backup.is_file() => format!("mv {backup} {file} && rm {kept}"),
        _ => format!("rm {kept}"),
    };
    let settings: Vec<String> = record.iter().flat_map(|record| &record.edits).map(setting).collect();
    match settings.is_empty() {
        true => format!("restore it by hand: {command}"),
        false => format!("remove {} from it by hand, or restore it: {command}", some(&settings)),
    }
}

fn setting(edit: &Edit) -> String {
    let keys = edit.keys().join(".");
    match edit {
        Edit::Include { value, .. } => format!("{value} in {keys}"),
        Edit::Set { .. } | Edit::Own { .. } => keys,
    }
}

/// A path as a word for a shell.
fn quoted(path: &Path) -> String {
    let text = path.display().to_string();
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/._-+@:,".contains(c);
    match text.chars().all(is_plain) {
        true => text,
        false => format!("'{}'", text.replace('\'', r"'\''")),
    }
}
