//! The messages of hooks, on the page of `tranche status` for people.

use tranche_core::ledger::utc;
use tranche_core::messages::Severity;
use tranche_core::text::{counted, shown};
use tranche_inspect::observed::Said;
use tranche_state::held::{self, span};

/// The most containers whose messages are shown unless all are asked for.
const MOST_CONTAINERS: usize = 8;

/// The last failure, which begins the page: it is what somebody looks for after a start that was refused. `now` is in
/// seconds since 1970.
pub(super) fn last_failure(said: &[Said<'_>], now: u64) -> String {
    let is_failure = |one: &&Said<'_>| one.message.severity == Severity::Failure;
    let Some(last) = said.iter().rfind(is_failure) else {
        return String::new();
    };
    let age = span(now.saturating_sub(last.message.at));
    let text = format!("last failure, {age} ago, of {}:", container(last));
    format!("{}\n{}\n", shown(&text), line(last))
}

/// The newest messages, grouped by container in the order in which they began. With `all`, also those of containers
/// that are gone.
pub(super) fn text(said: &[Said<'_>], all: bool) -> String {
    let mut newest: Vec<&str> = Vec::new();
    let mut gone: Vec<&str> = Vec::new();
    for one in said.iter().rev() {
        let list = if all || one.is_there { &mut newest } else { &mut gone };
        if !list.contains(&one.message.container.as_str()) {
            list.push(&one.message.container);
        }
    }
    if !all && newest.len() > MOST_CONTAINERS {
        gone.extend(newest.drain(MOST_CONTAINERS..));
    }
    let mut text = String::new();
    if !newest.is_empty() {
        text.push_str("\nmessages of hooks:\n");
    }
    for (at, first) in said.iter().enumerate() {
        let is_same = |one: &&Said<'_>| one.message.container == first.message.container;
        if !newest.contains(&first.message.container.as_str()) || said.iter().take(at).any(|one| is_same(&one)) {
            continue;
        }
        text.push_str(&format!("{}\n", shown(&container(first))));
        for one in said.iter().filter(is_same) {
            text.push_str(&line(one));
        }
    }
    if !gone.is_empty() {
        let others = counted(gone.len(), "other container");
        text.push_str(&format!("\nmessages of {others}: tranche status --messages\n"));
    }
    text
}

fn container(said: &Said<'_>) -> String {
    let name = held::container_text(&said.message.container, said.name.as_deref());
    format!("container {name}")
}

fn line(said: &Said<'_>) -> String {
    let severity = match said.message.severity {
        Severity::Failure => "failure",
        Severity::Remark => "remark",
    };
    // A specification may name a hook that does not exist; the text says which.
    let hook = match said.message.hook.as_str() {
        "" => "hook",
        hook => hook,
    };
    let line = format!("{severity} of {hook}: {}", said.message.text);
    format!("  {}  {}\n", utc(said.message.at), shown(&line))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tranche_core::messages::Message;

    fn message(at: u64, container: u64, severity: Severity) -> Message {
        Message {
            at,
            container: format!("c{container:03}"),
            hook: "claim".into(),
            severity,
            text: format!("text {at}"),
        }
    }

    fn said(messages: &[Message], is_there: impl Fn(&Message) -> bool) -> Vec<Said<'_>> {
        let said = messages.iter().map(|message| Said {
            message,
            name: None,
            is_there: is_there(message),
        });
        said.collect()
    }

    #[test]
    fn the_newest_messages_are_shown_and_the_others_are_counted() {
        // The first container has said something again at the end.
        let mut messages: Vec<Message> = (0..256)
            .map(|number| message(number, number, Severity::Failure))
            .collect();
        messages.push(message(256, 0, Severity::Failure));
        let said = said(&messages, |_| true);
        let shown = text(&said, false);
        let containers: Vec<&str> = shown
            .lines()
            .filter_map(|line| line.strip_prefix("container "))
            .collect();
        assert_eq!(
            containers,
            ["c000", "c249", "c250", "c251", "c252", "c253", "c254", "c255"]
        );
        assert!(
            shown.ends_with("\nmessages of 248 other containers: tranche status --messages\n"),
            "{shown}"
        );
        assert!(!text(&said[250..], false).contains("other container"));
        assert_eq!(text(&said, true).matches("container ").count(), 256);
    }

    #[test]
    fn the_last_failure_comes_first_and_containers_that_are_gone_are_counted() {
        let messages = [
            message(10, 1, Severity::Failure),
            message(20, 2, Severity::Failure),
            message(30, 3, Severity::Remark),
        ];
        let said = said(&messages, |message| message.container == "c003");
        assert_eq!(
            last_failure(&said, 50),
            "last failure, 30 s ago, of container c002:\n  1970-01-01 00:00:20 UTC  failure of claim: text 20\n\n"
        );
        let shown = text(&said, false);
        assert!(shown.contains("container c003\n") && !shown.contains("c001"), "{shown}");
        assert!(
            shown.ends_with("messages of 2 other containers: tranche status --messages\n"),
            "{shown}"
        );
        assert!(text(&said, true).contains("container c001\n"));
        assert_eq!(last_failure(&said[2..], 50), "");
        assert_eq!(text(&[], false), "");
    }
}
