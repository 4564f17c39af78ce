//! A container with an MPS share may have no other GPU.
//!
//! A CUDA process talks to one MPS daemon, and the daemon shows it one device: a second device in the container would be
//! there and not be seen, or take the process out of MPS and its limits.

use super::Request;
use crate::error::{Error, Result};
use crate::oci::Config;
use std::path::Path;

/// Refuses a container whose config has the node of another GPU or MIG device than `request.nodes`.
pub(super) fn check(config: &Config, request: &Request) -> Result<()> {
    for node in config.nodes() {
        if is_a_devices_own(node) && !request.nodes.iter().any(|own| own == node) {
            return Err(Error::failed(
                format!("{} {}", request.label, node.display()),
                "a container with an MPS share can have no other device, since a process sees one MPS daemon",
            )
            .hint(request.several_as_one()));
        }
    }
    Ok(())
}

/// `/dev/nvidiaN`, and the capabilities of MIG instances; not the nodes that every container with a GPU has.
fn is_a_devices_own(node: &Path) -> bool {
    let Some(text) = node.to_str() else { return false };
    let number = |rest: &str| !rest.is_empty() && rest.bytes().all(|b| b.is_ascii_digit());
    text.strip_prefix("/dev/nvidia").is_some_and(number)
        || text.strip_prefix("/dev/nvidia-caps/nvidia-cap").is_some_and(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn which_nodes_are_a_devices_own() {
        assert!(is_a_devices_own(Path::new("/dev/nvidia10")));
        assert!(is_a_devices_own(Path::new("/dev/nvidia-caps/nvidia-cap12")));
        for common in [
            "/dev/nvidiactl",
            "/dev/nvidia-uvm",
            "/dev/nvidia-modeset",
            "/dev/nvidia",
            "/dev/null",
        ] {
            assert!(!is_a_devices_own(Path::new(common)), "{common}");
        }
    }
}
