//! What the OCI runtime specification puts between an engine and a hook: the state on standard input, and the bundle
//! with its `config.json` that the state names.
//!
//! We read only what we need and let everything else be: runtimes add keys and statuses of their own, and newer
//! specifications more. Both files are bounded, so that nothing can make a hook grow.

mod bundle;
mod config;
mod nodes;
mod state;
mod unreachable;

pub use bundle::{Bundle, Reached};
pub use config::Config;
pub use nodes::{Bind, DeviceEntry, Nodes};
pub use state::State;

/// The most of a state that we read. Annotations are the only part that grows; Kubernetes stops at 256 KiB of them.
pub const STATE_LIMIT: u64 = 1 << 20;

/// The most of a `config.json` that we read. A privileged container of a large machine has a few hundred KiB.
pub const CONFIG_LIMIT: u64 = 16 << 20;
