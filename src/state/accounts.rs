//! Who is counted when shares and connections are limited.
//!
//! A user with a range in `/etc/subuid` has tens of thousands of uids (subuid(5), user_namespaces(7)), and becomes each
//! of them at will. Limits therefore count [`Account`]s. [`Accounts`] is the only place that makes them from uids.

mod groups;
mod names;
mod ranges;

use crate::mutex::lock;
use groups::Groups;
use names::{Answer, Names};
use ranges::Ranges;
use std::fmt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use tranche_core::error::{Error, Result};
use tranche_core::execute::AsUser;
use tranche_plan::access::MonitorIds;
use tranche_plan::policy::{Monitors, UserLimits, UserPolicy, UserRules};

/// Who is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Account {
    /// The user of the broker: root, outside of tests. It has no limits.
    Owner,
    /// A user, with all subordinate uids that only this user has.
    User(u32),
    /// All uids together of which the user is not known for certain.
    Shared,
}

impl fmt::Display for Account {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Account::Owner => f.write_str("root"),
            Account::User(uid) => write!(f, "user {uid}"),
            Account::Shared => f.write_str("the subordinate uids without a known owner"),
        }
    }
}

/// Where accounts and their subordinate uids are listed.
#[derive(Debug, Clone)]
pub struct AccountSources {
    /// The accounts of this machine, as passwd(5).
    pub passwd: PathBuf,
    /// The subordinate uids, as subuid(5).
    pub subuid: PathBuf,
    /// Where else they may be, as nsswitch.conf(5).
    pub nsswitch: PathBuf,
    /// The program that finds accounts by NSS (getent(1)): the first of these that exists.
    pub getent: Vec<PathBuf>,
}

impl Default for AccountSources {
    /// Those of this machine.
    fn default() -> Self {
        let getent = ["/usr/bin/getent", "/bin/getent", "/run/current-system/sw/bin/getent"];
        Self {
            passwd: "/etc/passwd".into(),
            subuid: "/etc/subuid".into(),
            nsswitch: "/etc/nsswitch.conf".into(),
            getent: getent.map(PathBuf::from).into(),
        }
    }
}

/// The accounts of this machine. What was read is kept until its files change.
#[derive(Debug)]
pub struct Accounts {
    sources: AccountSources,
    owner: u32,
    known: Mutex<Known>,
    names: Names,
    groups: Groups,
}

#[derive(Debug, Default)]
struct Known {
    /// The state in which the files were read.
    stamps: Option<[Stamp; 2]>,
    ranges: Arc<Ranges>,
}

impl Accounts {
    /// The accounts in `sources`, for a broker that runs as this process does.
    pub fn new(sources: AccountSources) -> Self {
        Self {
            names: Names::new(sources.passwd.clone(), sources.getent.clone()),
            sources,
            owner: nix::unistd::geteuid().as_raw(),
            known: Mutex::default(),
            groups: Groups::default(),
        }
    }

    /// The account of `uid`. It may ask NSS, which takes up to two seconds for each owner of a range. A uid whose user
    /// NSS does not say is [`Account::Shared`].
    pub fn of(&self, uid: u32) -> Account {
        self.account(uid, |name| self.names.ask(name))
    }

    /// As [`Accounts::of`], without asking NSS: a uid whose user was not asked for before may be [`Account::Shared`].
    /// It reads two files if they have changed, and does not wait for anything.
    pub fn already_known(&self, uid: u32) -> Account {
        self.account(uid, |name| self.names.already_known(name))
    }

    fn account(&self, uid: u32, find: impl Fn(&str) -> Answer) -> Account {
        if uid == self.owner {
            return Account::Owner;
        }
        let ranges = self.ranges();
        let mut owners = ranges.owners(uid).map(&find);
        match owners.next() {
            None if ranges.is_complete() => Account::User(uid),
            // A range may be missing: only an account shows that the uid is nobody's subordinate one.
            None if matches!(find(&uid.to_string()), Answer::Uid(_)) => Account::User(uid),
            // Ranges of root are for containers that root starts, and what runs in them is not root.
            Some(Answer::Uid(user)) if user != 0 && owners.all(|other| other == Answer::Uid(user)) => {
                Account::User(user)
            }
            None | Some(_) => Account::Shared,
        }
    }

    /// The uid of the user `name`, which may also be a number. It may ask NSS.
    ///
    /// # Errors
    /// Returns a usage error if there is no such user, and an error if NSS does not answer.
    pub fn user(&self, name: &str) -> Result<u32> {
        let error = |what: &str| Error::usage(format!("user {name}"), what);
        if let Some(uid) = tranche_core::types::decimal(name) {
            return Ok(uid);
        }
        match self.names.ask(name) {
            Answer::Uid(uid) => Ok(uid),
            Answer::NoAccount => Err(error("not found").hint("name a user of this machine, or a uid")),
            Answer::Unknown => {
                Err(error("NSS did not say which uid it has").hint("name the uid, which tranche status shows"))
            }
        }
    }

