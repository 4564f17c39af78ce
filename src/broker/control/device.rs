//! What to do next about one device: from what its claims need, what was changed and what is seen of its daemon.
//!
//! [`settle`] decides; a [`ControlledMachine`] does it. What is about to be changed is saved before it is changed, so
//! that a process that is killed between two steps leaves enough for the next one to go on, or to put the device back.
//!
//! Other programs may change the device as well. Each grant looks at what its grade depends on, and only what is still
//! as it was set here is put back.

use super::cgroup_limit::{CgroupLimit, LimitStep, forget, next_to_remove, next_to_set, record};
use super::changes::{DaemonRecord, DeviceChanges, ModeChange, ProcessRecord, SliceChange};
use super::goal::{Goal, Limits};
use tranche_core::error::{Error, Result};
use tranche_core::types::Interval;
use tranche_plan::inventory::ComputeMode;
use tranche_state::controlled::DaemonState;

/// More steps than any way from one state to another has, without those of cgroups.
const MOST_STEPS: usize = 32;

/// A daemon that does not answer so many times in a row is ended, although its clients may still compute.
const MOST_MISSES: u32 = 3;

/// After so many daemons that failed one after another, no other is started until nothing is claimed any more.
const MOST_FAILURES: u32 = 5;

/// Where the kernel does not say which client keeps the daemon from answering, the daemon is not ended before it has
/// been silent for so many seconds: a client that blocks it may leave.
const MOST_SILENCE: u64 = 30;

/// A daemon that ran for so many seconds did not fail at its start.
const STEADY: u64 = 60;

/// What is seen of a device's daemon.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum SeenDaemon {
    /// Nobody listens on its socket, and the process that was started does not run.
    Absent,
    /// The process listens, and answers.
    Running(ProcessRecord),
    /// As [`SeenDaemon::Running`], and another program has set other limits.
    Altered(ProcessRecord),
    /// As [`SeenDaemon::Running`], and the server that it starts for clients ends before it is ready: why.
    NoServer(ProcessRecord, String),
    /// The process does not answer, or not as a daemon does: why.
    Silent(String),
    /// As [`SeenDaemon::Silent`], and it is unknown whether a client keeps it from answering.
    Unexamined(String),
    /// As [`SeenDaemon::Silent`], because clients keep it from answering, whose connections were shut down.
    Blocked(String),
    /// Another program listens: which.
    Foreign(String),
}

/// One device, and what can be done to it.
pub(super) trait ControlledMachine {
    /// Keeps `changes` where the next process finds them; `None`: the device is as it was.
    fn save(&mut self, changes: Option<&DeviceChanges>) -> Result<()>;
    /// Looks at the daemon; `None`: none was started.
    fn daemon(&mut self, record: Option<&DaemonRecord>) -> SeenDaemon;
    /// Refuses if it is known before anything is changed that no daemon can be started.
    fn check_start(&mut self) -> Result<()>;
    /// Who may use the device at the same time; `None` if that is not to be changed, or if the device is gone.
    fn compute_mode(&mut self) -> Result<Option<ComputeMode>>;
    /// Refuses if a process uses the device that would lose it, or keep it from the daemon.
    fn refuse_users(&mut self) -> Result<()>;
    fn set_compute_mode(&mut self, mode: ComputeMode) -> Result<()>;
    /// Whether the daemon that is about to be started serves several users at the same time.
    fn serves_many_users(&mut self) -> bool;
    /// Starts the daemon, and waits until it listens.
    fn start(&mut self) -> Result<ProcessRecord>;
    /// Sets the limits of clients that have none of their own, and checks that the daemon has them.
    fn set_limits(&mut self, limits: Limits) -> Result<()>;
    /// Ends the daemon and its servers, in whatever state they are.
    fn end(&mut self, record: &DaemonRecord) -> Result<()>;
    /// Limits the memory of a cgroup.
    fn limit_cgroup(&mut self, limit: &CgroupLimit) -> Result<()>;
    /// Removes the limit of a cgroup, if the cgroup still exists.
    fn free_cgroup(&mut self, limit: &CgroupLimit) -> Result<()>;
    /// How long a turn is; `None` if that cannot be learnt.
    fn time_slice(&mut self) -> Option<Interval>;
    fn set_time_slice(&mut self, interval: Interval) -> Result<()>;
    /// Seconds since 1970.
    fn now(&self) -> u64;
    /// An error about the device.
    fn failed(&self, what: &str) -> Error;
    /// Reports what was left as another program set it.
    fn leave(&mut self, what: &str);
}

