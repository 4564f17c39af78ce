//! What a container requires of the host: `NVIDIA_REQUIRE_*`.

/// What one variable requires.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Requirement {
    /// The variable, for messages.
    pub variable: String,
    /// Its value.
    pub text: String,
}
