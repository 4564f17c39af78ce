//! What is known of a file of the driver: its word size, and the links that belong to it.

use super::ContainerPath;
use serde::{Deserialize, Serialize};

super::words! {
    /// Word size of an ELF file, in bits.
    pub enum ElfClass: "word size" {
        /// 32-bit.
        Elf32 = "32",
        /// 64-bit.
        Elf64 = "64",
    }
}
super::serde_as_text!(ElfClass);

/// A symbolic link that belongs to a file: `libcuda.so.1` beside `libcuda.so.550.54.15`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Link {
    /// Where the link is, in a container.
    pub path: ContainerPath,
    /// What it says, relative to its directory or absolute.
    pub target: String,
}
