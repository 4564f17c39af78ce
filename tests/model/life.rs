//! One life of a machine: operations are done one after another, and what is answered is compared with the oracle.

use crate::ask::Allocated;
use crate::machine::{Machine, pause};

use crate::operation::{Act, Step, What};
use crate::oracle::{Checked, Hold, Holder, Oracle, broken};
use crate::request::{Request, Running};
use crate::table::Table;
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

/// A request that does not wait for what others hold is answered in this time on any machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(90);

/// What a request is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    Make,
    Release,
    Drain(u8),
    Undrain(u8),
}

/// A request that is not answered yet.
pub(crate) struct Pending {
    pub(crate) row: &'static str,
    pub(crate) holder: Holder,
    pub(crate) what: What,
    pub(crate) purpose: Purpose,
    /// What was known of the holder before.
    pub(crate) before: Option<Hold>,
    pub(crate) request: Request,
    /// So many seconds it waits for what others hold.
    pub(crate) wait: u8,
    pub(crate) began: Instant,
    /// Something happened meanwhile that may be why it is refused.
    pub(crate) disturbed: bool,
    /// What may be why nobody knows what became of it: a broker or a client that was killed.
    pub(crate) lost: bool,
    /// It has room, whoever else is served.
    pub(crate) surely: bool,
    /// Nobody has an instance, or asked for one before.
    pub(crate) first: bool,
    /// For how many seconds the policies that there were meanwhile let things be kept.
    pub(crate) reserve_for: u8,
    /// The GPUs that were reserved for others all the time since it began.
    pub(crate) kept: Vec<u8>,
    /// The policy has changed since it began to wait.
    pub(crate) of_earlier_rules: bool,
}

pub(crate) struct Life<'a> {
    pub(crate) machine: &'a mut Machine,
    pub(crate) oracle: Oracle,
    pub(crate) pending: Vec<Pending>,
    pub(crate) table: Table,
    /// The programs and containers that run, and the numbers of their processes.
    pub(crate) running: BTreeMap<Holder, Running>,
    pub(crate) ill: BTreeSet<u8>,
    /// The broker will be killed at some call.
    pub(crate) armed: bool,
    pub(crate) broker_is_up: bool,
    pub(crate) allocated: Allocated,
    /// Those who hang up and wait again, for what, and how often yet.
    pub(crate) restless: BTreeMap<Holder, (What, u8)>,
    /// Whether a program of root was killed: it may leave a specification without a claim, up to the next claim.
    pub(crate) root_was_killed: bool,
    /// What is given back again when the disks are well, as the kubelet does it until it is done.
    pub(crate) give_back_again: BTreeSet<Holder>,
    pub(crate) trace: Vec<String>,
    pub(crate) since_look: u32,
    pub(crate) began: Instant,
}

impl<'a> Life<'a> {
    pub(crate) fn new(machine: &'a mut Machine) -> Self {
        machine.fresh();
        Self {
            machine,
            oracle: Oracle::new(),
            pending: Vec::new(),
            table: Table::default(),
            running: BTreeMap::new(),
            ill: BTreeSet::new(),
            armed: false,
            broker_is_up: true,
            allocated: Allocated::default(),
            restless: BTreeMap::new(),
            root_was_killed: false,
            give_back_again: BTreeSet::new(),
            trace: Vec::new(),
            since_look: 0,
            began: Instant::now(),
        }
    }

    /// Does these, and looks at what is left at the end. Returns how many were done, and what is wrong.
    pub(crate) fn live(&mut self, steps: &[Step]) -> (usize, Checked) {
        self.table.lives += 1;
        for (number, step) in steps.iter().enumerate() {
            self.note(format!("{number}: {step}"));
            self.table.steps += 1;
            if let Err(violation) = self.step(step) {
                return (number + 1, Err(violation));
            }
        }
        self.note("the end".to_owned());
        (steps.len(), self.end())
    }

