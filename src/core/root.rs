//! Directories with untrusted content: every path in them is followed through one handle.
//!
//! An image may attack a hook that works on its files as root: each name in it may be a link to anywhere, and may
//! change at any time. So no path of an image is ever joined to a string and passed to the kernel. A [`ContainerRoot`]
//! resolves a path inside its directory and returns a [`Directory`]. From there, one name at a time is followed.
//!
//! Not everything in the root is the image's. Only an [`OwnFile`] can be read, and only an [`OwnDirectory`] can be
//! changed. Both are made only from handles whose mount was checked.
//!
//! A [`HostDirectory`] is not an image's. The directories in which tranche keeps its own files are opened as one, after
//! everything on the way to them was checked: [`HostDirectory::in_state_dir`].

mod container;
mod cover;
mod device_nodes;
mod directory;
mod file_system;
mod found;
mod host_directory;
mod listing;
mod mount;
mod mount_table;
mod own_directory;
mod own_file;
#[cfg(test)]
pub(crate) use tranche_test_support::own_mounts;
mod proc_file;
mod runtime_mount;
mod socket;
mod state;
mod temporary;
mod user_namespace;

pub use container::ContainerRoot;
pub use device_nodes::{DeviceNumber, nodes_brought, number_of};
pub use directory::Directory;
pub use found::{FileType, Found};
pub use host_directory::HostDirectory;
pub use listing::{Listing, Named};
pub use mount_table::{MountTable, Mounted};
pub use own_directory::{Linked, OwnDirectory};
pub use own_file::{NotOwn, OwnFile, Permissions};
pub use proc_file::{ContainerProcFile, read_host_proc};
pub use runtime_mount::{MountOrigin, RuntimeMount};
pub use state::Missing;
pub use user_namespace::is_in_user_namespace;
