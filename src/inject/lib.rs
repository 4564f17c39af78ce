//! What a container asks for, and how its configuration is changed so that it gets it. The runtime and podman's
//! precreate hook share this module.
//!
//! ```text
//! config.json ──request──▶ Request ──resolve──▶ devices, shares ──claims, derive──▶ Edits ──cdi::inject──▶ config.json
//! ```

mod calling_engine;
mod clean;
mod document;
#[cfg(fuzzing)]
#[doc(hidden)]
pub mod fuzzing;
mod gone;
mod on_demand;
pub mod request;
pub mod require;
mod resolve;
mod restore;
mod rewrite;
pub mod runtime;

pub use calling_engine::CallingEngine;
pub use clean::is_limit;
pub use restore::refuse_restored_devices;
pub use rewrite::{RewriteContext, rewrite, withdraw};
