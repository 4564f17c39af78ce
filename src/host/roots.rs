//! Where the parts of the described host are.

use super::tree::{Tree, TreePath, absolute_dir};
use crate::driver;
use std::io;
use std::path::PathBuf;
use tranche_core::error::{Error, Result};
use tranche_core::types::HostPath;

/// Where the parts of a host are, as a person writes it. The default is the machine that this program runs on.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RootPaths {
    /// A directory to use as the host's `/`: a copy of another machine. Paths in the result do not contain it.
    ///
    /// The driver's library *in that tree* runs, in a process of its own but with the rights of the caller. For a tree
    /// that another user can write, turn [`super::DiscoveryOptions::nvml`] off.
    pub root: Option<PathBuf>,
    /// The directory with the driver's files, as the host names it: the root of a driver container. Host paths in the
    /// result contain it, container paths do not.
    pub driver_root: Option<PathBuf>,
    /// The directory whose `dev` has the device nodes. The default is the driver root if it has nodes, else `/`.
    pub dev_root: Option<PathBuf>,
    /// The directory to read as `/proc`.
    pub proc_root: Option<PathBuf>,
    /// The directory to read as `/sys`.
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
    /// Whether the driver's files are those of this machine, so that its loader finds them too.
    pub(crate) live: bool,
    /// The `/dev` of the driver root, if it was not used because it has no device nodes.
    pub(crate) dev_root_note: Option<HostPath>,
}

impl Roots {
    /// The trees at `paths`.
    ///
    /// # Errors
    /// Returns an error for a path that is not a directory. All but `root` must be absolute.
    pub fn new(paths: &RootPaths) -> Result<Self> {
        let open = match &paths.root {
            Some(dir) => absolute_dir(dir)
                .map_err(|e| Error::usage(dir.display(), "not a directory to take for /").from_source(e))?,
            None => PathBuf::from("/"),
        };
        let whole = Tree::new(open.clone(), HostPath::root());
        let part = |given: &Option<PathBuf>, option: &str| -> Result<Option<Tree>> {
            let Some(given) = given else { return Ok(None) };
            let host = HostPath::new(given)?;
            let dir = whole
                .resolve(host.as_str())
                .map_err(|e| Error::usage(&host, format!("{option} not found")).from_source(e))?;
            if !dir.is_dir() {
                return Err(Error::usage(&host, format!("the {option} is not a directory")));
            }
            Ok(Some(Tree::new(dir.to_open(), host)))
        };

        let driver = part(&paths.driver_root, "driver root")?;
        let mut dev_root_note = None;
        let dev = match (part(&paths.dev_root, "device root")?, &driver) {
            (Some(given), _) => given,
            (None, Some(driver)) if has_nodes(driver) => driver.clone(),
            (None, Some(driver)) => {
                dev_root_note = Some(driver.host("/dev"));
                whole.clone()
            }
            (None, None) => whole.clone(),
        };
        // Links are followed when a file is read: /proc and /sys themselves are not links.
        let below = |name: &str| Tree::new(open.join(name), whole.host(name));
        Ok(Self {
            live: paths.root.is_none() && driver.as_ref().is_none_or(|d| d.host("/").as_str() == "/"),
            driver: driver.unwrap_or_else(|| whole.clone()),
            dev,
            proc: part(&paths.proc_root, "proc root")?.unwrap_or_else(|| below("proc")),
            sys: part(&paths.sys_root, "sys root")?.unwrap_or_else(|| below("sys")),
            whole,
            dev_root_note,
        })
    }

    /// The file with the version of the driver's kernel module, which exists while the module is loaded.
    pub fn module_version(&self) -> PathBuf {
        self.sys.at("/module/nvidia/version")
    }

    /// Whether the driver's kernel module is loaded.
    pub fn has_module(&self) -> bool {
        self.sys.exists("/module/nvidia") || self.proc.exists("/driver/nvidia/version")
    }

    /// The directory with the nodes of MIG instances.
    pub fn mig_nodes(&self) -> PathBuf {
        self.dev.at("/dev/nvidia-caps")
    }

    /// The directory with a directory for each process.
    pub fn processes(&self) -> PathBuf {
        self.proc.at("/")
    }

    /// The directory with a directory for each GPU that the driver has.
    pub fn gpu_list(&self) -> PathBuf {
        self.proc.at("/driver/nvidia/gpus")
    }

    /// The file with the major numbers of all drivers, which changes when a module of the driver is loaded.
    pub fn device_numbers(&self) -> PathBuf {
        self.proc.at("/devices")
    }

    /// The directory with the driver's nodes.
    pub fn nodes(&self) -> PathBuf {
        self.dev.at("/dev")
    }

    /// The directory with the nodes for graphics.
    pub fn drm_nodes(&self) -> PathBuf {
        self.dev.at("/dev/dri")
    }

    /// The directories of the driver's daemons, which have their sockets while they run.
    pub fn daemon_directories(&self) -> impl Iterator<Item = PathBuf> {
        driver::daemon_directories().map(|directory| self.driver.at(&directory))
    }

    /// Where this program finds `file` of the host.
    pub fn open(&self, file: &HostPath) -> PathBuf {
        self.whole.at(file.as_str())
    }

    /// Finds a directory that a person names as the host does. If it is below the driver root, it is found in the
    /// driver's tree, whose files keep their paths without that root in a container. Links are followed first, because
    /// a link may lead there.
    ///
    /// # Errors
    /// Returns an error if the directory does not exist or cannot be reached.
    pub(crate) fn of_host(&self, path: &HostPath) -> io::Result<TreePath<'_>> {
        let root = self.driver.host("/");
        let in_driver = |path: &HostPath| path.below(root.as_str()).map(|inner| self.driver.resolve(inner));
        if let Some(found) = in_driver(path) {
            return found;
        }
        let found = self.whole.resolve(path.as_str())?;
        in_driver(&found.host()).unwrap_or(Ok(found))
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
            roots.driver.resolve("/usr").unwrap().to_open(),
            dir.path().canonicalize().unwrap().join("run/nvidia/driver/usr")
        );
        assert_eq!(roots.proc.host("/devices").as_str(), "/host/proc/devices");
        assert_eq!(roots.sys.host("/module").as_str(), "/sys/module");
        // No nodes in the driver root: the host's /dev, and a note.
        assert_eq!(roots.dev.host("/dev").as_str(), "/dev");
        assert_eq!(
            roots.dev_root_note.as_ref().map(HostPath::as_str),
            Some("/run/nvidia/driver/dev")
        );
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
            root: Some(tempfile::tempdir().unwrap().path().join("missing")),
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
