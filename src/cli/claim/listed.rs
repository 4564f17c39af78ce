//! The claims of a ledger, for the verbs that show them.

use crate::cli::claim::PlaceArgs;
use crate::cli::containers::Names;
use crate::cli::held::Held;
use crate::cli::specs::Specs;
use crate::cli::status;
use crate::error::Error;
use crate::ledger::Claim;
use anyhow::Result;

/// What the ledger says now, and how it is shown.
pub(super) struct ListedClaims {
    /// Every claim, by device and age.
    pub(super) claims: Vec<Claim>,
    /// What is wrong with the books that cannot be read.
    pub(super) damaged: Vec<Error>,
    specs: Specs,
    names: Names,
    uptime: u64,
}

impl ListedClaims {
    /// Reads the ledger and the specifications.
    pub(super) fn read(at: &PlaceArgs) -> Result<Self> {
        let (books, uptime) = status::books(&at.state)?;
        Ok(Self {
            claims: books.books.into_iter().flat_map(|book| book.claims).collect(),
            damaged: books.damaged.into_iter().map(|book| book.error).collect(),
            specs: Specs::read(&at.specs, &at.state.state_dir),
            names: Names::default(),
            uptime,
        })
    }

    /// The claims that `is_meant` is true of, as they are shown.
    pub(super) fn shown(&mut self, is_meant: impl Fn(&Claim) -> bool) -> Vec<Held> {
        let meant = self.claims.iter().filter(|claim| is_meant(claim));
        meant
            .map(|claim| Held::of(claim, &self.specs, &mut self.names, self.uptime))
            .collect()
    }
}
