//! The division of a GPU by MIG: what its driver offers, what exists, what somebody wants, and the steps from one to
//! the other. Nothing here asks or changes a GPU.
//!
//! A *profile* is a size of GPU instance that the driver offers. A *placement* says where an instance lies: which of
//! the GPU's memory units it has. A *layout* is what somebody wants: profiles of GPU instances, and of compute
//! instances in them, for each GPU. The profiles and placements come from the driver each time, because they differ
//! between products and between versions of the driver.

mod choose;
mod described;
mod difference;
mod exact;
mod gpu;
mod layout;
pub mod mig_parted;
mod place;
mod plan;
mod possible;
mod profile;
mod rules;

pub use crate::inventory::Engines;
pub use choose::{ChosenPlace, LostCapacity, choose};
pub use described::described;
pub use exact::{ExactCompute, ExactGpu, ExactInstance, MigChange, NoWay};
pub use gpu::{ComputeInstance, GpuInstance, MigClient, MigGpu};
pub use layout::{GpuSelector, GpuWish, Layout, MigPartedSelector, PciModel, WishedInstance};
pub use place::{CapacityLeft, Kept, PlacementCost, WantedInstance, place};
pub use plan::{InstanceHolder, plan};
pub use possible::{PossibleInstance, fits_beside, instance_counters, possible_instances};
pub use profile::{
    ComputeProfile, ComputeProfileId, ComputeProfileIndex, InstanceProfile, Placement, ProfileId, ProfileIndex,
};
pub use rules::{Counters, free_places};

#[cfg(test)]
mod tests;
