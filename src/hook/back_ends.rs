//! The driver's back ends for GBM and VDPAU, as the image's own libraries of these look for them: in a directory beside
//! themselves, by a path that is built into them.
//!
//! A specification asks for these links beside the driver's libraries, which is where the host's distribution has them.
//! An image of another distribution has its library elsewhere. The library itself is looked for, because a directory
//! says nothing: `/usr/lib` is that of 64-bit libraries for one distribution and that of 32-bit ones for another.

use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};

use super::report::HookReport;
use tranche_core::call::PrepareCall;
use tranche_core::elf;
use tranche_core::oci::Bundle;
use tranche_core::types::{ContainerPath, ElfClass, Link};

/// A library that opens a back end of the driver.
struct Opener {
    library: &'static str,
    /// The directory beside it, and the name in that which it opens.
    beside: (&'static str, &'static str),
}

const OPENERS: [Opener; 2] = [
    Opener {
        library: "libgbm.so.1",
        beside: ("gbm", "nvidia-drm_gbm.so"),
    },
    Opener {
        library: "libvdpau.so.1",
        beside: ("vdpau", "libvdpau_nvidia.so.1"),
    },
];

/// The directories in which distributions have libraries.
const DIRECTORIES: [&str; 6] = [
    "/usr/lib64",
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/usr/lib",
    "/usr/lib/i386-linux-gnu",
    "/usr/lib32",
];

/// A link to a back end that the specification asks for.
struct Requested {
    /// The directory of the opener for which it is.
    directory: PathBuf,
    /// The driver's library.
    library: String,
    class: ElfClass,
}

/// Makes the links beside each opener for which there is a driver's library of its word size. A link that cannot be
/// made is reported and does not fail the start: only a program that draws misses it.
pub(super) fn make(call: &PrepareCall, bundle: &Bundle, report: &mut HookReport<'_>) {
    // A read-only root was reported with the other links.
    if bundle.config.read_only {
        return;
    }
    for opener in &OPENERS {
        let (below, name) = opener.beside;
        let mut requested = Vec::new();
        for link in &call.links {
            requested.extend(opener.requested(link, call));
        }
        if requested.is_empty() {
            continue;
        }
        // Most images are of the host's distribution: the only link is there, and nothing has to be read.
        let is_done = |directory: &&Path| matches!(&requested[..], [only] if only.directory == *directory);
        for directory in DIRECTORIES
            .iter()
            .map(Path::new)
            .filter(|directory| !is_done(directory))
        {
            let Some(class) = class_of(&directory.join(opener.library), bundle) else {
                continue;
            };
            let Some(wanted) = requested.iter().find(|requested| requested.class == class) else {
                continue;
            };
            let place = directory.join(below);
            if let Err(e) = make_one(directory, &place, name, wanted, bundle) {
                report.note(place.join(name).display(), format_args!("cannot make the link: {e}"));
            }
        }
    }
}

impl Opener {
    /// `link`, if it is one for this library.
    fn requested(&self, link: &Link, call: &PrepareCall) -> Option<Requested> {
        let (below, name) = self.beside;
        let place = link.path.as_str().strip_suffix(name)?.strip_suffix('/')?;
        let directory = place.strip_suffix(below)?.strip_suffix('/')?;
        let library = match link.target.strip_prefix("../") {
            Some(target) => format!("{directory}/{target}"),
            None => format!("{place}/{}", link.target),
        };
        let path = ContainerPath::new(&library).ok()?;
        // The link leads to the library's file or to its SONAME, and the specification describes the file.
        let is_it = |name: &str| name == path.file_name();
        let known = call.libraries.iter().find(|known| {
            known.path.parent() == path.parent()
                && (is_it(known.path.file_name()) || known.soname.as_deref().is_some_and(is_it))
        });
        Some(Requested {
            directory: directory.into(),
            class: known.map_or(ElfClass::Elf64, |known| known.class),
            library,
        })
    }
}

/// The word size of the library at `path`; `None` if the image did not bring one.
fn class_of(path: &Path, bundle: &Bundle) -> Option<ElfClass> {
    let found = bundle.root.find(path).ok()?;
    let library = elf::read(bundle.root.library(found, path).ok()?).ok()?;
    Some(match library.is_64 {
        true => ElfClass::Elf64,
        false => ElfClass::Elf32,
    })
}

/// Makes the link `name` in `place`, which is beside an opener in `directory`.
fn make_one(directory: &Path, place: &Path, name: &str, wanted: &Requested, bundle: &Bundle) -> io::Result<()> {
    let identity = |path: &Path| bundle.root.directory(path)?.identity();
    // The link is there already if this is another name of the driver's directory. If that does not exist, nothing was
    // mounted there.
    let Ok(drivers) = identity(&wanted.directory) else {
        return Ok(());
    };
    if identity(directory)? == drivers {
        return Ok(());
    }
    let place = bundle.root.make_directory(place)?;
    place.link(OsStr::new(name), OsStr::new(&wanted.library)).map(drop)
}
