//! What one GPU or MIG device does to a container.

use super::Options;
use super::hook::by_path_of_device;
use super::node::{ANYBODY, READ_ONLY, add};
use crate::edits::Edits;
use crate::inventory::{Gpu, MigDevice};

/// What the whole of `gpu` does to a container; `None` if it has no node and none can be created.
pub fn gpu_edits(gpu: &Gpu, options: &Options) -> Option<Edits> {
    let mut edits = Edits::default();
    add(&mut edits, gpu.node.as_ref()?, ANYBODY, options);
    if options.draws() {
        dri(&mut edits, gpu, options);
    }
    Some(edits)
}

/// What `mig`, a MIG device of `gpu`, does to a container: it adds the GPU's node and the capability nodes of the two
/// instances. `None` if one of the three is missing, because a container would then see a GPU that it cannot use.
pub fn mig_edits(gpu: &Gpu, mig: &MigDevice, options: &Options) -> Option<Edits> {
    let mut edits = Edits::default();
    add(&mut edits, gpu.node.as_ref()?, ANYBODY, options);
    add(&mut edits, mig.gpu_instance_cap.as_ref()?, READ_ONLY, options);
    add(&mut edits, mig.compute_instance_cap.as_ref()?, READ_ONLY, options);
    // The DRI nodes belong to the whole GPU, and only an instance that can draw needs them.
    if options.draws() && mig.profile.as_ref().is_some_and(|p| p.has_graphics()) {
        dri(&mut edits, gpu, options);
    }
    Some(edits)
}

fn dri(edits: &mut Edits, gpu: &Gpu, options: &Options) {
    for dri in &gpu.dri {
        add(edits, &dri.node, ANYBODY, options);
    }
    edits
        .hooks
        .extend(options.hook.as_ref().and_then(|h| by_path_of_device(h, gpu)));
}
