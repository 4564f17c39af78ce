//! The last messages of hooks, with the names of their containers.

use serde::Serialize;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use tranche_core::error::Result;
use tranche_core::ledger::Claim;
use tranche_core::messages::{Kept, Message, Messages};
use tranche_core::types::HostPath;
use tranche_state::held::containers::ContainerNames;

/// A message of a hook. docs/reference/claims.md documents the fields.
#[derive(Debug, Serialize)]
pub struct Said<'m> {
    /// The message.
    #[serde(flatten)]
    pub message: &'m Message,
    /// The name that the container's engine shows; `null` where the container is gone or no file has its name.
    pub name: Option<String>,
    /// Whether the container is there: it holds something, or a file of its engine has its name.
    pub is_there: bool,
}

/// The last messages of the hooks that this user's engines ran.
///
/// # Errors
/// Returns an error if they cannot be listed.
pub fn kept(state_dir: &Path) -> Result<Kept> {
    let runtime_dir = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    let runtime_dir = runtime_dir.filter(|directory| directory.is_absolute());
    match Messages::existing(HostPath::absolute(state_dir)?.as_path(), runtime_dir.as_deref())? {
        Some(messages) => messages.all(),
        None => Ok(Kept::default()),
    }
}

/// The messages with the names of their containers.
pub(super) fn said<'m>(messages: &'m [Message], claims: &[&Claim], names: &mut ContainerNames) -> Vec<Said<'m>> {
    let holders = || claims.iter().filter_map(|claim| claim.holder.container());
    // A container may have said much: its name is looked for once.
    let mut known: BTreeMap<&str, Option<String>> = BTreeMap::new();
    let mut name = |id| known.entry(id).or_insert_with(|| names.of_id(id, holders())).clone();
    let holds = |id: &str| holders().any(|holder| holder.id == id);
    let said = messages.iter().map(|message| {
        let name = name(&message.container);
        let is_there = name.is_some() || holds(&message.container);
        Said {
            message,
            name,
            is_there,
        }
    });
    said.collect()
}
