//! The only `unsafe` code of this crate: the driver's library.

pub(crate) mod checkpoint;
pub(crate) mod nvml;
pub(crate) mod nvml_mig;