/// One step.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Step {
    ExamineMode,
    SetMode(ComputeMode),
    RestoreMode(ComputeMode),
    Start,
    SetLimits(Limits),
    /// Ends a daemon that is to be started again.
    Replace(String),
    Stop,
    LimitCgroup(CgroupLimit),
    FreeCgroup(CgroupLimit),
    SetSlice(Interval),
    RestoreSlice(Interval),
    Forget,
    Refuse(String),
}

/// Brings the device where `goal` wants it, step by step.
///
/// # Errors
/// Returns why a step failed. `changes` then say what was changed, and the next call goes on from there.
pub(super) fn settle(
    goal: &Goal,
    changes: &mut Option<DeviceChanges>,
    machine: &mut impl ControlledMachine,
) -> Result<()> {
    reconsider_mode(changes, machine)?;
    let mut is_mode_known = false;
    let cgroups = goal.cgroups.len() + changes.as_ref().map_or(0, |changes| changes.cgroups.len());
    for _ in 0..MOST_STEPS + 2 * cgroups {
        let record = changes.as_ref().and_then(|changes| changes.daemon.as_ref());
        let seen = match record.is_some() && goal.daemon.is_some() {
            true => machine.daemon(record),
            false => SeenDaemon::Absent,
        };
        note(changes, &seen, machine.now());
        let step = next(goal, changes.as_ref(), &seen, machine.now());
        let relies_on_mode = match &step {
            Some(step) => *step == Step::Start,
            None => goal.daemon.is_some() && !goal.is_exact,
        };
        if relies_on_mode && !is_mode_known {
            confirm_mode(machine)?;
            is_mode_known = true;
        }
        let Some(step) = step else { return Ok(()) };
        is_mode_known |= matches!(step, Step::ExamineMode | Step::SetMode(_));
        perform(step, goal, changes, machine)?;
    }
    Err(machine.failed("does not come to rest; this is a defect of tranche"))
}

/// Counts how often the daemon did not answer, and takes one for its own that was started by a process that was killed
/// before it could record that.
fn note(changes: &mut Option<DeviceChanges>, seen: &SeenDaemon, now: u64) {
    let Some(daemon) = changes.as_mut().and_then(|changes| changes.daemon.as_mut()) else {
        return;
    };
    match seen {
        SeenDaemon::Running(process) => {
            daemon.process = Some(process.clone());
            (daemon.misses, daemon.silent_since, daemon.state) = (0, None, None);
        }
        SeenDaemon::NoServer(process, _) => {
            daemon.process = Some(process.clone());
            (daemon.misses, daemon.silent_since, daemon.state) = (0, None, Some(DaemonState::ServerFailed));
        }
        SeenDaemon::Altered(process) => {
            daemon.process = Some(process.clone());
            (daemon.misses, daemon.silent_since, daemon.state, daemon.limits) = (0, None, None, None);
        }
        SeenDaemon::Silent(_) | SeenDaemon::Unexamined(_) => {
            daemon.misses += 1;
            daemon.silent_since.get_or_insert(now);
            daemon.state = Some(DaemonState::Failed);
        }
        SeenDaemon::Blocked(_) => daemon.state = Some(DaemonState::Failed),
        SeenDaemon::Foreign(_) => daemon.state = Some(DaemonState::Foreign),
        SeenDaemon::Absent => daemon.state = Some(DaemonState::Failed),
    }
}

fn next(goal: &Goal, changes: Option<&DeviceChanges>, seen: &SeenDaemon, now: u64) -> Option<Step> {
    let none = DeviceChanges::default();
    let is_begun = changes.is_some();
    let changes = changes.unwrap_or(&none);
    if let Some(limits) = goal.daemon {
        match changes.mode {
            ModeChange::Unknown => return Some(Step::ExamineMode),
            ModeChange::Changing(_) => return Some(Step::SetMode(ComputeMode::ExclusiveProcess)),
            ModeChange::Kept | ModeChange::Changed(_) => {}
        }
        if let Some(step) = toward_daemon(limits, goal.is_exact, changes.daemon.as_ref(), seen, now) {
            return Some(step);
        }
        if let Some(step) = next_to_set(&goal.cgroups, &changes.cgroups) {
            return Some(step.into());
        }
    } else if changes.daemon.is_some() {
        return Some(Step::Stop);
    } else if let ModeChange::Changing(before) | ModeChange::Changed(before) = changes.mode {
        return Some(Step::RestoreMode(before));
    }
    // A claim that comes need not wait for the limits of containers that are gone.
    if (goal.is_exact || goal.daemon.is_none())
        && let Some(step) = next_to_remove(&goal.cgroups, &changes.cgroups)
    {
        return Some(step.into());
    }
    match (goal.time_slice, &changes.time_slice) {
        (Some(wanted), Some(change)) if change.is_done && change.set == wanted => {}
        (Some(wanted), _) => return Some(Step::SetSlice(wanted)),
        (None, Some(change)) => return Some(Step::RestoreSlice(change.before)),
        (None, None) => {}
    }
    (is_begun && goal.is_empty()).then_some(Step::Forget)
}

