//! CDI specifications: their content and version, and how they are made, read, checked, changed and written.
//!
//! ```text
//! Derived ──build──▶ Spec ──yaml/json──▶ text ──replace──▶ file
//! directories ──registry──▶ Specs and problems ──inject──▶ an OCI specification
//! ```
//!
//! The rules are those of the CDI specification 1.1.0 and of its reference library, which is part of engines. Where the
//! two differ, the library's rule is used, because the library refuses files.

pub mod build;
pub mod directory;
pub mod encode;
mod fields;
pub mod header;
pub mod inject;
mod open;
pub mod parse;
mod problem;
pub mod references;
pub mod registry;
mod scalar;
pub mod spec;
pub mod transform;
mod tree;
mod unresolvable;
pub mod validate;
pub mod version;

pub use build::{LeftOut, build};
pub use problem::{Problem, ProblemKind, Reference};
pub use spec::{ContainerEdits, Device, DeviceNode, Hook, IntelRdt, Mount, NetDevice, Spec};
pub use unresolvable::unresolvable;
pub use version::minimum_version;
