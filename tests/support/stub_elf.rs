//! Shared libraries with a SONAME and nothing else in them, which loaders and readelf take for real ones.

use object::Endianness;
use object::elf;
use object::write::elf::{FileHeader, ProgramHeader, Writer};

/// What a library is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[allow(missing_docs, reason = "the names say it")]
pub enum Machine {
    #[default]
    X86_64,
    I386,
    Aarch64,
}

impl Machine {
    /// Whether it is a machine of 64 bits.
    pub fn is_64(self) -> bool {
        self != Machine::I386
    }

    fn elf(self) -> elf::Machine {
        match self {
            Machine::X86_64 => elf::EM_X86_64,
            Machine::I386 => elf::EM_386,
            Machine::Aarch64 => elf::EM_AARCH64,
        }
    }
}

/// The bytes of a library with this SONAME.
pub fn library(soname: &str, machine: Machine) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    write(&mut bytes, soname, machine).map_err(|e| format!("a stub of {soname}: {e}"))?;
    Ok(bytes)
}

fn write(bytes: &mut Vec<u8>, soname: &str, machine: Machine) -> object::write::Result<()> {
    let mut w = Writer::new(Endianness::Little, machine.is_64(), bytes);
    w.reserve_file_header();
    w.reserve_program_headers(2);
    let name = w.add_dynamic_string(soname.as_bytes());
    w.reserve_null_dynamic_symbol_index();
    let symbols = w.reserve_dynsym();
    let hash = w.reserve_hash(1, 1);
    let strings = w.reserve_dynstr()?;
    let strings_size = w.dynstr_len();
    let entries = 7;
    let dynamic = w.reserve_dynamic(entries);
    let dynamic_size = w.reserved_len() - dynamic;
    w.reserve_dynsym_section_index();
    w.reserve_hash_section_index();
    w.reserve_dynstr_section_index();
    w.reserve_dynamic_section_index();
    w.reserve_shstrtab_section_index();
    let loaded = w.reserved_len();
    w.reserve_shstrtab()?;
    w.reserve_section_headers();

    w.write_file_header(&FileHeader {
        os_abi: elf::ELFOSABI_SYSV,
        abi_version: 0,
        e_type: elf::ET_DYN,
        e_machine: machine.elf(),
        e_entry: 0,
        e_flags: elf::FileFlags(0),
    })?;
    // Addresses equal offsets. Writable, because the loader relocates the dynamic section in place.
    let segment = |p_type, offset: u64, size: u64, align| ProgramHeader {
        p_type,
        p_flags: elf::PF_R | elf::PF_W,
        p_offset: offset,
        p_vaddr: offset,
        p_paddr: offset,
        p_filesz: size,
        p_memsz: size,
        p_align: align,
    };
    w.write_program_header(&segment(elf::PT_LOAD, 0, loaded, 0x1000));
    w.write_program_header(&segment(elf::PT_DYNAMIC, dynamic, dynamic_size, 8));
    w.write_null_dynamic_symbol();
    w.write_hash(1, 1, |_| None);
    w.write_dynstr();
    w.write_align_dynamic();
    w.write_dynamic_string(elf::DT_SONAME, name)?;
    w.write_dynamic(elf::DT_HASH, hash)?;
    w.write_dynamic(elf::DT_STRTAB, strings)?;
    w.write_dynamic(elf::DT_SYMTAB, symbols)?;
    w.write_dynamic(elf::DT_STRSZ, u64::from(strings_size))?;
    w.write_dynamic(elf::DT_SYMENT, if machine.is_64() { 24 } else { 16 })?;
    w.write_dynamic(elf::DT_NULL, 0)?;
    w.write_shstrtab();
    w.write_null_section_header();
    w.write_dynsym_section_header(symbols, 1);
    w.write_hash_section_header(hash);
    w.write_dynstr_section_header(strings);
    w.write_dynamic_section_header(dynamic);
    w.write_shstrtab_section_header();
    Ok(())
}
