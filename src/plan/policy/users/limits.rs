//! The limits of users, for people: who writes a policy sees what becomes of work that takes longer.

use super::{AtLimit, TimeLimit, UserPolicy, UserRules};

impl UserPolicy {
    /// A line for each entry that limits how much or for how long somebody may hold something:
    /// `sharing.users.default: maxHold 8h, then SIGTERM, and SIGKILL 30s later`.
    pub fn limits(&self) -> Vec<String> {
        let lines = self.entries().filter_map(|(entry, rules)| {
            let limits = rules.limits();
            (!limits.is_empty()).then(|| format!("{entry}: {}", limits.join("; ")))
        });
        lines.collect()
    }
}

impl UserRules {
    fn limits(&self) -> Vec<String> {
        let amounts = [("maxShares", self.max_shares), ("maxDevices", self.max_devices)];
        let amounts = amounts
            .into_iter()
            .filter_map(|(name, most)| Some(format!("{name} {}", most?)));
        let times = [("maxHold", self.hold()), ("idle", self.idle())];
        let times = times
            .into_iter()
            .filter_map(|(name, limit)| Some(format!("{name} {}", text(limit?))));
        amounts.chain(times).collect()
    }
}

fn text(TimeLimit { most, at_limit, grace }: TimeLimit) -> String {
    match at_limit {
        AtLimit::End => format!("{most}, then SIGTERM, and SIGKILL {grace} later"),
        AtLimit::Release => format!("{most}, then a claim that nobody uses is released"),
        AtLimit::Warn => format!("{most}, then it is shown, and goes on"),
    }
}

#[cfg(test)]
mod tests {
    use crate::policy::read;

    #[test]
    fn each_entry_with_limits_has_a_line_that_says_what_becomes_of_work() {
        let policy = "version: v1\nsharing:\n  users:\n    default: {maxHold: 8h, atLimit: end, idle: 30m}\n    groups:\n      \
                      guest: {maxShares: 2, maxDevices: 1, maxHold: 1h, atLimit: release}\n      staff: {waits: 3}\n    \
                      users:\n      ann: {maxHold: 24h, atLimit: end, grace: 5m}\n      bob: {maxHold: 8, atLimit: end}\n";
        let policy = read::parse_key("policy.yaml", policy, None).unwrap().policy;
        assert_eq!(
            policy.users.limits(),
            [
                "sharing.users.default: maxHold 8h, then SIGTERM, and SIGKILL 30s later; idle 30m, then it is shown, and goes on",
                "sharing.users.groups.guest: maxShares 2; maxDevices 1; maxHold 1h, then a claim that nobody uses is released",
                "sharing.users.users.ann: maxHold 24h, then SIGTERM, and SIGKILL 5m later",
                // A time without a unit does not end anybody's work.
                "sharing.users.users.bob: maxHold 8s, then it is shown, and goes on",
            ]
        );
    }
}
