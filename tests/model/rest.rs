//! What must be true when nothing is on the way: nobody waits in vain, everybody has what was promised, and nothing
//! else is held or left.

use crate::begin::overlap;
use crate::draw::{DEDICATED, SPLIT};
use crate::known::has_one_order;
use crate::life::{Life, Pending, Purpose};
use crate::machine::{PARTS, pause};
use crate::observed::{self, By, Seen};
use crate::operation::{Disk, Place, ROOT, What};
use crate::oracle::{Checked, Hold, Holder, broken};
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

/// How long a request may wait for what is free, beside the times that this is kept for others: the broker looks
/// several times a second, and the machine may be busy.
const SETTLED: Duration = Duration::from_secs(4);

/// How long it may take until those who wait without the broker see that time has passed: nothing wakes them then.
const LOOKED: Duration = Duration::from_secs(5);

/// What may be kept for so long is not waited for.
const LONG: Duration = Duration::from_secs(15);

/// How long a busy machine may take until a program that was started has a place in the queue.
const AT_ONCE: Duration = Duration::from_secs(1);

/// How long an instance that nobody needs may stay. One that nobody has claimed stays for half a minute.
const UNNEEDED: Duration = Duration::from_secs(50);

/// Since when each of those who wait could have had what they wait for.
#[derive(Default)]
pub(crate) struct Waited(BTreeMap<Holder, Instant>);

