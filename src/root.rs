//! Directories that belong to someone else: every path in them is followed through one handle.
//!
//! An image is the enemy of a hook that runs as root on its files: each name in it may be a link to anywhere, and may
//! change at any time. So no path of an image is ever joined to a string and handed to the kernel. A
//! [`ContainerRoot`] resolves a path inside its directory and gives a [`Directory`], and from there on one step is
//! taken at a time, by name, from that open directory.
//!
//! What is inside the root is not always the image's. [`OwnFile`] is the only way to the content of a file, and
//! [`OwnDirectory`] the only way to change something: both exist only for handles that passed the check of their mount.

mod container;
mod cover;
mod directory;
mod file_system;
mod found;
mod host_directory;
mod listing;
mod mount;
mod mount_table;
mod own_directory;
mod own_file;
mod proc_file;
mod runtime_mount;
mod temporary;

pub use container::ContainerRoot;
pub use directory::Directory;
pub use found::{Found, Kind};
pub use host_directory::HostDirectory;
pub use listing::{Listing, Named};
pub use mount_table::{MountTable, Mounted};
pub use own_directory::{Linked, OwnDirectory};
pub use own_file::{NotOwn, OwnFile, Permissions};
pub use proc_file::{ContainerProcFile, read_host_proc};
pub use runtime_mount::{MountOrigin, RuntimeMount};
