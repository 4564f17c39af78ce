//! A cgroup for processes of a test.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A cgroup that is removed when its processes have ended.
pub struct TestCgroup(pub PathBuf);

impl TestCgroup {
    /// # Errors
    /// Returns why this machine has none for tests.
    pub fn new(name: &str) -> Result<Self, String> {
        let version_1 = Path::new("/sys/fs/cgroup/pids");
        let top = if version_1.is_dir() {
            version_1
        } else {
            Path::new("/sys/fs/cgroup")
        };
        Self::below(top, name)
    }

    /// One of version 1, of this controller.
    ///
    /// # Errors
    /// Returns why this machine has none for tests.
    #[allow(dead_code, reason = "other tests use the rest")]
    pub fn of_controller(controller: &str, name: &str) -> Result<Self, String> {
        let top = Path::new("/sys/fs/cgroup").join(controller);
        match top.join("cgroup.procs").exists() {
            true => Self::below(&top, name),
            false => Err(format!("the controller {controller} of version 1 is not mounted")),
        }
    }

    /// One of version 2.
    ///
    /// # Errors
    /// Returns why this machine has none for tests.
    #[allow(dead_code, reason = "other tests use the rest")]
    pub fn version_2(name: &str) -> Result<Self, String> {
        let places = ["/sys/fs/cgroup/unified", "/sys/fs/cgroup"].map(Path::new);
        let top = places.into_iter().find(|top| top.join("cgroup.procs").exists());
        Self::below(top.ok_or("no cgroups of version 2 are mounted")?, name)
    }

    fn below(top: &Path, name: &str) -> Result<Self, String> {
        let path = top.join(format!("tranche-test-{name}-{}", std::process::id()));
        fs::create_dir(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        Ok(Self(path))
    }

    /// Moves a process into it.
    pub fn add(&self, pid: u32) {
        fs::write(self.0.join("cgroup.procs"), pid.to_string()).unwrap();
    }
}

impl Drop for TestCgroup {
    fn drop(&mut self) {
        // The kernel takes a moment to take the dead out.
        for _ in 0..100 {
            if fs::remove_dir(&self.0).is_ok() {
                return;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}
