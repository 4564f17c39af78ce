//! A bundle with a hostile root, and a host around it that must stay as it is.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::fs::{lgetxattr, llistxattr, llistxattr_query};
use serde_json::json;
use walkdir::WalkDir;

/// Where the driver's libraries are in our scenes.
pub const LIBDIR: &str = "/usr/lib/x86_64-linux-gnu";

/// A temporary directory with `outside/` (the host) and `bundle/` with `config.json` and `rootfs/` (the image).
pub struct Scene {
    top: tempfile::TempDir,
    /// Where the hook keeps its messages: not on the machine that runs the tests.
    state_dir: tempfile::TempDir,
}

impl Scene {
    /// A scene with an empty image, and a few files on the host that an attacker would like to change.
    pub fn new() -> Scene {
        Scene::of(tempfile::tempdir().unwrap())
    }

    /// As [`Self::new`], in this directory.
    pub fn of(top: tempfile::TempDir) -> Scene {
        let state_dir = tempfile::tempdir().unwrap();
        let scene = Scene { top, state_dir };
        for directory in ["outside/lib", "outside/by-path", "bundle/rootfs"] {
            fs::create_dir_all(scene.at(directory)).unwrap();
        }
        for file in [
            "outside/shadow",
            "outside/lib/libcuda.so",
            "outside/lib/libc.so.6",
            "outside/by-path/card",
        ] {
            fs::write(scene.at(file), format!("{file} of the host\n")).unwrap();
        }
        scene.configure(json!({"root": {"path": "rootfs"}}));
        scene
    }

    /// A path below the scene's directory.
    pub fn at(&self, path: &str) -> PathBuf {
        self.top.path().join(path)
    }

    /// Where the hook keeps messages if `--state-dir` names it.
    pub fn state_dir(&self) -> &Path {
        self.state_dir.path()
    }

    /// A path of the image, as the host sees it.
    pub fn image(&self, path: &str) -> PathBuf {
        self.at("bundle/rootfs").join(path.trim_start_matches('/'))
    }

    /// Makes a link in the image, with its parents.
    pub fn image_link(&self, target: impl AsRef<Path>, link: &str) {
        let link = self.image(link);
        fs::create_dir_all(link.parent().unwrap()).unwrap();
        symlink(target, link).unwrap();
    }

    /// Makes a directory in the image.
    pub fn image_directory(&self, path: &str) {
        fs::create_dir_all(self.image(path)).unwrap();
    }

    /// Writes `config.json`.
    pub fn configure(&self, config: serde_json::Value) {
        fs::write(self.at("bundle/config.json"), config.to_string()).unwrap();
    }

    /// The state of this bundle, as runc gives it.
    pub fn state(&self) -> String {
        json!({"ociVersion": "1.0.2", "id": "c", "status": "creating", "bundle": self.at("bundle")}).to_string()
    }

    /// Everything outside the image: path to kind, mode, owner, content and time of change of content.
    ///
    /// Link counts are left out: an image may hold a hard link to a file of the host, and may drop it.
    pub fn outside(&self) -> BTreeMap<PathBuf, String> {
        let image = self.at("bundle/rootfs");
        snapshot(self.top.path(), &|path| path != image)
    }

    /// Everything inside the image.
    pub fn inside(&self) -> BTreeMap<PathBuf, String> {
        snapshot(&self.at("bundle/rootfs"), &|_| true)
    }

    /// Runs `tranche-oci hook prepare ARGUMENTS` with this scene's state.
    pub fn prepare(&self, arguments: &[&str]) -> Ended {
        self.prepare_with(arguments, &self.state())
    }

    /// As [`Self::prepare`], with another state.
    pub fn prepare_with(&self, arguments: &[&str], state: &str) -> Ended {
        let mut command = Command::new(crate::programs::built("tranche-oci"));
        command
            .args(["hook", "prepare", "--state-dir"])
            .arg(self.state_dir())
            .args(arguments)
            .env_clear()
            .current_dir(self.at("bundle/rootfs"));
        run(command, state.as_bytes())
    }
}

/// A program that ran to its end.
pub struct Ended {
    pub code: i32,
    pub stdout: String,
    pub stderr: String,
}

impl Ended {
    /// Panics, with what was said, unless the program succeeded without a word.
    pub fn silent(&self) {
        assert_eq!((self.code, self.stderr.as_str()), (0, ""));
    }
}

/// Runs a command with this input. One that does not end within a time that no machine needs is killed and fails.
pub fn run(mut command: Command, input: &[u8]) -> Ended {
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // A program may end without reading its input.
    let _ = child.stdin.take().unwrap().write_all(input);
    let end = Instant::now() + Duration::from_secs(60);
    while child.try_wait().unwrap().is_none() {
        if Instant::now() > end {
            child.kill().unwrap();
            panic!("{command:?} hangs");
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    let Output { status, stdout, stderr } = child.wait_with_output().unwrap();
    Ended {
        code: status.code().unwrap_or(-1),
        stdout: String::from_utf8_lossy(&stdout).into_owned(),
        stderr: String::from_utf8_lossy(&stderr).into_owned(),
    }
}

/// Everything below `top`, without what `enter` says no to.
pub fn snapshot(top: &Path, enter: &dyn Fn(&Path) -> bool) -> BTreeMap<PathBuf, String> {
    let mut found = BTreeMap::new();
    // What is deeper than a path can say is no deeper than what is above it.
    let too_deep = |e: &std::io::Error| e.kind() == std::io::ErrorKind::InvalidFilename;
    for entry in WalkDir::new(top).into_iter().filter_entry(|e| enter(e.path())) {
        let path = match entry {
            Ok(entry) => entry.into_path(),
            Err(e) if e.io_error().is_some_and(too_deep) => continue,
            Err(e) => panic!("{e}"),
        };
        let meta = match fs::symlink_metadata(&path) {
            Err(e) if too_deep(&e) => continue,
            meta => meta.unwrap(),
        };
        let kind = meta.file_type();
        let content = if kind.is_symlink() {
            format!("-> {}", fs::read_link(&path).unwrap().display())
        } else if kind.is_dir() {
            String::new()
        } else if kind.is_fifo() || kind.is_socket() || kind.is_char_device() || kind.is_block_device() {
            format!("{:x}", meta.rdev())
        } else {
            fs::read(&path).unwrap().escape_ascii().to_string()
        };
        let owner = format!("{:o} {}:{}", meta.mode(), meta.uid(), meta.gid());
        let changed = format!("{}.{}", meta.mtime(), meta.mtime_nsec());
        let attributes = attributes(&path);
        found.insert(path, format!("{owner} {changed} {attributes} {content}"));
    }
    found
}

/// The extended attributes of a file itself, with their values: an access control list or a capability is one.
fn attributes(path: &Path) -> String {
    // Of a file system without any, an error.
    let mut names = vec![0; llistxattr_query(path).unwrap_or(0)];
    if names.is_empty() {
        return String::new();
    }
    let length = llistxattr(path, &mut names).unwrap();
    let mut all = String::new();
    for name in names[..length].split(|byte| *byte == 0).filter(|name| !name.is_empty()) {
        let name = std::ffi::OsStr::from_bytes(name);
        let mut value = vec![0; 64 << 10];
        let length = lgetxattr(path, name, &mut value).unwrap();
        all += &format!("{}={} ", name.display(), value[..length].escape_ascii());
    }
    all
}
