//! The symbolic links that a spec asks for, such as `libcuda.so` beside `libcuda.so.1`.

use std::ffi::OsStr;
use std::io::{self, ErrorKind};
use std::path::Path;

use super::report::Report;
use crate::error::{Context, Result};
use crate::oci::Bundle;
use crate::root::{ContainerRoot, Linked, OwnDirectory};
use crate::types::Link;

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
/// If one cannot be made though the place can be written: the container would start without a library that its
/// programs look for. Those before it are taken away again.
pub(super) fn make<'a>(links: &'a [Link], bundle: &Bundle, report: &mut Report<'_>) -> Result<MadeLinks<'a>> {
    if bundle.config.read_only {
        if !links.is_empty() {
            report.note("root", format!("is read-only: {} not made", counted(links.len())));
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
        report.note("root", format!("has read-only places: {} not made", counted(read_only)));
    }
    Ok(made)
}

/// Takes links away that [`make`] made, for a start that fails: the root is to be as it was. Where the image has put
/// something else in a link's place since, that stays.
pub(super) fn undo(links: &[&Link], bundle: &Bundle) {
    for link in links.iter().rev() {
        let (Some(parent), Some(name)) = (link.path.as_path().parent(), link.path.as_path().file_name()) else {
            continue;
        };
        // The start fails with the error that led here; that a link could not be taken away is less than that.
        let _ = bundle.root.own_directory(parent).and_then(|directory| {
            if directory.read_link(name)? == OsStr::new(&link.target) {
                directory.remove(name)?;
            }
            Ok(())
        });
    }
}

/// The directories that links go to. Most go to one, so the last is kept open.
struct Places<'a> {
    root: &'a ContainerRoot,
    last: Option<(&'a Path, OwnDirectory)>,
}

impl<'a> Places<'a> {
    fn link(&mut self, link: &'a Link) -> io::Result<Linked> {
        let (Some(parent), Some(name)) = (link.path.as_path().parent(), link.path.as_path().file_name()) else {
            return Err(ErrorKind::InvalidInput.into());
        };
        let (at, directory) = match self.last.take() {
            Some((at, directory)) if at == parent => (at, directory),
            _ => (parent, self.root.make_directory(parent)?),
        };
        let linked = directory.link(name, OsStr::new(&link.target))?;
        self.last = Some((at, directory));
        Ok(linked)
    }
}

fn counted(links: usize) -> String {
    if links == 1 {
        "1 link".to_owned()
    } else {
        format!("{links} links")
    }
}
