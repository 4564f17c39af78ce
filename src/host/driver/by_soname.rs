//! Libraries of the driver that are known by their SONAMEs, because their files' names do not have its version: some
//! packages install `libGLX_nvidia.so.0` itself and no `libGLX_nvidia.so.VERSION`, and `libnvidia-nvvm.so.4.0.0` of the
//! drivers up to 515 has a version of its own.

use std::collections::BTreeSet;
use tranche_plan::inventory::{DriverFile, ElfClass, FileKind};

/// The libraries of which there is a file, by stem and word size.
#[derive(Debug)]
pub(super) struct Known {
    libraries: BTreeSet<(String, ElfClass)>,
    classes: &'static [ElfClass],
}

impl Known {
    /// Those of `files`, of which a container may have 32-bit ones too if `compat32`.
    pub(super) fn of<'f>(files: impl Iterator<Item = &'f DriverFile>, compat32: bool) -> Self {
        let library = |file: &DriverFile| {
            let (stem, _) = file.container.file_name().split_once(".so")?;
            Some((stem.to_owned(), class(file)?))
        };
        Self {
            libraries: files.filter_map(library).collect(),
            classes: match compat32 {
                true => &[ElfClass::Elf64, ElfClass::Elf32],
                false => &[ElfClass::Elf64],
            },
        }
    }

    /// Whether there is a file of the library `stem` of each word size that is wanted.
    pub(super) fn has_all(&self, stem: &str) -> bool {
        let has = |class: &ElfClass| self.libraries.contains(&(stem.to_owned(), *class));
        self.classes.iter().all(has)
    }

    /// Whether there is no file yet of the library `stem` with the word size of `file`, and `file` is that library.
    pub(super) fn lacks(&self, stem: &str, file: &DriverFile) -> bool {
        let is_new = |class| !self.libraries.contains(&(stem.to_owned(), class));
        class(file).is_some_and(is_new) && is_library(stem, file)
    }
}

fn class(file: &DriverFile) -> Option<ElfClass> {
    match &file.kind {
        FileKind::Library { class, .. } => Some(*class),
        _ => None,
    }
}

/// Whether `file` is the library `stem`: its SONAME is `STEM.so.N`, and its name that or a longer one. The file of
/// another driver is not: it has the version of that driver in its SONAME or, behind `.so.`, in its name.
fn is_library(stem: &str, file: &DriverFile) -> bool {
    let FileKind::Library {
        soname: Some(soname), ..
    } = &file.kind
    else {
        return false;
    };
    let number = soname.strip_prefix(stem).and_then(|rest| rest.strip_prefix(".so."));
    let is_number = number.is_some_and(|n| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit()));
    let name = file.container.file_name();
    is_number
        && name
            .strip_prefix(soname)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}
