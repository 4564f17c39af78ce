//! What hooks said, kept for people: the failures and the remarks of every hook, by container.
//!
//! An OCI runtime may throw away what a hook prints (crun sends it to `/dev/null` unless the container has the annotation
//! `run.oci.hooks.stderr`), and engines show it only when a start fails. So a hook that has something to say also keeps
//! it here, and `tranche status` shows it. A hook that has nothing to say does nothing at all here.
//!
//! There is one file for each container, of one JSON object per line, in a directory that only its owner may enter:
//! `messages` in the state directory for root ([`crate::ledger::STATE_DIR`]), `/run/user/UID/tranche/messages` for
//! the engine of a user. A line is appended by one write, so that hooks need no lock. Everything is bounded: the
//! number of files, the size of a file and the length of a text. Names that come from an image are in these texts, so they
//! are kept without control characters and without marks that change the direction of text.

mod directory;
mod store;

use crate::text::shown;
use serde::{Deserialize, Serialize};

pub use store::{Kept, Messages};

/// Bytes that the text of a message may have; a longer one is cut.
const TEXT: usize = 768;
/// Messages of one container that are shown, and that one hook may keep: the newest ones.
pub(crate) const LINES: usize = 24;
/// Bytes that a container's id may have. Engines use at most 64, runtimes take more.
const ID: usize = 256;
/// Bytes that the name of a hook may have: a specification may name one that does not exist.
const HOOK: usize = 64;

/// Whether a hook failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Something did not work. For most hooks the container then does not start.
    Failure,
    /// The hook left something undone that a container can do without, or ignored something.
    Remark,
}

/// One line that a hook had to say about a container.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Message {
    /// When, in seconds since 1970, by the clock of the host.
    pub at: u64,
    /// The container's full id, as its engine knows it. Empty where the hook could not learn it.
    pub container: String,
    /// The verb of `tranche-oci hook`. Empty where there was none.
    pub hook: String,
    /// Whether something did not work.
    pub severity: Severity,
    /// The line itself, without the name of the program.
    pub text: String,
}

impl Message {
    /// This message as it is kept and shown: escaped by [`shown`], and cut where it is too long.
    #[must_use]
    fn bounded(&self) -> Message {
        Message {
            at: self.at,
            container: cut(&shown(&self.container), ID),
            hook: cut(&shown(&self.hook), HOOK),
            severity: self.severity,
            text: cut(&shown(&self.text), TEXT),
        }
    }
}

/// At most `most` bytes of `text`, with `…` at the end where something was cut off.
fn cut(text: &str, most: usize) -> String {
    if text.len() <= most {
        return text.to_owned();
    }
    format!(
        "{}…",
        &text[..text.floor_char_boundary(most.saturating_sub('…'.len_utf8()))]
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_has_a_longest_form() {
        let long = "é".repeat(100_000);
        let message = Message {
            at: u64::MAX,
            container: long.clone(),
            hook: long.clone(),
            severity: Severity::Failure,
            text: long,
        };
        let bounded = message.bounded();
        assert!(bounded.container.len() <= ID && bounded.hook.len() <= HOOK && bounded.text.len() <= TEXT);
        assert!(
            bounded.text.starts_with("éé") && bounded.text.ends_with("é…"),
            "{}",
            bounded.text
        );
        assert_eq!(bounded.bounded(), bounded);
    }
}
