//! `status.json`: what every user may know of the shares of this machine.

use super::commands::Commands;
use std::time::{SystemTime, UNIX_EPOCH};
use tranche_core::claims::Claims;
use tranche_core::error::{Context, Result};
use tranche_core::ledger::{Books, Strategy};
use tranche_core::sealed;
use tranche_core::types::DeviceKey;
use tranche_state::mutex::lock;
use tranche_state::public_status::{PublicStatus, PublicTurns, STATUS_FILE};
use tranche_state::replace;
use tranche_state::turns::TurnRecord;

impl Commands<'_> {
    /// Writes the file anew if something of it has changed, or if it was removed.
    ///
    /// # Errors
    /// Returns an error if the ledger cannot be listed or the file cannot be written.
    pub(super) fn write_status(&self) -> Result<()> {
        // One writer at a time, so that an older state never replaces a newer one.
        let mut shown = lock(&self.shown);
        let books = match Claims::existing(self.state_dir())? {
            Some(claims) => claims.books()?,
            None => Books::default(),
        };
        // Without a plan, the devices of which something is held are listed by their keys.
        let facts = self.facts();
        let plan = facts.as_ref().ok().map(|facts| &*facts.plan);
        // A clock before 1970 is not set.
        let now = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default()
            .as_secs();
        let mut status = PublicStatus::of(plan, &books, &self.control.devices(), now);
        let by_turns = |key: &DeviceKey| {
            let mut claims = books.claims().filter(|claim| claim.device == *key);
            claims.any(|claim| claim.part.strategy() == Strategy::Turns)
        };
        for device in status.devices.iter_mut().filter(|device| by_turns(&device.key)) {
            device.turns = Some(PublicTurns::of(&TurnRecord::read(self.state_dir(), &device.key)?));
        }
        let path = self.state_dir().join(STATUS_FILE);
        if shown.as_ref().is_some_and(|shown| shown.is_same_state(&status)) && path.exists() {
            return Ok(());
        }
        let text = serde_json::to_string(&status).about(path.display(), "cannot be written as JSON")?;
        replace::write(&path, &format!("{}\n", sealed::seal(&text)))?;
        *shown = Some(status);
        Ok(())
    }
}
