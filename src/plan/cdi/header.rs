//! What the comments at the head of a specification say about its origin. JSON has no comments, so a specification in
//! JSON says nothing.

use crate::digest::Digest;

const MADE_BY: &str = "Made by tranche ";
const HOST: &str = "Digest of the host: ";
const POLICY: &str = "Digest of the policy: ";
const OPTIONS: &str = "Discovered with ";

/// The first comment of every specification that this program writes.
pub fn made_by() -> String {
    format!("{MADE_BY}{}", env!("CARGO_PKG_VERSION"))
}

/// The comment of a specification that `tranche cdi refresh` wrote, and may replace or remove.
pub const REFRESHED: &str = "Kept current by tranche cdi refresh";

/// Whether `comments` say that some version of tranche wrote the specification.
pub fn is_by_tranche(comments: &[String]) -> bool {
    comments.first().is_some_and(|line| line.starts_with(MADE_BY))
}

/// What a specification was made from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SpecOrigin {
    /// The digest of the inventory.
    pub host: Digest,
    /// The digest of the plan; `None` if the specification does not depend on a policy.
    pub policy: Option<Digest>,
    /// The options that changed what was found on the host (`--driver-root=/run/nvidia/driver`), with spaces between
    /// them.
    pub options: String,
}

impl SpecOrigin {
    /// The comments that say it. [`SpecOrigin::from_comments`] reads them.
    pub fn comments(&self) -> Vec<String> {
        let policy = self.policy.map(|policy| format!("{POLICY}{policy}"));
        let options = Some(&self.options).filter(|options| !options.is_empty());
        let options = options.map(|options| format!("{OPTIONS}{options}"));
        let host = format!("{HOST}{}", self.host);
        std::iter::once(host).chain(policy).chain(options).collect()
    }

    /// What `comments` say; `None` if they are not tranche's, or have no valid digest.
    pub fn from_comments(comments: &[String]) -> Option<Self> {
        let value = |mark: &str| comments.iter().find_map(|line| line.strip_prefix(mark));
        if !is_by_tranche(comments) {
            return None;
        }
        Some(SpecOrigin {
            host: value(HOST)?.parse().ok()?,
            policy: value(POLICY).map(str::parse).transpose().ok()?,
            options: value(OPTIONS).unwrap_or_default().to_owned(),
        })
    }

    /// Whether `comment` is one of [`SpecOrigin::comments`].
    pub fn is_comment(comment: &str) -> bool {
        [HOST, POLICY, OPTIONS].iter().any(|mark| comment.starts_with(mark))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_origin_is_read_from_its_comments() {
        let digest = |n: u8| Digest([n; 32]);
        for (policy, options) in [(None, ""), (Some(digest(2)), "--compat32 --dev-root=/x")] {
            let origin = SpecOrigin {
                host: digest(1),
                policy,
                options: options.to_owned(),
            };
            let mut comments = vec![made_by(), "Written beside x.yaml".to_owned()];
            comments.extend(origin.comments());
            assert_eq!(SpecOrigin::from_comments(&comments), Some(origin));
            assert_eq!(
                comments.iter().filter(|line| SpecOrigin::is_comment(line)).count(),
                comments.len() - 2
            );
            // A specification by another program, and one whose digest was cut.
            assert_eq!(SpecOrigin::from_comments(&comments[1..]), None);
            comments[2].pop();
            assert_eq!(SpecOrigin::from_comments(&comments), None);
        }
        assert_eq!(SpecOrigin::from_comments(&[made_by()]), None);
    }
}
