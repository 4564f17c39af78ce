//! Builds a test host of `tests/hosts/NAME` into a directory, which then is that machine's `/`.
//!
//! ```text
//! let host = fake_host::build("workstation-rtx4090", directory)?;   // host.root, host.not_made
//! host.nvml(|config| config["faults"]["init"] = "hang".into())?;    // break the driver's library
//! ```
//!
//! What a host has is in its `host.txt` (see [`manifest`]), the text files as they lie on the machine under `tree/`,
//! and what NVML says in `nvml.json`, which becomes `fake-nvml.json` in the root: the fake library finds it there.

use std::fs;
use std::io;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use walkdir::WalkDir;

pub use crate::{fake_library, ld_so_cache, manifest, stub_elf};

use manifest::{Cache, Entry, Library};

/// A host that was built.
#[derive(Debug)]
pub struct Host {
    /// The directory that stands for `/`.
    pub root: PathBuf,
    /// What could not be made here, with the reason: device nodes, where the user may not make them.
    pub not_made: Vec<NotMade>,
    /// Where the fake NVML lies, as a path of the host.
    pub nvml: Option<PathBuf>,
}

/// Something of a host that could not be made.
#[derive(Debug, Clone)]
pub struct NotMade {
    /// The path on the host.
    pub path: PathBuf,
    /// Why.
    pub why: String,
}

/// What building gives or the one line that says why not.
pub type Result<T> = std::result::Result<T, String>;

/// Where the hosts are described.
pub fn hosts() -> PathBuf {
    crate::top().join("tests/hosts")
}

/// The names of all hosts, sorted.
pub fn names() -> Result<Vec<String>> {
    let hosts = hosts();
    let mut names = Vec::new();
    for entry in fs::read_dir(&hosts).map_err(|e| format!("{}: {e}", hosts.display()))? {
        let entry = entry.map_err(|e| format!("{}: {e}", hosts.display()))?;
        if entry.path().join("host.txt").is_file() {
            names.push(entry.file_name().to_string_lossy().into_owned());
        }
    }
    names.sort();
    Ok(names)
}

/// The first comment line of a host's manifest: what it is.
pub fn about(name: &str) -> Result<String> {
    let text = read(&hosts().join(name).join("host.txt"))?;
    Ok(text
        .lines()
        .next()
        .unwrap_or_default()
        .trim_start_matches(['#', ' '])
        .to_owned())
}

/// Builds the host `name` into the directory `into`, which is made, or must be empty.
pub fn build(name: &str, into: &Path) -> Result<Host> {
    build_from(&hosts().join(name), name, into)
}

/// Builds the host `name` with another version of the driver, as an upgrade would leave it.
pub fn build_with_driver(name: &str, version: &str, into: &Path) -> Result<Host> {
    let source = hosts().join(name);
    let config: serde_json::Value =
        serde_json::from_str(&read(&source.join("nvml.json"))?).map_err(|e| format!("{name}/nvml.json: {e}"))?;
    let old = config["driver"]
        .as_str()
        .ok_or_else(|| format!("{name}/nvml.json: no driver"))?;
    let upgraded = tempfile::tempdir().map_err(|e| e.to_string())?;
    for entry in WalkDir::new(&source) {
        let entry = entry.map_err(|e| e.to_string())?;
        if !entry.file_type().is_file() {
            continue;
        }
        let inside = entry.path().strip_prefix(&source).map_err(|e| e.to_string())?;
        let place = upgraded.path().join(inside.to_string_lossy().replace(old, version));
        let about = |e: io::Error| format!("{}: {e}", place.display());
        fs::create_dir_all(place.parent().unwrap_or(&place)).map_err(about)?;
        fs::write(&place, read(entry.path())?.replace(old, version)).map_err(about)?;
    }
    build_from(upgraded.path(), name, into)
}

