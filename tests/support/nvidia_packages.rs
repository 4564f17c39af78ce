//! NVIDIA's own programs and libraries, of each branch of the driver that Debian has: fetched once, and unpacked.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Command;
use std::sync::{LazyLock, Mutex};

/// The branches of the driver that are fetched.
pub const BRANCHES: [u32; 4] = [470, 535, 550, 555];

/// The files of a package, unpacked.
#[derive(Debug, Clone)]
pub struct Unpacked {
    pub root: PathBuf,
    pub version: String,
}

type Fetched = BTreeMap<u32, Result<Unpacked, String>>;

/// The package of a branch; `Err` says why it is not there.
pub fn unpacked(package: &'static str, branch: u32) -> Result<Unpacked, String> {
    // One fetches for all tests.
    static FETCHED: LazyLock<Mutex<BTreeMap<&'static str, Fetched>>> = LazyLock::new(Mutex::default);
    let mut fetched = FETCHED.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let of_package = fetched.entry(package).or_insert_with(|| fetch(package));
    of_package[&branch].clone()
}

impl Unpacked {
    /// CUDA's library, in a package `libcuda1`.
    pub fn cuda(&self) -> PathBuf {
        let mut entries = walkdir::WalkDir::new(&self.root).into_iter().flatten();
        let is_library = |name: &str| name.starts_with("libcuda.so.");
        let found =
            entries.find(|entry| entry.file_type().is_file() && entry.file_name().to_str().is_some_and(is_library));
        found.unwrap().into_path()
    }
}

fn fetch(package: &str) -> Fetched {
    let directory = crate::top().join("target/nvidia");
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/support/nvidia-packages.sh");
    let branches = BRANCHES.map(|branch| branch.to_string());
    let ran = Command::new(script)
        .arg(&directory)
        .arg(package)
        .args(&branches)
        .output();
    let said = ran.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
    let said = said.unwrap_or_else(|e| e.to_string());
    let of_branch = |branch: u32| {
        let line = said.lines().find_map(|line| line.strip_prefix(&format!("{branch} ")));
        match line.ok_or_else(|| said.trim().to_owned())?.split_once(' ') {
            Some(("-", why)) => Err(why.to_owned()),
            Some(_) => Err(said.clone()),
            None => Ok(Unpacked {
                root: directory.join(package).join(branch.to_string()),
                version: line.unwrap_or_default().to_owned(),
            }),
        }
    };
    BRANCHES.into_iter().map(|branch| (branch, of_branch(branch))).collect()
}
