//! How long a turn is under time-slicing.

super::words! {
    /// How long a turn is (`nvidia-smi compute-policy --set-timeslice`, 0 to 3). NVIDIA does not document milliseconds.
    #[derive(Default)]
    pub enum Interval: "interval" {
        /// The driver's default.
        #[default]
        Default = "default",
        /// Short.
        Short = "short",
        /// Medium.
        Medium = "medium",
        /// Long.
        Long = "long",
    }
}
super::serde_as_text!(Interval);
