//! The driver for dynamic resource allocation (DRA): `resource.k8s.io/v1`.

pub mod attributes;
pub mod devices;
pub mod difference;
pub mod pace;
pub mod probe;
pub mod publish;
pub mod quantity;
pub mod slices;
