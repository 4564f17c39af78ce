//! What is held: claims with the names that people know devices and containers by, and claims of an earlier policy.

pub mod by_broker;
mod claim;
pub mod containers;
pub mod earlier;
pub mod idleness;
pub mod names;
pub mod not_ended;
pub mod root_only;
pub mod user_wait;

pub use claim::{ClaimNames, Held, HeldContainer, HeldIdle, HeldProcess, HeldTooLong, HeldTurn, HeldUsage};

use containers::ContainerNames;
use names::DeviceNames;
use std::fmt::Display;
use std::path::Path;
use tranche_core::claims::Claims;
use tranche_core::error::{Error, Result};
use tranche_core::ledger::{Books, Claim, utc};
use tranche_core::text::some;
use tranche_plan::reserve::{ReserveError, explain as explain_reserve};

/// How claims are shown: by the names that the last refresh gives to devices, and engines to containers.
#[derive(Debug, Default)]
pub struct View {
    /// The names of devices and shares.
    pub devices: DeviceNames,
    /// The names of containers.
    pub containers: ContainerNames,
    /// Seconds since boot, by which a claim's time to live is counted.
    uptime: u64,
}

impl View {
    /// A view by the names of `devices` and of engines, at `uptime` seconds since boot.
    pub fn new(devices: DeviceNames, uptime: u64) -> Self {
        Self {
            devices,
            containers: ContainerNames::default(),
            uptime,
        }
    }

    /// A view for one who may not read the files of root's engines.
    pub fn without_containers(devices: DeviceNames, uptime: u64) -> Self {
        Self {
            containers: ContainerNames::hidden(),
            ..Self::new(devices, uptime)
        }
    }

    /// Counts times to live at `uptime` seconds since boot.
    pub fn set_uptime(&mut self, uptime: u64) {
        self.uptime = uptime;
    }

    /// `claim` as it is shown.
    pub fn held(&mut self, claim: &Claim) -> Held {
        let names = ClaimNames {
            cdi: self.devices.name(claim),
            device: self.devices.device(&claim.device),
            container: claim.holder.container().and_then(|of_root| self.containers.of(of_root)),
        };
        Held::new(claim, names, self.uptime)
    }

    /// `claims` as a list in one line: what is held, by whom and since when. Each can be released by the name that it
    /// has here. What has joined another claim lasts with that one, and is not said again.
    pub fn list<'c>(&mut self, claims: impl IntoIterator<Item = &'c Claim>) -> String {
        let line = |claim| {
            let held = self.held(claim);
            format!(
                "{} by {} since {}",
                self.devices.own_name(claim),
                held.by(),
                utc(held.since)
            )
        };
        let own = claims.into_iter().filter(|claim| !claim.joined);
        some(&own.map(line).collect::<Vec<_>>())
    }
}

impl View {
    /// The error of a command that reserves shares and has an option `--wait`. `object` is what it is about.
    pub fn not_reserved(&mut self, object: impl Display, error: ReserveError) -> Error {
        let is_behind = matches!(error, ReserveError::Behind { .. });
        let error = explain_reserve(object, error, |held| self.list(held));
        match is_behind {
            true => error.hint("try again later, or wait as well: with --wait"),
            false => error,
        }
    }
}

/// What the ledger in `state_dir` has, and how it is shown by the names of the last refresh.
///
/// # Errors
/// As [`books`].
pub fn read(state_dir: &Path) -> Result<(Books, View)> {
    let (books, uptime) = books(state_dir)?;
    Ok((books, View::new(DeviceNames::of_host(state_dir), uptime)))
}

/// What the ledger in `state_dir` has, and the seconds since boot by which a claim's time to live is counted.
///
/// # Errors
/// Returns an error if this user cannot use the ledger, or if it cannot be listed.
pub fn books(state_dir: &Path) -> Result<(Books, u64)> {
    root_only::check(state_dir)?;
    Ok(match Claims::existing(state_dir)? {
        Some(claims) => (claims.books()?, claims.uptime()),
        None => Default::default(),
    })
}

/// The container `id` of an engine of `user`, or else of root, as people name it.
pub fn container_id(id: &str, user: Option<u32>) -> String {
    user.map_or_else(|| id.to_owned(), |user| format!("{user}.{id}"))
}

/// The container `id`, which its engine calls `name`, for people: `train (262bf9f7e5a8)`, or the short id alone.
pub fn container_text(id: &str, name: Option<&str>) -> String {
    let short: String = id.chars().take(12).collect();
    let short = if short.is_empty() { "unknown" } else { &short };
    name.map_or_else(|| short.to_owned(), |name| format!("{name} ({short})"))
}

/// The text of a value in a table; a dash without a value.
pub fn or_dash(value: Option<impl Display>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| value.to_string())
}

/// A span of time for people: `45 s`, `12 min`, `3 h 5 min`.
pub fn span(seconds: u64) -> String {
    match seconds {
        0..=90 => format!("{seconds} s"),
        91..=5_400 => format!("{} min", seconds / 60),
        _ => format!("{} h {} min", seconds / 3600, seconds / 60 % 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans() {
        assert_eq!(span(0), "0 s");
        assert_eq!(span(91), "1 min");
        assert_eq!(span(3_700 * 3), "3 h 5 min");
    }
}
