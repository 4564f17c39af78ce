//! A scene for one attack: an image, the host beside it, a run of the program, and a look at what it did.
//!
//! The image and `outside/host` are furnished alike, so that a path that leaves the root arrives at the same file of
//! the host, where a step would do its work and be seen. Each run has a mount namespace of its own, as under an engine.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::furnish::furnish;
pub(crate) use crate::run::Ended;
use crate::subject::Subject;
use crate::support::scene::Scene;
use crate::verb::{DRIVER, LIBDIR, Verb};

/// In every file of the host and in none of the image: where it appears in the image, the host was read.
pub(crate) const MARK: &str = "of-the-host";

/// A scene to attack in.
pub(crate) struct Stage {
    pub(crate) scene: Scene,
    pub(crate) subject: Subject,
    pub(crate) verb: Verb,
    /// Standard input of the hook.
    pub(crate) state: String,
    /// Shell words that run in the mount namespace before the hook, with the root directory in `$root`.
    pub(crate) before: String,
    /// And after it, with its exit code in `$code`.
    pub(crate) after: String,
    /// Shell words that run in a mount namespace that stands for the host's. The container's is then made from it with
    /// the propagation of its mounts unchanged, and its mounts must be as they were afterwards.
    pub(crate) host: String,
    /// The hook's environment.
    pub(crate) environment: Vec<(OsString, OsString)>,
    /// A program, with arguments, that runs the hook.
    pub(crate) wrapper: Vec<OsString>,
    /// More arguments for the verb.
    pub(crate) more: Vec<OsString>,
    /// Whether the image must be as it was, to the byte.
    pub(crate) keeps_image: bool,
    /// Whether the attack itself moves mounts, so that their list changes.
    pub(crate) mounts_move: bool,
    /// Takes away what nobody should read whole, before what is left is looked at. Without a look at the image before.
    pub(crate) tidy: Option<Box<dyn Fn()>>,
    /// Directories beside the scene that the naive program may change.
    pub(crate) fence: Vec<PathBuf>,
}

/// What was seen before an attack.
pub(crate) struct Look {
    outside: BTreeMap<PathBuf, String>,
    pub(crate) inside: BTreeMap<PathBuf, String>,
    machine: BTreeMap<PathBuf, String>,
}

impl Stage {
    /// A furnished image and host, before any attack.
    pub(crate) fn new(verb: Verb) -> Stage {
        let scene = Scene::of(temporary());
        furnish(&scene.image("/"), "of-the-image");
        furnish(&scene.at("outside/host"), MARK);
        let stage = Stage {
            state: scene.state(),
            subject: Subject::current(),
            scene,
            verb,
            more: Vec::new(),
            keeps_image: false,
            mounts_move: false,
            tidy: None,
            fence: Vec::new(),
            before: String::new(),
            after: String::new(),
            host: String::new(),
            environment: Vec::new(),
            wrapper: Vec::new(),
        };
        stage.scene.configure(stage.config());
        stage
    }

    /// What an engine configured.
    pub(crate) fn config(&self) -> Value {
        json!({
            "ociVersion": "1.0.2",
            "root": {"path": "rootfs"},
            "mounts": [{"destination": format!("{LIBDIR}/libcuda.so.{DRIVER}"), "type": "bind", "source": "/x", "options": ["bind"]}],
            "linux": {"devices": [{"path": "/dev/nvidia0"}, {"path": "/dev/dri/card0"}]}
        })
    }

    /// Adds a mount to what the engine configured, and maybe that the root is read-only.
    pub(crate) fn configure(&self, mount: Option<Value>, read_only: bool) {
        let mut config = self.config();
        config["mounts"].as_array_mut().unwrap().extend(mount);
        config["root"]["readonly"] = json!(read_only);
        self.scene.configure(config);
    }

    /// A path of the image, as the host sees it.
    pub(crate) fn image(&self, path: &str) -> PathBuf {
        self.scene.image(path)
    }

    /// The same path in the host's like of the image.
    pub(crate) fn host(&self, path: &str) -> PathBuf {
        self.scene.at("outside/host").join(path.trim_start_matches('/'))
    }

    /// Takes away whatever the image has at `path`, and makes the directories above it.
    pub(crate) fn clear(&self, path: &str) -> PathBuf {
        let place = self.image(path);
        if fs::symlink_metadata(&place).is_ok_and(|meta| meta.is_dir()) {
            fs::remove_dir_all(&place).unwrap();
        } else {
            let _ = fs::remove_file(&place);
        }
        fs::create_dir_all(place.parent().unwrap()).unwrap();
        place
    }

