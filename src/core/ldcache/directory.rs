//! Which names a directory of libraries gives a cache.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use super::{AbiFlags, CacheEntry, compare_names};

/// A file in a directory of libraries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct File<'a> {
    /// Its name there.
    pub name: &'a OsStr,
    /// Whether that is a symbolic link. The other fields are of the file that it leads to.
    pub is_link: bool,
    /// The SONAME inside, if there is one.
    pub soname: Option<&'a OsStr>,
    /// Its ABI ([`crate::elf::SharedLibrary::flags`]).
    pub flags: AbiFlags,
}

/// An [`CacheEntry`] that owns its path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamedLibrary<'a> {
    /// The name that a program asks for.
    pub soname: &'a OsStr,
    /// Where the loader finds it.
    pub path: PathBuf,
    /// ABI of the library.
    pub flags: AbiFlags,
}

impl<'a> NamedLibrary<'a> {
    /// The file `name` of `directory` as the library of this SONAME.
    pub fn new(soname: &'a OsStr, directory: &Path, name: &OsStr, flags: AbiFlags) -> Self {
        // Path::join would allocate twice.
        let mut path = OsString::with_capacity(directory.as_os_str().len() + 1 + name.len());
        for part in [directory.as_os_str(), OsStr::new("/"), name] {
            path.push(part);
        }
        NamedLibrary {
            soname,
            path: path.into(),
            flags,
        }
    }

    /// This as an entry for any processor of its architecture.
    pub fn entry(&self) -> CacheEntry<'_> {
        CacheEntry::new(self.soname, &self.path, self.flags)
    }
}

/// Whether `ldconfig` takes a file of this name for a library: `lib*` or `ld-*`, with `.so` in it, and none of the
/// files that dpkg and prelink leave behind.
pub fn is_library_name(name: &OsStr) -> bool {
    let name = name.as_bytes();
    let ends = |end: &[u8]| name.ends_with(end);
    (name.starts_with(b"lib") || name.starts_with(b"ld-"))
        && name.windows(3).any(|three| three == b".so")
        && !ends(b"-gdb.py")
        && !ends(b".dpkg-new")
        && !ends(b".dpkg-tmp")
        && !(name.contains(&b'#') && name.windows(11).any(|eleven| eleven == b".#prelink#."))
}

/// The name of the link that serves linking against the library of this SONAME: `libcuda.so` for `libcuda.so.1`.
pub fn name_for_linking(soname: &OsStr) -> Option<&OsStr> {
    let bytes = soname.as_bytes();
    let end = bytes.windows(3).position(|three| three == b".so")? + 3;
    bytes.get(..end).map(OsStr::from_bytes)
}

/// The libraries of `directory` under the names by which programs ask for them, sorted by name.
///
/// As `ldconfig` does: a library is listed under its SONAME, or under its file's name if it has no SONAME. A link that
/// only serves linking (`libcuda.so`, to a library whose SONAME is longer) is listed under its own name too, because
/// many programs open that. The path is the file of that name. If that file does not exist (`ldconfig` would make a
/// link), the path is that of the library itself, or of the one with the highest version if there are several.
pub fn libraries<'a>(directory: &Path, files: &[File<'a>]) -> Vec<NamedLibrary<'a>> {
    let mut named: Vec<(&OsStr, AbiFlags, &OsStr)> = Vec::with_capacity(files.len());
    for file in files.iter().filter(|file| is_library_name(file.name)) {
        let soname = file.soname.unwrap_or(file.name);
        let for_linking = file.is_link
            && file.name.as_bytes().ends_with(b".so")
            && soname.as_bytes().starts_with(file.name.as_bytes());
        let key = if for_linking { file.name } else { soname };
        named.push((key, file.flags, file.name));
    }
    // Files that come sorted by name are nearly always sorted already, and sorting needs room on the stack.
    if !named.is_sorted_by_key(|(key, flags, _)| (*key, *flags)) {
        named.sort_by_key(|(key, flags, _)| (*key, *flags));
    }
    let library = |group: &[(&'a OsStr, AbiFlags, &OsStr)]| {
        let best = group.iter().copied().reduce(|chosen, other| {
            let better = || compare_names(other.2.as_bytes(), chosen.2.as_bytes()).is_gt();
            let is_taken = chosen.2 != chosen.0 && (other.2 == other.0 || better());
            if is_taken { other } else { chosen }
        });
        best.map(|(soname, flags, file)| NamedLibrary::new(soname, directory, file, flags))
    };
    let groups = named.chunk_by(|a, b| (a.0, a.1) == (b.0, b.1));
    groups.filter_map(library).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file<'a>(name: &'a str, is_link: bool, soname: &'a str) -> File<'a> {
        let soname = (!soname.is_empty()).then(|| OsStr::new(soname));
        File {
            name: OsStr::new(name),
            is_link,
            soname,
            flags: AbiFlags::X86_64,
        }
    }

    fn names(files: &[File<'_>]) -> Vec<String> {
        libraries(Path::new("/d"), files)
            .iter()
            .map(|l| format!("{} => {}", l.soname.display(), l.path.display()))
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
            flags: AbiFlags::LIBC6,
            ..files[0]
        };
        assert_eq!(libraries(Path::new("/d"), &[files[1], i386]).len(), 2);
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
