//! What the child is asked.

use std::time::Duration;

/// What the child is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NvmlQuestion {
    /// What the host has.
    Inventory,
    /// What its GPUs do now.
    Usage,
}

impl NvmlQuestion {
    const ALL: [Self; 2] = [Self::Inventory, Self::Usage];

    /// The word that the child is started with.
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Inventory => "inventory",
            Self::Usage => "usage",
        }
    }

    /// The reverse of [`NvmlQuestion::as_str`].
    pub(super) fn of(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|question| question.as_str() == word)
    }

    /// Whether the answer has numbers of processes. The driver gives each caller only the processes that the caller's
    /// pid namespace has, with their numbers there (NVIDIA's open kernel modules 595.45.04, `gpu_rmapi.c`,
    /// `osFindNsPid`). A child in a pid namespace of its own would get an empty list.
    pub(super) fn has_processes(self) -> bool {
        self == Self::Usage
    }

    /// The most time for the whole answer, of a child that may be silent for `silence`. What the GPUs do now is of no
    /// use to a person who has to wait for it.
    pub(super) fn limit(self, silence: Duration) -> Option<Duration> {
        match self {
            Self::Inventory => None,
            Self::Usage => Some(silence),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_question_has_a_word_of_its_own() {
        for question in NvmlQuestion::ALL {
            assert_eq!(NvmlQuestion::of(question.as_str()), Some(question));
        }
        assert_eq!(NvmlQuestion::of(""), None);
    }
}
