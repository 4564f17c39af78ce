//! The last starts that were refused, so that a person can be told why.
//!
//! An OCI runtime may throw away what a hook says: crun sends it to `/dev/null` unless the container has an annotation of
//! its own (`run.oci.hooks.stderr`), and podman then shows "error executing hook" alone. `tranche status` tells the rest.

use super::Ledger;
use super::store::Steps;
use crate::error::{Context, Result};
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::Read;

/// A start that was refused.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refusal {
    /// When, in seconds since 1970: for people.
    pub at: u64,
    /// The container, as engines show it.
    pub container: String,
    /// Why, in one line.
    pub why: String,
}

/// How many are kept: somebody looks right after the failure, not days later.
const KEPT: usize = 10;

/// Lines of ours are shorter; a larger file is none of ours.
const MOST_BYTES: u64 = 1 << 20;

impl<S: Steps> Ledger<S> {
    /// Remembers a refusal, and forgets the oldest.
    ///
    /// # Errors
    /// A disk that is full or read-only. The refusal holds all the same.
    pub fn remember(&self, refusal: Refusal) -> Result<()> {
        let _locked = self.lock()?;
        // What cannot be read is worth nothing: it is written anew.
        let mut kept = self.refusals().unwrap_or_default();
        kept.push(refusal);
        kept.drain(..kept.len().saturating_sub(KEPT));
        let text = serde_json::to_vec(&kept).about("refusals", "cannot be written")?;
        self.replace(&self.file("refused"), &text)
    }

    /// The refusals that are remembered, oldest first.
    ///
    /// # Errors
    /// A file that cannot be read or is not ours.
    pub fn refusals(&self) -> Result<Vec<Refusal>> {
        let path = self.file("refused");
        let mut text = Vec::new();
        match File::open(&path) {
            Ok(file) => file.take(MOST_BYTES).read_to_end(&mut text),
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(e) => Err(e),
        }
        .about(path.display(), "cannot be read")?;
        serde_json::from_slice(&text).about(path.display(), "is no list of ours")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_few_are_remembered() {
        let dir = tempfile::tempdir().unwrap();
        let ledger = Ledger::open(dir.path()).unwrap();
        assert_eq!(ledger.refusals().unwrap(), []);
        for at in 0..KEPT as u64 + 3 {
            let refusal = Refusal {
                at,
                container: "container c".into(),
                why: "taken".into(),
            };
            ledger.remember(refusal).unwrap();
        }
        let at: Vec<u64> = ledger.refusals().unwrap().iter().map(|r| r.at).collect();
        assert_eq!(at, (3..KEPT as u64 + 3).collect::<Vec<_>>());
        std::fs::write(dir.path().join("ledger/refused"), "x").unwrap();
        assert!(ledger.refusals().is_err());
        let one = Refusal {
            at: 1,
            container: "c".into(),
            why: "w".into(),
        };
        ledger.remember(one.clone()).unwrap();
        assert_eq!(ledger.refusals().unwrap(), [one]);
        assert_eq!(ledger.books().unwrap().books.len(), 0, "no book of a device");
    }
}
