//! How many clients MPS serves on a device.

use crate::inventory::Inventory;
use crate::policy::Strategy;
use crate::types::CudaVersion;

/// A bound on the number of shares.
pub(super) struct Limit {
    pub(super) shares: usize,
    pub(super) why: &'static str,
}

/// The bound that the hardware and driver set; `None` where there is none.
///
/// MPS counts CUDA contexts: 48 a device from Volta on, 60 with CUDA 13.1 and later (MPS documentation, "Limitations";
/// with the default of two connections a client). A container that runs several processes takes several.
pub(super) fn limit(strategy: Strategy, inventory: &Inventory) -> Option<Limit> {
    if strategy != Strategy::Mps {
        return None;
    }
    let cuda = inventory.driver.as_ref().and_then(|d| d.cuda);
    Some(if cuda.is_some_and(|c| c >= CudaVersion { major: 13, minor: 1 }) {
        Limit {
            shares: 60,
            why: "CUDA 13.1 and later",
        }
    } else {
        Limit {
            shares: 48,
            why: "before CUDA 13.1",
        }
    })
}
