//! The nouns that must not be mixed up: an index is not a minor, a path on the host is not one in a container.
//!
//! Every type reads from text with `FromStr`, writes itself with `Display`, and is that same text in JSON.

mod device;
mod device_key;
mod device_name;
mod memory;
mod mig_profile;
mod number;
mod path;
mod pci;
mod percent;
mod place;
mod share_name;
mod uuid;
mod version;

pub use device::{Device, DeviceSelector};
pub use device_key::DeviceKey;
pub use device_name::{CdiKind, DeviceName, QualifiedName};
pub use memory::MemorySize;
pub use mig_profile::MigProfile;
pub use number::{CapMinor, ComputeInstanceId, GpuIndex, GpuInstanceId, ImexChannelId, MigIndex, Minor};
pub use path::{ContainerPath, HostPath};
pub use pci::PciAddress;
pub use percent::{Overcommit, Percent};
pub use place::Place;
pub use share_name::ShareName;
pub use uuid::{GpuUuid, MigUuid};
pub use version::{CdiVersion, ComputeCapability, CudaVersion, DriverVersion};

/// What `--version` shows: the version of the package, with the commit where the builder names it in `TRANCHE_VERSION`, as
/// the Makefile does in a checkout. Nothing is looked up at build time, so a tarball builds the same everywhere.
pub const PROGRAM_VERSION: &str = match option_env!("TRANCHE_VERSION") {
    Some(version) => version,
    None => env!("CARGO_PKG_VERSION"),
};

/// Gives a type that implements `FromStr` and `Display` its text form in serde.
macro_rules! serde_as_text {
    ($type:ty) => {
        impl serde::Serialize for $type {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> serde::Deserialize<'de> for $type {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
                text.parse().map_err(serde::de::Error::custom)
            }
        }
    };
}
pub(crate) use serde_as_text;