    /// What `policy` says about the user `uid`, who counts as the owner of the uid. It may ask NSS.
    pub fn rules(&self, uid: u32, policy: &UserPolicy) -> UserRules {
        let (name, groups) = self.known_as(uid, policy);
        policy.rules_of(name.as_deref(), &groups)
    }

    /// How much `policy` lets the user `uid` hold, who counts as the owner of the uid. It may ask NSS.
    pub fn limits(&self, uid: u32, policy: &UserPolicy) -> UserLimits {
        let (name, groups) = self.known_as(uid, policy);
        policy.limits_of(name.as_deref(), &groups)
    }

    /// The name of the user `uid`, and those groups of `policy` that the user is in. Nobody is asked if the policy
    /// names nobody.
    fn known_as(&self, uid: u32, policy: &UserPolicy) -> (Option<String>, Vec<String>) {
        if policy.groups.is_empty() && policy.users.is_empty() {
            return Default::default();
        }
        let Account::User(owner) = self.of(uid) else {
            return Default::default();
        };
        let person = self.groups.person(owner, &self.names);
        let groups = self.groups.of(&person, policy.groups.keys(), &self.names);
        (person.name, groups)
    }

    /// A line for each entry of `policy` without effect: of a user or a group that this machine does not have, and of
    /// root. It asks NSS.
    pub fn without_effect(&self, policy: &UserPolicy) -> Vec<String> {
        let users = policy.users.keys().filter_map(|name| match self.names.ask(name) {
            Answer::NoAccount => Some(format!("user {name} was not found on this machine")),
            Answer::Uid(0) => Some(format!("user {name} is root, and has no limits")),
            Answer::Uid(_) | Answer::Unknown => None,
        });
        let groups = policy.groups.keys();
        let groups = groups.filter(|group| self.groups.gid(group, &self.names).is_none());
        let lines = users.chain(groups.map(|group| format!("group {group} was not found on this machine")));
        lines.map(|line| format!("sharing.users: {line}")).collect()
    }

    /// The numbers of `monitors`, and an error for each that this machine does not have. It asks NSS.
    pub fn monitors(&self, monitors: &Monitors) -> (MonitorIds, Vec<Error>) {
        let (mut ids, mut wrong) = (MonitorIds::default(), Vec::new());
        let about = |error: Error| Error::usage("sharing.monitors", error);
        for user in &monitors.users {
            match self.user(user) {
                Ok(uid) => drop(ids.uids.insert(uid)),
                Err(error) => wrong.push(about(error)),
            }
        }
        for group in &monitors.groups {
            let gid = tranche_core::types::decimal(group).or_else(|| self.groups.gid(group, &self.names));
            match gid {
                Some(gid) => drop(ids.gids.insert(gid)),
                None => wrong.push(about(
                    Error::usage(format!("group {group}"), "not found").hint("name a group of this machine, or a gid"),
                )),
            }
        }
        (ids, wrong)
    }

    /// What a login of the user `uid` begins with; `None` if the user has no account, or if NSS does not answer. It
    /// asks NSS.
    pub fn login(&self, uid: u32) -> Option<Login> {
        let person = self.groups.person(uid, &self.names);
        Some(Login {
            user: AsUser {
                uid,
                gid: *person.gids.first()?,
                groups: person.gids,
            },
            home: person.home.filter(|home| home.starts_with('/'))?,
        })
    }

    fn ranges(&self) -> Arc<Ranges> {
        let stamps = [&self.sources.subuid, &self.sources.nsswitch].map(|path| Stamp::of(path));
        let mut known = lock(&self.known);
        if known.stamps != Some(stamps) {
            let ranges = Ranges::read(&self.sources.subuid, &self.sources.nsswitch);
            if let Some(why) = &ranges.incomplete {
                tracing::warn!("{why}: uids without an account of their own share one quota");
            }
            *known = Known {
                stamps: Some(stamps),
                ranges: Arc::new(ranges),
            };
        }
        Arc::clone(&known.ranges)
    }
}

/// What a login of a user begins with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Login {
    /// The user, with all groups of the account.
    pub user: AsUser,
    /// The home of the account.
    pub home: String,
}

/// The state of a file: its inode, size and last change (`st_ctime`, which no program can set); `None` if it does not
/// exist.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stamp(Option<(u64, u64, i64, i64)>);

impl Stamp {
    fn of(path: &Path) -> Self {
        let found = std::fs::metadata(path).ok();
        Self(found.map(|meta| (meta.ino(), meta.size(), meta.ctime(), meta.ctime_nsec())))
    }
}

#[cfg(test)]
mod tests;
