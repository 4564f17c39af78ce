//! A cgroup for processes of a test.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A cgroup that is removed when its processes have ended.
pub(crate) struct TestCgroup(pub(crate) PathBuf);

impl TestCgroup {
    /// # Errors
    /// Returns why this machine has none for tests.
    pub(crate) fn new(name: &str) -> Result<Self, String> {
        let version_1 = Path::new("/sys/fs/cgroup/pids");
        let top = if version_1.is_dir() {
            version_1
        } else {
            Path::new("/sys/fs/cgroup")
        };
        let path = top.join(format!("tranche-test-{name}-{}", std::process::id()));
        fs::create_dir(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        Ok(Self(path))
    }

    /// Moves a process into it.
    pub(crate) fn add(&self, pid: u32) {
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
