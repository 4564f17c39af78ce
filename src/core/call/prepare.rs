//! `tranche-oci hook prepare`: what each container of a specification needs.

use super::link::{self, container_path};
use super::options::{OnUnknown, ValueKind, cut, each, host_path, read, wrong};
use super::{BoundPath, NvidiaHook, Program};
use crate::error::Result;
use crate::types::{ContainerPath, ElfClass, Link};
use std::ffi::OsString;

/// A call of `hook prepare`. The table of options is in the documentation of `hook::prepare`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PrepareCall {
    /// Links to make, each path once.
    pub links: Vec<Link>,
    /// Sockets of the driver's daemons to mount, as far as they are there.
    pub sockets: Vec<BoundPath>,
    /// Links below `/dev/dri/by-path`, for those nodes that the container has.
    pub by_path: Vec<ByPath>,
    /// Directories whose libraries belong into ld.so.cache.
    pub ldcache_dirs: Vec<ContainerPath>,
    /// What is known of the driver's libraries.
    pub libraries: Vec<KnownLibrary>,
    /// The version of the host's driver.
    pub driver_version: Option<String>,
    /// The parts of the work that are left out: members of [`PrepareCall::CAN_SKIP`].
    pub skip: Vec<NvidiaHook>,
}

/// One link below `/dev/dri/by-path`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ByPath {
    /// The link's name.
    pub name: String,
    /// The node, directly below `/dev/dri`.
    pub node: ContainerPath,
}

impl ByPath {
    /// The link `name` to `node`. `None` if the node is not directly below `/dev/dri`, or if an argument cannot carry
    /// the two: `name` must be a file name without the mark `::`.
    pub fn new(name: &str, node: ContainerPath) -> Option<Self> {
        let is_valid = node.parent().as_str() == "/dev/dri"
            && cut(node.as_str()).is_none()
            && is_file_name(name)
            && !name.ends_with(':');
        let name = name.to_owned();
        is_valid.then_some(Self { name, node })
    }
}

/// What the loader's cache says about one library of the driver.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct KnownLibrary {
    /// Its word size.
    pub class: ElfClass,
    /// Where it is.
    pub path: ContainerPath,
    /// The name that programs ask for. A library without one is found by the name of its file.
    pub soname: Option<String>,
}

impl KnownLibrary {
    /// A library. `None` if an argument cannot carry it, because its path or SONAME has the mark `::` in it.
    pub fn new(class: ElfClass, path: ContainerPath, soname: Option<&str>) -> Option<Self> {
        let text = path.as_str();
        let is_valid = cut(text).is_none() && !text.ends_with(':') && soname.is_none_or(is_file_name);
        let soname = soname.map(str::to_owned);
        is_valid.then_some(Self { class, path, soname })
    }

    fn write(&self) -> String {
        let Self { class, path, soname } = self;
        match soname {
            Some(soname) => format!("{class}::{path}::{soname}"),
            None => format!("{class}::{path}"),
        }
    }

    /// Reads `BITS::PATH` or `BITS::PATH::SONAME`. `Some(None)` for a word size that is not known: the hook then looks
    /// into the file.
    fn parse(value: &str) -> Option<Option<Self>> {
        let (bits, rest) = cut(value)?;
        let (path, soname) = match cut(rest) {
            Some((path, soname)) => (path, Some(soname)),
            None => (rest, None),
        };
        let class = ElfClass::ALL.iter().find(|class| class.as_str() == bits);
        let library = Self::new(*class.unwrap_or(&ElfClass::Elf64), container_path(path)?, soname)?;
        Some(class.map(|_| library))
    }
}

/// Whether `name` is one part of a path, and an argument can carry it.
fn is_file_name(name: &str) -> bool {
    !matches!(name, "" | "." | "..") && !name.contains('/') && cut(name).is_none()
}

impl PrepareCall {
    /// The hook's name.
    pub const VERB: &str = "prepare";

