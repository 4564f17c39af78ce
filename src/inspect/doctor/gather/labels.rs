//! The SELinux contexts of files.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The attribute with a file's SELinux context.
const ATTRIBUTE: &str = "security.selinux";

/// The most bytes of a context. A longer one does not exist in practice.
const LONGEST: usize = 4096;

/// The contexts of `paths` below the directory `root`. Files that do not exist or have no context are left out.
pub(super) fn of(root: &Path, paths: impl IntoIterator<Item = PathBuf>) -> BTreeMap<PathBuf, String> {
    let with_context = |path: PathBuf| {
        let context = context(&root.join(path.strip_prefix("/").unwrap_or(&path)))?;
        Some((path, context))
    };
    paths.into_iter().filter_map(with_context).collect()
}

fn context(path: &Path) -> Option<String> {
    let mut bytes = [0; LONGEST];
    let length = rustix::fs::lgetxattr(path, ATTRIBUTE, &mut bytes).ok()?;
    // The kernel returns a context with its final zero byte.
    let text = std::str::from_utf8(bytes.get(..length)?).ok()?;
    Some(text.trim_end_matches('\0').to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{XattrFlags, setxattr};

    #[test]
    fn a_context_is_read_without_its_final_zero() {
        let top = tempfile::tempdir().unwrap();
        for name in ["labelled", "without"] {
            std::fs::write(top.path().join(name), "").unwrap();
        }
        let expected = "system_u:object_r:device_t:s0";
        let set = setxattr(
            top.path().join("labelled"),
            ATTRIBUTE,
            format!("{expected}\0").as_bytes(),
            XattrFlags::empty(),
        );
        let found = of(top.path(), ["/labelled", "/without", "/missing"].map(PathBuf::from));
        match set {
            Ok(()) => assert_eq!(found[Path::new("/labelled")], expected),
            // Only root may set it, and not on every file system.
            Err(error) => eprintln!("not tested with a context: {error}"),
        }
        assert!(!found.contains_key(Path::new("/missing")));
        // Under SELinux every file has one.
        if !Path::new("/sys/fs/selinux/enforce").exists() {
            assert!(!found.contains_key(Path::new("/without")));
        }
    }
}
