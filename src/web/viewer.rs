//! Who asks, what that user may see, and the names of users.

use nix::unistd::{Gid, Group, Uid, User};
use std::collections::HashMap;

/// Who asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Viewer {
    /// The user's id, as the kernel says it of the other end of the socket.
    pub uid: u32,
    /// Whether this is root, or the user of the program itself.
    pub sees_all: bool,
}

impl Viewer {
    /// Somebody whom the kernel does not name, such as a client over TCP: no user has this id (user_namespaces(7)).
    pub const NOBODY: Self = Self {
        uid: u32::MAX,
        sees_all: false,
    };

    /// The user with this id.
    pub fn of(uid: u32) -> Self {
        let sees_all = uid == 0 || uid == nix::unistd::geteuid().as_raw();
        Self { uid, sees_all }
    }

    /// Whether rows and names of the user `uid` are shown.
    pub fn sees(&self, uid: u32) -> bool {
        self.sees_all || self.uid == uid
    }
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
