//! Every file that tranche keeps of its state. A test that meets another one fails: whoever adds a file says here what
//! notices a bit of it that changes.

use crate::failing_disk::files;
use std::fs;
use std::path::{Path, PathBuf};

/// What is in a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Content {
    /// A JSON object whose first field is its checksum.
    Json,
    /// A book of a GPU, whose last line is its checksum.
    Book,
    /// Nothing: that the file exists, or who has locked it, is all that it says.
    Empty,
    /// A ticket of the queue, which ends with its process. One that cannot be read waits for anything.
    Ticket,
    /// Lines for people, each of its own. One that cannot be read is left out, and that is said.
    Log,
    /// What NVIDIA's MPS programs write.
    Foreign,
}

/// The files by their paths in the state directory; those below `kept` outlive a boot. A `*` is any part of a name.
pub const STATE_FILES: [(&str, Content); 36] = [
    ("broker.lock", Content::Empty),
    ("refresh.lock", Content::Empty),
    ("nodes-closed", Content::Empty),
    ("ledger/lock", Content::Empty),
    ("ledger/kept-was-read", Content::Empty),
    ("ledger/*.claims", Content::Book),
    ("ledger/queue/*", Content::Ticket),
    // Numbers of reservations. One that is lost is given up early.
    ("ledger/reserved-and-used", Content::Log),
    ("kept/ledger/*.claims", Content::Book),
    // Set aside because it was damaged, for a person.
    ("kept/ledger/*.claims.damaged", Content::Foreign),
    ("kept/last-policy.json", Content::Json),
    ("kept/out-of-service.json", Content::Json),
    ("kept/calendar.json", Content::Json),
    ("kept/mig-layout.json", Content::Json),
    ("kept/bench/*.json", Content::Json),
    ("kept/turns-tested.json", Content::Json),
    ("kept/engine-files.json", Content::Json),
    ("prohibited.json", Content::Json),
    ("host.json", Content::Json),
    ("refresh.json", Content::Json),
    ("status.json", Content::Json),
    ("waiting.json", Content::Json),
    ("used-lately.json", Content::Json),
    ("idle.json", Content::Json),
    ("not-ended.json", Content::Json),
    ("frozen.json", Content::Json),
    ("given-up-claims.json", Content::Json),
    ("mig-change.json", Content::Json),
    ("mig-on-demand.json", Content::Json),
    ("mig-restore.json", Content::Json),
    ("control/*.json", Content::Json),
    ("turns/*.json", Content::Json),
    ("messages/*.jsonl", Content::Log),
    ("events/log*", Content::Log),
    ("events/keep", Content::Log),
    ("mps/*", Content::Foreign),
];

/// What is in the file at `path` in a state directory; `None` if it is not known. `Some(None)` is a file that a writer
/// has not given its name yet.
fn content(path: &Path) -> Option<Option<Content>> {
    let name = path.file_name()?.to_str()?;
    if name == "new" || name.starts_with("new-") || name.starts_with(".tranche") || name.ends_with(".tmp") {
        return Some(None);
    }
    let text = path.to_str()?;
    let found = STATE_FILES.iter().find(|(pattern, _)| match pattern.split_once('*') {
        None => *pattern == text,
        Some((before, after)) => {
            text.len() > before.len() + after.len() && text.starts_with(before) && text.ends_with(after)
        }
    });
    found.map(|(_, content)| Some(*content))
}

/// The files in the state directory `top` of this content.
///
/// # Panics
/// If there is a file that [`STATE_FILES`] has not.
pub fn of(top: &Path, contents: &[Content]) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for path in files(top) {
        match content(&path) {
            None => panic!(
                "{}: no test changes a bit of it; see tests/support/state_files.rs",
                path.display()
            ),
            Some(Some(content)) if contents.contains(&content) => found.push(path),
            Some(_) => {}
        }
    }
    found
}

/// Whether the JSON object at `path` begins with its checksum.
pub fn is_sealed(path: &Path) -> bool {
    fs::read_to_string(path).is_ok_and(|text| text.starts_with("{\"checksum\":\""))
}
