//! The container of a request, within limits that every engine keeps.

use crate::ledger::ContainerName;
use serde::de::Error;
use serde::{Deserialize, Deserializer};

/// The most bytes of a container's id: containerd allows 76 (containerd, pkg/identifiers), the others use 64.
const LONGEST_ID: usize = 128;
/// The most bytes of the path of a bundle (PATH_MAX of the kernel).
const LONGEST_PATH: usize = 4096;

#[derive(Deserialize)]
struct ContainerFields {
    id: String,
    bundle: String,
}

/// Reads a container's name, and refuses one that is empty or too long, or that a table or a command line would have to
/// quote.
pub(super) fn within_limits<'de, D: Deserializer<'de>>(deserializer: D) -> Result<ContainerName, D::Error> {
    let ContainerFields { id, bundle } = ContainerFields::deserialize(deserializer)?;
    // As runc's rule for ids (libcontainer, validateID).
    let is_plain = id
        .bytes()
        .all(|byte| byte.is_ascii_alphanumeric() || b"_+-.".contains(&byte));
    match (id.len(), bundle.len()) {
        (1..=LONGEST_ID, 1..=LONGEST_PATH) if is_plain => Ok(ContainerName { bundle, id }),
        (1..=LONGEST_ID, 1..=LONGEST_PATH) => Err(Error::custom(
            "the id of the container has other characters than letters, digits and _+-.",
        )),
        _ => Err(Error::custom(
            "the id or the bundle of the container is empty or too long",
        )),
    }
}
