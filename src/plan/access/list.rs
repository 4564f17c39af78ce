//! Access control lists of device nodes, in the form in which the kernel keeps them (acl(5)).

use std::collections::BTreeSet;

/// What an entry of a list allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Right {
    /// Capabilities of MIG are only read.
    Read,
    /// The driver opens GPUs for reading and writing.
    ReadAndWrite,
}

impl Right {
    fn bits(self) -> u16 {
        match self {
            Self::Read => 4,
            Self::ReadAndWrite => 6,
        }
    }
}

/// Who may open a node that belongs to root, in addition to root.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AccessList {
    right: Right,
    users: BTreeSet<u32>,
    groups: BTreeSet<u32>,
}

/// The version of the extended attribute (`POSIX_ACL_XATTR_VERSION`, linux/posix_acl_xattr.h).
const VERSION: u32 = 2;

/// The tags of entries, in the order in which they are kept (linux/posix_acl.h).
const OWNER: u16 = 0x01;
const USER: u16 = 0x02;
const OWNING_GROUP: u16 = 0x04;
const GROUP: u16 = 0x08;
const MASK: u16 = 0x10;
const OTHER: u16 = 0x20;

/// The id of an entry that has none.
const NO_ID: u32 = u32::MAX;

impl AccessList {
    /// The list with these users and groups. Root needs no entry.
    pub fn new(right: Right, users: impl Iterator<Item = u32>, groups: impl Iterator<Item = u32>) -> Self {
        let named = |id: &u32| *id != 0 && *id != NO_ID;
        Self {
            right,
            users: users.filter(named).collect(),
            groups: groups.filter(named).collect(),
        }
    }

    /// The users who may open the node.
    pub fn users(&self) -> impl Iterator<Item = u32> {
        self.users.iter().copied()
    }

    /// Whether a process of this user with these groups may open the node.
    pub fn allows(&self, uid: u32, gids: &BTreeSet<u32>) -> bool {
        uid == 0 || self.users.contains(&uid) || !self.groups.is_disjoint(gids)
    }

    /// The permission bits of the node, which are the same with and without entries: those of the group are the mask.
    pub fn mode(&self) -> u32 {
        u32::from(self.right.bits()) * 0o110
    }

    /// The value of `system.posix_acl_access`; `None` if the node has no such attribute, because nobody is named. Two
    /// equal lists have equal values.
    pub fn attribute(&self) -> Option<Vec<u8>> {
        if self.users.is_empty() && self.groups.is_empty() {
            return None;
        }
        let right = self.right.bits();
        let mut bytes = VERSION.to_le_bytes().to_vec();
        let mut add = |tag: u16, right: u16, id: u32| {
            bytes.extend(tag.to_le_bytes());
            bytes.extend(right.to_le_bytes());
            bytes.extend(id.to_le_bytes());
        };
        add(OWNER, right, NO_ID);
        for user in &self.users {
            add(USER, right, *user);
        }
        // Root's group, which has nobody but root's processes in it.
        add(OWNING_GROUP, right, NO_ID);
        for group in &self.groups {
            add(GROUP, right, *group);
        }
        add(MASK, right, NO_ID);
        add(OTHER, 0, NO_ID);
        Some(bytes)
    }
}
