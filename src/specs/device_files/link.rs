//! Links in `/dev/char` from the numbers of a device to its node.

use super::node::{DeviceFile, NodeSet, nodes};
use std::collections::BTreeMap;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use tranche_core::error::{Context, Error, Result};
use tranche_plan::inventory::{DeviceNode, Inventory};
use tranche_state::replace;

/// The link from the numbers of a device to its node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CharLink {
    /// Its name: `195:0`.
    pub name: String,
    /// Where it leads.
    pub target: PathBuf,
}

/// What became of a link.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LinkChange {
    /// It led to the node already.
    Kept,
    /// It was made.
    Made,
    /// It led elsewhere, to this path, and was replaced.
    Replaced(PathBuf),
}

/// The links that belong to the nodes in `inventory`, by name. With `of_missing`, a node that does not exist yet has a
/// link as well.
pub fn links(inventory: &Inventory, of_missing: bool) -> Vec<CharLink> {
    let host = &inventory.nodes;
    let of_devices = nodes(inventory, NodeSet::All);
    let all = of_devices
        .iter()
        .map(|DeviceFile { node, .. }| *node)
        .chain(&host.caps)
        .chain(&host.orphans)
        .chain(&host.nvswitch)
        .chain(&host.gds)
        .chain(&host.gdrcopy)
        .chain(host.imex_channels.iter().map(|channel| &channel.node));
    let link = |node: &DeviceNode| {
        let name = format!("{}:{}", node.major, node.minor);
        let target = node.host.as_path().to_owned();
        (name, target)
    };
    let by_name: BTreeMap<String, PathBuf> = all.filter(|node| node.present || of_missing).map(link).collect();
    by_name
        .into_iter()
        .map(|(name, target)| CharLink { name, target })
        .collect()
}

impl CharLink {
    /// What is to be done in `directory` for this link. A relative link leads to the same node as an absolute one.
    ///
    /// # Errors
    /// Returns an error if something other than a link has its name, or if it cannot be read.
    pub fn look(&self, directory: &Path) -> Result<LinkChange> {
        let path = directory.join(&self.name);
        match fs::read_link(&path) {
            Ok(target) if same(directory, &target, &self.target) => Ok(LinkChange::Kept),
            Ok(target) => Ok(LinkChange::Replaced(target)),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(LinkChange::Made),
            Err(error) if error.kind() == ErrorKind::InvalidInput => {
                let what = format!(
                    "is not a symbolic link; a link to {} belongs there",
                    self.target.display()
                );
                Err(Error::failed(path.display(), what).hint("remove it"))
            }
            Err(error) => Err(error).about(path.display(), "cannot be read"),
        }
    }

    /// Makes the link in `directory`, or replaces one that leads elsewhere.
    ///
    /// # Errors
    /// As [`CharLink::look`], and if the link cannot be written.
    pub fn make(&self, directory: &Path) -> Result<LinkChange> {
        let change = self.look(directory)?;
        if change != LinkChange::Kept {
            replace::link(&directory.join(&self.name), &self.target)?;
        }
        Ok(change)
    }
}

/// Whether a link in `directory` that contains `found` leads to `target`. udev makes relative links: `../nvidia0`.
fn same(directory: &Path, found: &Path, target: &Path) -> bool {
    if found == target {
        return true;
    }
    let (found, target) = (fs::canonicalize(directory.join(found)), fs::canonicalize(target));
    found.is_ok_and(|found| target.is_ok_and(|target| found == target))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn a_link_is_made_once_and_corrected() {
        let top = tempfile::tempdir().unwrap();
        let directory = top.path().join("char");
        fs::create_dir(&directory).unwrap();
        let node = top.path().join("nvidia0");
        fs::write(&node, "").unwrap();
        let link = CharLink {
            name: "195:0".into(),
            target: node.clone(),
        };
        let lies = || fs::read_link(directory.join("195:0")).unwrap();
        assert_eq!(link.make(&directory).unwrap(), LinkChange::Made);
        assert_eq!(lies(), node);
        assert_eq!(link.make(&directory).unwrap(), LinkChange::Kept);

        let again = |to: &str| {
            fs::remove_file(directory.join("195:0")).unwrap();
            symlink(to, directory.join("195:0")).unwrap();
            link.make(&directory).unwrap()
        };
        assert_eq!(again("../nvidia0"), LinkChange::Kept, "as udev writes it");
        assert_eq!(lies(), Path::new("../nvidia0"));
        assert_eq!(again("../nvidia1"), LinkChange::Replaced("../nvidia1".into()));
        assert_eq!(lies(), node);

        fs::remove_file(directory.join("195:0")).unwrap();
        fs::write(directory.join("195:0"), "precious").unwrap();
        let line = link.make(&directory).unwrap_err().to_string();
        assert!(line.contains("is not a symbolic link"), "{line}");
        assert_eq!(fs::read_to_string(directory.join("195:0")).unwrap(), "precious");
        assert_eq!(
            fs::read_dir(&directory).unwrap().count(),
            1,
            "no temporary file is left"
        );
    }

    #[test]
    fn every_node_has_one_link() {
        let inventory = tranche_plan::sim::open("dgx-a100-mig").unwrap();
        let all = links(&inventory, true);
        let leads = |name: &str| {
            let found: Vec<&Path> = all
                .iter()
                .filter(|link| link.name == name)
                .map(|link| &*link.target)
                .collect();
            found
        };
        assert_eq!(leads("195:0"), [Path::new("/dev/nvidia0")]);
        assert_eq!(leads("195:255"), [Path::new("/dev/nvidiactl")]);
        let caps = &inventory.nodes.caps;
        assert!(!caps.is_empty());
        for node in caps {
            assert_eq!(leads(&format!("{}:{}", node.major, node.minor)), [node.host.as_path()]);
        }
    }
}
