//! How long claims have worked, for the history: from the looks at those that may not be idle for ever.

use super::ClaimKey;
use std::collections::BTreeMap;
use tranche_core::claims::Claims;
use tranche_core::error::Result;
use tranche_core::ledger::Claim;
use tranche_core::ledger::events::EventKind;
use tranche_plan::hold;
use tranche_plan::idle::{SPAN, Work};

/// After how many seconds it is recorded: 288 lines a day for a claim that works.
const RECORDED_EACH: u64 = 300;

/// What has worked and is not recorded yet.
#[derive(Debug, Default)]
pub(super) struct Busy {
    looked: Option<u64>,
    recorded: u64,
    seconds: BTreeMap<ClaimKey, (Claim, u64)>,
}

impl Busy {
    /// Takes in what was found `now`, in seconds since boot. A time in which nobody looked counts as none.
    pub(super) fn look(&mut self, now: u64, found: &[(&Claim, Work)], claims: &Claims) -> Result<()> {
        let passed = self.looked.replace(now).and_then(|looked| now.checked_sub(looked));
        let passed = passed.filter(|passed| *passed <= SPAN).unwrap_or(0);
        for (claim, _) in found.iter().filter(|(_, work)| *work == Work::Done) {
            let key = hold::key(claim);
            self.seconds.entry(key).or_insert_with(|| ((*claim).clone(), 0)).1 += passed;
        }
        if now.saturating_sub(self.recorded) >= RECORDED_EACH {
            self.recorded = now;
            if !self.seconds.is_empty() {
                let locked = claims.lock()?;
                for (claim, seconds) in std::mem::take(&mut self.seconds).into_values() {
                    locked.ledger().note(EventKind::Busy, seconds, &claim);
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tranche_core::claims::ClaimEntry;
    use tranche_core::ledger::events::{EventLine, parse};
    use tranche_core::ledger::{Bounds, ContainerName, Holder};
    use tranche_core::types::Subject;

    #[test]
    fn what_worked_between_two_looks_is_recorded_every_five_minutes() {
        let top = tempfile::tempdir().unwrap();
        std::fs::create_dir(top.path().join("events")).unwrap();
        let claims = Claims::open(top.path()).unwrap();
        let entry = ClaimEntry {
            device: "GPU-8188460b-0000".parse().unwrap(),
            subject: Subject::WHOLE,
            replicas: 1,
            bounds: Bounds::default(),
            asked_as: None,
            alone: false,
        };
        let holder = Holder::Container(ContainerName {
            bundle: "/b".into(),
            id: "a".into(),
        });
        claims.enter(&entry, holder, Some(std::process::id())).unwrap();
        let books = claims.books().unwrap();
        let claim = books.claims().next().unwrap();
        let mut busy = Busy::default();
        // Ten seconds apart, but for a time in which nobody looked; half of the looks find work.
        let times = (1000..=1100).step_by(10).chain((1200..=1300).step_by(10));
        for (number, now) in times.enumerate() {
            let work = if number % 2 == 0 { Work::Done } else { Work::Nothing };
            busy.look(now, &[(claim, work)], &claims).unwrap();
        }
        let text = std::fs::read_to_string(top.path().join("events/log")).unwrap();
        let recorded = text.lines().filter_map(|line| match parse(line) {
            EventLine::Event(event) => (event.kind == EventKind::Busy).then_some(event.value),
            _ => None,
        });
        // Of the first look it is not known for how long it had worked.
        assert_eq!(recorded.collect::<Vec<_>>(), [0, 100]);
    }
}
