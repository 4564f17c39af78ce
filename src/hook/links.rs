//! The symbolic links that a spec asks for, such as `libcuda.so` beside `libcuda.so.1`.

use std::io::{self, ErrorKind};
use std::path::Path;

use super::prepare::Link;
use super::report::Report;
use crate::error::{Context, Result};
use crate::oci::Bundle;
use crate::root::{ContainerRoot, Directory};

/// Makes every link, with the directories that it needs.
///
/// # Errors
/// If one cannot be made though the place can be written: the container would start without a library that its
/// programs look for. Those before it stay; each is right by itself.
pub(super) fn make(links: &[Link], bundle: &Bundle, report: &mut Report<'_>) -> Result<()> {
    if bundle.config.read_only {
        if !links.is_empty() {
            report.note("root", format!("is read-only: {} not made", counted(links.len())));
        }
        return Ok(());
    }
    let mut read_only = 0;
    let mut places = Places {
        root: &bundle.root,
        last: None,
    };
    for link in links {
        match places.link(link) {
            Ok(()) => {}
            Err(e) if e.kind() == ErrorKind::ReadOnlyFilesystem => read_only += 1,
            Err(e) => return Err(e).about(link.at.display(), "cannot make the link"),
        }
    }
    if read_only > 0 {
        report.note("root", format!("has read-only places: {} not made", counted(read_only)));
    }
    Ok(())
}

/// The directories that links go to. Most go to one, so the last is kept open.
struct Places<'a> {
    root: &'a ContainerRoot,
    last: Option<(&'a Path, Directory)>,
}

impl<'a> Places<'a> {
    fn link(&mut self, link: &'a Link) -> io::Result<()> {
        let (Some(parent), Some(name)) = (link.at.parent(), link.at.file_name()) else {
            return Err(ErrorKind::InvalidInput.into());
        };
        let (at, directory) = match self.last.take() {
            Some((at, directory)) if at == parent => (at, directory),
            _ => (parent, self.root.make_directory(parent)?),
        };
        directory.link(name, &link.target)?;
        self.last = Some((at, directory));
        Ok(())
    }
}

fn counted(links: usize) -> String {
    if links == 1 {
        "1 link".to_owned()
    } else {
        format!("{links} links")
    }
}
