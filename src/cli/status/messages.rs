//! The messages of hooks that `tranche status` shows.

use crate::cli::containers::Names;
use crate::cli::held;
use crate::cli::place::StateArgs;
use crate::ledger::{Claim, utc};
use crate::messages::{Kept, Message, Messages, Severity};
use crate::text::shown;
use anyhow::Result;
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// A message of a hook.
#[derive(Debug, Serialize)]
pub(super) struct Said<'m> {
    #[serde(flatten)]
    message: &'m Message,
    /// The name that the container's engine shows; `null` where the container is gone or no file has its name.
    name: Option<String>,
}

/// The last messages of the hooks that this user's engines ran.
///
/// # Errors
/// Returns an error if they cannot be listed.
pub(super) fn kept(state: &StateArgs) -> Result<Kept> {
    let runtime_dir = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    let runtime_dir = runtime_dir.filter(|directory| directory.is_absolute());
    match Messages::existing(Path::new(state.dir()?.as_str()), runtime_dir.as_deref())? {
        Some(messages) => Ok(messages.all()?),
        None => Ok(Kept::default()),
    }
}

/// The messages with the names of their containers.
pub(super) fn said<'m>(messages: &'m [Message], claims: &[&Claim], names: &mut Names) -> Vec<Said<'m>> {
    let holders = || claims.iter().filter_map(|claim| claim.holder.container());
    // A container may have said much: its name is looked for once.
    let mut known: BTreeMap<&str, Option<String>> = BTreeMap::new();
    let mut name = |id| known.entry(id).or_insert_with(|| names.of_id(id, holders())).clone();
    let said = messages.iter().map(|message| Said {
        name: name(&message.container),
        message,
    });
    said.collect()
}

/// The messages, grouped by container in the order in which they began.
pub(super) fn text(said: &[Said<'_>]) -> String {
    let mut text = String::new();
    if !said.is_empty() {
        text.push_str("\nmessages of hooks:\n");
    }
    for (at, first) in said.iter().enumerate() {
        let is_same = |one: &&Said<'_>| one.message.container == first.message.container;
        if said.iter().take(at).any(|one| is_same(&one)) {
            continue;
        }
        let name = held::container_text(&first.message.container, first.name.as_deref());
        text.push_str(&format!("container {}\n", shown(&name)));
        for one in said.iter().filter(is_same) {
            let severity = match one.message.severity {
                Severity::Failure => "failure",
                Severity::Remark => "remark",
            };
            // A specification may name a hook that does not exist; the text says which.
            let hook = match one.message.hook.as_str() {
                "" => "hook",
                hook => hook,
            };
            let line = format!("{severity} of {hook}: {}", one.message.text);
            text.push_str(&format!("  {}  {}\n", utc(one.message.at), shown(&line)));
        }
    }
    text
}
