//! The claims of a ledger, for the verbs that read them.

use crate::cli::claim::PlaceArgs;
use crate::cli::containers::Names;
use crate::cli::held::Held;
use crate::cli::specs::Specs;
use crate::cli::{root_only, status};
use crate::error::{Error, Result};
use crate::ledger::process::Machine;
use crate::ledger::{Change, Claim, Locked, World};

/// Gives back what nothing can hold any more, on disk; gives the number of claims and what is wrong with books that cannot
/// be read or written. The time to live of a claim whose container is gone begins here.
///
/// # Errors
/// Returns an error if the ledger cannot be listed.
pub(super) fn collect(locked: &Locked<'_>, machine: &Machine) -> Result<(usize, Vec<Error>)> {
    let mut returned = 0;
    let problems = locked.change_each(|book| {
        let before = book.clone();
        returned += book.reconcile(machine);
        if *book == before { Change::None } else { Change::Made }
    })?;
    Ok((returned, problems))
}

/// What the ledger says now, and how it is shown.
pub(super) struct Claims {
    /// Every claim, by device and age.
    pub(super) claims: Vec<Claim>,
    /// What is wrong with the books that cannot be read.
    pub(super) damaged: Vec<Error>,
    /// What specifications call the devices.
    pub(super) specs: Specs,
    names: Names,
    uptime: u64,
}

impl Claims {
    /// Reads the ledger and the specifications.
    pub(super) fn read(at: &PlaceArgs) -> Result<Self> {
        let state_dir = &at.state.state_dir;
        root_only::check(state_dir)?;
        let all = status::books(&at.state)?;
        Ok(Self {
            claims: all.books.into_iter().flat_map(|b| b.claims).collect(),
            damaged: all.damaged.into_iter().map(|book| book.error).collect(),
            specs: Specs::read(&at.specs, state_dir),
            names: Names::default(),
            uptime: Machine::here()?.uptime(),
        })
    }

    /// The claims that `is_meant` is true of, as they are shown.
    pub(super) fn shown(&mut self, is_meant: impl Fn(&Claim) -> bool) -> Vec<Held> {
        let Self {
            claims,
            specs,
            names,
            uptime,
            ..
        } = self;
        let meant = claims.iter().filter(|c| is_meant(c));
        meant.map(|claim| Held::of(claim, specs, names, *uptime)).collect()
    }
}
