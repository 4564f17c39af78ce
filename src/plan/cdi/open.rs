//! Opens specification files of directories that other users may control, as root.
//!
//! A name in such a directory may lead to a pipe, a device or a kernel file that blocks, or acts, when it is opened. It
//! may also lead to a file that its author cannot read, and an error about the content would show it to him.

use nix::errno::Errno;
use nix::fcntl::{OFlag, open};
use nix::sys::stat::Mode;
use nix::unistd::geteuid;
use std::fs::{File, Metadata};
use std::io::{self, Read};
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// The largest file that is read. A specification of a hundred devices has a tenth of it; a larger one is a mistake or
/// an attack.
const LARGEST: u64 = 16 << 20;

/// Reads the specification at `path`.
///
/// The file is first opened as a place only (`O_PATH`), which has no effect on any kind of file. It is read through
/// that handle if it is a regular file, so it cannot be exchanged after it was examined. A symbolic link, or another
/// name of a file with several, is followed to a file that everybody may read: Nix and configuration management install
/// specifications as links to such files, and an error shows nobody what he could not read himself.
///
/// # Errors
/// Returns an error if the file is not found, is not a regular file, is private and not the only name of its content,
/// or is larger than 16 MiB.
pub(super) fn read(path: &Path) -> io::Result<Vec<u8>> {
    let flags = OFlag::O_PATH | OFlag::O_CLOEXEC;
    let mut is_link = false;
    let mut place = File::from(open(path, flags | OFlag::O_NOFOLLOW, Mode::empty())?);
    let mut data = place.metadata()?;
    if data.file_type().is_symlink() {
        is_link = true;
        place = File::from(open(path, flags, Mode::empty()).map_err(|e| match e {
            Errno::ENOENT => io::Error::other("the symbolic link leads nowhere"),
            e => e.into(),
        })?);
        data = place.metadata()?;
    }
    if !data.is_file() {
        return Err(io::Error::other("not a regular file"));
    }
    if (is_link || data.nlink() > 1) && is_private(&data) {
        return Err(io::Error::other(
            "leads to a file that not everybody may read, so it is not read; copy the file here",
        ));
    }
    if data.len() > LARGEST {
        return Err(io::Error::other("larger than 16 MiB"));
    }
    let file = File::open(format!("/proc/self/fd/{}", place.as_raw_fd()))?;
    let mut text = Vec::new();
    // No more than its length: kernel files of an endless content have the length 0.
    file.take(data.len()).read_to_end(&mut text)?;
    Ok(text)
}

/// Whether reading this file takes rights that the author of a link to it may lack. Only root has such rights.
fn is_private(data: &Metadata) -> bool {
    geteuid().is_root() && data.mode() & 0o004 == 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};

    #[test]
    fn a_link_to_a_file_that_everybody_may_read_is_followed() {
        let dir = tempfile::tempdir().unwrap();
        let (file, link) = (dir.path().join("file"), dir.path().join("link"));
        fs::write(&file, "text").unwrap();
        symlink("file", &link).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o444)).unwrap();
        assert_eq!(read(&link).unwrap(), b"text");
        // The file itself may be private: root's own specifications often are.
        fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
        assert_eq!(read(&file).unwrap(), b"text");
        if geteuid().is_root() {
            assert!(read(&link).unwrap_err().to_string().contains("not everybody may read"));
            fs::hard_link(&file, dir.path().join("name")).unwrap();
            assert!(read(&file).unwrap_err().to_string().contains("not everybody may read"));
        }
    }

    #[test]
    fn what_blocks_or_acts_is_never_opened() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        nix::unistd::mkfifo(&at("fifo"), Mode::from_bits_truncate(0o666)).unwrap();
        symlink("fifo", at("to-fifo")).unwrap();
        symlink("/dev/zero", at("to-device")).unwrap();
        symlink(dir.path(), at("to-directory")).unwrap();
        for name in ["fifo", "to-fifo", "to-device", "to-directory"] {
            assert_eq!(read(&at(name)).unwrap_err().to_string(), "not a regular file", "{name}");
        }
        symlink("nowhere", at("to-nowhere")).unwrap();
        assert!(
            read(&at("to-nowhere"))
                .unwrap_err()
                .to_string()
                .contains("leads nowhere")
        );
        symlink("/proc/kmsg", at("to-kmsg")).unwrap();
        assert!(read(&at("to-kmsg")).is_err());
        let large = File::create(at("large")).unwrap();
        large.set_len(LARGEST + 1).unwrap();
        assert!(read(&at("large")).unwrap_err().to_string().contains("larger"));
    }
}
