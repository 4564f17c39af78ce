//! What a container asks for, and how its configuration is changed so that it gets it. The runtime shim and podman's
//! precreate hook share this module.

pub mod request;
pub mod require;