impl Life<'_> {
    /// Everything that is on the way is answered, and everything is as it was said.
    pub(crate) fn rest(&mut self) -> Checked {
        self.up("broker started");
        self.answer_all()?;
        if !self.is_well() {
            return self.look(false);
        }
        let again = std::mem::take(&mut self.give_back_again).into_iter();
        let again = again
            .filter(|holder| self.oracle.holds.get(holder).is_some_and(|hold| !hold.is_sure))
            .collect();
        self.give_back(again)?;
        self.close()?;
        self.calendar_is_as_it_was_said()?;
        let mut waited = Waited::default();
        while self.nobody_waits_in_vain(&mut waited)? {
            pause(20);
            self.collect()?;
        }
        self.look(true)?;
        self.instances_are_needed()
    }

    /// Fails if somebody has waited too long for what is free. Returns whether somebody does wait for such a thing.
    pub(crate) fn nobody_waits_in_vain(&mut self, waited: &mut Waited) -> Result<bool, crate::oracle::Violation> {
        let could = self.could_be_served();
        waited.0.retain(|holder, _| could.contains_key(holder));
        let now = Instant::now();
        let settled = if self.oracle.times.all.is_empty() {
            SETTLED
        } else {
            SETTLED + LOOKED
        };
        for (holder, kept) in &could {
            let since = *waited.0.entry(holder.clone()).or_insert(now);
            if since.elapsed() > *kept + settled {
                let waiting: Vec<String> = self
                    .pending
                    .iter()
                    .map(|p| format!("{}: {:?}", p.holder, p.what))
                    .collect();
                let text = format!(
                    "{holder} could have had it for {:?}, and {kept:?} of that may be kept for others; waiting, by arrival: {}; \
                     held: {}",
                    since.elapsed(),
                    waiting.join(", "),
                    self.oracle.list()
                );
                return broken("waits for what is free", text);
            }
        }
        Ok(!could.is_empty())
    }

    /// Those who wait for what is free, and for how long that may be kept for others: once for each account that
    /// waits for more of it than is free. Root's requests are served in the order of their arrival, and before
    /// those of users: one that needs more holds up the others without a bound.
    fn could_be_served(&self) -> BTreeMap<Holder, Duration> {
        let waits = |pending: &&Pending| pending.purpose == Purpose::Make && pending.wait > 2;
        let waiting: Vec<&Pending> = self.pending.iter().filter(waits).collect();
        let fits = |one: &Pending| self.oracle.fits_now(&one.holder, one.what);
        let mut could = BTreeMap::new();
        for (place, one) in waiting.iter().enumerate().filter(|(_, one)| fits(one)) {
            let overlapping = || {
                waiting
                    .iter()
                    .enumerate()
                    .filter(|(_, other)| overlap(one.what, other.what))
            };
            // What was refused by the earlier policy is looked at again.
            if !has_one_order() && overlapping().any(|(_, other)| other.of_earlier_rules) {
                continue;
            }
            let reserve_for = overlapping()
                .map(|(_, other)| other.reserve_for)
                .max()
                .unwrap_or_default();
            let rivals = overlapping().filter(|(_, other)| !fits(other));
            let (of_root, of_users): (Vec<_>, Vec<_>) = rivals.partition(|(_, other)| other.holder.who() == ROOT);
            // Each of those who came at once may have been the first to get a ticket.
            let at_once = |other: &Pending| other.began.saturating_duration_since(one.began) < AT_ONCE;
            let comes_before =
                |(other, rival): &(usize, &&Pending)| *other < place || at_once(rival) || one.holder.who() != ROOT;
            if of_root.iter().any(comes_before) {
                continue;
            }
            let accounts: BTreeSet<u32> = of_users.iter().map(|(_, other)| other.holder.who()).collect();
            let kept = Duration::from_secs(reserve_for.into()) * accounts.len() as u32;
            // What is kept for long is not waited for.
            if kept < LONG {
                could.insert(one.holder.clone(), kept);
            }
        }
        could
    }

    /// Those of whom nobody knows what they have: what is shown after a moment is so from now on.
    fn close(&mut self) -> Checked {
        let is_open = |(holder, hold): &(&Holder, &Hold)| !hold.is_sure && !hold.was_lost && !self.is_pending(holder);
        let open: Vec<Holder> = self
            .oracle
            .holds
            .iter()
            .filter(is_open)
            .map(|(holder, _)| holder.clone())
            .collect();
        if open.is_empty() {
            return Ok(());
        }
        // A request whose client has hung up may still be on the way.
        pause(1500);
        let seen = match observed::claims(self.machine) {
            Ok(seen) => seen,
            Err(why) => return broken("no status", why),
        };
        for holder in open {
            match seen.iter().find(|one| self.by(one).as_ref() == Some(&holder)) {
                Some(one) => {
                    let what = self.oracle.holds[&holder].what;
                    let what = if what == What::Any { one.any() } else { what };
                    self.note(format!("    {holder} has {what:?}"));
                    self.oracle.held(&holder, what)?;
                }
                None => {
                    self.note(format!("    {holder} has nothing"));
                    self.oracle.free(&holder);
                    self.forget_allocation(&holder);
                }
            }
        }
        Ok(())
    }

    fn by(&self, seen: &Seen) -> Option<Holder> {
        match &seen.by {
            By::Known(holder) => Some(holder.clone()),
            By::Process(pid) => self.holder_of(*pid),
            By::JustMade | By::Broker | By::Other(_) => None,
        }
    }

    /// Looks at what is shown. At rest, that is exactly what was said; otherwise, what is on the way may be there
    /// or not.
    pub(crate) fn look(&mut self, at_rest: bool) -> Checked {
        self.collect()?;
        self.looked();
        let before: BTreeSet<Holder> = self.sure();
        // What was on the way when it was looked at may be answered when it is compared.
        let on_the_way: BTreeSet<Holder> = self.oracle.holds.keys().cloned().collect();
        // One that waits holds its share under the number of its own process, before its program has one.
        let may_begin = self.pending.iter().any(|one| matches!(one.holder, Holder::Program(..)));
        let seen = match observed::claims(self.machine) {
            Ok(seen) => seen,
            Err(_) if !self.is_well() => return Ok(()),
            Err(why) => return broken("no status", why),
        };
        self.collect()?;
        observed::disjoint(&seen)?;
        let mut holders = BTreeSet::new();
        for one in &seen {
            let Some(holder) = self.by(one) else {
                // A program that was killed before it said anything.
                if (!at_rest || may_begin) && matches!(one.by, By::Process(_))
                    || matches!(one.by, By::JustMade | By::Broker)
                {
                    continue;
                }
                return broken("held by nobody", format!("{one:?}; held: {}", self.oracle.list()));
            };
            if !self.oracle.holds.contains_key(&holder) && !on_the_way.contains(&holder) {
                return broken("held although it was refused, released or ended", format!("{one:?}"));
            }
            holders.insert(holder);
        }
        // What was sure before and after was so meanwhile.
        let lost: Vec<String> = before
            .intersection(&self.sure())
            .filter(|holder| !holders.contains(holder))
            .map(ToString::to_string)
            .collect();
        if !lost.is_empty() {
            return broken("lost", format!("{} of {}", lost.join(", "), self.oracle.list()));
        }
        if at_rest && self.is_well() {
            self.instances_exist(&seen)?;
        }
        Ok(())
    }

    fn sure(&self) -> BTreeSet<Holder> {
        let sure = self.oracle.holds.iter().filter(|(_, hold)| hold.is_sure);
        sure.map(|(holder, _)| holder.clone()).collect()
    }

    /// Whether it was promised to a holder whose instance a boot has ended.
    fn is_of_lost(&self, one: &Seen) -> bool {
        let hold = self.by(one).and_then(|by| self.oracle.holds.get(&by));
        hold.is_some_and(|hold| hold.was_lost)
    }

    /// The driver has each instance on which somebody holds something, but for those that a boot has ended.
    fn instances_exist(&self, seen: &[Seen]) -> Checked {
        let has_it = |one: &&Seen| one.by != By::Broker && !self.is_of_lost(one);
        let on: Vec<Seen> = seen.iter().filter(has_it).cloned().collect();
        let have: BTreeSet<u64> = self.machine.instances().into_iter().collect();
        let missing: Vec<u64> = observed::instances(&on).difference(&have).copied().collect();
        if missing.is_empty() {
            return Ok(());
        }
        broken(
            "on an instance that does not exist",
            format!("{missing:?}; the driver has {have:?}; {on:?}"),
        )
    }

    /// The driver has no instance that nobody needs, after a time.
    fn instances_are_needed(&mut self) -> Checked {
        let began = Instant::now();
        loop {
            let (have, mut needed) = (self.machine.instances().len(), self.oracle.instances());
            if have > needed
                && let Ok(seen) = observed::claims(self.machine)
            {
                needed += seen.iter().filter(|one| one.by == By::JustMade).count();
                // An instance that was made at the place of one that a boot has ended is left to the holder of that.
                let of_lost: Vec<Seen> = seen.into_iter().filter(|one| self.is_of_lost(one)).collect();
                needed += observed::instances(&of_lost).len();
            }
            if have <= needed {
                return Ok(());
            }
            if began.elapsed() > UNNEEDED {
                let text = format!("{have} instances for {needed} holders: {}", self.oracle.list());
                return broken("an instance that nobody needs", text);
            }
            pause(20);
            self.collect()?;
        }
    }

    /// Everything is given back, and everything is free.
    pub(crate) fn end(&mut self) -> Checked {
        for place in [Place::Kept, Place::State, Place::Specs] {
            self.make_well(place, Disk::Well);
        }
        self.restless.clear();
        self.rest()?;
        self.end_everything();
        self.close()?;
        self.look(true)?;
        self.give_everything_back()?;
        self.look(true)?;
        if let Some(holder) = self.oracle.holds.keys().next() {
            return broken("cannot be given back", holder.to_string());
        }
        self.empty_calendar()?;
        self.instances_are_needed()?;
        self.nothing_is_left()?;
        observed::nothing_to_collect(self.machine, self.root_was_killed)?;
        self.everything_is_free()
    }

    /// A refresh after the last instance was destroyed is perhaps still writing.
    fn nothing_is_left(&self) -> Checked {
        let began = Instant::now();
        loop {
            let left = self.machine.left_over();
            if left.is_empty() {
                return Ok(());
            }
            if began.elapsed() > UNNEEDED {
                return broken("something is left", format!("{left:?}"));
            }
            pause(20);
        }
    }

    /// Root takes all there is.
    fn everything_is_free(&mut self) -> Checked {
        for gpu in SPLIT.into_iter().chain(DEDICATED) {
            let device = format!("--device={gpu}");
            let shares = format!("--shares={PARTS}");
            let name = format!("--name=c{gpu}");
            let mut arguments = vec!["claim", "create", &name, &device];
            if SPLIT.contains(&gpu) {
                arguments.push(&shares);
            }
            let drained = self
                .machine
                .command(ROOT, &["undrain", &gpu.to_string()])
                .output()
                .unwrap();
            let output = self.machine.command(ROOT, &arguments).output().unwrap();
            if !output.status.success() {
                let said = String::from_utf8_lossy(&output.stderr).into_owned();
                return broken(
                    "not everything is free at the end",
                    format!("gpu {gpu}: {said}; {drained:?}"),
                );
            }
        }
        Ok(())
    }
}
