//! The program that specifications name as their hook.

use tranche_core::own_programs;
use tranche_core::types::HostPath;

/// The `tranche-oci` of this build, archive or installation, if it is there.
pub fn own_hook() -> Option<HostPath> {
    own_programs::find("tranche-oci")
        .ok()
        .and_then(|path| HostPath::new(&path).ok())
}
