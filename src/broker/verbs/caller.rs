//! For whom a verb is done.

use std::path::Path;
use tranche_core::claims::Claims;
use tranche_core::error::{Error, Result};
use tranche_core::ledger::Claim;
use tranche_state::claim_spec::is_of_user;
use tranche_state::held::View;
use tranche_state::held::names::DeviceNames;

/// For whom a verb is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Caller {
    /// Root, or the user to whom the ledger belongs: all that is held, by anybody.
    Root,
    /// A user, by number: what this user holds, and nothing of others.
    User(u32),
}

impl Caller {
    /// The ledger in `state_dir`, as the caller may change it.
    ///
    /// # Errors
    /// Returns an error if it cannot be used or made.
    pub(crate) fn claims(self, state_dir: &Path) -> Result<Claims> {
        Claims::open(state_dir)
            .map(|claims| self.of(claims))
            .map_err(Into::into)
    }

    /// `claims`, as the caller may change them.
    pub(super) fn of(self, claims: Claims) -> Claims {
        match self {
            Self::Root => claims,
            Self::User(uid) => claims.for_user(uid),
        }
    }

    /// Whether the caller may see `claim`.
    pub(crate) fn sees(self, claim: &Claim) -> bool {
        match self {
            Self::Root => true,
            Self::User(uid) => claim.uid == uid,
        }
    }

    /// How the caller sees claims. The names of containers are in files of root's engines, and are for root.
    pub(crate) fn view(self, devices: DeviceNames, uptime: u64) -> View {
        match self {
            Self::Root => View::new(devices, uptime),
            Self::User(_) => View::without_containers(devices, uptime),
        }
    }

    /// The name in the ledger of the caller's claim `name`: `1000.train` for `train` of a user, so that no user takes a
    /// name from another one.
    ///
    /// # Errors
    /// Returns an error for the name of another user's claim.
    pub(crate) fn own_name(self, name: &str) -> Result<String> {
        let Self::User(uid) = self else {
            return Ok(name.to_owned());
        };
        let prefix = format!("{uid}.");
        match is_of_user(name) {
            false => Ok(format!("{prefix}{name}")),
            true if name.starts_with(&prefix) => Ok(name.to_owned()),
            true => Err(Error::failed(format!("claim {name}"), "not found").hint("tranche claim list shows yours")),
        }
    }

    /// The name in the ledger of a new claim `name`.
    ///
    /// # Errors
    /// As [`Caller::own_name`], and a usage error if root asks for a name that is kept for users.
    pub(super) fn new_name(self, name: &str) -> Result<String> {
        match self {
            Self::Root if is_of_user(name) => {
                let error = Error::usage(format!("claim {name}"), "is a name for claims of users");
                Err(error.hint("choose one that does not begin with a number and a dot"))
            }
            _ => self.own_name(name),
        }
    }
}