impl From<LimitStep> for Step {
    fn from(step: LimitStep) -> Self {
        match step {
            LimitStep::Set(limit) => Step::LimitCgroup(limit),
            LimitStep::Remove(limit) => Step::FreeCgroup(limit),
            LimitStep::Refuse(why) => Step::Refuse(why),
        }
    }
}

fn toward_daemon(
    limits: Limits,
    is_exact: bool,
    record: Option<&DaemonRecord>,
    seen: &SeenDaemon,
    now: u64,
) -> Option<Step> {
    let Some(record) = record else { return Some(Step::Start) };
    match seen {
        SeenDaemon::Foreign(who) => Some(Step::Refuse(format!(
            "another MPS daemon ({who}) listens in its pipe directory; tranche leaves it alone"
        ))),
        SeenDaemon::Absent if record.failures >= MOST_FAILURES => {
            let why = record
                .why
                .as_deref()
                .unwrap_or("its daemons ended soon after their start");
            Some(Step::Refuse(format!(
                "its MPS daemon failed {MOST_FAILURES} times: {why}"
            )))
        }
        SeenDaemon::Absent if record.not_before > now => {
            let seconds = record.not_before - now;
            Some(Step::Refuse(format!(
                "its MPS daemon has ended and is started again in {seconds} s"
            )))
        }
        SeenDaemon::Absent => Some(Step::Start),
        SeenDaemon::Silent(why) if !record.is_ready || record.misses >= MOST_MISSES => Some(Step::Replace(why.clone())),
        SeenDaemon::Unexamined(why)
            if !record.is_ready
                || record
                    .silent_since
                    .is_some_and(|since| now.saturating_sub(since) >= MOST_SILENCE) =>
        {
            Some(Step::Replace(why.clone()))
        }
        SeenDaemon::Silent(why) | SeenDaemon::Unexamined(why) | SeenDaemon::Blocked(why) => {
            Some(Step::Refuse(format!("its MPS daemon does not answer: {why}")))
        }
        SeenDaemon::NoServer(_, why) if !is_exact => {
            Some(Step::Refuse(format!("its MPS server does not start: {why}")))
        }
        SeenDaemon::Running(_) | SeenDaemon::Altered(_) | SeenDaemon::NoServer(..) => match record.limits {
            Some(set) if set == limits => None,
            Some(set) if !is_exact && set.covers(limits) => None,
            Some(set) if !is_exact => Some(Step::SetLimits(set.max(limits))),
            _ => Some(Step::SetLimits(limits)),
        },
    }
}

