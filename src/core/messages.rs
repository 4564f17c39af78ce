//! Messages of hooks, kept by container: failures and remarks.
//!
//! An OCI runtime may discard the output of a hook (crun does unless the container has the annotation
//! `run.oci.hooks.stderr`), and engines show it only if a start fails. So hooks also keep their messages here, and
//! `tranche status` shows them. A hook without messages writes nothing.
//!
//! There is one file for each container, of one JSON object per line, in a directory that only its owner may enter:
//! `messages` in the state directory for root ([`crate::ledger::STATE_DIR`]), `/run/user/UID/tranche/messages` for
//! the engine of a user. A line is appended by one write, so that hooks need no lock. Everything is bounded: the
//! number of files, the size of a file and the length of a text. Names that come from an image are in these texts, so
//! they are kept without control characters and without marks that change the direction of text.

mod runtime_dir;
mod store;

use crate::text::{cut, shown};
use serde::{Deserialize, Serialize};

pub use store::{Kept, Messages};

/// The most bytes of a message's text. A longer text is cut.
const TEXT: usize = 768;
/// The most messages that are shown of one container, and that one hook keeps. The newest are kept.
pub const LINES: usize = 24;
/// The most bytes of a container's id. Engines use at most 64; runtimes accept more.
const ID: usize = 256;
/// The most bytes of a hook's name. A specification may name a hook that does not exist.
const HOOK: usize = 64;

/// Whether a hook failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Something did not work. For most hooks the container then does not start.
    Failure,
    /// The hook did not do something that a container can do without, or ignored something.
    Remark,
}

/// One message of a hook about a container.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Message {
    /// The time, in seconds since 1970, by the clock of the host.
    pub at: u64,
    /// The container's full id in its engine. Empty if the hook did not know it.
    pub container: String,
    /// The verb of `tranche-oci hook`. Empty if there was no verb.
    pub hook: String,
    /// Whether something did not work.
    pub severity: Severity,
    /// The text, without the name of the program.
    pub text: String,
}

impl Message {
    /// This message as it is kept and shown: escaped by [`shown`], and cut if it is too long.
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
