//! Where things are on the host that is described.

use super::tree::{Tree, absolute_dir};
use crate::error::{Error, Result};
use crate::types::HostPath;
use std::io;
use std::path::PathBuf;

/// Where things are, as a person says it. All `None` is the machine that we run on.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RootPaths {
    /// A directory to take for the host's `/`: a picture of another machine. Paths in the result are without it.
    ///
    /// The driver's library *in that tree* is asked, in a process of its own but with the rights of the caller: a tree
    /// from a stranger wants [`super::Options::nvml`] off.
    pub root: Option<PathBuf>,
    /// Where the driver's files are, as the host names it: a driver container's root. It stays in the host's paths of
    /// the result and is cut off in those of the container.
    pub driver_root: Option<PathBuf>,
    /// The directory whose `dev` holds the device nodes; the driver root where that has nodes, else `/`.
    pub dev_root: Option<PathBuf>,
    /// What to read for `/proc`.
    pub proc_root: Option<PathBuf>,
    /// What to read for `/sys`.
    pub sys_root: Option<PathBuf>,
}

/// The trees that discovery reads.
#[derive(Debug, Clone)]
pub struct Roots {
    /// The host itself.
    pub(crate) whole: Tree,
    pub(crate) driver: Tree,
    pub(crate) dev: Tree,
    pub(crate) proc: Tree,
    pub(crate) sys: Tree,
    /// Whether the driver's files are those of the machine that we run on, so that its loader finds them too.
    pub(crate) live: bool,
    /// Said where the driver root was not taken for device nodes.
    pub(crate) dev_root_note: Option<String>,
}

impl Roots {
    /// The machine that we run on.
    ///
    /// # Errors
    /// None in practice: `/` is there.
    pub fn live() -> Result<Self> {
        Self::new(&RootPaths::default())
    }

    /// The trees at `paths`.
    ///
    /// # Errors
    /// A path that is not absolute (all but `root`), or no directory.
    pub fn new(paths: &RootPaths) -> Result<Self> {
        let slash = || HostPath::new("/");
        let open = match &paths.root {
            Some(dir) => absolute_dir(dir)
                .map_err(|e| Error::usage(dir.display(), "not a directory to take for /").from_source(e))?,
            None => PathBuf::from("/"),
        };
        let whole = Tree::new(open, slash()?);
        let part = |given: &Option<PathBuf>, option: &str| -> Result<Option<Tree>> {
            let Some(given) = given else { return Ok(None) };
            let host = HostPath::new(given)?;
            let inner = whole
                .resolve(host.as_str())
                .map_err(|e| Error::usage(&host, format!("no such {option}")).from_source(e))?;
            if !whole.is_dir(&inner) {
                return Err(Error::usage(&host, format!("the {option} is not a directory")));
            }
            Ok(Some(Tree::new(whole.path(&inner), host)))
        };

        let driver = part(&paths.driver_root, "driver root")?;
        let mut dev_root_note = None;
        let dev = match (part(&paths.dev_root, "device root")?, &driver) {
            (Some(given), _) => given,
            (None, Some(driver)) if has_nodes(driver) => driver.clone(),
            (None, Some(driver)) => {
                dev_root_note = Some(driver.host("/dev").as_str().to_owned());
                whole.clone()
            }
            (None, None) => whole.clone(),
        };
        let below = |name: &str| Tree::new(whole.path(name), whole.host(name));
        Ok(Self {
            live: paths.root.is_none() && driver.as_ref().is_none_or(|d| d.host("/").as_str() == "/"),
            driver: driver.unwrap_or_else(|| whole.clone()),
            dev,
            proc: part(&paths.proc_root, "proc root")?.unwrap_or_else(|| below("/proc")),
            sys: part(&paths.sys_root, "sys root")?.unwrap_or_else(|| below("/sys")),
            whole,
            dev_root_note,
        })
    }

    /// The tree that has the directory `path` of the host, and the directory's path in that tree. What lies below the driver
    /// root belongs to the driver's tree, whose files keep their paths without that root in a container; links are
    /// followed first, because a link may lead there.
    ///
    /// # Errors
    /// A directory that does not exist, or that cannot be reached.
    pub(crate) fn of_host(&self, path: &HostPath) -> io::Result<(&Tree, String)> {
        let root = self.driver.host("/");
        if let Some(inner) = path.below(root.as_str()) {
            return Ok((&self.driver, self.driver.resolve(inner)?));
        }
        let resolved = self.whole.resolve(path.as_str())?;
        let real = HostPath::root().join(&resolved);
        match real.below(root.as_str()) {
            Some(inner) => Ok((&self.driver, self.driver.resolve(inner)?)),
            None => Ok((&self.whole, resolved)),
        }
    }
}

/// A driver container has the driver's nodes in its own `/dev`, or an empty `/dev` and the host's.
fn has_nodes(tree: &Tree) -> bool {
    tree.list("/dev")
        .is_ok_and(|found| found.iter().any(|e| e.name.starts_with("nvidia")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn a_picture_hides_itself_and_a_part_does_not() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("run/nvidia/driver/usr")).unwrap();
        fs::create_dir_all(dir.path().join("host/proc")).unwrap();
        let paths = RootPaths {
            root: Some(dir.path().into()),
            driver_root: Some("/run/nvidia/driver".into()),
            proc_root: Some("/host/proc".into()),
            ..RootPaths::default()
        };
        let roots = Roots::new(&paths).unwrap();
        assert_eq!(roots.driver.host("/usr").as_str(), "/run/nvidia/driver/usr");
        assert_eq!(
            roots.driver.path("/usr"),
            dir.path().canonicalize().unwrap().join("run/nvidia/driver/usr")
        );
        assert_eq!(roots.proc.host("/devices").as_str(), "/host/proc/devices");
        assert_eq!(roots.sys.host("/module").as_str(), "/sys/module");
        // No nodes in the driver root: the host's /dev, and a note.
        assert_eq!(roots.dev.host("/dev").as_str(), "/dev");
        assert_eq!(roots.dev_root_note.as_deref(), Some("/run/nvidia/driver/dev"));
        assert!(!roots.live);

        fs::create_dir_all(dir.path().join("run/nvidia/driver/dev")).unwrap();
        fs::write(dir.path().join("run/nvidia/driver/dev/nvidiactl"), "").unwrap();
        let roots = Roots::new(&paths).unwrap();
        assert_eq!(roots.dev.host("/dev").as_str(), "/run/nvidia/driver/dev");
        assert!(roots.dev_root_note.is_none());
    }

    #[test]
    fn what_is_not_there_is_refused() {
        let missing = RootPaths {
            root: Some("/nonexistent".into()),
            ..RootPaths::default()
        };
        assert!(Roots::new(&missing).is_err());
        let relative = RootPaths {
            driver_root: Some("driver".into()),
            ..RootPaths::default()
        };
        assert!(Roots::new(&relative).is_err());
    }
}
