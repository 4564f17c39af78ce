//! `reserve` and `calendar`: parts of devices are reserved for later, given back, and shown.

use super::Caller;
use crate::mig::OnDemandInstances;
use crate::run::wanted;
use nix::unistd::{Uid, User};
use std::path::Path;
use tranche_core::claims::Claims;
use tranche_core::error::{Error, Result};
use tranche_core::ledger::clock;
use tranche_core::ledger::{Calendar, OutOfService, ReservedTime};
use tranche_core::types::{DeviceKey, Selection};
use tranche_plan::calendar::{Period, Wanted, place};
use tranche_plan::inventory::Inventory;
use tranche_plan::policy::CalendarSettings;
use tranche_plan::share::Plan;
use tranche_protocol::{CalendarAnswer, CalendarEntry, ReserveTimeRequest, TimeState};
use tranche_state::calendar;
use tranche_state::out_of_service::check_reason;

/// The host of which something is reserved.
#[derive(Debug, Clone, Copy)]
pub struct CalendarPlace<'a> {
    /// Where the ledger is.
    pub state_dir: &'a Path,
    /// What the host has.
    pub inventory: &'a Inventory,
    /// How it is shared.
    pub plan: &'a Plan,
}

impl Caller {
    fn uid(self) -> u32 {
        match self {
            Self::Root => nix::unistd::geteuid().as_raw(),
            Self::User(uid) => uid,
        }
    }

    /// What the limits of the policy count: root has none, whatever its number is.
    fn limited(self) -> u32 {
        match self {
            Self::Root => 0,
            Self::User(uid) => uid,
        }
    }
}

/// Reserves what `request` says.
///
/// # Errors
/// Returns the limit that is exceeded, what is in the way, or why the calendar cannot be changed.
pub fn reserve_time(at: CalendarPlace<'_>, caller: Caller, request: ReserveTimeRequest) -> Result<ReservedTime> {
    let CalendarPlace {
        state_dir,
        inventory,
        plan,
    } = at;
    let settings = match (caller, plan.calendar) {
        (_, Some(settings)) => settings,
        (Caller::Root, None) => CalendarSettings::default(),
        (Caller::User(_), None) => {
            let error = Error::failed(
                "reserve",
                "the policy of this machine lets nobody but root reserve for later",
            );
            return Err(error.hint("root writes calendar: {} into its sharing section"));
        }
    };
    if let Some(reason) = &request.reason {
        check_reason(reason)?;
    }
    calendar::check_zone(&request.zone, request.offsets)?;
    let what = [request.what];
    let wish = wanted::wish(&what, &Selection::default(), inventory, plan)?;
    let made = OnDemandInstances::read(state_dir)?.made;
    let is_made = |key: &DeviceKey| made.iter().any(|one| one.device == *key);
    let asked = wish.device.and_then(|device| plan.split(device));
    if let Some(split) = asked.filter(|split| is_made(&split.key)) {
        let what = "was made on demand and is destroyed when nobody uses it, so it cannot be reserved";
        return Err(Error::failed(split.device, what).hint("reserve another device"));
    }
    let mut plan = plan.clone();
    plan.devices.retain(|split| !is_made(&split.key));
    // Asked before the ledger is locked: it may take long.
    let user = User::from_uid(Uid::from_raw(caller.uid())).ok().flatten();
    let who = user.map_or_else(|| caller.uid().to_string(), |user| user.name);
    calendar::change(state_dir, |calendar, now| {
        let wanted = Wanted {
            wish: &wish,
            uid: caller.limited(),
            period: Period {
                from: request.from,
                until: request.until,
            },
        };
        let out = OutOfService::read(state_dir);
        let (device, part, label) = place(&plan, &settings, &calendar.times, &out, &wanted, now)?;
        Ok(calendar.add(ReservedTime {
            id: 0,
            uid: caller.uid(),
            who,
            device,
            part,
            label,
            from: request.from,
            until: request.until,
            before: settings.before.get().as_secs(),
            no_show: settings.no_show.get().as_secs(),
            made: now,
            zone: request.zone,
            offsets: request.offsets,
            reason: request.reason,
        }))
    })
}

/// Gives up the reservation `id`. Who holds something keeps it.
///
/// # Errors
/// Returns an error if no reservation has this number, or if it is another user's.
pub fn cancel_time(state_dir: &Path, caller: Caller, id: u32) -> Result<ReservedTime> {
    calendar::change(state_dir, |calendar, _| {
        let object = format!("reservation {id}");
        let Some(at) = calendar.times.iter().position(|time| time.id == id) else {
            return Err(Error::failed(object, "not found").hint("tranche calendar shows which there are"));
        };
        match caller {
            Caller::User(uid) if calendar.times.get(at).is_some_and(|time| time.uid != uid) => {
                Err(Error::failed(object, "is another user's"))
            }
            _ => Ok(calendar.times.remove(at)),
        }
    })
}

/// What is reserved and not over, with who still holds something of it.
///
/// # Errors
/// Returns an error if the calendar or the ledger cannot be read.
pub fn calendar(state_dir: &Path, caller: Caller, plan: &Plan) -> Result<CalendarAnswer> {
    let calendar = Calendar::read(state_dir)?;
    let claims = Claims::existing(state_dir)?;
    let (changed, now) = (calendar.is_behind(clock()), calendar.now(clock()));
    let mut times: Vec<ReservedTime> = calendar.times;
    times.retain(|time| now < time.until);
    times.sort_by_key(|time| (time.from, time.id));
    let entry = |reserved: ReservedTime| {
        let book = match claims.as_ref().filter(|_| reserved.is_near(now)) {
            Some(claims) => Some(claims.book(reserved.device.gpu())?),
            None => None,
        };
        let held = book.iter().flat_map(|book| &book.claims);
        let in_the_way =
            held.filter(|claim| claim.uid != reserved.uid && claim.overlaps(&reserved.device, &reserved.part));
        let held_by = in_the_way.map(|claim| match caller.sees(claim) {
            true => claim.with_part(),
            false => format!("another user, on {}", claim.part),
        });
        let is_given_up = book.as_ref().is_some_and(|book| book.has_given_up(reserved.id));
        let state = match () {
            () if is_given_up => TimeState::GivenUp,
            () if now >= reserved.from => TimeState::Now,
            () if reserved.is_near(now) => TimeState::Near,
            () => TimeState::Later,
        };
        Ok(CalendarEntry {
            held_by: if is_given_up { Vec::new() } else { held_by.collect() },
            state,
            reserved,
        })
    };
    Ok(CalendarAnswer {
        entries: times.into_iter().map(entry).collect::<Result<_>>()?,
        devices: plan.devices.iter().map(|split| split.device.to_string()).collect(),
        uid: caller.uid(),
        changed,
    })
}
