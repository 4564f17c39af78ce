//! What the policy says about users other than root who wait for shares.

mod limits;

use super::limit_time::LimitTime;
use crate::queue::{QueueTimes, Served};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
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
    /// Whether root's containers and claims come after users who have waited for longer.
    pub root_waits: bool,
}

#[derive(Serialize, Deserialize)]
#[serde(rename = "sharing.queue", rename_all = "camelCase", deny_unknown_fields, default)]
struct QueueFields {
    reserve_for: WaitTime,
    reserve_at_most: WaitTime,
    half_life: WaitTime,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    root_waits: bool,
}

impl Default for QueueFields {
    fn default() -> Self {
        Self {
            reserve_for: WaitTime::seconds(30),
            reserve_at_most: WaitTime::HOUR,
            half_life: WaitTime::seconds(24 * 3600),
            root_waits: false,
        }
    }
}

impl Default for QueueSettings {
    fn default() -> Self {
        let QueueFields {
            reserve_for,
            reserve_at_most,
            half_life,
            root_waits,
        } = QueueFields::default();
        Self {
            reserve_for,
            reserve_at_most,
            half_life,
            root_waits,
        }
    }
}

impl From<QueueSettings> for QueueFields {
    fn from(settings: QueueSettings) -> Self {
        Self {
            reserve_for: settings.reserve_for,
            reserve_at_most: settings.reserve_at_most,
            half_life: settings.half_life,
            root_waits: settings.root_waits,
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
            root_waits: fields.root_waits,
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
    remote = "Self",
    rename = "an entry of sharing.users",
    rename_all = "camelCase",
    deny_unknown_fields,
    default
)]
pub struct UserRules {
    /// When requests of the user are served.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub served: Option<Served>,
    /// What earlier versions had in place of `served`. It is read, and has its effect by `served` alone.
    #[serde(skip_serializing)]
    weight: Option<u32>,
    /// How long a request may wait.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_wait: Option<WaitTime>,
    /// How many requests of the user may wait at the same time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waits: Option<u32>,
    /// How many shares the user may hold, instead of `sharing.quota.shares`. A whole device counts as one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_shares: Option<u32>,
    /// How many whole devices the user may hold.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_devices: Option<u32>,
    /// For how long the user may hold something.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_hold: Option<LimitTime>,
    /// What is done about what is held for longer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at_limit: Option<AtLimit>,
    /// For how long what the user holds may do nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idle: Option<LimitTime>,
    /// What is done about what has done nothing for longer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at_idle: Option<AtLimit>,
    /// How long a holder has to end after SIGTERM.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub grace: Option<WaitTime>,
}

// With `remote`, these two are beside what serde makes, and refuse what contradicts itself with the place of the entry.
impl<'de> Deserialize<'de> for UserRules {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut rules = Self::deserialize(deserializer)?;
        if rules.weight == Some(0) {
            rules.served.get_or_insert(Served::Last);
        }
        rules.check().map_err(serde::de::Error::custom)?;
        Ok(rules)
    }
}

impl Serialize for UserRules {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        Self::serialize(self, serializer)
    }
}

/// A rule with the entry of the policy that gives it: `sharing.users.groups.phd`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sourced<T> {
    /// What it says.
    pub value: T,
    /// The entry.
    pub from: String,
}

/// What is done about what a user holds for too long. The later one is the more generous one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AtLimit {
    /// The holder is ended, and a claim that nobody uses is released.
    End,
    /// A claim that nobody uses is released.
    Release,
    /// It is shown.
    Warn,
}

/// For how long a user may hold something, or hold it without using it, and what is done then.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct TimeLimit {
    /// For how long.
    pub most: WaitTime,
    /// What is done then.
    pub at_limit: AtLimit,
    /// How long a holder has to end after SIGTERM.
    pub grace: WaitTime,
}

