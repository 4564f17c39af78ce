//! Covers a file of a container by a mount, so that nothing of the image changes.
//!
//! The new file is in a file system in memory, which is made for it alone and is not mounted in any directory tree.
//! Everything is done by handles, without paths of the image or of the host.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use nix::fcntl::{OFlag, openat};
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sys::stat::Mode;
use rustix::mount::{
    FsMountFlags, FsOpenFlags, FsPickFlags, MountAttrFlags, MoveMountFlags, OpenTreeFlags, fsconfig_create,
    fsconfig_reconfigure, fsconfig_set_flag, fsconfig_set_string, fsmount, fsopen, fspick, move_mount, open_tree,
};

use super::found::proc_path;
use super::{MountTable, Permissions};

/// The name of the file in its file system; nobody sees it.
const NAME: &str = "file";

/// Covers the file of the handle `target` by one with these bytes and permissions. `place` is a directory of the same
/// mount namespace. `label` is the SELinux context of the container's file systems: without it, the container's
/// processes could not read the file.
pub(super) fn cover(
    place: BorrowedFd<'_>,
    target: BorrowedFd<'_>,
    bytes: &[u8],
    permissions: Permissions,
    label: Option<&str>,
) -> io::Result<()> {
    // Before Linux 6.15, something is mounted on `place`, too.
    check_private(&[target, place])?;
    let tree = file_system(bytes.len(), label)?;
    let flags = OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    let mut file = File::from(openat(&tree, NAME, flags, Mode::from_bits_truncate(0o600))?);
    file.write_all(bytes)?;
    permissions.give_to(&file)?;
    // A file system with a file that is open for writing does not become read-only.
    drop(file);
    make_read_only(&tree)?;
    let only = detach(place, &tree)?;
    let onto = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
    move_mount(&only, "", target, "", onto)?;
    // The file system is read-only already. This makes the mount read-only too, which some programs read in the list of
    // mounts.
    let read_only = MsFlags::MS_REMOUNT
        | MsFlags::MS_BIND
        | MsFlags::MS_RDONLY
        | MsFlags::MS_NOSUID
        | MsFlags::MS_NODEV
        | MsFlags::MS_NOEXEC;
    mount(
        None::<&str>,
        proc_path(only.as_fd()).as_str(),
        None::<&str>,
        read_only,
        None::<&str>,
    )?;
    Ok(())
}

/// Refuses handles on a shared mount: what is mounted there also appears on the host, and stays there after the
/// container has ended.
pub(super) fn check_private(handles: &[BorrowedFd<'_>]) -> io::Result<()> {
    let table = MountTable::read()?;
    for handle in handles {
        let mount = table.of(*handle);
        if mount
            .ok_or_else(|| io::Error::other("its mount is not in the list of mounts"))?
            .is_shared
        {
            return Err(io::Error::other("its mount is shared with the host"));
        }
    }
    Ok(())
}

/// Makes the file system itself read-only, so that no mount of it can be written, now or later. Unlike
/// `mount_setattr` (Linux 5.12), which changes one mount, this is there since Linux 5.2, as the other calls here are.
fn make_read_only(tree: &OwnedFd) -> io::Result<()> {
    let context = fspick(tree, "", FsPickFlags::FSPICK_EMPTY_PATH | FsPickFlags::FSPICK_CLOEXEC)?;
    fsconfig_set_flag(&context, "ro")?;
    Ok(fsconfig_reconfigure(&context)?)
}

/// A file system in memory, mounted nowhere, with room for a file of `size` bytes.
fn file_system(size: usize, label: Option<&str>) -> io::Result<OwnedFd> {
    let context = fsopen("tmpfs", FsOpenFlags::FSOPEN_CLOEXEC)?;
    // Whole pages, whose size differs: 64 KiB is the largest that there is.
    let size = size.next_multiple_of(64 << 10) + (64 << 10);
    fsconfig_set_string(&context, "size", size.to_string())?;
    fsconfig_set_string(&context, "mode", "0755")?;
    if let Some(label) = label {
        fsconfig_set_string(&context, "context", label)?;
    }
    fsconfig_create(&context)?;
    let plain =
        MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV | MountAttrFlags::MOUNT_ATTR_NOEXEC;
    Ok(fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, plain)?)
}

/// A mount of the one file of `tree`, mounted nowhere.
///
/// Before Linux 6.15, a part can only be taken of a file system that is mounted in a tree. There it is mounted on the
/// root directory for a moment. That directory always exists, the runtime waits for the hook, and the hook's open
/// handles are not affected.
fn detach(place: BorrowedFd<'_>, tree: &OwnedFd) -> io::Result<OwnedFd> {
    let part = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
    match open_tree(tree, NAME, part) {
        Err(rustix::io::Errno::INVAL) => detach_by_mounting(place, tree, part),
        taken => Ok(taken?),
    }
}

