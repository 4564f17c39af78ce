//! Directories that belong to someone else: every path in them is followed through one handle.
//!
//! An image is the enemy of a hook that runs as root on its files: each name in it may be a link to anywhere, and may
//! change while we look. So no path of an image is ever joined to a string and handed to the kernel. A
//! [`ContainerRoot`] resolves a path inside its directory and gives a [`Directory`], and from there on one step is
//! taken at a time, by name, from that open directory.

mod container;
mod cover;
mod directory;
mod found;
mod listing;
mod mount;
mod temporary;

pub use container::ContainerRoot;
pub use directory::{Directory, Linked};
pub use found::{Found, Kind};
pub use listing::{Listing, Named};
