//! Events of turns, for the history.

use crate::turns::TurnHolder;
use std::collections::BTreeMap;
use tranche_core::claims::Claims;
use tranche_core::ledger::LedgerResult;
use tranche_core::ledger::events::EventKind;
use tranche_state::turns::{ClaimKey, TurnRecord};

/// Records what a look has changed.
///
/// # Errors
/// Returns an error if the ledger cannot be locked.
pub(super) fn note(
    claims: &Claims,
    [before, after]: [&TurnRecord; 2],
    holders: &BTreeMap<ClaimKey, TurnHolder>,
) -> LedgerResult<()> {
    let events = events(before, after);
    if events.is_empty() {
        return Ok(());
    }
    let locked = claims.lock()?;
    for (key, kind, value) in events {
        if let Some(holder) = holders.get(key) {
            locked.ledger().note(kind, value, &holder.claim);
        }
    }
    Ok(())
}

/// Whom the look has suspended, resumed or ended, with the value of each event.
fn events<'r>(before: &'r TurnRecord, after: &'r TurnRecord) -> Vec<(&'r ClaimKey, EventKind, u64)> {
    let mut events = Vec::new();
    for (key, holder) in after.holders.iter().filter(|(_, holder)| holder.bytes > 0) {
        match (before.is_resident(key), after.is_resident(key)) {
            (true, false) => events.push((key, EventKind::Suspended, holder.bytes >> 20)),
            (false, true) => {
                let since = before.holders.get(key).map_or(holder.since, |before| before.since);
                events.push((key, EventKind::Resumed, holder.since.saturating_sub(since)));
            }
            (true, true) | (false, false) => {}
        }
    }
    let lost = |record: &TurnRecord| {
        record
            .change
            .as_ref()
            .map(|change| change.state().lost)
            .unwrap_or_default()
    };
    let (was, is) = (lost(before), lost(after));
    if let Some(change) = &before.change {
        let sides = [(&change.from, was.from && !is.from), (&change.to, was.to && !is.to)];
        let ended = sides.into_iter().filter(|(_, was_ended)| *was_ended);
        events.extend(ended.filter_map(|(key, _)| Some((key.as_ref()?, EventKind::Lost, 0))));
    }
    events
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;
    use tranche_state::turns::{ChangeRecord, HolderRecord};

    #[test]
    fn a_change_is_an_event_for_each_whose_memory_was_moved() {
        let [a, b] = ["a", "b"].map(str::to_owned);
        let record = |resident: &str, since: u64, bytes_of_b: u64| {
            let mut record = TurnRecord::default();
            record.resident = Some(resident.to_owned());
            for (key, bytes) in [(&a, 5 << 30), (&b, bytes_of_b)] {
                let holder = HolderRecord {
                    since,
                    bytes,
                    ..HolderRecord::default()
                };
                record.holders.insert(key.clone(), holder);
            }
            record
        };
        let of = |before: &TurnRecord, after: &TurnRecord| {
            let owned = |(key, kind, value): (&ClaimKey, EventKind, u64)| (key.clone(), kind, value);
            events(before, after).into_iter().map(owned).collect::<Vec<_>>()
        };
        let (before, after) = (record("a", 100, 0), record("b", 130, 0));
        assert_eq!(
            of(&before, &after),
            [(a.clone(), EventKind::Suspended, 5120)],
            "b had nothing yet"
        );
        assert_eq!(of(&before, &before), []);
        let (before, after) = (record("b", 100, 1), record("a", 130, 1 << 30));
        assert_eq!(
            of(&before, &after),
            [
                (a.clone(), EventKind::Resumed, 30),
                (b.clone(), EventKind::Suspended, 1024)
            ]
        );
        let (mut before, after) = (record("b", 100, 1), record("b", 100, 1));
        let mut change = ChangeRecord::new(Some(b), Some(a.clone()), Duration::ZERO);
        let mut state = change.state();
        state.lost.to = true;
        change.set_state(state);
        before.change = Some(change);
        assert_eq!(of(&before, &after), [(a, EventKind::Lost, 0)]);
    }
}
