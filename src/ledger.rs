//! Who holds what: claims on shares, on disk, so that nothing is promised twice.
//!
//! One file a device below a directory that root alone may enter, one lock around every change, each change a new file
//! renamed over the old one. Whoever is killed on the way, at whatever instruction, leaves the old state or the new one and
//! a lock that the kernel opens. A claim whose process is gone is given back by whoever looks next; nobody has to be
//! running for that.
//!
//! [`book`](Book) holds the rules, without a disk or a clock; [`Ledger`] puts them on disk; [`process`] looks at
//! processes.

/// The directory of the ledger and all else that tranche keeps while the machine runs, unless somebody names another. A
/// specification does not repeat it.
pub const STATE_DIR: &str = "/run/tranche";

mod book;
mod claim;
mod identity;
pub mod process;
mod store;
mod utc;

pub use book::{Ask, Book, Refused, World};
pub use claim::{Claim, DeviceKey, Holder, Part, Process, State};
pub use identity::ContainerName;
#[cfg(fuzzing)]
pub(crate) use store::parse as parse_book;
pub use store::{Books, Change, Ledger, Locked, NoSteps, Steps};
pub use utc::utc;
