//! Which names a directory of libraries gives a cache.

use std::borrow::Cow;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use super::{Entry, Flags, compare_names};

/// A file in a directory of libraries.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct File<'a> {
    /// Its name there.
    pub name: Cow<'a, OsStr>,
    /// Whether that is a symbolic link. The other fields are of the file that it leads to.
    pub is_link: bool,
    /// The SONAME inside, if there is one.
    pub soname: Option<Cow<'a, OsStr>>,
    /// Its ABI ([`crate::elf::Library::cache_flags`]).
    pub flags: Flags,
}

/// An [`Entry`] that owns its strings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Library {
    /// The name that a program asks for.
    pub soname: OsString,
    /// Where the loader finds it.
    pub path: PathBuf,
    /// ABI of the library.
    pub flags: Flags,
}

impl Library {
    /// This as an entry for any processor of its architecture.
    pub fn entry(&self) -> Entry<'_> {
        Entry::new(&self.soname, &self.path, self.flags)
    }
}

/// Whether `ldconfig` takes a file of this name for a library: `lib*` or `ld-*`, with `.so` in it, and none of the
/// files that dpkg and prelink leave behind.
pub fn is_library_name(name: &OsStr) -> bool {
    let name = name.as_bytes();
    let ends = |end: &[u8]| name.ends_with(end);
    // Everything that counts begins with a dot; a directory may have thousands of names.
    let mut dotted = (0..name.len())
        .filter_map(|at| name.get(at..))
        .filter(|rest| rest.starts_with(b"."));
    (name.starts_with(b"lib") || name.starts_with(b"ld-"))
        && dotted.clone().any(|rest| rest.starts_with(b".so"))
        && !ends(b"-gdb.py")
        && !ends(b".dpkg-new")
        && !ends(b".dpkg-tmp")
        && !dotted.any(|rest| rest.starts_with(b".#prelink#."))
}

/// The name of the link that serves linking against the library of this SONAME: `libcuda.so` for `libcuda.so.1`.
pub fn name_for_linking(soname: &OsStr) -> Option<&OsStr> {
    let bytes = soname.as_bytes();
    let end = bytes.windows(3).position(|w| w == b".so")? + 3;
    bytes.get(..end).map(OsStr::from_bytes)
}

/// The libraries of `directory` under the names by which programs ask for them, sorted by name.
///
/// As `ldconfig` does: a library goes under its SONAME, or its file's name where it has none; a link that only serves
/// linking (`libcuda.so`, to a library whose SONAME goes on after that) goes under its own name too, because many
/// programs open that. The path is the file of that name. Where there is none (`ldconfig` would make a link), it is
/// the library itself, the one with the highest version if there are several.
pub fn libraries(directory: &Path, files: &[File<'_>]) -> Vec<Library> {
    let mut named: Vec<(&OsStr, u32, &OsStr)> = Vec::with_capacity(files.len());
    for file in files.iter().filter(|f| is_library_name(&f.name)) {
        let soname = file.soname.as_deref().unwrap_or(&file.name);
        let for_linking = file.is_link
            && file.name.as_bytes().ends_with(b".so")
            && soname.as_bytes().starts_with(file.name.as_bytes());
        let key = if for_linking { &*file.name } else { soname };
        named.push((key, file.flags.0, &*file.name));
    }
    // Stable, and quick where the files come sorted by name.
    named.sort_by(|a, b| (a.0, a.1).cmp(&(b.0, b.1)));
    let same = |a: &(&OsStr, u32, &OsStr), b: &(&OsStr, u32, &OsStr)| (a.0, a.1) == (b.0, b.1);
    let library = |group: &[(&OsStr, u32, &OsStr)]| {
        let best = group.iter().copied().reduce(|chosen, other| {
            let better = || compare_names(other.2.as_bytes(), chosen.2.as_bytes()).is_gt();
            let is_taken = chosen.2 != chosen.0 && (other.2 == other.0 || better());
            if is_taken { other } else { chosen }
        });
        best.map(|(soname, flags, file)| Library {
            soname: soname.to_os_string(),
            path: directory.join(file),
            flags: Flags(flags),
        })
    };
    named.chunk_by(same).filter_map(library).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file<'a>(name: &'a str, is_link: bool, soname: &'a str) -> File<'a> {
        let soname = (!soname.is_empty()).then(|| OsStr::new(soname).into());
        File {
            name: OsStr::new(name).into(),
            is_link,
            soname,
            flags: Flags::X86_64,
        }
    }

    fn names(files: &[File<'_>]) -> Vec<String> {
        libraries(Path::new("/d"), files)
            .iter()
            .map(|l| l.entry().to_string().replace(" (libc6,x86-64)", ""))
            .collect()
    }

    #[test]
    fn the_soname_and_the_link_for_linking() {
        let files = [
            file("libcuda.so.550.54", false, "libcuda.so.1"),
            file("libcuda.so.1", true, "libcuda.so.1"),
            file("libcuda.so", true, "libcuda.so.1"),
            file("libplain.so", false, ""),
        ];
        assert_eq!(
            names(&files),
            [
                "libcuda.so => /d/libcuda.so",
                "libcuda.so.1 => /d/libcuda.so.1",
                "libplain.so => /d/libplain.so",
            ]
        );
    }

    #[test]
    fn without_a_link_the_newest_file_itself() {
        let files = [
            file("libcuda.so.99.1", false, "libcuda.so.1"),
            file("libcuda.so.550.54", false, "libcuda.so.1"),
            file("libcuda.so.535.1", false, "libcuda.so.1"),
        ];
        assert_eq!(names(&files), ["libcuda.so.1 => /d/libcuda.so.550.54"]);
        let i386 = File {
            flags: Flags::LIBC6,
            ..files[0].clone()
        };
        assert_eq!(libraries(Path::new("/d"), &[files[1].clone(), i386]).len(), 2);
    }

    #[test]
    fn other_files_are_no_libraries() {
        for name in [
            "libcuda.a",
            "cuda.so",
            "libc.so.6.dpkg-new",
            "libstdc++.so.6-gdb.py",
            "README",
        ] {
            assert!(!is_library_name(OsStr::new(name)), "{name}");
        }
        assert!(is_library_name(OsStr::new("ld-linux-x86-64.so.2")));
        assert_eq!(names(&[file("nvidia_drv.so", false, "")]), [""; 0]);
    }
}
