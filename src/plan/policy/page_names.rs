//! Whether the page of the history names users.

use serde::{Deserialize, Serialize};

/// Whether the page names users where nobody knows who reads it: over an address of the machine's own.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PageNames {
    /// Each user has a name there that says only that it is the same user.
    #[default]
    Hidden,
    /// It names users; what they run it never shows there.
    Shown,
}

impl PageNames {
    /// Whether the policy says nothing else.
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::read::parse;

    #[test]
    fn the_policy_says_whether_the_page_names_users() {
        let of = |sharing: &str| parse("c.yaml", &format!("version: v1\nsharing: {sharing}\n"));
        for (sharing, names) in [
            ("{}", PageNames::Hidden),
            ("{pageNames: hidden}", PageNames::Hidden),
            ("{pageNames: shown}", PageNames::Shown),
        ] {
            assert_eq!(of(sharing).unwrap().policy.page_names, names, "{sharing}");
        }
        let error = of("{pageNames: some}").unwrap_err().to_string();
        assert!(error.contains("some") && error.contains("shown"), "{error}");
    }
}
