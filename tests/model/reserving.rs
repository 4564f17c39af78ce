//! Reservations for later: how they are made and cancelled, and what is shown of them.

use crate::life::{Life, PATIENCE};
use crate::machine::pause;
use crate::operation::{Act, ROOT, What};
use crate::oracle::{Checked, Violation, broken};
use crate::request::{Answer, Request};
use crate::times::{Reserved, SLOT};
use serde_json::Value;
use std::time::{Duration, Instant};

/// What is killed while something is reserved, or given back, and after how many microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Killed {
    Nothing,
    Broker(u16),
    Client(u16),
}

impl Life<'_> {
    /// Reserves something, cancels it, or lets the clock jump. Returns whether that means anything now.
    pub(crate) fn about_times(&mut self, act: &Act, row: &'static str) -> Result<bool, Violation> {
        if !self.machine.has_clock() {
            return Ok(false);
        }
        match *act {
            Act::Promise {
                who,
                what,
                ahead,
                lasts,
                killed,
            } => {
                let from = self.oracle.times.slot + u32::from(ahead.max(1));
                self.promise(row, who, what, (from, from + u32::from(lasts.max(1))), killed)?;
            }
            Act::Cancel { who, which, killed } => {
                let was_done = self.cancel(row, who, which, killed)?;
                self.still_surely();
                return Ok(was_done);
            }
            Act::Clock { slots } => {
                self.oracle.times.slot = self.oracle.times.slot.saturating_add_signed(slots.into());
                self.machine.set_clock(self.oracle.times.slot);
                self.use_what_is_held();
                self.still_surely();
                self.table.count(row, if slots < 0 { "back" } else { "forth" });
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Who holds something when a reserved time comes may use it.
    fn use_what_is_held(&mut self) {
        let pending = self.pending.iter().map(|one| (one.what, one.holder.who()));
        let held = self.oracle.holds.iter().map(|(holder, hold)| (hold.what, holder.who()));
        let all: Vec<(What, u32)> = pending.chain(held).collect();
        all.into_iter()
            .for_each(|(what, who)| self.oracle.times.may_be_used(what, who));
    }

    fn promise(
        &mut self,
        row: &'static str,
        who: u32,
        what: What,
        (from, until): (u32, u32),
        killed: Killed,
    ) -> Checked {
        let device = match what {
            What::Shares(gpu, _) => format!("{gpu}.any"),
            What::Whole(gpu) => gpu.to_string(),
            What::Any | What::Instance(_) => "any".to_owned(),
        };
        let begin = self.machine.time(from);
        let begin = tranche_core::ledger::utc(begin)
            .replace(' ', "T")
            .replace("TUTC", "+00:00");
        let length = format!("--for={}m", u64::from(until - from) * SLOT / 60);
        let arguments = ["reserve", &device, "--from", &begin, &length, "--json"];
        let (answer, is_disturbed) = self.run_to_end(who, &arguments, killed)?;
        self.note(format!("    {row}, {what:?}, slots {from} to {until}: {answer:?}"));
        let mut new = Reserved {
            id: None,
            who,
            gpu: 0,
            shares: 0,
            from,
            until,
            is_sure: false,
            may_be_used: false,
        };
        match answer {
            Answer::Done(said) => {
                let said: Value = serde_json::from_str(&said).unwrap();
                new.id = said["id"].as_u64().and_then(|id| id.try_into().ok());
                new.gpu = self.machine.gpu(said["device"].as_str().unwrap());
                new.shares = said["part"].as_array().map_or(0, |part| part.len() as u8);
                new.is_sure = true;
                if said["from"] != self.machine.time(from) || said["until"] != self.machine.time(until) {
                    return broken("another time is reserved", said.to_string());
                }
                self.oracle.times.reserved(&new)?;
                self.oracle.times.change(true);
                self.table.count(row, "done");
                self.oracle.times.all.push(new);
                // What its user has may be the use of it.
                self.use_what_is_held();
                self.still_surely();
            }
            Answer::Refused(why) if !is_disturbed => {
                self.table.count(row, column(&why));
                let gpu = match what {
                    What::Shares(gpu, _) | What::Whole(gpu) => Some(gpu),
                    What::Any | What::Instance(_) => None,
                };
                let is_free = |gpu: u8| self.oracle.times.is_unreserved(gpu) && !self.oracle.drained.contains(&gpu);
                if who == ROOT && !self.oracle.times.is_behind() && gpu.is_some_and(is_free) {
                    return broken("refused although nobody has reserved it", why);
                }
            }
            Answer::Refused(_) | Answer::None(_) => {
                self.table.count(row, "not answered");
                // It may be any of these.
                let gpus: &[u8] = match what {
                    What::Shares(gpu, _) | What::Whole(gpu) => &[gpu],
                    What::Any | What::Instance(_) => &[0, 5, 6],
                };
                new.shares = u8::from(matches!(what, What::Shares(..)));
                for gpu in gpus {
                    self.oracle.times.all.push(Reserved {
                        gpu: *gpu,
                        ..new.clone()
                    });
                }
                self.oracle.times.change(false);
                self.use_what_is_held();
                self.still_surely();
            }
        }
        Ok(())
    }

    fn cancel(&mut self, row: &'static str, who: u32, which: u8, killed: Killed) -> Result<bool, Violation> {
        let known = self
            .oracle
            .times
            .all
            .iter()
            .filter(|one| one.is_sure && one.id.is_some());
        let ids: Vec<u32> = known.filter_map(|one| one.id).collect();
        let Some(id) = ids.get(usize::from(which) % ids.len().max(1)).copied() else {
            return Ok(false);
        };
        let is = move |one: &Reserved| one.id == Some(id);
        let number = id.to_string();
        let (answer, is_disturbed) = self.run_to_end(who, &["reserve", "cancel", &number], killed)?;
        self.note(format!("    {row} {id}: {answer:?}"));
        let one = self.oracle.times.all.iter().find(|one| is(one)).cloned();
        let may = one.as_ref().is_some_and(|one| who == ROOT || who == one.who);
        match answer {
            Answer::Done(said) => {
                if !may {
                    return broken("somebody else has cancelled it", said);
                }
                self.table.count(row, "done");
                self.oracle.times.all.retain(|one| !is(one));
                self.oracle.times.change(true);
            }
            Answer::Refused(why) if !is_disturbed => {
                self.table.count(row, column(&why));
                let is_over = one.is_some_and(|one| one.until <= self.oracle.times.slot);
                if may && !is_over && !self.oracle.times.is_behind() {
                    return broken("it cannot be cancelled", why);
                }
            }
            Answer::Refused(_) | Answer::None(_) => {
                self.table.count(row, "not answered");
                for one in self.oracle.times.all.iter_mut().filter(|one| is(one)) {
                    one.is_sure &= !may;
                }
                self.oracle.times.change(false);
            }
        }
        Ok(true)
    }

    /// Runs a command, and kills meanwhile what is to be killed. Returns its answer, and whether something may be why
    /// it is not what it should be.
    fn run_to_end(&mut self, who: u32, arguments: &[&str], killed: Killed) -> Result<(Answer, bool), Violation> {
        // Nothing else is on the way that the kill would disturb without being noticed.
        self.answer_all()?;
        let mut is_disturbed = !self.is_well();
        let mut command = self.machine.command(who, arguments);
        let mut request = Request::program(&mut command, &self.machine.at("said"));
        let sleep = |after: u16| std::thread::sleep(Duration::from_micros(after.into()));
        match killed {
            Killed::Nothing => {}
            Killed::Broker(after) => {
                sleep(after);
                self.machine.kill();
                self.broker_is_gone();
                is_disturbed = true;
            }
            Killed::Client(after) => {
                sleep(after);
                request.kill();
                return Ok((Answer::None("killed".to_owned()), true));
            }
        }
        let began = Instant::now();
        loop {
            if let Some(answer) = request.answer() {
                self.notice_end_of_broker();
                return Ok((answer, is_disturbed || !self.is_well()));
            }
            if began.elapsed() > PATIENCE {
                return broken("no answer", format!("{arguments:?} in {PATIENCE:?}"));
            }
            pause(1);
        }
    }

    /// What is shown is what was said. What nobody knows is known from now on.
    pub(crate) fn calendar_is_as_it_was_said(&mut self) -> Checked {
        if self.oracle.times.all.is_empty() && !self.machine.has_clock() {
            return Ok(());
        }
        let mut command = self.machine.command(ROOT, &["calendar", "--json"]);
        let said = command.output().unwrap();
        let text = String::from_utf8_lossy(&said.stdout).into_owned();
        let Ok(shown) = serde_json::from_str::<Value>(&text) else {
            let why = String::from_utf8_lossy(&said.stderr).into_owned();
            return broken("no calendar", format!("{text}{why}"));
        };
        let entries = shown["entries"].as_array().cloned().unwrap_or_default();
        let shown: Vec<(u8, Value)> = entries
            .into_iter()
            .map(|entry| {
                (
                    self.machine.gpu(entry["reserved"]["device"].as_str().unwrap()),
                    entry["reserved"].clone(),
                )
            })
            .collect();
        let machine = &*self.machine;
        let is = |one: &Reserved, (gpu, time): &(u8, Value)| {
            let is_time = time["from"] == machine.time(one.from) && time["until"] == machine.time(one.until);
            let is_id = one.id.is_none_or(|id| time["id"] == id);
            is_time && is_id && *gpu == one.gpu && time["uid"] == one.who
        };
        for time in &shown {
            if !self.oracle.times.all.iter().any(|one| is(one, time)) {
                return broken(
                    "reserved by nobody",
                    format!("{time:?}; reserved: {:?}", self.oracle.times.all),
                );
            }
        }
        let slot = self.oracle.times.slot.max(self.oracle.times.changed.1);
        let mut lost = None;
        self.oracle.times.all.retain_mut(|one| {
            let found = shown.iter().find(|time| is(one, time));
            match found {
                Some((_, time)) => {
                    one.is_sure = true;
                    one.id = time["id"].as_u64().and_then(|id| id.try_into().ok());
                }
                None if one.is_sure && one.until > slot => lost = Some(one.clone()),
                None => {}
            }
            // What is over is kept for a day, and may be shown again by a clock that is put back.
            found.is_some() || one.is_sure || one.until <= slot
        });
        match lost {
            Some(one) => broken("a reservation is lost", format!("{one:?}; shown: {shown:?}")),
            None => Ok(()),
        }
    }

    /// Root empties the calendar.
    pub(crate) fn empty_calendar(&mut self) -> Checked {
        let said = self
            .machine
            .command(ROOT, &["reserve", "cancel", "all"])
            .output()
            .unwrap();
        if !said.status.success() {
            return broken("the calendar cannot be emptied", format!("{said:?}"));
        }
        self.oracle.times.all.clear();
        self.oracle.times.change(true);
        Ok(())
    }
}

/// The column of a refusal.
fn column(why: &str) -> &'static str {
    let reasons = [
        ("clock", "the clock is behind"),
        ("another user", "of another user"),
        ("reserved for", "reserved"),
        ("more than the device has", "reserved"),
        ("follow one another", "for too long"),
        ("are the most", "over the limit"),
        ("out of service", "out of service"),
        ("not found", "not found"),
    ];
    let found = reasons.iter().find(|(words, _)| why.contains(words));
    found.map_or("refused", |(_, column)| column)
}
