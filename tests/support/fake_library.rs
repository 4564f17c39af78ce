//! Puts a fake library of the driver (`examples/fake-nvml`, `examples/fake-cuda`) into a test host: with the SONAME of
//! the real one, and without symbols that a test wants missing.

use object::read::elf::{Dyn, ElfFile64, FileHeader, SectionHeader};
use object::{Endianness, elf};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// A library among the examples.
pub struct FakeLibrary {
    example: &'static str,
    /// What the driver's library calls itself.
    pub soname: &'static str,
    built: OnceLock<Result<Vec<u8>, String>>,
}

/// NVML.
pub static NVML: FakeLibrary = FakeLibrary {
    example: "fake-nvml",
    soname: "libnvidia-ml.so.1",
    built: OnceLock::new(),
};

/// CUDA's driver API.
pub static CUDA: FakeLibrary = FakeLibrary {
    example: "fake-cuda",
    soname: "libcuda.so.1",
    built: OnceLock::new(),
};

impl FakeLibrary {
    /// Writes the library to `place`, with each symbol in `missing` renamed to something nobody asks for.
    pub fn install(&self, place: &Path, missing: &[&str]) -> Result<(), String> {
        let built = || named(built(self.example)?, self.soname);
        let mut bytes = self.built.get_or_init(built).clone()?;
        for symbol in missing {
            hide(&mut bytes, symbol)?;
        }
        // A process may still have the old one open: never write into it.
        let _ = fs::remove_file(place);
        fs::write(place, bytes).map_err(|e| format!("{}: {e}", place.display()))
    }
}

/// The library as Cargo built it, up to date.
fn built(example: &str) -> Result<Vec<u8>, String> {
    let library = build(example)?.join(format!("lib{}.so", example.replace('-', "_")));
    fs::read(&library).map_err(|e| format!("{}: {e}; run `cargo build --example {example}`", library.display()))
}

/// The directory of the examples, with this one up to date.
pub fn build(example: &str) -> Result<PathBuf, String> {
    let (directory, release) = target_directory()?;
    // `cargo test` builds examples, `cargo test --test NAME` and `cargo run --example` do not.
    if let Some(cargo) = std::env::var_os("CARGO") {
        let mut command = Command::new(cargo);
        command
            .args(["build", "--quiet", "--example", example])
            .current_dir(crate::TOP);
        command.args(release.then_some("--release"));
        // It is there for the times of the tests alone, and with it Cargo would compile everything once more.
        if std::env::var_os("TRANCHE_TEST_TIMES").is_some() {
            command.env_remove("RUSTC_BOOTSTRAP");
        }
        // With the features of the tests: with others, Cargo would compile the library once more.
        command.args((!release).then_some("--all-features"));
        if let Some(target) = directory.parent() {
            command.arg("--target-dir").arg(target);
        }
        let output = command
            .output()
            .map_err(|e| format!("cargo build --example {example}: {e}"))?;
        if !output.status.success() {
            return Err(format!(
                "cargo build --example {example}: {}",
                String::from_utf8_lossy(&output.stderr).trim()
            ));
        }
    }
    Ok(directory.join("examples"))
}

/// Where Cargo puts what it builds in the profile of this program, and whether that is `release`.
fn target_directory() -> Result<(PathBuf, bool), String> {
    let program = std::env::current_exe().map_err(|e| format!("this program's path: {e}"))?;
    // target/debug/deps/test-…, or target/debug/examples/fake-host.
    let directory = program
        .parent()
        .and_then(Path::parent)
        .ok_or("this program is not in Cargo's target directory")?;
    Ok((directory.to_path_buf(), directory.ends_with("release")))
}

/// The library with a DT_SONAME. Cargo takes no linker argument for it; but its string table has the name (an exported
/// symbol is called so), and DT_RELACOUNT, a hint that a loader can do without, gives up its place.
fn named(mut bytes: Vec<u8>, soname: &str) -> Result<Vec<u8>, String> {
    let (name, entry) = {
        let (file, strings) = strings(&bytes)?;
        let name = find(&bytes[strings.0..strings.0 + strings.1], soname)?;
        let header = file.elf_header();
        let sections = header
            .sections(Endianness::Little, &*bytes)
            .map_err(|e| e.to_string())?;
        let dynamic = sections
            .iter()
            .find(|s| s.sh_type(Endianness::Little) == elf::SHT_DYNAMIC)
            .ok_or("the fake library has no dynamic section")?;
        let entries: &[elf::Dyn64<Endianness>] = dynamic
            .data_as_array(Endianness::Little, &*bytes)
            .map_err(|e| e.to_string())?;
        let position = entries
            .iter()
            .position(|e| e.tag(Endianness::Little) == elf::DT_RELACOUNT)
            .ok_or("the fake library has no DT_RELACOUNT to give up")?;
        (
            name,
            dynamic.sh_offset(Endianness::Little) as usize + position * size_of::<elf::Dyn64<Endianness>>(),
        )
    };
    bytes[entry..entry + 8].copy_from_slice(&14_u64.to_le_bytes());
    bytes[entry + 8..entry + 16].copy_from_slice(&(name as u64).to_le_bytes());
    Ok(bytes)
}

/// Renames a symbol in the string table; its hash no longer fits, so nobody finds either name.
fn hide(bytes: &mut [u8], symbol: &str) -> Result<(), String> {
    let (_, (start, size)) = strings(bytes)?;
    let at = start + find(&bytes[start..start + size], symbol)?;
    bytes[at] = b'-';
    Ok(())
}

type File<'a> = ElfFile64<'a, Endianness>;

/// The file, and where its dynamic string table is: offset and size.
fn strings(bytes: &[u8]) -> Result<(File<'_>, (usize, usize)), String> {
    let file = File::parse(bytes).map_err(|e| format!("the fake library: {e}"))?;
    let range = object::Object::section_by_name(&file, ".dynstr")
        .and_then(|s| object::ObjectSection::file_range(&s))
        .ok_or("the fake library has no .dynstr")?;
    Ok((file, (range.0 as usize, range.1 as usize)))
}

/// Where a whole name lies in a string table.
fn find(strings: &[u8], name: &str) -> Result<usize, String> {
    let mut wanted = vec![0];
    wanted.extend_from_slice(name.as_bytes());
    wanted.push(0);
    let at = strings.windows(wanted.len()).position(|w| w == wanted);
    Ok(at.ok_or_else(|| format!("the fake library has no symbol {name}"))? + 1)
}