/// How much a user may hold. `None`: the policy says nothing of this user.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct UserLimits {
    /// How many shares; a whole device counts as one.
    pub shares: Option<Sourced<u32>>,
    /// How many whole devices.
    pub devices: Option<Sourced<u32>>,
    /// For how long.
    pub hold: Option<Sourced<TimeLimit>>,
    /// For how long it may do nothing.
    pub idle: Option<Sourced<TimeLimit>>,
}

/// The shortest idleness after which a holder may be ended: users lose work by a shorter one.
const SHORTEST_IDLE: WaitTime = WaitTime::HOUR;

/// How long a holder has to end if the policy does not say it.
const GRACE: WaitTime = WaitTime::seconds(30);

/// How many requests of a user may wait if the policy does not say it. Fewer than the connections that a user may have,
/// so that the user can still release something.
const WAITS: u32 = 4;

/// The most requests of a user that may wait.
const MOST_WAITS: u32 = 6;

impl UserPolicy {
    /// Whether it says nothing.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// What it says about how the user `name`, who is in `groups`, waits.
    pub fn rules_of(&self, name: Option<&str>, groups: &[String]) -> UserRules {
        let of = OfUser {
            policy: self,
            name,
            groups,
        };
        UserRules {
            served: of.value(|rules| rules.served),
            max_wait: of.value(|rules| rules.max_wait),
            waits: of.value(|rules| rules.waits),
            ..UserRules::default()
        }
    }

    /// How much the user `name`, who is in `groups`, may hold.
    pub fn limits_of(&self, name: Option<&str>, groups: &[String]) -> UserLimits {
        let of = OfUser {
            policy: self,
            name,
            groups,
        };
        UserLimits {
            shares: of.find(|rules| rules.max_shares),
            devices: of.find(|rules| rules.max_devices),
            hold: of.find(UserRules::hold),
            idle: of.find(UserRules::idle),
        }
    }

    /// A line for each key of an earlier version, and for each time without a unit.
    pub fn warnings(&self) -> Vec<String> {
        let warnings = |(entry, rules): (String, &UserRules)| {
            let of_entry = rules.warnings().into_iter();
            of_entry.map(|what| format!("{entry}: {what}")).collect::<Vec<_>>()
        };
        self.entries().flat_map(warnings).collect()
    }

    /// Each entry with its name: `sharing.users.groups.phd`.
    fn entries(&self) -> impl Iterator<Item = (String, &UserRules)> {
        let named = |place: &'static str| move |(name, rules)| (format!("sharing.users.{place}.{name}"), rules);
        let everybody = std::iter::once(("sharing.users.default".to_owned(), &self.everybody));
        let groups = self.groups.iter().map(named("groups"));
        everybody.chain(groups).chain(self.users.iter().map(named("users")))
    }

    /// Whether it limits for how long anybody may hold something, used or not.
    pub fn limits_time(&self) -> bool {
        let named = self.groups.values().chain(self.users.values());
        let mut all = named.chain([&self.everybody]);
        all.any(|rules| rules.max_hold.is_some() || rules.idle.is_some())
    }
}

/// What the policy says about one user.
struct OfUser<'p> {
    policy: &'p UserPolicy,
    name: Option<&'p str>,
    groups: &'p [String],
}

impl OfUser<'_> {
    /// What counts of a rule: the user's own entry, or else the most generous one of the groups, or else that of
    /// everybody.
    fn find<T: Ord>(&self, rule: impl Fn(&UserRules) -> Option<T>) -> Option<Sourced<T>> {
        let sourced = |rules: &UserRules, place: &str, name: &str| {
            let from = format!("sharing.users.{place}{name}");
            rule(rules).map(|value| Sourced { value, from })
        };
        let UserPolicy {
            everybody,
            groups,
            users,
        } = self.policy;
        let own = self.name.and_then(|name| sourced(users.get(name)?, "users.", name));
        let of_groups = self.groups.iter();
        let of_groups = of_groups.filter_map(|name| sourced(groups.get(name)?, "groups.", name));
        own.or_else(|| of_groups.max_by(|a, b| a.value.cmp(&b.value)))
            .or_else(|| sourced(everybody, "default", ""))
    }

    fn value<T: Ord>(&self, rule: impl Fn(&UserRules) -> Option<T>) -> Option<T> {
        self.find(rule).map(|found| found.value)
    }
}

