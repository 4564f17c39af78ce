//! The input of a hook by the OCI runtime specification: the state on standard input, and the `config.json` of the
//! bundle that the state names.
//!
//! Other keys than the needed ones are ignored, because runtimes and newer specifications add keys and statuses. The
//! size of both files is limited, so that they cannot exhaust a hook's memory.

mod bundle;
mod config;
mod state;
mod unreachable;
mod word;

pub use bundle::{Bundle, Reached};
pub use config::{Config, DeviceEntry};
pub use state::State;
pub use word::Word;

/// The largest state that is read, in bytes. Only annotations make it large; Kubernetes allows 256 KiB of them.
pub const STATE_LIMIT: u64 = 1 << 20;

/// The largest `config.json` that is read, in bytes. That of a privileged container on a large machine has a few
/// hundred KiB.
pub const CONFIG_LIMIT: u64 = 16 << 20;
