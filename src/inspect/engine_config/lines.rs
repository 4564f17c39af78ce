//! Line endings: toml_edit and jsonc-parser write `\n`, and files that were edited on Windows have `\r\n`.

use similar::{ChangeTag, TextDiff};

/// `new`, which was made from `old` with `\n` line endings, with the line endings of `old`: those of a line that did
/// not change, and for new lines those of the first line.
pub(super) fn like(old: &str, new: &str) -> String {
    if !old.contains('\r') {
        return new.to_owned();
    }
    let is_crlf = old.split_once('\n').is_some_and(|(first, _)| first.ends_with('\r'));
    let normal = normal(old);
    let diff = TextDiff::from_lines(&*normal, new);
    let mut originals = old.split_inclusive('\n');
    let mut text = String::with_capacity(new.len() + new.len() / 16);
    for change in diff.iter_all_changes() {
        match change.tag() {
            ChangeTag::Equal => text.push_str(originals.next().unwrap_or_default()),
            ChangeTag::Delete => {
                originals.next();
            }
            ChangeTag::Insert if is_crlf => text.push_str(&change.value().replace('\n', "\r\n")),
            ChangeTag::Insert => text.push_str(change.value()),
        }
    }
    text
}

/// `text` with `\n` line endings.
pub(super) fn normal(text: &str) -> String {
    text.replace("\r\n", "\n")
}