impl UserRules {
    fn warnings(&self) -> Vec<String> {
        let weight = self.weight.map(|weight| match weight {
            0 => "weight: 0 is served: last; write that".to_owned(),
            _ => "weight has no effect, because it made no difference that a user would notice; remove it".to_owned(),
        });
        let times = [
            ("maxHold", self.max_hold, "atLimit", self.at_limit),
            ("idle", self.idle, "atIdle", self.at_idle),
        ];
        let times = times.into_iter().filter_map(|(name, time, at_name, at)| {
            let time = time.filter(|time| !time.has_unit)?;
            let seconds = time.time.get().as_secs();
            let ends = match at {
                Some(AtLimit::End) => format!(", and {at_name}: end only warns until then"),
                _ => String::new(),
            };
            Some(format!(
                "{name}: {seconds} has no unit and means {}; write {seconds}s, {seconds}m or {seconds}h{ends}",
                time.time
            ))
        });
        weight.into_iter().chain(times).collect()
    }

    /// Refuses what contradicts itself.
    fn check(&self) -> Result<(), String> {
        for (name, most, at_name, at) in [
            ("maxHold", self.max_hold, "atLimit", self.at_limit),
            ("idle", self.idle, "atIdle", self.at_idle),
        ] {
            match (most, at) {
                (Some(most), _) if most.time.is_zero() => {
                    return Err(format!("{name} is 0s, and would end what has just begun"));
                }
                (None, Some(_)) => return Err(format!("{at_name} has no effect without {name}")),
                _ => {}
            }
        }
        if let (Some(idle), Some(AtLimit::End)) = (self.idle, self.at_idle)
            && idle.has_unit
            && idle.time < SHORTEST_IDLE
        {
            return Err(format!(
                "idle is {idle}; with atIdle: end it is at least {SHORTEST_IDLE}, because work also loads data and compiles"
            ));
        }
        if let (Some(idle), Some(hold)) = (self.idle, self.max_hold)
            && idle.time > hold.time
        {
            return Err(format!("idle is {idle}, and more than maxHold, which is {hold}"));
        }
        if self.grace.is_some() && ![self.at_limit, self.at_idle].contains(&Some(AtLimit::End)) {
            return Err("grace has no effect without atLimit: end or atIdle: end".to_owned());
        }
        match (self.max_devices, self.max_shares) {
            (Some(devices), Some(shares)) if devices > shares => Err(format!(
                "maxDevices is {devices}, and more than maxShares, which is {shares}: a whole device counts as one share"
            )),
            _ => Ok(()),
        }
    }

    /// For how long the user may hold something. An entry that says it says also what is done then.
    fn hold(&self) -> Option<TimeLimit> {
        self.limit(self.max_hold, self.at_limit)
    }

    /// For how long it may do nothing, in the same way.
    fn idle(&self) -> Option<TimeLimit> {
        self.limit(self.idle, self.at_idle)
    }

    fn limit(&self, most: Option<LimitTime>, at_limit: Option<AtLimit>) -> Option<TimeLimit> {
        let LimitTime { time: most, has_unit } = most?;
        let at_limit = at_limit.filter(|at| has_unit || *at != AtLimit::End);
        Some(TimeLimit {
            most,
            at_limit: at_limit.unwrap_or(AtLimit::Warn),
            grace: self.grace.unwrap_or(GRACE),
        })
    }

    /// When requests of the user are served.
    pub fn served(&self) -> Served {
        self.served.unwrap_or_default()
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
mod tests;