fn detach_by_mounting(place: BorrowedFd<'_>, tree: &OwnedFd, part: OpenTreeFlags) -> io::Result<OwnedFd> {
    let onto = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
    move_mount(tree, "", place, "", onto)?;
    let taken = open_tree(tree, NAME, part);
    umount2(proc_path(tree.as_fd()).as_str(), MntFlags::MNT_DETACH)?;
    Ok(taken?)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{MetadataExt, PermissionsExt};
    use std::path::Path;

    use super::*;
    use crate::root::own_mounts::with_own_mounts;
    use crate::root::{ContainerRoot, HostDirectory};

    /// Linux before 6.15 needs the second way, which is tried on every kernel.
    #[test]
    fn the_file_can_be_taken_from_a_mounted_file_system() {
        if !nix::unistd::Uid::effective().is_root() {
            println!("not run: root::cover: not root");
            return;
        }
        with_own_mounts(|| {
            let top = tempfile::tempdir().unwrap();
            fs::write(top.path().join("seen"), "seen").unwrap();
            let root = ContainerRoot::open(&HostDirectory::open(top.path()).unwrap(), Path::new(".")).unwrap();
            let directory = root.directory(Path::new("/")).unwrap();
            let tree = file_system(10, None).unwrap();
            let flags = OFlag::O_WRONLY | OFlag::O_CREAT;
            let mut file = File::from(openat(&tree, NAME, flags, Mode::S_IRWXU).unwrap());
            file.write_all(b"ours").unwrap();
            let part = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
            let taken = detach_by_mounting(directory.as_fd(), &tree, part).unwrap();
            assert_eq!(
                fs::read(top.path().join("seen")).unwrap(),
                b"seen",
                "the root is uncovered again"
            );
            assert_eq!(fs::read(proc_path(taken.as_fd())).unwrap(), b"ours");
        })
        .unwrap();
    }

    /// More bytes than a page of any size, so that the file system must have room for them.
    #[test]
    fn a_cover_has_all_bytes_and_the_permissions_and_cannot_be_written() {
        if !nix::unistd::Uid::effective().is_root() {
            println!("not run: root::cover: not root");
            return;
        }
        with_own_mounts(|| {
            let top = tempfile::tempdir().unwrap();
            // A mount of its own, which the test can share.
            mount(Some("tmpfs"), top.path(), Some("tmpfs"), MsFlags::empty(), None::<&str>).unwrap();
            let file = top.path().join("file");
            fs::write(&file, "of the image").unwrap();
            fs::set_permissions(&file, PermissionsExt::from_mode(0o640)).unwrap();
            let root = ContainerRoot::open(&HostDirectory::open(top.path()).unwrap(), Path::new(".")).unwrap();
            let target = || root.own_file(Path::new("/file")).unwrap();
            let bytes = vec![b'x'; 200 << 10];

            mount(None::<&str>, top.path(), None::<&str>, MsFlags::MS_SHARED, None::<&str>).unwrap();
            let refused = root.cover(&target(), &bytes).unwrap_err();
            assert_eq!(refused.to_string(), "its mount is shared with the host");
            assert_eq!(fs::read(&file).unwrap(), b"of the image");
            mount(
                None::<&str>,
                top.path(),
                None::<&str>,
                MsFlags::MS_PRIVATE,
                None::<&str>,
            )
            .unwrap();

            root.cover(&target(), &bytes).unwrap();
            assert!(fs::read(&file).unwrap() == bytes);
            assert_eq!(fs::metadata(&file).unwrap().mode() & 0o7777, 0o640);
            let refused = fs::write(&file, "").unwrap_err();
            assert_eq!(refused.kind(), io::ErrorKind::ReadOnlyFilesystem);
            // The mount says so, and the file system is read-only without it.
            let options = fs::read_to_string("/proc/thread-self/mountinfo").unwrap();
            let line = options
                .lines()
                .find(|line| line.split(' ').nth(4) == file.to_str())
                .unwrap();
            let (of_mount, of_file_system) = line.split_once(" - ").unwrap();
            let of_mount = of_mount.split(' ').nth(5).unwrap();
            for option in ["ro", "nosuid", "nodev", "noexec"] {
                assert!(of_mount.split(',').any(|o| o == option), "{option}: {line}");
            }
            let of_file_system = of_file_system.split(' ').nth(2).unwrap();
            assert!(of_file_system.split(',').any(|o| o == "ro"), "{line}");
            umount2(&file, MntFlags::MNT_DETACH).unwrap();
            assert_eq!(fs::read(&file).unwrap(), b"of the image");
        })
        .unwrap();
    }
}