fn perform(
    step: Step,
    goal: &Goal,
    changes: &mut Option<DeviceChanges>,
    machine: &mut impl ControlledMachine,
) -> Result<()> {
    if step == Step::Forget {
        machine.save(None)?;
        *changes = None;
        return Ok(());
    }
    if let Step::Refuse(why) = &step {
        return Err(machine.failed(why));
    }
    if step == Step::ExamineMode {
        let (mode, remark) = examine_mode(machine)?;
        return intend(changes, machine, |changes| {
            changes.mode = mode;
            changes.remarks.extend(remark);
        });
    }
    if let Step::SetSlice(interval) = step {
        examine_slice(interval, changes, machine)?;
    }
    if step == Step::Start {
        let now = machine.now();
        let many_users = machine.serves_many_users();
        intend(changes, machine, |changes| {
            note_start(goal, changes, now);
            changes.daemon.get_or_insert_default().many_users = many_users;
        })?;
    }
    if let Step::SetLimits(_) = step {
        // While they are set, they are unknown.
        intend(changes, machine, |changes| {
            changes.daemon.get_or_insert_default().limits = None
        })?;
    }
    // Until it is done, a limit is neither set nor removed for certain.
    if let Step::LimitCgroup(limit) | Step::FreeCgroup(limit) = &step {
        let unsure = limit.clone().with_certainty(false);
        intend(changes, machine, |changes| record(&mut changes.cgroups, &unsure))?;
    }
    // A process that goes on after this one was killed must not take what was put back for what was set.
    if let Step::RestoreMode(before) = step {
        intend(changes, machine, |changes| changes.mode = ModeChange::Changing(before))?;
    }
    if let Step::RestoreSlice(_) = step {
        intend(changes, machine, |changes| {
            changes.time_slice.iter_mut().for_each(|change| change.is_done = false);
        })?;
    }
    let changes = changes.get_or_insert_default();
    match step {
        Step::SetMode(mode) => {
            machine.set_compute_mode(mode)?;
            if let ModeChange::Changing(before) = changes.mode {
                changes.mode = ModeChange::Changed(before);
            }
        }
        Step::RestoreMode(before) => {
            restore_mode(before, machine)?;
            changes.mode = ModeChange::Unknown;
        }
        Step::Start => start(changes, machine)?,
        Step::SetLimits(limits) => set_limits(limits, changes, machine)?,
        Step::Replace(why) => {
            let daemon = changes.daemon.get_or_insert_default();
            daemon.why = Some(why);
            machine.end(daemon)?;
            (daemon.misses, daemon.silent_since) = (0, None);
        }
        Step::Stop => {
            let daemon = changes.daemon.get_or_insert_default();
            daemon.state = Some(DaemonState::Stopping);
            machine.end(daemon)?;
            changes.daemon = None;
        }
        Step::LimitCgroup(limit) => {
            machine.limit_cgroup(&limit)?;
            record(&mut changes.cgroups, &limit.with_certainty(true));
        }
        Step::FreeCgroup(limit) => {
            machine.free_cgroup(&limit)?;
            forget(&mut changes.cgroups, &limit);
        }
        Step::SetSlice(interval) => {
            machine.set_time_slice(interval)?;
            if let Some(change) = &mut changes.time_slice {
                change.is_done = true;
            }
        }
        Step::RestoreSlice(before) => {
            let set = changes.time_slice.as_ref().map(|change| change.set);
            restore_slice(before, set, machine)?;
            changes.time_slice = None;
        }
        Step::ExamineMode | Step::Forget | Step::Refuse(_) => {}
    }
    machine.save(Some(changes))
}

/// Sees to it that a change of the mode that a process was killed in goes on only if no other program has changed the
/// mode since.
fn reconsider_mode(changes: &mut Option<DeviceChanges>, machine: &mut impl ControlledMachine) -> Result<()> {
    let Some(ModeChange::Changing(before)) = changes.as_ref().map(|changes| changes.mode) else {
        return Ok(());
    };
    match machine.compute_mode()? {
        Some(now) if now != before && now != ComputeMode::ExclusiveProcess => {
            leave_mode(now, machine);
            intend(changes, machine, |changes| changes.mode = ModeChange::Unknown)
        }
        _ => Ok(()),
    }
}

/// Refuses a daemon, and a claim under MPS, if the device is not in the mode that the limits depend on: a process that
/// connects to no daemon could use the device without any limit.
fn confirm_mode(machine: &mut impl ControlledMachine) -> Result<()> {
    match machine.compute_mode()? {
        None | Some(ComputeMode::ExclusiveProcess) => Ok(()),
        Some(now) => {
            let what = format!(
                "its compute mode is {now}, which another program set; shares by MPS need {}",
                ComputeMode::ExclusiveProcess
            );
            let hint = "set it again (nvidia-smi -c EXCLUSIVE_PROCESS), or end the containers that hold shares of it";
            Err(machine.failed(&what).hint(hint))
        }
    }
}

/// Puts the mode back, unless another program has changed it since.
fn restore_mode(before: ComputeMode, machine: &mut impl ControlledMachine) -> Result<()> {
    match machine.compute_mode()? {
        None | Some(ComputeMode::ExclusiveProcess) => machine.set_compute_mode(before),
        Some(now) if now == before => Ok(()),
        Some(now) => {
            leave_mode(now, machine);
            Ok(())
        }
    }
}

fn leave_mode(now: ComputeMode, machine: &mut impl ControlledMachine) {
    machine.leave(&format!(
        "its compute mode is {now}, which another program set, and stays"
    ));
}

/// Puts the length of a turn back, unless another program has changed it since. If it cannot be learnt, it is put back.
fn restore_slice(before: Interval, set: Option<Interval>, machine: &mut impl ControlledMachine) -> Result<()> {
    match machine.time_slice() {
        Some(now) if Some(now) != set => {
            if now != before {
                machine.leave("its time slice was set by another program, and stays");
            }
            Ok(())
        }
        _ => machine.set_time_slice(before),
    }
}

