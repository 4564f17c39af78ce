//! The socket of a resource in the directory of device plugins.

use std::fs;
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

const PREFIX: &str = "tranche-";
const SUFFIX: &str = ".sock";

/// The longest part of a resource's name in that of its socket: a path of a socket has at most 107 bytes (unix(7)).
const MOST_BYTES: usize = 50;

/// The name of the socket of `resource`: `tranche-nvidia.com_gpu.sock`.
pub fn name(resource: &str) -> String {
    // A domain has no underscore, so two resources never have one name.
    let plain = resource.replacen('/', "_", 1);
    if plain.len() <= MOST_BYTES && !plain.contains('/') {
        return format!("{PREFIX}{plain}{SUFFIX}");
    }
    // FNV-1a, which is the same in every version of tranche: the next one removes this socket.
    let digest = plain.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    format!("{PREFIX}{digest:016x}{SUFFIX}")
}

/// A socket that this process has made.
#[derive(Debug)]
pub struct Socket {
    path: PathBuf,
    /// Its device and inode, whose number no other file has while the socket is open.
    inode: (u64, u64),
}

/// What is at the path of a socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Presence {
    /// The socket.
    Own,
    /// Nothing: a kubelet that starts removes all sockets (`pkg/kubelet/cm/devicemanager/plugin/v1beta1/server.go`).
    Missing,
    /// A socket of another process, which listens on it.
    Taken,
    /// A socket of a process that has ended.
    Stale,
}

impl Socket {
    /// Listens at `path`, where nothing is.
    ///
    /// # Errors
    /// Returns an error if something is there, or if the directory cannot be written.
    pub fn bind(path: PathBuf) -> io::Result<(Self, UnixListener)> {
        let listener = UnixListener::bind(&path)?;
        listener.set_nonblocking(true)?;
        let made = fs::symlink_metadata(&path)?;
        let inode = (made.dev(), made.ino());
        Ok((Self { path, inode }, listener))
    }

    /// Listens at `path`, in the place of what is there. At no time is nothing there: a process whose socket it was
    /// would make it anew.
    ///
    /// # Errors
    /// Returns an error if the directory cannot be written.
    pub fn replace(path: PathBuf) -> io::Result<(Self, UnixListener)> {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let temporary = path.with_file_name(format!(".{}.{name}", std::process::id()));
        Self::put(path, temporary, None)
    }

    /// As [`Socket::replace`]; at no time can anybody but its owner connect to it. Until it is in its place, its name
    /// begins with a dot, which is all that it has in addition: names with the UID of a pod are long.
    ///
    /// # Errors
    /// Returns an error if the directory cannot be written, or if the path has more than 106 bytes.
    pub fn replace_private(path: PathBuf) -> io::Result<(Self, UnixListener)> {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let temporary = path.with_file_name(format!(".{name}"));
        Self::put(path, temporary, Some(0o600))
    }

    fn put(path: PathBuf, temporary: PathBuf, mode: Option<u32>) -> io::Result<(Self, UnixListener)> {
        let _ = fs::remove_file(&temporary);
        let (mut socket, listener) = Self::bind(temporary)?;
        if let Some(mode) = mode {
            fs::set_permissions(&socket.path, fs::Permissions::from_mode(mode))?;
        }
        fs::rename(&socket.path, &path)?;
        socket.path = path;
        Ok((socket, listener))
    }

    /// What is at its path now.
    pub fn presence(&self) -> Presence {
        match fs::symlink_metadata(&self.path) {
            Ok(found) if (found.dev(), found.ino()) == self.inode => Presence::Own,
            Ok(_) if is_served(&self.path) => Presence::Taken,
            Ok(_) => Presence::Stale,
            Err(_) => Presence::Missing,
        }
    }

    /// Removes it, if it is still its own.
    pub fn remove(&self) {
        if self.presence() == Presence::Own {
            // If it cannot be removed, the next program removes it.
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Removes the sockets of earlier programs that ended without removing them.
pub fn remove_stale(dir: &Path) {
    let Ok(entries) = fs::read_dir(dir) else {
        return;
    };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let is_plugins = name.to_str().is_some_and(|name| {
            let is_temporary = name.starts_with('.') && name.contains(PREFIX);
            (name.starts_with(PREFIX) || is_temporary) && name.ends_with(SUFFIX)
        });
        if is_plugins && !is_served(&entry.path()) {
            let _ = fs::remove_file(entry.path());
        }
    }
}

fn is_served(path: &Path) -> bool {
    UnixStream::connect(path).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_resource_has_a_socket_of_its_own() {
        assert_eq!(name("nvidia.com/gpu"), "tranche-nvidia.com_gpu.sock");
        assert_eq!(name("nvidia.com/mig-1g.10gb"), "tranche-nvidia.com_mig-1g.10gb.sock");
        let long = format!("example.com/{}", "a".repeat(63));
        assert_eq!(name(&long).len(), "tranche-0123456789abcdef.sock".len());
        assert_ne!(name(&long), name(&format!("{long}b")));
        assert!(!name("a/b/c").contains('/'));
    }

    #[test]
    fn a_socket_is_known_from_that_of_another_process() {
        let top = tempfile::tempdir().unwrap();
        let path = top.path().join("tranche-x.sock");
        let (old, old_listener) = Socket::bind(path.clone()).unwrap();
        assert_eq!(old.presence(), Presence::Own);
        fs::remove_file(&path).unwrap();
        assert_eq!(old.presence(), Presence::Missing);
        let (between, _) = Socket::bind(path.clone()).unwrap();
        assert!(Socket::bind(path.clone()).is_err(), "it was replaced");
        let (new, new_listener) = Socket::replace(path.clone()).unwrap();
        assert_eq!(between.presence(), Presence::Taken);
        assert_eq!(old.presence(), Presence::Taken);
        old.remove();
        assert_eq!(new.presence(), Presence::Own, "the old one removed the new one");
        drop(new_listener);
        assert_eq!(old.presence(), Presence::Stale);
        new.remove();
        assert!(!path.exists());
        drop(old_listener);
    }

    #[test]
    fn only_stale_sockets_of_tranche_are_removed() {
        let top = tempfile::tempdir().unwrap();
        for name in ["tranche-a.sock", ".7.tranche-a.sock", "other.sock"] {
            drop(UnixListener::bind(top.path().join(name)).unwrap());
        }
        let _live = UnixListener::bind(top.path().join("tranche-b.sock")).unwrap();
        remove_stale(top.path());
        let left: Vec<bool> = ["tranche-a.sock", ".7.tranche-a.sock", "other.sock", "tranche-b.sock"]
            .iter()
            .map(|name| top.path().join(name).exists())
            .collect();
        assert_eq!(left, [false, false, true, true]);
    }
}