    /// Puts a link in place of what the image has at `path`.
    pub(crate) fn link(&self, path: &str, target: impl AsRef<Path>) {
        symlink(target, self.clear(path)).unwrap();
    }

    /// As [`Self::link`], to a path of the image, as a relative link: a program that does not keep to the root is led
    /// there too.
    pub(crate) fn link_inside(&self, path: &str, target: &str) {
        let above = "../".repeat(path.matches('/').count() - 1);
        let target = format!("{above}{}", target.trim_start_matches('/'));
        self.link(path, target);
    }

    /// Runs the hook, and compares what was there before with what is there now.
    pub(crate) fn run_and_compare(&self) -> Ended {
        let before = self.look();
        let mut ended = self.run();
        self.compare(&before, &mut ended.wrong);
        for cover in &ended.covers {
            if cover.bytes.windows(MARK.len()).any(|bytes| bytes == MARK.as_bytes()) {
                ended
                    .wrong
                    .push(format!("what covers {} holds what the host holds", cover.path));
            }
        }
        ended
    }

    /// Runs the hook alone.
    pub(crate) fn run(&self) -> Ended {
        crate::run::run(self)
    }

    /// Everything that an attack could change.
    pub(crate) fn look(&self) -> Look {
        Look {
            outside: self.scene.outside(),
            inside: if self.tidy.is_some() {
                BTreeMap::new()
            } else {
                self.scene.inside()
            },
            machine: sentinels(),
        }
    }

    /// What is not as it was and should be.
    pub(crate) fn compare(&self, before: &Look, wrong: &mut Vec<String>) {
        if let Some(tidy) = &self.tidy {
            tidy();
        }
        let now = Look {
            inside: self.scene.inside(),
            ..self.look()
        };
        differences("the host", &before.outside, &now.outside, wrong);
        differences("this machine", &before.machine, &now.machine, wrong);
        if self.keeps_image {
            differences("the image", &before.inside, &now.inside, wrong);
        }
        for (path, content) in &now.inside {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            if name.starts_with(".tranche-") {
                wrong.push(format!("{} was left behind", path.display()));
            }
            let had = before.inside.get(path).is_some_and(|was| was.contains(MARK));
            if content.contains(MARK) && !content.contains("-> ") && !had {
                wrong.push(format!("{} holds what the host holds", path.display()));
            }
        }
    }
}

/// A directory in memory: there are thousands of scenes, and a disk that others use would stop some for a minute.
pub(crate) fn temporary() -> tempfile::TempDir {
    tempfile::tempdir_in(in_memory()).unwrap()
}

pub(crate) fn in_memory() -> PathBuf {
    let memory = Path::new("/dev/shm");
    if memory.is_dir() {
        memory.to_owned()
    } else {
        std::env::temp_dir()
    }
}

pub(crate) fn differences(
    whose: &str,
    before: &BTreeMap<PathBuf, String>,
    after: &BTreeMap<PathBuf, String>,
    wrong: &mut Vec<String>,
) {
    let paths = before
        .keys()
        .chain(after.keys().filter(|path| !before.contains_key(*path)));
    for path in paths.filter(|path| before.get(*path) != after.get(*path)) {
        wrong.push(format!("{whose}: {} changed", path.display()));
    }
}

/// What a path of the image would hit if it were resolved from this machine's own root directory.
fn sentinels() -> BTreeMap<PathBuf, String> {
    const PLACES: [&str; 14] = [
        "/etc/ld.so.cache",
        "/etc/ld.so.conf",
        "/etc/ld.so.conf.d",
        "/etc/ld.so.conf.d/00-tranche.conf",
        "/etc/ld.so.conf.d/00-compat-tranche.conf",
        "/etc/ld-musl-x86_64.path",
        "/etc/nvidia",
        "/usr/lib/x86_64-linux-gnu/libcuda.so",
        "/usr/lib/x86_64-linux-gnu/libcuda.so.1",
        "/usr/local/cuda",
        "/lib64/ld-linux-x86-64.so.2",
        "/dev/dri",
        "/dev/nvidia-caps",
        "/proc/driver/nvidia/params",
    ];
    let look = |place: &str| match fs::symlink_metadata(place) {
        Ok(meta) => {
            let id = (meta.ino(), meta.mode(), meta.uid(), meta.gid(), meta.len());
            format!("{id:?} {}.{}", meta.mtime(), meta.mtime_nsec())
        }
        Err(e) => e.to_string(),
    };
    PLACES.iter().map(|place| (PathBuf::from(place), look(place))).collect()
}
