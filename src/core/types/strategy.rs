//! How a device is shared.

super::words! {
    /// How the holders of one device are kept apart. A device is used under one strategy at a time.
    pub enum Strategy: "strategy" {
        /// The driver lets the processes of several containers run in turn.
        TimeSlicing = "time-slicing",
        /// CUDA's multi-process service: processes of several containers run at the same time, each with a ceiling.
        Mps = "mps",
        /// Each holder has the whole device for a time, and the memory of the others is in host memory.
        Turns = "turns",
        /// One container has the whole device.
        Dedicated = "dedicated",
    }
}
super::serde_as_text!(Strategy);
