//! The sockets of the driver's daemons, which come and go. An engine would refuse the container if a mount of its
//! configuration is gone.

use std::path::Path;

use super::report::HookReport;
use tranche_core::call::BoundPath;
use tranche_core::oci::Bundle;

/// Mounts each socket that is there. A failure is reported, and the container starts without it.
pub(super) fn mount(sockets: &[BoundPath], bundle: &Bundle, report: &mut HookReport<'_>) {
    for BoundPath { container, host } in sockets {
        let at = Path::new(container.as_str());
        let mounted = bundle.root.mount_socket(host.as_path(), at, bundle.config.read_only);
        if let Err(error) = mounted {
            report.note(container, format_args!("the socket is not mounted: {error}"));
        }
    }
}
