//! The symbolic links that a spec asks for, such as `libcuda.so` beside `libcuda.so.1`.

use std::ffi::OsStr;
use std::io::{self, ErrorKind};
use std::path::Path;

use super::report::HookReport;
use tranche_core::error::{Context, Result};
use tranche_core::oci::Bundle;
use tranche_core::root::{ContainerRoot, Linked, OwnDirectory};
use tranche_core::text::counted;
use tranche_core::types::Link;

/// What became of the links that were asked for.
#[derive(Debug, Default)]
pub(super) struct MadeLinks<'a> {
    /// Those that are new.
    pub(super) new: Vec<&'a Link>,
    /// For each link in order, whether it is in its place now.
    pub(super) in_place: Vec<bool>,
}

/// Makes every link, with the directories that it needs.
///
/// # Errors
/// Returns an error if a link cannot be made in a place that can be written: the container would start without a
/// library that its programs look for. The links before it are removed again.
pub(super) fn make<'a>(links: &'a [Link], bundle: &Bundle, report: &mut HookReport<'_>) -> Result<MadeLinks<'a>> {
    if bundle.config.read_only {
        if !links.is_empty() {
            report.note(
                "root",
                format!("is read-only: {} not made", counted(links.len(), "link")),
            );
        }
        return Ok(MadeLinks::default());
    }
    let (mut made, mut read_only) = (MadeLinks::default(), 0);
    let mut places = Places {
        root: &bundle.root,
        last: None,
    };
    for link in links {
        let linked = places.link(link);
        made.in_place.push(linked.is_ok());
        match linked {
            Ok(Linked::Made) => made.new.push(link),
            Ok(Linked::Replaced | Linked::Already) => {}
            Err(e) if e.kind() == ErrorKind::ReadOnlyFilesystem => read_only += 1,
            Err(e) => {
                undo(&made.new, bundle);
                return Err(e).about(&link.path, "cannot make the link");
            }
        }
    }
    if read_only > 0 {
        report.note(
            "root",
            format!("has read-only places: {} not made", counted(read_only, "link")),
        );
    }
    Ok(made)
}

/// Removes links that [`make`] made, so that a start that fails leaves the root as it was. If something else has
/// replaced a link since, it stays.
pub(super) fn undo(links: &[&Link], bundle: &Bundle) {
    for link in links.iter().rev() {
        let Some((parent, name)) = place(link) else { continue };
        // The start fails with the error that led here, which matters more than a link that cannot be removed.
        let _ = bundle.root.own_directory(parent).and_then(|directory| {
            if directory.read_link(name)? == OsStr::new(&link.target) {
                directory.remove(name)?;
            }
            Ok(())
        });
    }
}

/// The directory of a link, and the link's name in it. `None` for the root.
fn place(link: &Link) -> Option<(&Path, &OsStr)> {
    // The path is in normal form, so there is no need for Path's own functions, which look at each part.
    let (parent, name) = link
        .path
        .as_str()
        .rsplit_once('/')
        .filter(|(_, name)| !name.is_empty())?;
    let parent = if parent.is_empty() { "/" } else { parent };
    Some((Path::new(parent), OsStr::new(name)))
}

/// The directories that links go to. Most go to one, so the last is kept open.
struct Places<'a> {
    root: &'a ContainerRoot,
    last: Option<(&'a Path, OwnDirectory)>,
}

impl<'a> Places<'a> {
    fn link(&mut self, link: &'a Link) -> io::Result<Linked> {
        let (parent, name) = place(link).ok_or(ErrorKind::InvalidInput)?;
        let (at, directory) = match self.last.take() {
            Some((at, directory)) if at.as_os_str() == parent.as_os_str() => (at, directory),
            _ => (parent, self.root.make_directory(parent)?),
        };
        let linked = directory.link(name, OsStr::new(&link.target))?;
        self.last = Some((at, directory));
        Ok(linked)
    }
}
