//! Names of shares.

super::text_type!(
    /// The name of a share of a device: `big` of `0.big`, or the number of a replica.
    ///
    /// It becomes part of CDI device names and of compose files. A dot separates it from the device, and compose cuts a
    /// device entry at every colon, so it has neither.
    #[derive(Debug, Clone, PartialEq, Eq, Hash)]
    ShareName,
    is_valid,
    "not a valid share name; use at most 40 letters, digits, '-' and '_', with a letter or digit first and last"
);

fn is_valid(text: &str) -> bool {
    text.len() <= 40 && super::device_name::is_name(text, b"_-")
}

impl ShareName {
    /// The word in place of a share's name that means any free one of equal replicas: `0.any`.
    pub const ANY: &str = "any";

    /// The name of replica `number`, counted from 0.
    pub fn replica(number: u32) -> Self {
        Self(number.to_string())
    }

    /// The name of the only part of a device that stays whole. It appears in messages and plans, not in device names.
    pub fn whole() -> Self {
        Self("whole".to_owned())
    }

    /// The number of a replica; `None` for a share that a person named.
    pub fn number(&self) -> Option<u32> {
        self.0.parse().ok()
    }
}

/// Replicas order by number, so that 10 comes after 9; words order as text, after the numbers.
impl Ord for ShareName {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        let order = |name: &Self| (name.number().is_none(), name.number());
        order(self).cmp(&order(other)).then_with(|| self.0.cmp(&other.0))
    }
}

impl PartialOrd for ShareName {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_their_order() {
        let mut names: Vec<ShareName> = ["big", "10", "9", "a-b"].iter().map(|n| n.parse().unwrap()).collect();
        names.sort();
        assert_eq!(
            names.iter().map(ShareName::as_str).collect::<Vec<_>>(),
            ["9", "10", "a-b", "big"]
        );
        for bad in ["", "a.b", "a:b", "-a", "a-", "é", "a b"] {
            assert!(bad.parse::<ShareName>().is_err(), "{bad}");
        }
    }
}