    /// What happened, for a failure.
    pub(crate) fn trace(&self) -> String {
        self.trace.join("\n")
    }

    pub(crate) fn note(&mut self, text: String) {
        self.trace
            .push(format!("{:7.3} {text}", self.began.elapsed().as_secs_f64()));
    }

    pub(crate) fn is_well(&self) -> bool {
        self.broker_is_up && !self.armed && self.ill.is_empty()
    }

    fn step(&mut self, step: &Step) -> Checked {
        self.notice_end_of_broker();
        self.machine.keep_slot(self.oracle.times.slot);
        let row = step.act.row();
        match self.perform(&step.act, row)? {
            true => {}
            false => self.table.count(row, "left out"),
        }
        self.collect()?;
        if !step.overlaps {
            self.answer_all()?;
        }
        self.since_look += 1;
        if self.since_look >= 6 {
            self.look(false)?;
        }
        Ok(())
    }

    /// Does it, or begins it. Returns whether it could be done.
    fn perform(&mut self, act: &Act, row: &'static str) -> Result<bool, crate::oracle::Violation> {
        match *act {
            Act::Create { .. } | Act::Run { .. } | Act::Start { .. } | Act::Reserve { .. } | Act::Prepare { .. } => {
                return Ok(self.make(act, row));
            }
            Act::Release { .. } | Act::GiveUp { .. } | Act::Unprepare { .. } => return Ok(self.release(act, row)),
            Act::End { who, name } => return self.end_of(who, name),
            Act::Drain { gpu } => self.drain(gpu, true, row),
            Act::Undrain { gpu } => self.drain(gpu, false, row),
            Act::Rules(rules) => {
                self.answer_all()?;
                self.machine.policy(rules);
                self.oracle.rules = rules;
                self.disturb(false);
                for pending in &mut self.pending {
                    pending.of_earlier_rules = true;
                    pending.reserve_for = pending.reserve_for.max(rules.reserve_for);
                }
                if !self.machine.refresh() && self.is_well() {
                    return broken("refresh fails", "after a change of the policy");
                }
                self.table.count(row, "done");
            }
            Act::Kill { after } => {
                std::thread::sleep(Duration::from_micros(after.into()));
                self.machine.kill();
                self.broker_is_gone();
                self.table.count(row, "done");
            }
            Act::KillAt { call } => {
                self.machine.kill_at(Some(call));
                self.armed = true;
                // Also those who have asked already. What is asked from now on is marked when it begins.
                self.disturb(true);
            }
            Act::Up => self.up(row),
            Act::KillClient { which } => return Ok(self.kill_client(which, row)),
            Act::Rejoin { who, what, times } => return Ok(self.rejoin(who, what, times, row)),
            Act::Disk { place, disk } => return Ok(self.disk(place, disk, row)),
            Act::Promise { .. } | Act::Cancel { .. } | Act::Clock { .. } => return self.about_times(act, row),
            Act::Boot => self.boot(row),
            Act::Pause { milliseconds } => pause(milliseconds.into()),
            Act::Rest => {
                self.rest()?;
                self.table.count(row, "done");
            }
        }
        Ok(true)
    }

    pub(crate) fn runs(&mut self, holder: Holder, running: Running) {
        if let Some(mut before) = self.running.insert(holder, running) {
            before.end();
        }
    }

    /// The holder that this process is of.
    pub(crate) fn holder_of(&self, pid: u64) -> Option<Holder> {
        let is = |(_, running): &(&Holder, &Running)| running.pid() == pid;
        self.running.iter().find(is).map(|(holder, _)| holder.clone())
    }

    pub(crate) fn looked(&mut self) {
        self.since_look = 0;
        self.table.looks += 1;
    }
}

impl Drop for Life<'_> {
    fn drop(&mut self) {
        self.end_everything();
    }
}

impl Pending {
    pub(crate) fn holder_lasts(&self) -> bool {
        matches!(self.holder, Holder::Pod(_) | Holder::Resource(_))
    }
}
