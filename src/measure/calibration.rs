//! How long a request is on the device.

use crate::site::{AFTER, Site};
use crate::tenant::Tenant;
use crate::{clock, load};
use tranche_bench::event::{Event, Ready};
use tranche_bench::way::Seat;
use tranche_core::error::{Error, Result};

/// How long a request is on this device.
pub(crate) struct Calibrated {
    /// How many iterations it has.
    pub(crate) fma: u64,
    /// How long it takes alone, in nanoseconds.
    pub(crate) request_ns: u64,
    /// What a program sees of the device.
    pub(crate) ready: Ready,
}

impl Calibrated {
    /// Asks `tranche-load` in `seat`, which has to be the device alone.
    ///
    /// # Errors
    /// Returns why it has no answer.
    pub(crate) fn of(site: &Site, seat: &Seat) -> Result<Self> {
        let mut tenant = Tenant::start(site, seat, &load::once("calibrate"))?;
        let ready = tenant.ready()?;
        let until = clock::now()?.saturating_add(AFTER);
        let events = tenant.events(until)?;
        let found = events.iter().find_map(|event| match event {
            Event::Calibrated { fma, request_ns } => Some((*fma, *request_ns)),
            _ => None,
        });
        let (fma, request_ns) = found.ok_or_else(|| failed_call("calibrate", &events))?;
        Ok(Self { fma, request_ns, ready })
    }
}

/// The call of CUDA that failed among `events`.
pub(crate) fn failed_call(role: &str, events: &[Event]) -> Error {
    let why = events.iter().find_map(|event| match event {
        Event::Error { call, name, .. } => Some(format!("{call} failed: {name}")),
        _ => None,
    });
    Error::failed(role, why.unwrap_or_else(|| "has ended without a result".to_owned()))
}