fn build_from(source: &Path, name: &str, into: &Path) -> Result<Host> {
    let text = fs::read_to_string(source.join("host.txt")).map_err(|e| {
        format!(
            "{name}: no such test host ({e}); there are: {}",
            names().unwrap_or_default().join(", ")
        )
    })?;
    let entries = manifest::parse(&text).map_err(|e| format!("{name}/host.txt: {e}"))?;
    fs::create_dir_all(into).map_err(|e| format!("{}: {e}", into.display()))?;
    if fs::read_dir(into)
        .map_err(|e| format!("{}: {e}", into.display()))?
        .next()
        .is_some()
    {
        return Err(format!(
            "{}: not empty; name a new or an empty directory",
            into.display()
        ));
    }
    let root = fs::canonicalize(into).map_err(|e| format!("{}: {e}", into.display()))?;
    let mut builder = Builder {
        name,
        root,
        tree: source.join("tree"),
        not_made: Vec::new(),
        nvml: None,
    };
    builder.copy_tree()?;
    let libraries: Vec<&Library> = entries
        .iter()
        .filter_map(|e| {
            if let Entry::Lib(library) = e {
                Some(library)
            } else {
                None
            }
        })
        .collect();
    for entry in &entries {
        builder.make(entry, &libraries)?;
    }
    let host = Host {
        root: builder.root,
        not_made: builder.not_made,
        nvml: builder.nvml,
    };
    let config = source.join("nvml.json");
    if config.is_file() {
        fs::copy(&config, host.root.join("fake-nvml.json")).map_err(|e| format!("{}: {e}", config.display()))?;
        host.nvml(|_| ())?;
    }
    Ok(host)
}

impl Host {
    /// Changes what this host's NVML answers, and puts the library in place again, without the symbols that
    /// `missing_symbols` names, and without those that its driver is too old for.
    pub fn nvml(&self, change: impl FnOnce(&mut serde_json::Value)) -> Result<()> {
        let path = self.root.join("fake-nvml.json");
        let mut config = serde_json::from_str(&read(&path)?).map_err(|e| format!("{}: {e}", path.display()))?;
        change(&mut config);
        fs::write(&path, config.to_string()).map_err(|e| format!("{}: {e}", path.display()))?;
        let Some(library) = &self.nvml else { return Ok(()) };
        let mut missing: Vec<&str> = config["missing_symbols"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(|s| s.as_str())
            .collect();
        let branch = config["driver"].as_str().and_then(|driver| driver.split('.').next());
        if branch.and_then(|branch| branch.parse::<u32>().ok()) < Some(615) {
            missing.extend(["nvmlDeviceSetMemoryLimits_v1", "nvmlDeviceGetMemoryLimits_v1"]);
            missing.sort_unstable();
            missing.dedup();
        }
        fake_library::NVML.install(&under(&self.root, library), &missing)
    }

    /// A path of the host as a path of this machine.
    pub fn path(&self, path: &str) -> PathBuf {
        under(&self.root, Path::new(path))
    }
}

struct Builder<'a> {
    name: &'a str,
    root: PathBuf,
    tree: PathBuf,
    not_made: Vec<NotMade>,
    nvml: Option<PathBuf>,
}

