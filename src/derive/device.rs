//! What one GPU or MIG device does to a container.

use super::Options;
use super::hook::by_path_of_device;
use super::node::{ANYBODY, READ_ONLY, add};
use crate::edits::Edits;
use crate::inventory::{Gpu, MigDevice};

/// What the whole of `gpu` does to a container; `None` where it has no node and cannot get one.
pub fn gpu_edits(gpu: &Gpu, options: &Options) -> Option<Edits> {
    let mut edits = Edits::default();
    add(&mut edits, gpu.node.as_ref()?, ANYBODY, options);
    if options.draws() {
        dri(&mut edits, gpu, options);
    }
    Some(edits)
}

/// What `mig`, an instance of `gpu`, does to a container: the GPU's node and the keys to its two instances. `None`
/// where one of the three is missing: a container would see a GPU and could not use it.
pub fn mig_edits(gpu: &Gpu, mig: &MigDevice, options: &Options) -> Option<Edits> {
    let mut edits = Edits::default();
    add(&mut edits, gpu.node.as_ref()?, ANYBODY, options);
    add(&mut edits, mig.gpu_instance_cap.as_ref()?, READ_ONLY, options);
    add(&mut edits, mig.compute_instance_cap.as_ref()?, READ_ONLY, options);
    // The DRI nodes stand for the whole GPU: only an instance that can draw has a use for them.
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
