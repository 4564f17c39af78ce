//! What one GPU or MIG device does to a container.

use super::Options;
use super::hook::by_path_of_device;
use super::node::{ANYBODY, READ_ONLY, add, add_of_device};
use crate::edits::Edits;
use crate::inventory::HostDevice;
use tranche_core::types::MigProfile;

/// The edits of `device`: its GPU's node and, for a MIG device, the capability nodes of its two instances.
///
/// `None` if one of these nodes is missing and cannot be created, because a container would then see a GPU that it
/// cannot use.
pub(super) fn edits(device: HostDevice<'_>, options: &Options) -> Option<Edits> {
    let HostDevice { gpu, mig } = device;
    let mut edits = Edits::default();
    add_of_device(&mut edits, gpu.node.as_ref()?, ANYBODY, options);
    if let Some(mig) = mig {
        add_of_device(&mut edits, mig.gpu_instance_cap.as_ref()?, READ_ONLY, options);
        add_of_device(&mut edits, mig.compute_instance_cap.as_ref()?, READ_ONLY, options);
    }
    // The DRI nodes belong to the whole GPU, and of its instances only those that can draw need them.
    let can_draw = mig.is_none_or(|mig| mig.profile.as_ref().is_some_and(MigProfile::has_graphics));
    if options.draws() && can_draw {
        for dri in &gpu.dri {
            add(&mut edits, &dri.node, ANYBODY, options);
        }
        let hook = options.hook.as_ref().and_then(|hook| by_path_of_device(hook, gpu));
        edits.hooks.extend(hook);
    }
    Some(edits)
}
