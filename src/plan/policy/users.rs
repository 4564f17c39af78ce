//! What the policy says about users other than root who wait for shares.

use crate::queue::{QueueTimes, Weight};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::Duration;
use tranche_core::types::WaitTime;

/// How the queue of users is served.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "QueueFields", into = "QueueFields")]
pub struct QueueSettings {
    /// For how long what is free is kept for a request that needs more, the first time.
    pub reserve_for: WaitTime,
    /// The longest time for that.
    pub reserve_at_most: WaitTime,
    /// After how long what a user has held counts half.
    pub half_life: WaitTime,
}

#[derive(Serialize, Deserialize)]
#[serde(rename = "sharing.queue", rename_all = "camelCase", deny_unknown_fields, default)]
struct QueueFields {
    reserve_for: WaitTime,
    reserve_at_most: WaitTime,
    half_life: WaitTime,
}

impl Default for QueueFields {
    fn default() -> Self {
        Self {
            reserve_for: WaitTime::seconds(30),
            reserve_at_most: WaitTime::HOUR,
            half_life: WaitTime::seconds(24 * 3600),
        }
    }
}

impl Default for QueueSettings {
    fn default() -> Self {
        let QueueFields {
            reserve_for,
            reserve_at_most,
            half_life,
        } = QueueFields::default();
        Self {
            reserve_for,
            reserve_at_most,
            half_life,
        }
    }
}

impl From<QueueSettings> for QueueFields {
    fn from(settings: QueueSettings) -> Self {
        Self {
            reserve_for: settings.reserve_for,
            reserve_at_most: settings.reserve_at_most,
            half_life: settings.half_life,
        }
    }
}

impl TryFrom<QueueFields> for QueueSettings {
    type Error = String;

    fn try_from(fields: QueueFields) -> Result<Self, String> {
        if fields.reserve_for > fields.reserve_at_most {
            return Err(format!(
                "reserveFor is {}, and more than reserveAtMost, which is {}",
                fields.reserve_for, fields.reserve_at_most
            ));
        }
        if fields.half_life.get() < Duration::from_secs(60) {
            return Err(format!("halfLife is {}; write at least 1m", fields.half_life));
        }
        Ok(Self {
            reserve_for: fields.reserve_for,
            reserve_at_most: fields.reserve_at_most,
            half_life: fields.half_life,
        })
    }
}

impl QueueSettings {
    /// Whether the policy says nothing else.
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }

    /// How long things are kept free.
    pub fn times(&self) -> QueueTimes {
        QueueTimes {
            reserve_for: self.reserve_for.get(),
            reserve_at_most: self.reserve_at_most.get(),
        }
    }
}

/// What the policy says about users: about all, about those of a group, and about one.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename = "sharing.users", deny_unknown_fields, default)]
pub struct UserPolicy {
    /// Users of whom nothing else is said.
    #[serde(rename = "default")]
    pub everybody: UserRules,
    /// The users of each group.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub groups: BTreeMap<String, UserRules>,
    /// Each user.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub users: BTreeMap<String, UserRules>,
}

/// What the policy says about a user. `None`: nothing.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(
    rename = "an entry of sharing.users",
    rename_all = "camelCase",
    deny_unknown_fields,
    default
)]
pub struct UserRules {
    /// How much the user counts in the queue.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub weight: Option<Weight>,
    /// How long a request may wait.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_wait: Option<WaitTime>,
    /// How many requests of the user may wait at the same time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waits: Option<u32>,
}

/// How many requests of a user may wait if the policy does not say it. Fewer than the connections that a user may have, so
/// that the user can still release something.
const WAITS: u32 = 4;

/// The most requests of a user that may wait.
const MOST_WAITS: u32 = 6;

