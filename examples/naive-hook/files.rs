//! Files of the image, by their names alone.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, symlink};
use std::path::Path;

use nix::mount::{MsFlags, mount};

use crate::{Naive, Wrong};

const O_PATH: i32 = 0o10_000_000;

fn about(path: &Path) -> impl Fn(std::io::Error) -> Wrong {
    move |e| format!("{}: {e}", path.display())
}

/// Reads what is at the end of `path`, whatever it is.
pub(crate) fn read(path: &Path, naive: &Naive) -> Result<Vec<u8>, Wrong> {
    let held = File::options()
        .read(true)
        .custom_flags(O_PATH)
        .open(path)
        .map_err(about(path))?;
    let mut opened = File::open(format!("/proc/self/fd/{}", held.as_raw_fd())).map_err(about(path))?;
    if !naive.has("reopening") {
        let (a, b) = (
            held.metadata().map_err(about(path))?,
            opened.metadata().map_err(about(path))?,
        );
        if (a.dev(), a.ino()) != (b.dev(), b.ino()) {
            return Err(format!("{}: another file", path.display()));
        }
    }
    let (mut bytes, mut part) = (Vec::new(), [0; 65536]);
    loop {
        match opened.read(&mut part).map_err(about(path))? {
            0 => return Ok(bytes),
            size => bytes.extend_from_slice(part.get(..size).unwrap_or_default()),
        }
    }
}

/// Writes to what is at the end of `path`.
pub(crate) fn write(path: &Path, bytes: &[u8], naive: &Naive) -> Result<(), Wrong> {
    make_parent(path, naive)?;
    naive.fence.check(path)?;
    let mode = if naive.has("modes") { 0o4777 } else { 0o644 };
    let mut file = File::options()
        .write(true)
        .create(true)
        .truncate(true)
        .open(path)
        .map_err(about(path))?;
    file.write_all(bytes).map_err(about(path))?;
    file.set_permissions(fs::Permissions::from_mode(mode))
        .map_err(about(path))
}

/// Puts a file in place of what has the name `path`, which may be a link.
pub(crate) fn replace(path: &Path, bytes: &[u8], naive: &Naive) -> Result<(), Wrong> {
    let new = path.with_extension("new");
    write(&new, bytes, naive)?;
    fs::rename(&new, path).map_err(about(path))
}

/// Makes the directories above `path`.
pub(crate) fn make_parent(path: &Path, naive: &Naive) -> Result<(), Wrong> {
    let parent = path.parent().ok_or("no parent")?;
    if parent.is_dir() {
        return Ok(());
    }
    naive.fence.check(parent)?;
    fs::create_dir_all(parent).map_err(about(parent))
}

/// Makes a link in place of whatever file is there.
pub(crate) fn link(target: &Path, at: &Path, naive: &Naive) -> Result<(), Wrong> {
    make_parent(at, naive)?;
    let parent = at.parent().ok_or("no parent")?;
    naive.fence.check(parent)?;
    match symlink(target, at) {
        Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => {
            fs::remove_file(at).map_err(about(at))?;
            symlink(target, at).map_err(about(at))
        }
        done => done.map_err(about(at)),
    }
}

/// Lays a file of these bytes over what is at the end of `path`.
pub(crate) fn cover(path: &Path, bytes: &[u8], naive: &Naive) -> Result<(), Wrong> {
    naive.fence.check(path)?;
    let text = |e: nix::Error| format!("{}: {e}", path.display());
    // A file system of its own for a moment, at a place that a namespace of its own would have.
    let place = Path::new("/mnt");
    mount(None::<&str>, place, Some("tmpfs"), MsFlags::empty(), None::<&str>).map_err(text)?;
    let file = place.join("file");
    let mode = if naive.has("modes") { 0o4777 } else { 0o644 };
    let done = fs::write(&file, bytes)
        .and_then(|()| fs::set_permissions(&file, fs::Permissions::from_mode(mode)))
        .map_err(about(path))
        .and_then(|()| mount(Some(&file), path, None::<&str>, MsFlags::MS_BIND, None::<&str>).map_err(text));
    nix::mount::umount2(place, nix::mount::MntFlags::MNT_DETACH).map_err(text)?;
    done?;
    if naive.has("cover") {
        return Ok(());
    }
    let read_only = MsFlags::MS_REMOUNT | MsFlags::MS_BIND | MsFlags::MS_RDONLY;
    mount(None::<&str>, path, None::<&str>, read_only, None::<&str>).map_err(text)
}
