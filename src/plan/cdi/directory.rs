//! The entries of a directory of specifications or hooks, in the order in which every part of tranche reads them.

use nix::libc::ENOTDIR;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use walkdir::WalkDir;

/// The paths of the entries of `dir`, sorted by their names, which need not be UTF-8.
///
/// `dir` itself may be a symbolic link (`/var/run/cdi` often is below one). Entries are neither followed nor opened. A
/// directory that does not exist has no entries. An entry that cannot be read yields an error in its place.
pub fn entries(dir: &Path) -> impl Iterator<Item = io::Result<PathBuf>> {
    let walk = WalkDir::new(dir).max_depth(1).sort_by_file_name();
    walk.into_iter().filter_map(|entry| match entry {
        Ok(entry) if entry.depth() > 0 => Some(Ok(entry.into_path())),
        Ok(dir) if dir.path().is_dir() => None,
        Ok(_) => Some(Err(io::Error::from_raw_os_error(ENOTDIR))),
        Err(e) => match e.io_error().map(io::Error::kind) {
            Some(ErrorKind::NotFound) => None,
            // Without its text, which repeats the path that the caller names.
            _ => Some(Err(e.into_io_error().unwrap_or_else(|| ErrorKind::Other.into()))),
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::OsStr;
    use std::fs;
    use std::os::unix::ffi::OsStrExt;
    use std::os::unix::fs::symlink;

    fn names(dir: &Path) -> Vec<PathBuf> {
        let names = entries(dir).map(|path| path.unwrap().strip_prefix(dir).unwrap().to_owned());
        names.collect()
    }

    #[test]
    fn entries_are_sorted_and_are_not_followed() {
        let dir = tempfile::tempdir().unwrap();
        let odd = OsStr::from_bytes(b"b\xff.yaml");
        fs::write(dir.path().join("c.json"), "").unwrap();
        fs::write(dir.path().join(odd), "").unwrap();
        fs::create_dir(dir.path().join("a.yaml")).unwrap();
        fs::write(dir.path().join("a.yaml/inside.yaml"), "").unwrap();
        symlink("nowhere", dir.path().join("d.yaml")).unwrap();
        symlink("..", dir.path().join("up")).unwrap();
        let expected = [
            OsStr::new("a.yaml"),
            odd,
            "c.json".as_ref(),
            "d.yaml".as_ref(),
            "up".as_ref(),
        ];
        assert_eq!(names(dir.path()), expected.map(PathBuf::from));
    }

    #[test]
    fn a_directory_may_be_a_link_or_missing_but_not_a_file() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        fs::create_dir(at("real")).unwrap();
        fs::write(at("real/x.yaml"), "").unwrap();
        symlink("real", at("link")).unwrap();
        symlink("nowhere", at("dangling")).unwrap();
        symlink("real/x.yaml", at("to-file")).unwrap();
        assert_eq!(names(&at("link")), [Path::new("x.yaml")]);
        assert_eq!(entries(&at("missing")).count(), 0);
        assert_eq!(entries(&at("dangling")).count(), 0);
        for file in ["real/x.yaml", "to-file"] {
            let found: Vec<_> = entries(&at(file)).collect();
            assert!(
                matches!(&found[..], [Err(e)] if e.kind() == ErrorKind::NotADirectory),
                "{found:?}"
            );
        }
    }
}