impl UserPolicy {
    /// Whether it says nothing.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// What it says about the user `name`, who is in `groups`. For each rule, the user's own entry counts, or else the
    /// most generous one of the groups, or else that of everybody.
    pub fn rules_of(&self, name: Option<&str>, groups: &[String]) -> UserRules {
        let own = name.and_then(|name| self.users.get(name)).copied().unwrap_or_default();
        let of_groups: Vec<&UserRules> = groups.iter().filter_map(|group| self.groups.get(group)).collect();
        let most = |rules: &dyn Fn(&UserRules) -> Option<u64>| of_groups.iter().filter_map(|one| rules(one)).max();
        let everybody = self.everybody;
        UserRules {
            weight: own
                .weight
                .or_else(|| of_groups.iter().filter_map(|one| one.weight).max())
                .or(everybody.weight),
            max_wait: own
                .max_wait
                .or_else(|| of_groups.iter().filter_map(|one| one.max_wait).max())
                .or(everybody.max_wait),
            waits: own
                .waits
                .or_else(|| most(&|one| one.waits.map(u64::from)).and_then(|waits| u32::try_from(waits).ok()))
                .or(everybody.waits),
        }
    }
}

impl UserRules {
    /// How much the user counts in the queue.
    pub fn weight(&self) -> Weight {
        self.weight.unwrap_or(Weight::ONE)
    }

    /// How long a request may wait.
    pub fn max_wait(&self) -> Duration {
        self.max_wait.unwrap_or(WaitTime::HOUR).get()
    }

    /// How many requests of the user may wait at the same time.
    pub fn waits(&self) -> usize {
        self.waits.unwrap_or(WAITS).min(MOST_WAITS) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(weight: u32) -> UserRules {
        UserRules {
            weight: Some(Weight::try_from(weight).unwrap()),
            ..UserRules::default()
        }
    }

    #[test]
    fn a_user_s_own_entry_counts_before_the_groups_and_these_before_everybody() {
        let waits = |waits| UserRules {
            waits: Some(waits),
            ..UserRules::default()
        };
        let policy = UserPolicy {
            everybody: UserRules {
                max_wait: Some(WaitTime::seconds(9)),
                ..rules(1)
            },
            groups: [("phd", rules(2)), ("staff", rules(3)), ("guest", waits(1))]
                .map(|(name, rules)| (name.to_owned(), rules))
                .into(),
            users: [("ann".to_owned(), rules(0))].into(),
        };
        let of = |name, groups: &[&str]| {
            let groups: Vec<String> = groups.iter().map(ToString::to_string).collect();
            policy.rules_of(name, &groups)
        };
        assert_eq!(of(Some("bob"), &[]).weight, rules(1).weight);
        assert_eq!(of(Some("bob"), &["phd", "staff", "other"]).weight, rules(3).weight);
        let ann = of(Some("ann"), &["staff", "guest"]);
        assert_eq!(
            (ann.weight, ann.waits(), ann.max_wait()),
            (rules(0).weight, 1, Duration::from_secs(9))
        );
        assert_eq!(of(None, &[]).waits(), 4);
    }

    #[test]
    fn what_contradicts_itself_is_refused_with_its_place() {
        let read = |text: &str| crate::policy::read::parse("p.yaml", &format!("version: v1\nsharing:\n{text}"));
        let policy = read(
            "  users:\n    default: {maxWait: 1s}\n    groups:\n      phd: {weight: 2}\n    users:\n      ann: {waits: 1}\n",
        );
        let policy = policy.unwrap().policy;
        assert_eq!(policy.users.everybody.max_wait, Some(WaitTime::seconds(1)));
        assert_eq!(policy.users.groups["phd"], rules(2));
        assert_eq!(policy.users.users["ann"].waits, Some(1));
        for (text, line) in [
            (
                "  queue: {reserveFor: 2h}\n",
                "p.yaml:3:10: queue: reserveFor is 2h, and more than reserveAtMost, which is 1h",
            ),
            (
                "  queue: {halfLife: 1s}\n",
                "p.yaml:3:10: queue: halfLife is 1s; write at least 1m",
            ),
            (
                "  users:\n    default: {weight: 1001}\n",
                "weight 1001: is more than 1000",
            ),
            (
                "  users:\n    groups:\n      phd: {weigth: 1}\n",
                "\"weigth\" is unknown in an entry of sharing.users",
            ),
            ("  users: {groups: 3}\n", "names with values"),
        ] {
            let refused = tranche_core::error::line(&read(text).unwrap_err());
            assert!(refused.contains(line), "{refused}");
        }
    }
}
