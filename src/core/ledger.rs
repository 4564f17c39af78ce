//! Who holds what: claims on shares, on disk, so that nothing is promised twice.
//!
//! There is one file for each GPU, in a directory that only root may enter. There is one lock around every change, and
//! each change is a new file that is renamed over the old one. A process that is killed on the way, at any instruction,
//! leaves the old state or the new one, and the kernel opens its lock. A claim whose container is gone is collected
//! by the next process that needs it; nothing has to be running for that.
//!
//! A claim records what it was promised. A new claim is granted only if it and all held claims together fit the device:
//! what a policy said when a share was given stays valid until the claim ends.
//!
//! [`Book`] holds the rules, without a disk or a clock; [`Ledger`] puts them on disk; [`process`] looks at processes.

mod book;
pub mod calendar;
mod changes;
mod claim;
mod directory;
mod ends;
mod error;
pub mod events;
mod fit;
mod holder;
mod lock;
mod out_of_service;
mod pod;
pub mod process;
mod queue;
mod raw;
mod refused;
mod resource_claim;
mod start;
mod store;
mod utc;
mod waiter;
mod watch;

pub use crate::types::{Bounds, HeldPart, HeldShare, Promise, STATE_DIR, Strategy};
pub use book::{Ask, Book, World};
pub use calendar::{Calendar, NearTimes, ReservedTime};
pub use claim::{Cgroup, Claim, ClaimState, InitProcess};
pub use directory::{LedgerDirectory, kept_dir, read_public};
pub use ends::Ends;
pub use error::{LedgerError, LedgerResult};
pub use fit::{Misfit, fits};
pub use holder::{ContainerName, Holder};
pub use lock::{Lock as StateLock, take_file as lock};
pub use out_of_service::{DRAINED_FILE, OutOfService, Outage, PROHIBITED_FILE, WhyOut, outages_text};
pub use pod::PodName;
pub use queue::QueuedStart;
pub use queue::Ticket;
pub use refused::Refused;
pub use resource_claim::KubernetesObject;
pub use start::{is_start_name, start_name};
#[cfg(fuzzing)]
pub(crate) use store::parse as parse_book;
pub use store::{Books, Change, DamagedBook, Ledger, Locked};
pub use utc::{clock, utc};
pub use waiter::{WaitedFor, Waiter};
pub use watch::{Watch, Woken};
