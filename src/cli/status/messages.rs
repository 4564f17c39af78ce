//! The messages of hooks that `tranche status` shows.

use crate::cli::containers::Names;
use crate::cli::held;
use crate::cli::place::StateArgs;
use crate::ledger::{Claim, utc};
use crate::messages::{Kept, Message, Messages, Severity};
use crate::text::{counted, shown};
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

/// The most containers whose messages are shown. Of a machine that runs for long, most are of containers that are gone.
const MOST_CONTAINERS: usize = 8;

/// The newest messages, grouped by container in the order in which they began.
pub(super) fn text(said: &[Said<'_>]) -> String {
    let mut text = String::new();
    if !said.is_empty() {
        text.push_str("\nmessages of hooks:\n");
    }
    let mut newest: Vec<&str> = Vec::new();
    for one in said.iter().rev() {
        if !newest.contains(&one.message.container.as_str()) {
            newest.push(&one.message.container);
        }
    }
    let others = newest.len().saturating_sub(MOST_CONTAINERS);
    newest.truncate(MOST_CONTAINERS);
    for (at, first) in said.iter().enumerate() {
        let is_same = |one: &&Said<'_>| one.message.container == first.message.container;
        if !newest.contains(&first.message.container.as_str()) || said.iter().take(at).any(|one| is_same(&one)) {
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
    if others > 0 {
        text.push_str(&format!(
            "older messages are of {}: --json\n",
            counted(others, "other container")
        ));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_messages_are_shown_and_the_others_are_counted() {
        let message = |at: u64, container: u64| Message {
            at,
            container: format!("c{container:03}"),
            hook: "claim".into(),
            severity: Severity::Failure,
            text: format!("text {at}"),
        };
        // The first container has said something again at the end.
        let mut messages: Vec<Message> = (0..256).map(|number| message(number, number)).collect();
        messages.push(message(256, 0));
        let said: Vec<Said<'_>> = messages.iter().map(|message| Said { message, name: None }).collect();
        let shown = text(&said);
        let containers: Vec<&str> = shown
            .lines()
            .filter_map(|line| line.strip_prefix("container "))
            .collect();
        assert_eq!(
            containers,
            ["c000", "c249", "c250", "c251", "c252", "c253", "c254", "c255"]
        );
        assert!(
            shown.ends_with("older messages are of 248 other containers: --json\n"),
            "{shown}"
        );
        assert!(!text(&said[250..]).contains("older messages"), "{}", text(&said[250..]));
    }
}
