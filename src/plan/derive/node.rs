//! A device node of the host, as an edit to a container.

use super::Options;
use crate::edits::{Edits, NodeEdit};
use crate::inventory::DeviceNode;
use crate::policy::Access;

/// Permission bits for a node that the driver has not created yet.
#[derive(Clone, Copy)]
pub(super) struct AbsentMode(u32);

/// What the driver gives `/dev/nvidia*` (its module's `NVreg_DeviceFileMode`, 0666 unless set).
pub(super) const ANYBODY: AbsentMode = AbsentMode(0o666);
/// What it gives the capability node of a MIG instance (`DeviceFileMode` in /proc/driver/nvidia/capabilities).
pub(super) const READ_ONLY: AbsentMode = AbsentMode(0o444);

/// Adds `node`, and the group that a process needs to open it.
///
/// The node's numbers are written only if the host has no node. An engine uses the numbers of a specification even
/// after the driver was loaded with another major number; without them, it reads the node at every start.
///
/// The permission bits are written wherever everybody may not read and write the host's node: without them, engines
/// make a node that is open to every user of the container (OCI runtime spec, `fileMode`; runc and crun use 0666).
pub(super) fn add(edits: &mut Edits, node: &DeviceNode, absent: AbsentMode, options: &Options) {
    let gid = (node.gid != 0).then_some(node.gid);
    let mode = match node.present {
        true => node.mode.filter(|mode| *mode != ANYBODY.0),
        false => Some(node.mode.unwrap_or(absent.0)),
    };
    edits.nodes.insert(
        node.container.clone(),
        NodeEdit {
            host: node.host.clone(),
            numbers: (!node.present).then_some((node.major, node.minor)),
            mode,
            gid,
        },
    );
    let open_to_all = node.mode.is_none_or(|mode| mode & 0o006 == 0o006);
    if let Some(gid) = gid
        && options.additional_gids
        && !open_to_all
    {
        edits.additional_gids.insert(gid);
    }
}

/// As [`add`], for a node that the policy may close on the host. In a container that has the device, it is open to
/// every user; without the permission bits, engines copy those of the host.
pub(super) fn add_of_device(edits: &mut Edits, node: &DeviceNode, absent: AbsentMode, options: &Options) {
    add(edits, node, absent, options);
    let access = options.sharing.as_ref().map(|sharing| sharing.plan.access);
    if access == Some(Access::Enforce)
        && let Some(edit) = edits.nodes.get_mut(&node.container)
    {
        edit.mode = Some(absent.0);
    }
}
