//! `refresh.json`: what the last refresh saw, beside `host.json`.

use super::options::{RefreshOptions, RefreshPlace};
use super::signs::Sign;
use serde::{Deserialize, Serialize};
use std::io::ErrorKind;
use tranche_core::error::{Context, Result, line};
use tranche_core::ledger::LedgerDirectory;
use tranche_core::root::Missing;
use tranche_core::sealed;
use tranche_plan::host_file::HostFile;
use tranche_state::replace;

/// The name of the file in the state directory.
pub(super) const NAME: &str = "refresh.json";

/// The most bytes that are read. A driver has a few hundred files.
const MOST_BYTES: u64 = 4 << 20;

/// What the last refresh saw. Nothing is recorded after one that failed, or that could not examine the host completely.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct LastRefresh {
    /// The version of tranche that wrote it. Another one may write other specifications.
    program: String,
    arguments: Vec<String>,
    signs: Vec<Sign>,
}

impl LastRefresh {
    /// # Errors
    /// Returns an error if a path of the arguments has no absolute form.
    pub(super) fn new(options: &RefreshOptions, signs: Vec<Sign>) -> Result<Self> {
        Ok(Self {
            program: env!("CARGO_PKG_VERSION").to_owned(),
            arguments: options.recorded()?,
            signs,
        })
    }

    /// Writes it, if it is not on the disk yet.
    ///
    /// # Errors
    /// Returns an error if it cannot be written.
    pub(super) fn write(&self, place: &RefreshPlace) -> Result<()> {
        let path = place.state_dir.join(NAME);
        let text = serde_json::to_string(self).about(path.display(), "cannot be written")?;
        let text = format!("{}\n", sealed::seal(&text));
        if !std::fs::read(&path).is_ok_and(|old| old == text.as_bytes()) {
            replace::write(&path, &text)?;
        }
        Ok(())
    }
}

/// Removes the file, so that the next refresh does not rely on it.
///
/// # Errors
/// Returns an error if it exists and cannot be removed.
pub(super) fn forget(place: &RefreshPlace) -> Result<()> {
    let path = place.state_dir.join(NAME);
    match std::fs::remove_file(&path) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        removed => removed.about(path.display(), "cannot be removed"),
    }
}

/// Why a refresh with `options` may change something, as a clause; `None` if the last one saw everything as it is now.
///
/// # Errors
/// Returns an error if another user could write the state directory, or if a path of the arguments has no absolute
/// form.
pub(super) fn change_since(options: &RefreshOptions, place: &RefreshPlace) -> Result<Option<String>> {
    let Some(state) = LedgerDirectory::state(&place.state_dir, Missing::Leave)? else {
        return Ok(Some("there was no refresh yet".to_owned()));
    };
    let bytes = state.read(NAME, MOST_BYTES)?;
    let text = bytes.as_deref().and_then(|bytes| std::str::from_utf8(bytes).ok());
    let text = text.and_then(sealed::open);
    let last = text.and_then(|text| serde_json::from_str::<LastRefresh>(&text).ok());
    let Some(last) = last else {
        return Ok(Some("there was no complete refresh yet".to_owned()));
    };
    let now = LastRefresh::new(options, Vec::new())?;
    if (&last.program, &last.arguments) != (&now.program, &now.arguments) {
        return Ok(Some(
            "the last refresh had other options, or was another version".to_owned(),
        ));
    }
    if let Err(error) = HostFile::read(&place.state_dir) {
        return Ok(Some(line(&error)));
    }
    Ok(last.signs.iter().find_map(Sign::change))
}
