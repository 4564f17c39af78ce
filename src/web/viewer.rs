//! Who asks, what that user may see, and the names of users.

use nix::unistd::{Gid, Group, Uid, User};
use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::path::Path;
use std::sync::LazyLock;
use tranche_core::ledger::events::{DIRECTORY, NAMES_FILE};

/// Who asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Viewer {
    /// The user's id, as the kernel says it of the other end of the socket.
    pub uid: u32,
    /// Whether this is root, or the user of the program itself.
    pub sees_all: bool,
    /// What others are called for the viewer.
    pub others: Others,
}

/// What other users are called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Others {
    /// Nothing: they are one row together.
    Unnamed,
    /// Each has a pseudonym.
    Pseudonyms,
    /// Their names. What they run is not shown.
    Names,
}

impl Viewer {
    /// Somebody whom the kernel does not name, such as a client over TCP, where the policy of `state_dir` says what
    /// users are called (`sharing.pageNames`).
    pub fn anybody(state_dir: &Path) -> Self {
        let others = match state_dir.join(DIRECTORY).join(NAMES_FILE).exists() {
            true => Others::Names,
            false => Others::Pseudonyms,
        };
        Self {
            // No user has this id (user_namespaces(7)).
            uid: u32::MAX,
            sees_all: false,
            others,
        }
    }

    /// The user with this id.
    pub fn of(uid: u32) -> Self {
        Self {
            uid,
            sees_all: uid == 0 || uid == nix::unistd::geteuid().as_raw(),
            others: Others::Unnamed,
        }
    }

    /// Whether it is shown what the user `uid` runs.
    pub fn sees(&self, uid: u32) -> bool {
        self.sees_all || self.uid == uid
    }

    /// Whether the user `uid` has a row and a name of the own.
    pub(crate) fn tells_apart(&self, uid: u32) -> bool {
        self.sees(uid) || self.others != Others::Unnamed
    }

    /// What the user `uid` is called for the viewer; `None` if that user has no name for the viewer.
    pub(crate) fn name_of(&self, uid: u32, names: &Names) -> Option<String> {
        match self.others {
            _ if self.sees(uid) => Some(names.user(uid)),
            Others::Unnamed => None,
            Others::Pseudonyms => Some(pseudonym(uid)),
            Others::Names => Some(names.user(uid)),
        }
    }
}

/// A name that says only that it is the same user, until the program ends.
fn pseudonym(uid: u32) -> String {
    static KEY: LazyLock<RandomState> = LazyLock::new(RandomState::new);
    format!("user-{:06x}", KEY.hash_one(uid) & 0xff_ffff)
}

/// The names of users and groups, each asked for once.
#[derive(Debug, Default)]
pub(crate) struct Names {
    groups: HashMap<u32, u32>,
}

/// The group of a user without an account.
const NO_GROUP: u32 = u32::MAX;

impl Names {
    /// The group of the account of `uid`.
    pub(crate) fn group_of(&mut self, uid: u32) -> u32 {
        let ask = |uid: u32| User::from_uid(Uid::from_raw(uid)).ok().flatten();
        *self
            .groups
            .entry(uid)
            .or_insert_with(|| ask(uid).map_or(NO_GROUP, |user| user.gid.as_raw()))
    }

    /// The name of a user; the number of one without an account.
    pub(crate) fn user(&self, uid: u32) -> String {
        let user = User::from_uid(Uid::from_raw(uid)).ok().flatten();
        user.map_or_else(|| format!("uid {uid}"), |user| user.name)
    }

    /// The name of a group; its number, if it has none.
    pub(crate) fn group(&self, group: u32) -> String {
        let found = Group::from_gid(Gid::from_raw(group)).ok().flatten();
        match found {
            Some(group) => group.name,
            None if group == NO_GROUP => "without an account".to_owned(),
            None => format!("gid {group}"),
        }
    }
}
