//! Names of users, and their groups: for what the policy says about both.
//!
//! Both are asked of NSS (getent(1)), because the groups of a user may be in a directory service.

use super::names::{Names, Nss};
use crate::mutex::lock;
use std::collections::HashMap;
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// For how long an answer is taken again.
const ANSWER_LASTS: Duration = Duration::from_secs(60);

/// The most users and groups of which answers are kept.
const MOST_KEPT: usize = 4096;

/// A user, as far as NSS knows it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Person {
    /// The name of the account.
    pub(super) name: Option<String>,
    /// The numbers of its groups, that of the account first.
    pub(super) gids: Vec<u32>,
    /// The home of the account.
    pub(super) home: Option<String>,
}

/// What NSS has said.
#[derive(Debug, Default)]
pub(super) struct Groups {
    people: Mutex<HashMap<u32, (Instant, Person)>>,
    gids: Mutex<HashMap<String, (Instant, Option<u32>)>>,
}

impl Groups {
    /// The user with this number. It may ask NSS twice.
    pub(super) fn person(&self, uid: u32, names: &Names) -> Person {
        kept(&self.people, &uid, || {
            let Nss::Found(line) = names.nss("passwd", &uid.to_string()) else {
                return Person::default();
            };
            // passwd(5): name, password, uid, gid.
            let fields: Vec<&str> = line.trim_end().split(':').collect();
            let (Some(name), Some(gid)) = (fields.first(), fields.get(3)) else {
                return Person::default();
            };
            let mut gids: Vec<u32> = gid.parse().into_iter().collect();
            if let Nss::Found(line) = names.nss("initgroups", name) {
                gids.extend(
                    line.split_ascii_whitespace()
                        .skip(1)
                        .filter_map(|gid| gid.parse::<u32>().ok()),
                );
            }
            Person {
                name: Some((*name).to_owned()),
                gids,
                home: fields.get(5).map(|home| (*home).to_owned()),
            }
        })
    }

    /// Those of `groups` that `person` is in. It may ask NSS for each of them.
    pub(super) fn of<'g>(
        &self,
        person: &Person,
        groups: impl Iterator<Item = &'g String>,
        names: &Names,
    ) -> Vec<String> {
        let is_in = |group: &&String| {
            let gid = self.gid(group, names);
            gid.is_some_and(|gid| person.gids.contains(&gid))
        };
        groups.filter(is_in).cloned().collect()
    }

    /// The number of a group; `None` if it does not exist, or NSS does not say it.
    pub(super) fn gid(&self, group: &str, names: &Names) -> Option<u32> {
        kept(&self.gids, &group.to_owned(), || match names.nss("group", group) {
            // group(5): name, password, gid, members.
            Nss::Found(line) => line.split(':').nth(2)?.trim_end().parse().ok(),
            Nss::NotFound | Nss::Unknown => None,
        })
    }
}

/// The value of `key`, or else what `ask` says. Nothing is locked while it is asked.
fn kept<K: Clone + Eq + std::hash::Hash, V: Clone>(
    answers: &Mutex<HashMap<K, (Instant, V)>>,
    key: &K,
    ask: impl FnOnce() -> V,
) -> V {
    if let Some((at, value)) = lock(answers).get(key)
        && at.elapsed() < ANSWER_LASTS
    {
        return value.clone();
    }
    let value = ask();
    let mut answers = lock(answers);
    if answers.len() >= MOST_KEPT {
        answers.clear();
    }
    answers.insert(key.clone(), (Instant::now(), value.clone()));
    value
}
