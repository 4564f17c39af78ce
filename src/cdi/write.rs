//! A file that is there whole or not at all.

use crate::error::{Context, Error, Result};
use std::fs::{self, DirBuilder, File, Permissions};
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// Writes `text` to `path`, mode 0644; missing directories are made, mode 0755.
///
/// An engine reads these directories at any time. So the text goes to a file beside it, whose name no engine reads, is
/// brought to the disk, and only then takes the place of what was there. Whatever fails, the old file stays as it was.
///
/// # Errors
/// A directory that cannot be made or written, a full disk; something else than a file in the way.
pub fn write(path: &Path, text: &str) -> Result<()> {
    let dir = match path.parent() {
        Some(dir) if !dir.as_os_str().is_empty() => dir.to_owned(),
        _ => PathBuf::from("."),
    };
    if fs::symlink_metadata(path).is_ok_and(|m| m.is_dir()) {
        return Err(Error::failed(path.display(), "is a directory"));
    }
    DirBuilder::new()
        .recursive(true)
        .mode(0o755)
        .create(&dir)
        .about(dir.display(), "cannot make the directory")?;
    let mut file = tempfile::Builder::new()
        .prefix(".tranche.")
        .suffix(".tmp")
        .permissions(Permissions::from_mode(0o644))
        .tempfile_in(&dir)
        .about(path.display(), "cannot write")?;
    file.write_all(text.as_bytes()).about(path.display(), "cannot write")?;
    // The process's umask took its share of the mode above.
    file.as_file()
        .set_permissions(Permissions::from_mode(0o644))
        .about(path.display(), "cannot set its mode")?;
    file.as_file()
        .sync_all()
        .about(path.display(), "cannot bring it to the disk")?;
    file.persist(path)
        .map_err(|e| e.error)
        .about(path.display(), "cannot put it in its place")?;
    File::open(&dir)
        .and_then(|d| d.sync_all())
        .about(dir.display(), "cannot bring it to the disk")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_and_readable_for_all() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a/b/x.yaml");
        write(&path, "one\n").unwrap();
        write(&path, "two\n").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "two\n");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o644);
        let names: Vec<_> = fs::read_dir(dir.path().join("a/b")).unwrap().collect();
        assert_eq!(names.len(), 1, "nothing else is left behind");
    }

    #[test]
    fn a_failure_leaves_what_was_there() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("file"), "x").unwrap();
        let e = write(&dir.path().join("file/x.yaml"), "y").unwrap_err().to_string();
        assert!(e.contains("cannot make the directory"), "{e}");
        fs::create_dir_all(dir.path().join("x.yaml/sub")).unwrap();
        let e = write(&dir.path().join("x.yaml"), "y").unwrap_err().to_string();
        assert!(e.contains("is a directory"), "{e}");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2);
    }
}