/// What is to be done about the compute mode, before anything is changed.
fn examine_mode(machine: &mut impl ControlledMachine) -> Result<(ModeChange, Option<String>)> {
    if let SeenDaemon::Foreign(who) = machine.daemon(None) {
        let what = format!("another MPS daemon ({who}) listens in its pipe directory; tranche leaves it alone");
        return Err(machine
            .failed(&what)
            .hint("end that daemon, or set sharing.mps.daemon: external"));
    }
    machine.check_start()?;
    let Some(mode) = machine.compute_mode()? else {
        return Ok((ModeChange::Kept, None));
    };
    match mode {
        ComputeMode::Default => {
            machine.refuse_users()?;
            Ok((ModeChange::Changing(mode), None))
        }
        ComputeMode::ExclusiveProcess => {
            machine.refuse_users()?;
            let remark = "is in the compute mode EXCLUSIVE_PROCESS, which tranche did not set and does not change";
            Ok((ModeChange::Kept, Some(remark.to_owned())))
        }
        ComputeMode::Prohibited | ComputeMode::ExclusiveThread => {
            let what = "another program has set its compute mode, in which no MPS daemon can use it";
            Err(machine.failed(what).hint("set it to DEFAULT: nvidia-smi -c DEFAULT"))
        }
    }
}

/// Records what is to be done before it is done. If it cannot be recorded, it is not to be done.
fn intend(
    changes: &mut Option<DeviceChanges>,
    machine: &mut impl ControlledMachine,
    intention: impl FnOnce(&mut DeviceChanges),
) -> Result<()> {
    let mut new = changes.clone().unwrap_or_default();
    intention(&mut new);
    machine.save(Some(&new))?;
    *changes = Some(new);
    Ok(())
}

fn examine_slice(
    interval: Interval,
    changes: &mut Option<DeviceChanges>,
    machine: &mut impl ControlledMachine,
) -> Result<()> {
    let known = changes.as_ref().and_then(|changes| changes.time_slice.as_ref());
    let before = match (known, machine.time_slice()) {
        // Another program has set it since.
        (Some(change), Some(now)) if now != change.before && now != change.set => Some(now),
        (Some(change), _) => Some(change.before),
        (None, now) => now,
    };
    intend(changes, machine, |changes| {
        if before.is_none() {
            let remark = "the length of a turn could not be asked; it is put back to the driver's default";
            changes.remarks.push(remark.to_owned());
        }
        changes.time_slice = Some(SliceChange {
            before: before.unwrap_or_default(),
            set: interval,
            is_done: false,
        });
    })
}

fn note_start(goal: &Goal, changes: &mut DeviceChanges, now: u64) {
    let daemon = changes.daemon.get_or_insert_default();
    daemon.limits = None;
    // A driver that was unloaded took its limits with it, and the daemon, too.
    changes.cgroups.iter_mut().for_each(|limit| limit.is_set = false);
    if std::mem::take(&mut daemon.is_ready) {
        daemon.restarts += 1;
        daemon.lose(&goal.holders, now);
    }
    if let Some(since) = daemon.since {
        daemon.failures = match now.saturating_sub(since) {
            STEADY.. => 1,
            _ => daemon.failures + 1,
        };
        // The first time at once, then after 1, 2, 4 seconds and so on.
        daemon.not_before = now + ((1 << daemon.failures.min(7)) >> 2);
    }
    daemon.since = Some(now);
    daemon.process = None;
    (daemon.misses, daemon.silent_since, daemon.state) = (0, None, None);
}

fn start(changes: &mut DeviceChanges, machine: &mut impl ControlledMachine) -> Result<()> {
    let started = machine.start();
    let daemon = changes.daemon.get_or_insert_default();
    match started {
        Ok(process) => {
            daemon.process = Some(process);
            Ok(())
        }
        Err(error) => {
            daemon.why = Some(error.to_string());
            daemon.state = Some(DaemonState::Failed);
            machine.save(Some(changes))?;
            Err(error)
        }
    }
}

fn set_limits(limits: Limits, changes: &mut DeviceChanges, machine: &mut impl ControlledMachine) -> Result<()> {
    let set = machine.set_limits(limits);
    let daemon = changes.daemon.get_or_insert_default();
    match set {
        Ok(()) => {
            daemon.limits = Some(limits);
            daemon.is_ready = true;
            daemon.why = None;
            changes.is_ready = true;
            Ok(())
        }
        Err(error) => {
            daemon.why = Some(error.to_string());
            if !daemon.is_ready {
                // No client can have it yet.
                machine.end(daemon)?;
            }
            machine.save(Some(changes))?;
            Err(error)
        }
    }
}

#[cfg(test)]
mod tests;
