//! The ABI word of a cache entry: which programs may load a library.

use std::fmt;

/// The flags of an entry: the C library in the low byte, what the ABI requires in the next one (glibc, `ldconfig.h`
/// and `dl-cache.h`). A loader takes only entries whose flags equal its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Flags(pub u32);

const EM_386: u16 = 3;
const EM_PPC64: u16 = 21;
const EM_S390: u16 = 22;
const EM_ARM: u16 = 40;
const EM_X86_64: u16 = 62;
const EM_AARCH64: u16 = 183;
const EM_RISCV: u16 = 243;
/// `EF_ARM_ABI_FLOAT_HARD` and `_SOFT` of an ARM library's ELF header.
const ARM_FLOAT_HARD: u32 = 0x400;
const ARM_FLOAT_SOFT: u32 = 0x200;
/// `EF_RISCV_FLOAT_ABI` of a RISC-V library's ELF header, and its value for doubles in registers.
const RISCV_FLOAT_ABI: u32 = 0x6;
const RISCV_FLOAT_DOUBLE: u32 = 0x4;

impl Flags {
    /// 32-bit x86 with libc6, and every other architecture that needs no mark.
    pub const LIBC6: Flags = Flags(0x0003);
    /// x86_64.
    pub const X86_64: Flags = Flags(0x0303);
    /// x86_64 with 32-bit pointers.
    pub const X32: Flags = Flags(0x0803);
    /// 64-bit s390.
    pub const S390X: Flags = Flags(0x0403);
    /// 64-bit POWER.
    pub const PPC64: Flags = Flags(0x0503);
    /// 32-bit ARM, floats in registers.
    pub const ARM_HARD: Flags = Flags(0x0903);
    /// aarch64.
    pub const AARCH64: Flags = Flags(0x0a03);
    /// 32-bit ARM, floats in memory.
    pub const ARM_SOFT: Flags = Flags(0x0b03);
    /// 64-bit RISC-V, floats in memory.
    pub const RISCV_SOFT: Flags = Flags(0x0f03);
    /// 64-bit RISC-V, floats in registers.
    pub const RISCV_DOUBLE: Flags = Flags(0x1003);

    /// The flags that `ldconfig` gives a library, from its ELF header: whether it is 64-bit, `e_machine` and
    /// `e_flags`. `None` for an unknown architecture.
    pub fn of(is_64: bool, machine: u16, elf_flags: u32) -> Option<Flags> {
        Some(match (is_64, machine) {
            (true, EM_X86_64) => Flags::X86_64,
            (false, EM_X86_64) => Flags::X32,
            (false, EM_386) => Flags::LIBC6,
            (true, EM_AARCH64) => Flags::AARCH64,
            (false, EM_ARM) if elf_flags & ARM_FLOAT_HARD != 0 => Flags::ARM_HARD,
            (false, EM_ARM) if elf_flags & ARM_FLOAT_SOFT != 0 => Flags::ARM_SOFT,
            (false, EM_ARM) => Flags::LIBC6,
            (true, EM_PPC64) => Flags::PPC64,
            (true, EM_S390) => Flags::S390X,
            (true, EM_RISCV) if elf_flags & RISCV_FLOAT_ABI == RISCV_FLOAT_DOUBLE => Flags::RISCV_DOUBLE,
            (true, EM_RISCV) if elf_flags & RISCV_FLOAT_ABI == 0 => Flags::RISCV_SOFT,
            _ => return None,
        })
    }

    /// The flags of a library for programs of the machine that this program runs on, by their word size. `None` on
    /// architectures whose ABI does not follow from the word size.
    pub fn of_this_machine(is_64: bool) -> Option<Flags> {
        Some(
            match (is_64, cfg!(target_arch = "x86_64"), cfg!(target_arch = "aarch64")) {
                (true, true, _) => Flags::X86_64,
                // 32-bit x86. The driver has no libraries for x32.
                (false, true, _) => Flags::LIBC6,
                (true, _, true) => Flags::AARCH64,
                _ => return None,
            },
        )
    }

    /// Whether programs of this ABI have 64-bit pointers. `None` for unknown flags.
    pub fn is_64(self) -> Option<bool> {
        match self.0 & 0xff00 {
            0x0300 | 0x0400 | 0x0500 | 0x0a00 | 0x0f00 | 0x1000 => Some(true),
            0x0000 | 0x0800 | 0x0900 | 0x0b00 => Some(false),
            _ => None,
        }
    }
}

impl fmt::Display for Flags {
    /// As `ldconfig -p` prints it: `libc6,x86-64`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 & 0xff {
            0 => "libc4",
            1 => "ELF",
            2 => "libc5",
            3 => "libc6",
            _ => "unknown",
        })?;
        match self.0 & 0xff00 {
            0x0000 => Ok(()),
            0x0100 | 0x0400 | 0x0500 => f.write_str(",64bit"),
            0x0300 => f.write_str(",x86-64"),
            0x0800 => f.write_str(",x32"),
            0x0900 => f.write_str(",hard-float"),
            0x0a00 => f.write_str(",AArch64"),
            0x0b00 | 0x0f00 => f.write_str(",soft-float"),
            0x1000 => f.write_str(",double-float"),
            other => write!(f, ",{other}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn architectures_have_the_words_that_their_loaders_look_for() {
        assert_eq!(Flags::of(true, EM_X86_64, 0), Some(Flags(0x0303)));
        assert_eq!(Flags::of(false, EM_386, 0), Some(Flags(0x0003)));
        assert_eq!(Flags::of(true, EM_AARCH64, 0), Some(Flags(0x0a03)));
        assert_eq!(Flags::of(false, EM_ARM, 0x0500_0400), Some(Flags(0x0903)));
        assert_eq!(Flags::of(true, EM_RISCV, 5), Some(Flags(0x1003)));
        assert_eq!(Flags::of(false, 9999, 0), None);
    }

    #[test]
    fn words_of_64_bit_programs_are_told_from_the_others() {
        assert_eq!(Flags::X86_64.is_64(), Some(true));
        assert_eq!(Flags::AARCH64.is_64(), Some(true));
        assert_eq!(Flags::LIBC6.is_64(), Some(false));
        assert_eq!(Flags::X32.is_64(), Some(false));
        assert_eq!(Flags(0x7f03).is_64(), None);
    }

    #[test]
    fn printed_as_ldconfig_does() {
        assert_eq!(Flags::X86_64.to_string(), "libc6,x86-64");
        assert_eq!(Flags::AARCH64.to_string(), "libc6,AArch64");
        assert_eq!(Flags::LIBC6.to_string(), "libc6");
    }
}
