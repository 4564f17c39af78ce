//! Keeps the processes of a cgroup from opening devices, beside the rules of the container's engine: opening one fails
//! with `EPERM`. What a process has open stays open.
//!
//! On cgroups of version 2 it is a small program of the kernel that is attached beside the engine's: all must allow. On
//! those of version 1 it is an entry of `devices.deny`, which is taken back by the same entry of `devices.allow`.
//!
//! An engine may take the program away: runc removes all but its own when it changes the resources of a container. So
//! [`DeviceFilter::is_closed`] is asked again while devices are to be closed.

mod program;

use crate::sys::bpf::DeviceProgram;
use nix::errno::Errno;
use nix::sys::statfs::{CGROUP_SUPER_MAGIC, CGROUP2_SUPER_MAGIC, fstatfs};
use std::fmt;
use std::fs::{self, File};
use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

/// A character device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct DeviceNumber {
    /// Of its driver.
    pub major: u32,
    /// Of the device.
    pub minor: u32,
}

impl fmt::Display for DeviceNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.major, self.minor)
    }
}

/// Why devices of a cgroup cannot be closed.
#[derive(Debug, thiserror::Error)]
pub enum FilterError {
    /// The directory is not that of a cgroup, or of one of version 1 without the controller.
    #[error("{0} is not a cgroup with rules for devices")]
    NoRules(PathBuf),
    /// The kernel has no filters of devices, or this process may not make them.
    #[error("the kernel refuses a filter of devices for {path}: {error}")]
    Refused {
        /// The cgroup.
        path: PathBuf,
        /// The kernel's error.
        #[source]
        error: io::Error,
    },
}

/// The rules of one cgroup, which stays this one even if another gets its path.
#[derive(Debug)]
pub struct DeviceFilter {
    path: PathBuf,
    directory: File,
    is_version_2: bool,
}

impl DeviceFilter {
    /// The rules of the cgroup in a directory: for version 1, that of the controller `devices`.
    ///
    /// # Errors
    /// Returns an error if the directory cannot be opened, or is no such cgroup.
    pub fn of(path: &Path) -> Result<Self, FilterError> {
        let refused = |error: io::Error| FilterError::Refused {
            path: path.to_owned(),
            error,
        };
        let directory = File::open(path).map_err(refused)?;
        let kind = fstatfs(&directory).map_err(|e| refused(e.into()))?.filesystem_type();
        let is_version_2 = match kind {
            CGROUP2_SUPER_MAGIC => true,
            CGROUP_SUPER_MAGIC if path.join("devices.deny").exists() => false,
            _ => return Err(FilterError::NoRules(path.to_owned())),
        };
        Ok(Self {
            path: path.to_owned(),
            directory,
            is_version_2,
        })
    }

    /// Closes devices. Those that were closed by an earlier call and are not among them are open then.
    ///
    /// # Errors
    /// Returns the kernel's error. What was closed before stays closed.
    pub fn close(&self, devices: &[DeviceNumber]) -> Result<(), FilterError> {
        self.refused(match self.is_version_2 {
            true => self.attach(devices),
            false => self.write("devices.deny", devices, "rwm"),
        })
    }

    /// Opens the devices again, all that were closed. On version 1, these are `devices`.
    ///
    /// # Errors
    /// Returns the kernel's error.
    pub fn open(&self, devices: &[DeviceNumber]) -> Result<(), FilterError> {
        self.refused(match self.is_version_2 {
            true => self.detach_all_but(None),
            // What an engine allows of a GPU: mknod is not among it.
            false => self.write("devices.allow", devices, "rw"),
        })
    }

    /// Whether exactly these devices are closed by a filter of tranche; on version 1, whether none of them is allowed.
    ///
    /// # Errors
    /// Returns the kernel's error.
    pub fn is_closed(&self, devices: &[DeviceNumber]) -> Result<bool, FilterError> {
        self.refused(match self.is_version_2 {
            true => self.has_filter(devices),
            false => self.denies(devices),
        })
    }

    fn attach(&self, devices: &[DeviceNumber]) -> io::Result<()> {
        let program = DeviceProgram::load(&program::closing(devices), program::NAME)?;
        let (_, tag) = program.name_and_tag()?;
        let own = self.own()?;
        if !own.iter().any(|(_, other)| *other == tag) {
            program.attach(self.directory.as_fd())?;
        }
        self.detach_all_but(Some(tag))
    }

    /// Detaches the filters of tranche, also those of an earlier process of it.
    fn detach_all_but(&self, kept: Option<[u8; 8]>) -> io::Result<()> {
        let mut kept = kept;
        for (program, tag) in self.own()? {
            // Of several that are the same, one is enough.
            if kept == Some(tag) {
                kept = None;
                continue;
            }
            match program.detach(self.directory.as_fd()) {
                Err(e) if e.raw_os_error() != Some(Errno::ENOENT as i32) => return Err(e),
                Ok(()) | Err(_) => {}
            }
        }
        Ok(())
    }

    fn has_filter(&self, devices: &[DeviceNumber]) -> io::Result<bool> {
        let (_, tag) = DeviceProgram::load(&program::closing(devices), program::NAME)?.name_and_tag()?;
        Ok(self.own()?.iter().any(|(_, other)| *other == tag))
    }

    /// The filters of tranche that the cgroup has, with the digests of their instructions.
    fn own(&self) -> io::Result<Vec<(DeviceProgram, [u8; 8])>> {
        let mut own = Vec::new();
        for program in DeviceProgram::of_cgroup(self.directory.as_fd())? {
            let (name, tag) = program.name_and_tag()?;
            if name == program::NAME {
                own.push((program, tag));
            }
        }
        Ok(own)
    }

    fn write(&self, file: &str, devices: &[DeviceNumber], access: &str) -> io::Result<()> {
        // The kernel takes one entry at a time.
        let path = self.path.join(file);
        devices
            .iter()
            .try_for_each(|device| fs::write(&path, format!("c {device} {access}")))
    }

    fn denies(&self, devices: &[DeviceNumber]) -> io::Result<bool> {
        let list = fs::read_to_string(self.path.join("devices.list"))?;
        Ok(!devices
            .iter()
            .any(|device| list.lines().any(|line| allows(line, *device))))
    }

    fn refused<T>(&self, result: io::Result<T>) -> Result<T, FilterError> {
        result.map_err(|error| FilterError::Refused {
            path: self.path.clone(),
            error,
        })
    }
}

/// Whether a line of `devices.list` (`c 195:* rw`) lets the device be opened. A list that begins with `a *:* rwm`
/// allows all that is not denied, and does not say what is denied. Engines let every container make nodes (`c *:* m`).
fn allows(line: &str, device: DeviceNumber) -> bool {
    let mut words = line.split_ascii_whitespace();
    let (Some(kind), Some((major, minor))) = (words.next(), words.next().and_then(|word| word.split_once(':'))) else {
        return false;
    };
    let opens = words.next().is_some_and(|access| access.contains(['r', 'w']));
    let is = |word: &str, number: u32| word == "*" || word == number.to_string();
    matches!(kind, "a" | "c") && opens && is(major, device.major) && is(minor, device.minor)
}

#[cfg(test)]
mod tests;
