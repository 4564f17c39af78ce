//! Which of the free devices of a node a container of a pod gets.

tranche_core::types::words! {
    /// Which GPU gives a container of a pod its devices.
    #[derive(Default)]
    pub enum PodPlacement: "placement" {
        /// One that is in use already, so that others stay free. Several shares of a container are on one GPU if it has
        /// room.
        #[default]
        Packed = "packed",
        /// The one with the most free devices. Several shares of a container are on one GPU if it has room.
        Spread = "spread",
        /// For each share anew, the device of which the least is allocated: several shares of a container are on
        /// several GPUs. NVIDIA's device plugin chooses so by default (`sharedDevicesAllocationPolicy`, of 0.20).
        Distributed = "distributed",
    }
}
tranche_core::types::serde_as_text!(PodPlacement);
