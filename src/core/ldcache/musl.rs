//! musl's loader has no cache: it searches the directories that a text file names.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use crate::error::{Error, Result};

/// Where musl searches without a path file (`ldso/dynlink.c`). With a path file, it searches only what that names.
const DEFAULT_PATH: &[u8] = b"/lib\n/usr/local/lib\n/usr/lib\n";

/// The path file of musl's loader for an architecture, in musl's spelling (`x86_64`, `aarch64`).
pub fn path_file(arch: &str) -> String {
    format!("/etc/ld-musl-{arch}.path")
}

/// The content of the path file with `directories` in it: missing ones are appended, one to a line. `existing` is the
/// image's file; without one, musl's own three directories are written first. Returns `None` if nothing changes. To an
/// empty file musl's own directories are not added: the image asked for that.
///
/// # Errors
/// Returns an error for a directory that is not absolute, or whose name the format cannot hold (`:`, line break, zero
/// byte).
pub fn with_directories(existing: Option<&[u8]>, directories: &[&Path]) -> Result<Option<Vec<u8>>> {
    let start = existing.unwrap_or(DEFAULT_PATH);
    let mut content = start.to_vec();
    for directory in directories {
        let name = directory.as_os_str().as_bytes();
        if !directory.is_absolute() || name.iter().any(|c| matches!(c, b':' | b'\n' | 0)) {
            let what = "cannot be written to a path file of musl's loader";
            return Err(Error::failed(directory.display(), what).hint("name an absolute directory without ':'"));
        }
        if content.split(|c| matches!(c, b':' | b'\n')).any(|known| known == name) {
            continue;
        }
        if content.last().is_some_and(|c| *c != b'\n') {
            content.push(b'\n');
        }
        content.extend(name);
        content.push(b'\n');
    }
    Ok((content != start).then_some(content))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(existing: Option<&str>, directories: &[&str]) -> Option<String> {
        let directories: Vec<_> = directories.iter().map(Path::new).collect();
        let content = with_directories(existing.map(str::as_bytes), &directories).unwrap();
        content.map(|c| String::from_utf8(c).unwrap())
    }

    #[test]
    fn what_is_missing_is_appended_once() {
        assert_eq!(
            with(Some("/lib:/usr/lib"), &["/usr/lib64"]).as_deref(),
            Some("/lib:/usr/lib\n/usr/lib64\n")
        );
        assert_eq!(
            with(Some("/lib\n"), &["/a", "/lib", "/a", "/b"]).as_deref(),
            Some("/lib\n/a\n/b\n")
        );
        assert_eq!(with(Some("/lib:/a\n/b"), &["/a", "/b"]), None);
        assert_eq!(with(Some(""), &["/a"]).as_deref(), Some("/a\n"));
    }

    #[test]
    fn without_a_file_the_default_directories_stay_in_force() {
        assert_eq!(
            with(None, &["/usr/lib64"]).as_deref(),
            Some("/lib\n/usr/local/lib\n/usr/lib\n/usr/lib64\n")
        );
        assert_eq!(with(None, &["/usr/lib"]), None);
    }

    #[test]
    fn a_name_that_would_be_two_is_refused() {
        for name in ["/a:/b", "/a\n/b", "relative"] {
            assert!(with_directories(None, &[Path::new(name)]).is_err(), "{name}");
        }
        assert_eq!(path_file("x86_64"), "/etc/ld-musl-x86_64.path");
    }
}
