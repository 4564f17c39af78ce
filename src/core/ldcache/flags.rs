//! The ABI word of a cache entry: which programs may load a library.

use object::elf::{
    EF_ARM_ABI_FLOAT_HARD, EF_ARM_ABI_FLOAT_SOFT, EF_RISCV_FLOAT_ABI_DOUBLE, EF_RISCV_FLOAT_ABI_SOFT, EM_386,
    EM_AARCH64, EM_ARM, EM_PPC64, EM_RISCV, EM_S390, EM_X86_64, FileFlags, Machine,
};

/// The flags of an entry: the C library in the low byte, what the ABI requires in the next one (glibc, `ldconfig.h`
/// and `dl-cache.h`). A loader takes only entries whose flags equal its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct AbiFlags(pub u32);

impl AbiFlags {
    /// 32-bit x86 with libc6, and every other architecture that needs no mark.
    pub const LIBC6: AbiFlags = AbiFlags(0x0003);
    /// x86_64.
    pub const X86_64: AbiFlags = AbiFlags(0x0303);
    /// x86_64 with 32-bit pointers.
    pub const X32: AbiFlags = AbiFlags(0x0803);
    /// 64-bit s390.
    pub const S390X: AbiFlags = AbiFlags(0x0403);
    /// 64-bit POWER.
    pub const PPC64: AbiFlags = AbiFlags(0x0503);
    /// 32-bit ARM, floats in registers.
    pub const ARM_HARD: AbiFlags = AbiFlags(0x0903);
    /// aarch64.
    pub const AARCH64: AbiFlags = AbiFlags(0x0a03);
    /// 32-bit ARM, floats in memory.
    pub const ARM_SOFT: AbiFlags = AbiFlags(0x0b03);
    /// 64-bit RISC-V, floats in memory.
    pub const RISCV_SOFT: AbiFlags = AbiFlags(0x0f03);
    /// 64-bit RISC-V, floats in registers.
    pub const RISCV_DOUBLE: AbiFlags = AbiFlags(0x1003);

    /// The flags that `ldconfig` gives a library, from its ELF header: whether it is 64-bit, `e_machine` and
    /// `e_flags`. `None` for an unknown architecture.
    pub fn of(is_64: bool, machine: Machine, elf_flags: FileFlags) -> Option<AbiFlags> {
        Some(match (is_64, machine) {
            (true, EM_X86_64) => AbiFlags::X86_64,
            (false, EM_X86_64) => AbiFlags::X32,
            (false, EM_386) => AbiFlags::LIBC6,
            (true, EM_AARCH64) => AbiFlags::AARCH64,
            (false, EM_ARM) if elf_flags.0 & EF_ARM_ABI_FLOAT_HARD != 0 => AbiFlags::ARM_HARD,
            (false, EM_ARM) if elf_flags.0 & EF_ARM_ABI_FLOAT_SOFT != 0 => AbiFlags::ARM_SOFT,
            (false, EM_ARM) => AbiFlags::LIBC6,
            (true, EM_PPC64) => AbiFlags::PPC64,
            (true, EM_S390) => AbiFlags::S390X,
            (true, EM_RISCV) if elf_flags.riscv_float_abi() == EF_RISCV_FLOAT_ABI_DOUBLE => AbiFlags::RISCV_DOUBLE,
            (true, EM_RISCV) if elf_flags.riscv_float_abi() == EF_RISCV_FLOAT_ABI_SOFT => AbiFlags::RISCV_SOFT,
            _ => return None,
        })
    }

    /// The flags of a library for programs of the machine that this program runs on, by their word size. `None` on
    /// architectures whose ABI does not follow from the word size.
    pub fn of_this_machine(is_64: bool) -> Option<AbiFlags> {
        Some(
            match (is_64, cfg!(target_arch = "x86_64"), cfg!(target_arch = "aarch64")) {
                (true, true, _) => AbiFlags::X86_64,
                // 32-bit x86. The driver has no libraries for x32.
                (false, true, _) => AbiFlags::LIBC6,
                (true, _, true) => AbiFlags::AARCH64,
                _ => return None,
            },
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn architectures_have_the_words_that_their_loaders_look_for() {
        assert_eq!(AbiFlags::of(true, EM_X86_64, FileFlags(0)), Some(AbiFlags(0x0303)));
        assert_eq!(AbiFlags::of(false, EM_386, FileFlags(0)), Some(AbiFlags(0x0003)));
        assert_eq!(AbiFlags::of(true, EM_AARCH64, FileFlags(0)), Some(AbiFlags(0x0a03)));
        assert_eq!(
            AbiFlags::of(false, EM_ARM, FileFlags(0x0500_0400)),
            Some(AbiFlags(0x0903))
        );
        assert_eq!(AbiFlags::of(true, EM_RISCV, FileFlags(5)), Some(AbiFlags(0x1003)));
        assert_eq!(AbiFlags::of(false, Machine(9999), FileFlags(0)), None);
    }
}
