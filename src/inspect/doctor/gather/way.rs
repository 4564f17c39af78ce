//! The way to a file, part by part as the kernel follows it, and which part a user other than root can change.

use crate::doctor::{OtherWriter, Replaceable};
use std::collections::VecDeque;
use std::ffi::OsString;
use std::fs::{self, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};

/// How many links the kernel follows (path_resolution(7)).
const MOST_LINKS: u32 = 40;

/// In a directory with this bit, a user replaces the own files only (inode(7)).
const STICKY: u32 = 0o1000;

/// The first part of the way to `path` that a user other than root can change: a directory, a link, or what it leads
/// to. `None` if root alone can, or if this user may not see a part. `top` is the directory that is `/` on the machine;
/// a path that is not below it is one of this machine.
///
/// An access list that lets a user write shows as a right of the group, as the kernel shows it (acl(5)); so a directory
/// that a group may write is one that others can change, whatever group it is. `unpacked_by` is the user who has a copy
/// of another machine, in which what was root's may be that user's.
pub fn replaceable(top: &Path, path: &Path, unpacked_by: Option<u32>) -> Option<Replaceable> {
    let (top, rest) = match path.strip_prefix(top) {
        Ok(rest) => (top, rest),
        Err(_) => (Path::new("/"), path),
    };
    let mut way = Way {
        top: top.to_owned(),
        at: top.to_owned(),
        is_sticky: false,
        unpacked_by,
        link: None,
        left: VecDeque::new(),
    };
    way.add(rest);
    let found = |by: OtherWriter, way: &Way, part: PathBuf| Replaceable {
        path: path.to_owned(),
        part,
        by,
        link: way.link.clone(),
    };
    if let Some(by) = way.enter(&fs::symlink_metadata(top).ok()?) {
        return Some(found(by, &way, top.to_owned()));
    }
    let mut links = 0;
    while let Some(name) = way.left.pop_front() {
        if name == ".." {
            way.leave();
            continue;
        }
        let part = way.at.join(&name);
        let data = match fs::symlink_metadata(&part) {
            Ok(data) => data,
            // In such a directory, anybody can make what does not exist yet.
            Err(_) if way.is_sticky => return Some(found(OtherWriter::Mode(0o1777), &way, way.at.clone())),
            Err(_) => return None,
        };
        if !data.is_symlink() {
            if let Some(by) = way.enter(&data) {
                return Some(found(by, &way, part));
            }
            way.at = part;
            continue;
        }
        // Only in a directory with that bit does it matter whose link it is.
        if way.is_sticky && !way.is_root_s(data.uid()) {
            return Some(found(OtherWriter::Owner(data.uid()), &way, part));
        }
        links += 1;
        if links > MOST_LINKS {
            return None;
        }
        way.add(&fs::read_link(&part).ok()?);
        way.link = Some(part);
    }
    None
}

/// A walk on the way to a file.
struct Way {
    top: PathBuf,
    at: PathBuf,
    /// Whether everybody may write the directory `at`, and replace the own files only.
    is_sticky: bool,
    unpacked_by: Option<u32>,
    /// The last link that was followed.
    link: Option<PathBuf>,
    left: VecDeque<OsString>,
}

impl Way {
    /// Puts the parts of `path` before those that are left.
    fn add(&mut self, path: &Path) {
        if path.is_absolute() {
            self.at.clone_from(&self.top);
            self.is_sticky = false;
        }
        for component in path.components().rev() {
            match component {
                Component::Normal(name) => self.left.push_front(name.to_owned()),
                Component::ParentDir => self.left.push_front("..".into()),
                Component::RootDir | Component::CurDir | Component::Prefix(_) => {}
            }
        }
    }

    fn leave(&mut self) {
        if self.at != self.top {
            self.at.pop();
        }
        self.is_sticky = false;
    }

    /// Who else than root can change a directory or a file, or what is in the directory.
    fn enter(&mut self, data: &Metadata) -> Option<OtherWriter> {
        let mode = data.mode() & 0o7777;
        let is_open = mode & 0o022 != 0;
        self.is_sticky = is_open && data.is_dir() && mode & STICKY != 0;
        match (self.is_root_s(data.uid()), is_open && !self.is_sticky) {
            (true, false) => None,
            (true, true) => Some(OtherWriter::Mode(mode)),
            (false, _) => Some(OtherWriter::Owner(data.uid())),
        }
    }

    fn is_root_s(&self, owner: u32) -> bool {
        owner == 0 || Some(owner) == self.unpacked_by
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, chown, symlink};

