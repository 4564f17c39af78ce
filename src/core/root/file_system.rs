//! Which kinds of file system may hold an image.

use std::io;
use std::os::fd::AsFd;

use rustix::fs::fstatfs;

/// `TMPFS_MAGIC` (linux/magic.h). devtmpfs has it too.
const TMPFS: u32 = 0x0102_1994;
/// `PROC_SUPER_MAGIC` (linux/magic.h).
const PROC: u32 = 0x9fa0;

/// `f_type` of the file systems that hold images: what container storage and unpacked images lie on. Everything else is
/// refused, above all file systems whose files are the kernel's (proc, sysfs, cgroup, debugfs, devpts, mqueue), and
/// those without owners and permissions (vfat, exfat), on which no image works.
const IMAGES: [u32; 18] = [
    0x794c_7630, // overlayfs: the storage of every engine
    0xef53,      // ext2, ext3, ext4
    0x5846_5342, // xfs
    0x9123_683e, // btrfs, also as a storage driver
    0x2fc1_2fc1, // zfs, also as a storage driver
    0xf2f5_2010, // f2fs
    0xca45_1a4e, // bcachefs
    TMPFS,       // bundles in /run, and test beds
    0x8584_58f6, // ramfs: systems that run from their initial file system
    0xe0f5_e1e2, // erofs, also below composefs
    0x7371_7368, // squashfs: images of HPC and embedded systems
    0x6573_5546, // fuse: fuse-overlayfs of rootless engines, squashfuse, virtiofs
    0x0102_1997, // 9p: roots that a virtual machine gets from its host
    0x6969,      // nfs: homes of rootless users
    0x00c3_6400, // ceph
    0x0bd0_0bd0, // lustre: unpacked images on clusters
    0x4750_4653, // gpfs: the same
    0xf15f,      // ecryptfs: encrypted homes
];

/// Whether `handle` is on a file system that may hold an image.
pub(super) fn holds_images(handle: impl AsFd) -> io::Result<bool> {
    Ok(IMAGES.contains(&kind(handle)?))
}

/// Whether `handle` is on a tmpfs.
pub(super) fn is_tmpfs(handle: impl AsFd) -> io::Result<bool> {
    Ok(kind(handle)? == TMPFS)
}

/// Whether `handle` is on a proc file system.
pub(super) fn is_proc(handle: impl AsFd) -> io::Result<bool> {
    Ok(kind(handle)? == PROC)
}

/// `f_type`, whose numbers have 32 bits; the field is wider, and signed, on some architectures.
fn kind(handle: impl AsFd) -> io::Result<u32> {
    Ok(fstatfs(handle)?.f_type as u32)
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::*;

    #[test]
    fn files_of_the_kernel_are_not_in_an_image() {
        for path in ["/proc", "/proc/self/mountinfo", "/sys", "/sys/kernel/uevent_seqnum"] {
            assert!(!holds_images(File::open(path).unwrap()).unwrap(), "{path}");
        }
        assert!(is_proc(File::open("/proc/self").unwrap()).unwrap());
        assert!(!is_proc(File::open("/sys").unwrap()).unwrap());
        assert!(!is_tmpfs(File::open("/proc/self").unwrap()).unwrap());
        let file = tempfile::tempfile().unwrap();
        assert!(holds_images(&file).unwrap() && !is_proc(&file).unwrap());
    }
}
