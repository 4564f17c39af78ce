//! What corrects a finding.

use serde::Serialize;

/// What corrects a finding. It belongs to the finding, and not to the check: two causes that one check finds need two
/// fixes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Fix {
    /// A command, or what a person has to do.
    #[serde(rename = "fix")]
    text: String,
    /// The arguments of `tranche` that correct it, if that can do no harm.
    #[serde(rename = "safe_fix", skip_serializing_if = "Vec::is_empty")]
    safe: Vec<&'static str>,
    /// Whether the text is a command as it is typed.
    #[serde(skip)]
    is_command: bool,
}

impl Fix {
    /// What a person has to do: a text that is not a command, or a command with conditions.
    pub(super) fn by_hand(text: impl Into<String>) -> Self {
        Self {
            text: text.into(),
            safe: Vec::new(),
            is_command: false,
        }
    }

    /// A command that a person types as it is.
    pub(super) fn command(line: impl Into<String>) -> Self {
        Self {
            is_command: true,
            ..Self::by_hand(line)
        }
    }

    /// The arguments of `tranche` that correct it and can do no harm, so that `--fix` runs them.
    pub(super) fn safe(arguments: &[&'static str]) -> Self {
        Self {
            safe: arguments.to_vec(),
            ..Self::command(format!("tranche {}", arguments.join(" ")))
        }
    }

    /// The command, or what a person has to do.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The arguments of `tranche` that `--fix` runs; empty if it runs none.
    pub fn safe_arguments(&self) -> &[&'static str] {
        &self.safe
    }

    /// Whether the text is a command as it is typed.
    pub fn is_command(&self) -> bool {
        self.is_command
    }
}

impl From<&str> for Fix {
    fn from(text: &str) -> Self {
        Self::by_hand(text)
    }
}

impl From<String> for Fix {
    fn from(text: String) -> Self {
        Self::by_hand(text)
    }
}