impl Builder<'_> {
    fn make(&mut self, entry: &Entry, libraries: &[&Library]) -> Result<()> {
        match entry {
            Entry::Dir(path) => {
                let path = under(&self.root, path);
                fs::create_dir_all(&path).map_err(|e| format!("{}: {e}", path.display()))
            }
            Entry::File { path, mode } => self.file(path, *mode),
            Entry::Text { path, text } => self.write(path, format!("{text}\n").as_bytes(), 0o644),
            Entry::Bin(path) => self.write(
                path,
                format!("#!/bin/sh\n# stub of the test host {}\nexit 0\n", self.name).as_bytes(),
                0o755,
            ),
            Entry::Lib(library) => {
                self.write(
                    &library.path,
                    &stub_elf::library(&library.soname, library.machine)?,
                    0o644,
                )?;
                self.soname_link(&library.path, &library.soname)
            }
            Entry::Nvml(path) => {
                self.nvml = Some(path.clone());
                // The library itself comes last, when its configuration is there.
                self.soname_link(path, fake_library::NVML.soname)
            }
            Entry::Link { path, target } => {
                let place = self.place(path)?;
                symlink(target, &place).map_err(|e| format!("{}: {e}", path.display()))
            }
            Entry::Char {
                path,
                major,
                minor,
                mode,
                gid,
            } => {
                let place = self.place(path)?;
                if let Err(why) = character_device(&place, (*major, *minor), *mode, *gid) {
                    self.not_made.push(NotMade {
                        path: path.clone(),
                        why: why.to_string(),
                    });
                }
                Ok(())
            }
            Entry::Sock(path) => {
                let place = self.place(path)?;
                // mknod, because bind takes no path of more than 107 bytes and temporary directories are deep.
                let mode = nix::sys::stat::Mode::from_bits_truncate(0o666);
                nix::sys::stat::mknod(&place, nix::sys::stat::SFlag::S_IFSOCK, mode, 0)
                    .map_err(|e| format!("{}: {e}", path.display()))
            }
            Entry::LdCache(cache) => self.cache(cache, libraries),
        }
    }

    fn cache(&self, cache: &Cache, libraries: &[&Library]) -> Result<()> {
        let inside = |path: &Path| path.strip_prefix(&cache.root).ok().map(|p| Path::new("/").join(p));
        let mut entries: Vec<ld_so_cache::Entry> = libraries
            .iter()
            .filter_map(|library| Some((library, inside(&library.path)?)))
            .map(|(library, path)| ld_so_cache::Entry::new(&path, &library.soname, library.machine))
            .collect();
        if let Some(path) = self.nvml.as_deref().and_then(inside) {
            // The fake is a library of this machine, but stands for one of the host's.
            let machine = libraries
                .iter()
                .map(|l| l.machine)
                .find(|m| m.is_64())
                .unwrap_or_default();
            entries.push(ld_so_cache::Entry::new(&path, fake_library::NVML.soname, machine));
        }
        entries.retain(|e| {
            cache
                .directories
                .iter()
                .any(|d| Some(d.as_path()) == Path::new(&e.path).parent())
        });
        self.write(&cache.root.join("etc/ld.so.cache"), &ld_so_cache::write(entries), 0o644)
    }

    /// The link of a library's SONAME beside it, as ldconfig makes it.
    fn soname_link(&self, library: &Path, soname: &str) -> Result<()> {
        let place = self.place(library)?;
        let Some(name) = place.file_name().filter(|n| *n != soname) else {
            return Ok(());
        };
        let link = place.with_file_name(soname);
        if fs::symlink_metadata(&link).is_ok() {
            return Ok(());
        }
        symlink(name, &link).map_err(|e| format!("{}: {e}", link.display()))
    }

    /// A file of the tree with a mode of its own, or, where the tree has none, one line that says where it is from.
    fn file(&self, path: &Path, mode: u32) -> Result<()> {
        let source = under(&self.tree, path);
        if source.is_file() {
            let target = under(&self.root, path);
            return fs::set_permissions(&target, fs::Permissions::from_mode(mode))
                .map_err(|e| format!("{}: {e}", path.display()));
        }
        self.write(
            path,
            format!("{} of the test host {}\n", path.display(), self.name).as_bytes(),
            mode,
        )
    }

    fn write(&self, path: &Path, bytes: &[u8], mode: u32) -> Result<()> {
        let place = self.place(path)?;
        fs::write(&place, bytes)
            .and_then(|()| fs::set_permissions(&place, fs::Permissions::from_mode(mode)))
            .map_err(|e| format!("{}: {e}", path.display()))
    }

    /// The place of a path, with the directory that it is in made.
    fn place(&self, path: &Path) -> Result<PathBuf> {
        let place = under(&self.root, path);
        if let Some(parent) = place.parent() {
            fs::create_dir_all(parent).map_err(|e| format!("{}: {e}", parent.display()))?;
        }
        Ok(place)
    }

    fn copy_tree(&self) -> Result<()> {
        if !self.tree.is_dir() {
            return Ok(());
        }
        for entry in WalkDir::new(&self.tree) {
            let entry = entry.map_err(|e| e.to_string())?;
            if entry.file_type().is_file() {
                let bytes = fs::read(entry.path()).map_err(|e| format!("{}: {e}", entry.path().display()))?;
                let inside = entry.path().strip_prefix(&self.tree).map_err(|e| e.to_string())?;
                self.write(&Path::new("/").join(inside), &bytes, 0o644)?;
            }
        }
        Ok(())
    }
}

fn character_device(path: &Path, (major, minor): (u64, u64), mode: u32, gid: Option<u32>) -> io::Result<()> {
    use nix::sys::stat::{Mode, SFlag, makedev, mknod};
    mknod(
        path,
        SFlag::S_IFCHR,
        Mode::from_bits_truncate(mode),
        makedev(major, minor),
    )?;
    if gid.is_some() {
        std::os::unix::fs::chown(path, None, gid)?;
    }
    // Again, because the umask took its share of it.
    fs::set_permissions(path, fs::Permissions::from_mode(mode))
}

fn under(root: &Path, path: &Path) -> PathBuf {
    root.join(path.strip_prefix("/").unwrap_or(path))
}

fn read(path: &Path) -> Result<String> {
    fs::read_to_string(path).map_err(|e| format!("{}: {e}", path.display()))
}
