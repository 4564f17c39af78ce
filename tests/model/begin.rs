//! Requests from their beginning until they are answered.

use crate::life::{Life, PATIENCE, Pending, Purpose};
use crate::operation::{Act, ROOT, What};
use crate::oracle::{Checked, Holder, broken};
use crate::request::Request;
use std::time::{Duration, Instant};

impl Life<'_> {
    pub(crate) fn is_pending(&self, holder: &Holder) -> bool {
        self.pending.iter().any(|pending| pending.holder == *holder)
    }

    /// Somebody else whose request waits, or is on the way, may come before this one.
    pub(crate) fn others_ask(&self, holder: &Holder, what: What) -> bool {
        self.pending
            .iter()
            .any(|other| other.holder != *holder && other.purpose == Purpose::Make && overlap(other.what, what))
    }

    pub(crate) fn begin(
        &mut self,
        row: &'static str,
        holder: Holder,
        what: What,
        purpose: Purpose,
        wait: u8,
        request: Request,
    ) {
        let before = self.oracle.holds.get(&holder).copied();
        let others = self.others_ask(&holder, what);
        let new = before.is_none() && purpose == Purpose::Make;
        let is_own = self.oracle.times.is_own(what, holder.who());
        let surely = new && self.is_well() && (!others || wait > 0 || is_own) && self.oracle.fits_surely(&holder, what);
        let kept = if before.is_none() {
            self.oracle.times.kept(holder.who())
        } else {
            Vec::new()
        };
        if purpose == Purpose::Make {
            self.oracle.times.may_be_used(what, holder.who());
        }
        let first = new && self.is_well() && matches!(what, What::Instance(_)) && self.oracle.no_instances(&holder);
        if new || matches!(purpose, Purpose::Release) {
            let what = before.map_or(what, |before| before.what);
            if before.is_some() || purpose == Purpose::Make {
                self.oracle.open(&holder, what);
            }
        }
        if let Purpose::Drain(gpu) | Purpose::Undrain(gpu) = purpose {
            self.oracle.drained.insert(gpu);
        }
        let began = Instant::now();
        let disturbed = !self.is_well();
        self.pending.push(Pending {
            row,
            holder,
            what,
            purpose,
            before,
            request,
            wait,
            began,
            disturbed,
            lost: self.armed,
            surely,
            first,
            reserve_for: self.oracle.rules.reserve_for,
            kept,
            of_earlier_rules: false,
        });
        self.still_surely();
    }

    /// Who has room for sure may have it no more, because others have asked, and what was kept for others may not have
    /// been so at this moment.
    pub(crate) fn still_surely(&mut self) {
        let (oracle, well) = (&self.oracle, self.is_well());
        for pending in &mut self.pending {
            pending.surely &= well && oracle.fits_surely(&pending.holder, pending.what);
            let kept = oracle.times.kept(pending.holder.who());
            pending.kept.retain(|gpu| kept.contains(gpu));
        }
    }

    pub(crate) fn drain(&mut self, gpu: u8, out: bool, row: &'static str) {
        // No two of one GPU are on the way at the same time.
        let holder = Holder::OutOfService(gpu);
        if self.is_pending(&holder) {
            return;
        }
        let device = gpu.to_string();
        let verb = if out { "drain" } else { "undrain" };
        let request = Request::program(
            &mut self.machine.command(ROOT, &[verb, &device]),
            &self.machine.at("said"),
        );
        let purpose = if out {
            Purpose::Drain(gpu)
        } else {
            Purpose::Undrain(gpu)
        };
        self.begin(row, holder, What::Any, purpose, 0, request);
    }

    pub(crate) fn begin_make(&mut self, row: &'static str, holder: Holder, what: What, wait: u8, request: Request) {
        self.begin(row, holder, what, Purpose::Make, wait, request);
    }

    pub(crate) fn begin_release(&mut self, row: &'static str, holder: Holder, what: What, request: Request) {
        self.begin(row, holder, what, Purpose::Release, 0, request);
    }

    /// Takes the answers that there are.
    pub(crate) fn collect(&mut self) -> Checked {
        let mut number = 0;
        while number < self.pending.len() {
            self.notice_end_of_broker();
            match self.pending[number].request.answer() {
                Some(answer) => {
                    // A broker that was killed may be the reason, and be noticed only now.
                    self.notice_end_of_broker();
                    let pending = self.pending.remove(number);
                    self.answered(pending, answer)?;
                    self.still_surely();
                }
                None => number += 1,
            }
        }
        self.hang_up_and_wait_again();
        Ok(())
    }

    /// Waits for the answers to all that does not wait for others.
    pub(crate) fn answer_all(&mut self) -> Checked {
        loop {
            self.collect()?;
            let Some(one) = self.pending.iter().find(|pending| pending.wait == 0) else {
                return Ok(());
            };
            if one.began.elapsed() > PATIENCE {
                return broken("no answer", format!("{} of {} in {PATIENCE:?}", one.row, one.holder));
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Everything that is held is given back.
    pub(crate) fn give_everything_back(&mut self) -> Checked {
        let holders: Vec<Holder> = self.oracle.holds.keys().cloned().collect();
        self.give_back(holders)
    }

    /// These give back what they have.
    pub(crate) fn give_back(&mut self, holders: Vec<Holder>) -> Checked {
        for holder in holders {
            let act = match holder {
                Holder::Claim(who, name) => Act::Release { who, name },
                Holder::Pod(pod) => Act::GiveUp { pod },
                Holder::Resource(claim) => Act::Unprepare { claim },
                Holder::Program(..) | Holder::Container(..) | Holder::OutOfService(_) => continue,
            };
            self.release(&act, act.row());
            self.answer_all()?;
        }
        Ok(())
    }
}

/// Whether two requests may be served by the same thing.
pub(crate) fn overlap(one: What, other: What) -> bool {
    match (one, other) {
        (What::Shares(a, _), What::Shares(b, _)) | (What::Whole(a), What::Whole(b)) => a == b,
        (What::Any, What::Any | What::Whole(_)) | (What::Whole(_), What::Any) => true,
        (What::Instance(_), What::Instance(_) | What::Any) | (What::Any, What::Instance(_)) => true,
        _ => false,
    }
}
