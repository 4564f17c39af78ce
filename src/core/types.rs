//! Types for values that must not be confused: an index is not a minor, and a path on the host is not one in a
//! container.
//!
//! Except for [`Device`], [`Place`] and the parts of devices ([`Part`], [`Subject`], [`HeldPart`]), every type is read
//! from text with `FromStr` and written with `Display`. Numbers are numbers in JSON, and all others are the same text
//! there.

mod device;
mod device_key;
mod device_name;
mod device_part;
mod driver_file;
mod interval;
mod memory;
mod mig_profile;
mod number;
mod part;
mod path;
mod pci;
mod percent;
mod place;
mod program_dirs;
mod promise;
mod requested_device;
mod resource_name;
mod selection;
mod share_name;
mod strategy;
mod subject;
mod uuid;
mod version;
mod wait_time;

pub use device::{Device, DeviceSelector};
pub use device_key::DeviceKey;
pub use device_name::{CdiKind, DeviceName, QualifiedName};
pub use device_part::{DevicePart, Part};
pub use driver_file::{ElfClass, Link};
pub use interval::Interval;
pub use memory::MemorySize;
pub use memory::{in_mib, in_mib_if_known};
pub use mig_profile::MigProfile;
pub use number::decimal;
pub use number::{CapMinor, ComputeInstanceId, GpuIndex, GpuInstanceId, ImexChannelId, MigIndex, Minor};
pub use part::{HeldPart, HeldShare};
pub use path::{ContainerPath, HostPath, Side};
pub use pci::PciAddress;
pub use percent::{Overcommit, Percent, sum_if_known};
pub use place::Place;
pub use program_dirs::PROGRAM_DIRS;
pub use promise::{Bounds, Promise};
pub use requested_device::RequestedDevice;
pub use resource_name::ResourceName;
pub use selection::Selection;
pub use share_name::ShareName;
pub use strategy::Strategy;
pub use subject::Subject;
pub use uuid::{GpuUuid, MigUuid};
pub use version::{CdiVersion, ComputeCapability, CudaVersion, DriverVersion, EngineVersion};
pub use wait_time::WaitTime;

/// What `--version` shows: the value of `TRANCHE_VERSION` at build time, or else the version of the package. In a
/// checkout, the Makefile sets it to the version and the commit. A build looks nothing up, so that a tarball gives the
/// same program everywhere.
pub const PROGRAM_VERSION: &str = match option_env!("TRANCHE_VERSION") {
    Some(version) => version,
    None => env!("CARGO_PKG_VERSION"),
};

/// The directories with CDI specifications that engines read by default. Later ones take precedence.
pub const USUAL_SPEC_DIRS: [&str; 2] = ["/etc/cdi", "/var/run/cdi"];

/// The directory of the ledger, and of all else that tranche keeps while the machine runs, unless another is named. A
/// specification does not repeat it.
pub const STATE_DIR: &str = "/run/tranche";

/// The directory of what tranche keeps over a reboot.
pub const KEPT_DIR: &str = "/var/lib/tranche";

/// Implements serde for a type with `FromStr` and `Display`: it is the same text there.
#[macro_export]
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
pub use serde_as_text;

/// Reads a type from text with `$parse`, which returns `None` for text that is not valid. `$error` says what it is not.
#[macro_export]
macro_rules! parsed_type {
    ($type:ty, $parse:expr, $error:literal) => {
        impl std::str::FromStr for $type {
            type Err = $crate::error::Error;

            fn from_str(text: &str) -> Result<Self, Self::Err> {
                $parse(text).ok_or_else(|| $crate::error::Error::usage(format!("\"{text}\""), $error))
            }
        }
    };
}
pub use parsed_type;

/// Defines an enum of words, each variant with its text. A noun after the name (`Strategy: "strategy"`) is how errors
/// call it, and makes the type one that is read from text.
#[macro_export]
macro_rules! words {
    (
        $(#[$meta:meta])*
        pub enum $name:ident $(: $noun:literal)? {
            $($(#[$variant_meta:meta])* $variant:ident = $text:literal,)+
        }
    ) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $name {
            $($(#[$variant_meta])* $variant,)+
        }

        impl $name {
            /// All values, in their order.
            pub const ALL: &'static [Self] = &[$(Self::$variant),+];

            /// The word.
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $text,)+
                }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad(self.as_str())
            }
        }

        $(impl std::str::FromStr for $name {
            type Err = $crate::error::Error;

            fn from_str(text: &str) -> Result<Self, Self::Err> {
                Self::ALL.iter().copied().find(|word| word.as_str() == text).ok_or_else(|| {
                    let known: Vec<&str> = Self::ALL.iter().map(|word| word.as_str()).collect();
                    $crate::error::Error::not_one_of(format!("{} \"{text}\"", $noun), &known)
                })
            }
        })?
    };
}
pub use words;

/// Defines a type for text that passes the check `$is_valid`. `$error` says what any other text is not.
#[macro_export]
macro_rules! text_type {
    ($(#[$meta:meta])* $name:ident, $is_valid:expr, $error:literal) => {
        $(#[$meta])*
        pub struct $name(String);

        impl $name {
            /// The text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        $crate::types::parsed_type!($name, |text: &str| $is_valid(text).then(|| Self(text.to_owned())), $error);

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad(&self.0)
            }
        }

        $crate::types::serde_as_text!($name);
    };
}
pub use text_type;
