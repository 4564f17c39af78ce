//! The resource claims that were given up lately, with the time.
//!
//! A kubelet that has waited too long for a call gives the claim up, while the first call may still be on its way here.
//! That call must not reserve anything: nobody would ever give it up. The same claim may be prepared again later, so
//! what counts is when the kubelet asked (kubernetes-sigs/dra-driver-nvidia-gpu#1162).

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use tranche_core::error::{Context, Result};
use tranche_core::sealed;
use tranche_protocol::since_boot;
use tranche_state::replace;

/// The file, in the state directory. Times are milliseconds since boot, so it must not outlive the boot.
const FILE: &str = "given-up-claims.json";

/// How long a call may be on its way, in milliseconds: more than ten times what the kubelet waits (45 s).
const REMEMBERED: u64 = 600_000;

/// The claims that were given up, by UID. The caller holds the lock of the ledger.
pub(super) struct GivenUp {
    path: PathBuf,
    times: BTreeMap<String, u64>,
}

impl GivenUp {
    /// What is recorded in `state_dir`.
    ///
    /// # Errors
    /// Returns an error if the file cannot be read. One that is damaged is taken for an empty one, with a line in the
    /// log: it matters to calls that are on their way, and to no others.
    pub(super) fn read(state_dir: &Path) -> Result<Self> {
        let path = state_dir.join(FILE);
        let times = match std::fs::read(&path) {
            Ok(bytes) => sealed::parse(&bytes).unwrap_or_else(|error| {
                tracing::warn!("{}: is damaged, and counts as empty: {error}", path.display());
                BTreeMap::new()
            }),
            Err(e) if e.kind() == ErrorKind::NotFound => BTreeMap::new(),
            Err(e) => return Err(e).about(path.display(), "cannot be read"),
        };
        Ok(Self { path, times })
    }

    /// Whether the claim was given up since `asked_at`.
    pub(super) fn is_since(&self, uid: &str, asked_at: u64) -> bool {
        self.times.get(uid).is_some_and(|given_up| *given_up >= asked_at)
    }

    /// Records that the claim is given up now.
    ///
    /// # Errors
    /// Returns an error if the file cannot be written.
    pub(super) fn add(&mut self, uid: &str) -> Result<()> {
        let now = since_boot();
        self.times.retain(|_, at| now.saturating_sub(*at) < REMEMBERED);
        self.times.insert(uid.to_owned(), now);
        let text = serde_json::to_string(&self.times).about(self.path.display(), "cannot be written")?;
        replace::write(&self.path, &sealed::seal(&text))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_from_before_is_known_and_one_from_after_is_not() {
        let top = tempfile::tempdir().unwrap();
        let before = since_boot();
        GivenUp::read(top.path()).unwrap().add("a").unwrap();
        let given_up = GivenUp::read(top.path()).unwrap();
        assert!(given_up.is_since("a", before));
        assert!(!given_up.is_since("a", since_boot() + 1));
        assert!(!given_up.is_since("b", before));
        std::fs::write(top.path().join(FILE), "{").unwrap();
        assert!(!GivenUp::read(top.path()).unwrap().is_since("a", before));
    }

    #[test]
    fn what_is_long_ago_is_forgotten() {
        let top = tempfile::tempdir().unwrap();
        let mut given_up = GivenUp::read(top.path()).unwrap();
        given_up.times.insert("old".into(), 0);
        if since_boot() > REMEMBERED {
            given_up.add("new").unwrap();
            assert!(!given_up.is_since("old", 0));
        }
        assert!(GivenUp::read(top.path()).unwrap().times.len() <= 1);
    }
}
