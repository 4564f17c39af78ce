//! How fast a GPU runs now, and what slows it down.

use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// The clocks of a GPU now. A field is `None` if the GPU or its driver does not report it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GpuClocks {
    /// The clock of its SMs, in MHz.
    pub sm_mhz: Option<u32>,
    /// The temperature of the GPU, in degrees Celsius.
    pub celsius: Option<u32>,
    /// Why it runs more slowly than it could.
    pub slowed: Option<BTreeSet<Slowed>>,
}

tranche_core::types::words! {
    /// Why a GPU runs more slowly than it could (nvml.h, `nvmlClocksEventReason*`). An idle GPU, and clocks that
    /// somebody has set, are not among these.
    pub enum Slowed: "reason of throttling" {
        /// It would need more power than it may have.
        Power = "power",
        /// It is too hot.
        Heat = "heat",
        /// The machine asks it to, or another GPU of its group is slowed.
        Other = "other",
    }
}
tranche_core::types::serde_as_text!(Slowed);
