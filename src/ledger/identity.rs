//! The name of a container across engines.

use std::fmt;

/// A container as every engine on the machine can tell it apart.
///
/// Ids are an engine's own: two engines, or two namespaces of containerd, may use one id. Their bundles differ.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ContainerName {
    /// The directory of its bundle.
    pub bundle: String,
    /// Its id.
    pub id: String,
}

impl fmt::Display for ContainerName {
    /// The id, shortened as engines show it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let short: String = self.id.chars().take(12).collect();
        f.pad(&format!("container {short}"))
    }
}