    /// What is found of the way to `path` below `top`: part, who, and link, each without `top`.
    fn of(top: &Path, path: &str) -> Option<(String, OtherWriter, Option<String>)> {
        let shown = |path: &Path| path.strip_prefix(top).unwrap().display().to_string();
        let found = replaceable(top, &top.join(path), None)?;
        Some((shown(&found.part), found.by, found.link.as_deref().map(shown)))
    }

    fn mode(path: impl AsRef<Path>, mode: u32) {
        fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
    }

    #[test]
    fn each_directory_and_link_on_the_way_counts() {
        let top = tempfile::tempdir().unwrap();
        let at = |path: &str| top.path().join(path);
        if !nix::unistd::geteuid().is_root() {
            return;
        }
        mode(top.path(), 0o755);
        fs::create_dir_all(at("etc/cdi")).unwrap();
        fs::write(at("etc/cdi/a.yaml"), "").unwrap();
        assert_eq!(of(top.path(), "etc/cdi/a.yaml"), None);
        mode(at("etc/cdi/a.yaml"), 0o664);
        let by_mode = |part: &str, mode| Some((part.to_owned(), OtherWriter::Mode(mode), None));
        assert_eq!(of(top.path(), "etc/cdi/a.yaml"), by_mode("etc/cdi/a.yaml", 0o664));
        mode(at("etc/cdi"), 0o777);
        assert_eq!(of(top.path(), "etc/cdi/a.yaml"), by_mode("etc/cdi", 0o777));
        mode(at("etc"), 0o775);
        assert_eq!(of(top.path(), "etc/cdi/a.yaml"), by_mode("etc", 0o775));
        mode(at("etc"), 0o755);
        chown(at("etc/cdi"), Some(65534), None).unwrap();
        let owner = Some(("etc/cdi".to_owned(), OtherWriter::Owner(65534), None));
        assert_eq!(of(top.path(), "etc/cdi/a.yaml"), owner);
        // In a copy that this user unpacked, the mode counts.
        mode(at("etc/cdi"), 0o755);
        mode(at("etc/cdi/a.yaml"), 0o666);
        let found = replaceable(top.path(), &at("etc/cdi/a.yaml"), Some(65534)).unwrap();
        assert_eq!((found.part, found.by), (at("etc/cdi/a.yaml"), OtherWriter::Mode(0o666)));
    }

    #[test]
    fn a_link_is_followed_within_the_machine() {
        let top = tempfile::tempdir().unwrap();
        let at = |path: &str| top.path().join(path);
        if !nix::unistd::geteuid().is_root() {
            return;
        }
        for directory in ["etc", "home/ann", "usr/lib", "run"] {
            fs::create_dir_all(at(directory)).unwrap();
        }
        fs::write(at("home/ann/policy.yaml"), "").unwrap();
        chown(at("home/ann"), Some(1000), None).unwrap();
        symlink("/home/ann/policy.yaml", at("etc/config.yaml")).unwrap();
        let into_home = (
            "home/ann".to_owned(),
            OtherWriter::Owner(1000),
            Some("etc/config.yaml".to_owned()),
        );
        assert_eq!(of(top.path(), "etc/config.yaml"), Some(into_home));
        symlink("../etc/../usr/lib", at("run/lib")).unwrap();
        fs::write(at("usr/lib/x"), "").unwrap();
        assert_eq!(of(top.path(), "run/lib/x"), None);
        symlink("loop", at("run/loop")).unwrap();
        assert_eq!(of(top.path(), "run/loop"), None);
    }

    #[test]
    fn in_a_directory_for_everybody_what_exists_and_is_root_s_is_safe() {
        let top = tempfile::tempdir().unwrap();
        let at = |path: &str| top.path().join(path);
        if !nix::unistd::geteuid().is_root() {
            return;
        }
        fs::create_dir(at("tmp")).unwrap();
        mode(at("tmp"), 0o1777);
        fs::write(at("tmp/own"), "").unwrap();
        assert_eq!(of(top.path(), "tmp/own"), None);
        let missing = of(top.path(), "tmp/missing").unwrap();
        assert_eq!(missing, ("tmp".to_owned(), OtherWriter::Mode(0o1777), None));
        symlink("own", at("tmp/link")).unwrap();
        assert_eq!(of(top.path(), "tmp/link"), None);
        std::os::unix::fs::lchown(at("tmp/link"), Some(1000), None).unwrap();
        assert_eq!(of(top.path(), "tmp/link").unwrap().1, OtherWriter::Owner(1000));
        fs::create_dir(at("etc")).unwrap();
        assert_eq!(of(top.path(), "etc/missing/too"), None);
    }
}