    /// The parts of the work that `--skip` can leave out. What else is done depends on the other options.
    pub const CAN_SKIP: [NvidiaHook; 2] = [
        NvidiaHook::DisableDeviceNodeModification,
        NvidiaHook::UpdateApplicationProfile,
    ];

    pub(super) const OPTIONS: &[(&str, ValueKind)] = &[
        ("link", ValueKind::Container),
        ("socket", ValueKind::Bound),
        ("by-path", ValueKind::Container),
        ("ldcache-dir", ValueKind::Container),
        ("library", ValueKind::Container),
        ("driver-version", ValueKind::Text),
        ("skip", ValueKind::Text),
        ("state-dir", ValueKind::Host),
    ];

    /// The whole command line.
    pub fn write(&self) -> Vec<String> {
        let by_path = self
            .by_path
            .iter()
            .map(|ByPath { name, node }| format!("{name}::{node}"));
        let mut options = link::write(&self.links);
        options.extend(each("socket", &self.sockets));
        options.extend(each("by-path", by_path));
        options.extend(each("ldcache-dir", &self.ldcache_dirs));
        options.extend(each("library", self.libraries.iter().map(KnownLibrary::write)));
        options.extend(each("driver-version", &self.driver_version));
        options.extend(each("skip", &self.skip));
        Program::Tranche.command(Self::VERB, options)
    }

    /// Parses the arguments after the verb. Every option may be given several times; the same value twice is the same
    /// as once.
    ///
    /// # Errors
    /// Returns a usage error for a known option without a value or with an invalid one, and the errors of `unknown`.
    pub fn parse(arguments: Vec<OsString>, unknown: OnUnknown<'_>) -> Result<Self> {
        let mut call = Self::default();
        read(arguments, Self::OPTIONS, unknown, |name, value, unknown| {
            call.take(name, value, unknown)
        })?;
        call.links = link::unique(call.links)?;
        Ok(call)
    }

    fn take(&mut self, name: &str, value: String, unknown: OnUnknown<'_>) -> Result<()> {
        let bad = |what| wrong(name, &value, what);
        match name {
            "link" => link::take(&mut self.links, &value)?,
            "socket" => {
                let socket = BoundPath::parse(&value);
                push_new(
                    &mut self.sockets,
                    socket.ok_or_else(|| bad("is not PATH or CONTAINER:HOST"))?,
                );
            }
            "by-path" => {
                let link = value
                    .split_once("::")
                    .and_then(|(name, node)| ByPath::new(name, container_path(node)?));
                let link = link.ok_or_else(|| bad("is not NAME::/dev/dri/NODE"))?;
                push_new(&mut self.by_path, link);
            }
            "ldcache-dir" => {
                let directory = container_path(&value);
                let directory = directory.ok_or_else(|| bad("is not an absolute path in normal form"))?;
                push_new(&mut self.ldcache_dirs, directory);
            }
            "library" => {
                let library = KnownLibrary::parse(&value);
                let what = "is not 32::PATH or 64::PATH::SONAME with an absolute path in normal form";
                self.libraries.extend(library.ok_or_else(|| bad(what))?);
            }
            "driver-version" => match &self.driver_version {
                _ if value.is_empty() => return Err(bad("is not a version")),
                Some(other) if *other != value => return Err(bad("is not the version that was given before")),
                _ => self.driver_version = Some(value),
            },
            // A newer version may have more parts.
            "skip" => match value.parse().ok().filter(|hook| Self::CAN_SKIP.contains(hook)) {
                Some(hook) => push_new(&mut self.skip, hook),
                None => unknown(super::Unknown::Value(format!("--skip {value}")))?,
            },
            // Where messages are kept: the caller has read it already (`state_dir`).
            _ => drop(host_path(name, &value)?),
        }
        Ok(())
    }
}

fn push_new<T: PartialEq>(list: &mut Vec<T>, new: T) {
    if !list.contains(&new) {
        list.push(new);
    }
}
