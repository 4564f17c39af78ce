//! The messages of hooks, on the page of `tranche status` for people.

use tranche_core::ledger::utc;
use tranche_core::messages::Severity;
use tranche_core::text::{counted, shown};
use tranche_inspect::observed::Said;
use tranche_state::held;

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
    use tranche_core::messages::Message;

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
