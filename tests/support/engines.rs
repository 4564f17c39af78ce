//! Real engines: podman over crun and runc, as root and not, and the two runtimes by themselves.
//!
//! Each run happens in a mount namespace of its own (`tests/bed/enter.sh`), where the given directory holds the only
//! CDI specs and the host's containers are out of reach. The image is a busybox made on the spot: nothing is pulled.

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::{programs, rights};
use serde_json::{Value, json};
use walkdir::WalkDir;

/// The user that rootless engines run as: nobody, as every system has one.
const NOBODY: u32 = 65534;

/// The programs of the image, all of them busybox.
const APPLETS: [&str; 15] = [
    "sh", "ls", "cat", "readlink", "stat", "env", "test", "true", "id", "find", "touch", "sleep", "mount", "ps", "wc",
];

/// Who runs the container.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Engine {
    /// podman as root, over crun.
    PodmanCrun,
    /// podman as root, over runc.
    PodmanRunc,
    /// podman of a user without any privilege, over crun.
    RootlessCrun,
    /// podman of a user without any privilege, over runc.
    RootlessRunc,
}

impl Engine {
    pub const ALL: [Engine; 4] = [
        Engine::PodmanCrun,
        Engine::PodmanRunc,
        Engine::RootlessCrun,
        Engine::RootlessRunc,
    ];

    pub fn is_rootless(self) -> bool {
        matches!(self, Engine::RootlessCrun | Engine::RootlessRunc)
    }

    pub fn runtime(self) -> &'static str {
        match self {
            Engine::PodmanCrun | Engine::RootlessCrun => "crun",
            Engine::PodmanRunc | Engine::RootlessRunc => "runc",
        }
    }

    /// Why this engine cannot run here, if so.
    pub fn missing(self) -> Option<String> {
        if !rights::is_root_of_machine() {
            return Some("not root of the machine: cannot run the engine apart from the host's".to_owned());
        }
        let needed = ["podman", self.runtime(), "busybox", "unshare", "setpriv", "conmon"];
        let absent: Vec<&str> = needed.into_iter().filter(|program| find(program).is_none()).collect();
        if !absent.is_empty() {
            return Some(format!("not installed: {}", absent.join(", ")));
        }
        // Root of a container may be root without the right to mount.
        let entered = Command::new("unshare")
            .args(["-m", "--propagation", "private", "true"])
            .output();
        let may = entered.is_ok_and(|output| output.status.success());
        (!may).then(|| "may not make a mount namespace for the engine".to_owned())
    }
}

/// A place for containers: specs, images and engine state of one test, gone with it.
pub struct Bed {
    top: tempfile::TempDir,
    /// A directory whose device nodes are in `/dev` for whatever runs in this bed.
    dev: Option<PathBuf>,
    /// Run as root where the engine runs, before it and after it.
    around: [String; 2],
    /// Stands in for crun or runc, which has its name.
    runtime: Option<PathBuf>,
}

impl Bed {
    pub fn new() -> Bed {
        let bed = Bed {
            top: tempfile::Builder::new().prefix("bed").tempdir().unwrap(),
            dev: None,
            around: [const { String::new() }; 2],
            runtime: None,
        };
        // The rootless user works in here too.
        fs::set_permissions(bed.top.path(), PermissionsExt::from_mode(0o755)).unwrap();
        fs::create_dir(bed.at("specs")).unwrap();
        // A checkout may lie where that user cannot go.
        programs::install(programs::built("tranche-oci"), bed.hook());
        bed
    }

    /// A path below the bed's directory.
    pub fn at(&self, path: &str) -> PathBuf {
        self.top.path().join(path)
    }

    /// The `tranche-oci` that specs are to call.
    pub fn hook(&self) -> PathBuf {
        self.at("tranche-oci")
    }

    /// A directory for the specs of this bed.
    pub fn specs(&self) -> PathBuf {
        self.at("specs")
    }

    /// Adds the device nodes of `dev` to the `/dev` of this bed.
    pub fn with_nodes(&mut self, dev: &Path) {
        self.dev = Some(dev.to_path_buf());
    }

    /// Runs these lines of shell as root in each mount namespace of this bed, before its command and after it.
    pub fn around(&mut self, before: &str, after: &str) {
        self.around = [before, after].map(str::to_owned);
    }

    /// Makes this bed's engines use `tranche-runtime` in the place of the runtime of `engine`, which it executes.
    pub fn with_our_runtime(&mut self, engine: Engine) {
        let directory = self.at("runtime");
        // podman knows by the name what a runtime can do.
        let program = directory.join(engine.runtime());
        programs::install(programs::built("tranche-runtime"), &program);
        self.runtime = Some(program);
    }

    /// The program that engines use as low-level runtime.
    pub fn runtime(&self, engine: Engine) -> PathBuf {
        self.runtime.clone().unwrap_or_else(|| find(engine.runtime()).unwrap())
    }

    /// Runs our command line where this bed's engines run.
    pub fn tranche(&self, arguments: &[String]) -> Output {
        let mut enter = entered(self, &self.specs());
        enter.arg(programs::built("tranche")).args(arguments);
        enter.output().unwrap()
    }

    /// Writes a spec, as JSON.
    pub fn spec(&self, name: &str, spec: &Value) {
        fs::write(self.specs().join(name), serde_json::to_vec_pretty(spec).unwrap()).unwrap();
    }

    /// Makes a new busybox image that belongs to the engine's user, and gives its directory.
    pub fn image(&self, engine: Engine) -> PathBuf {
        let mut number = 0;
        let root = loop {
            let root = self.at(&format!("root{number}"));
            if fs::create_dir(&root).is_ok() {
                break root;
            }
            number += 1;
        };
        for directory in ["bin", "proc", "sys", "dev", "etc", "tmp", "run", "usr", "usr/lib"] {
            fs::create_dir(root.join(directory)).unwrap();
        }
        programs::install(find("busybox").unwrap(), root.join("bin/busybox"));
        for applet in APPLETS {
            symlink("busybox", root.join("bin").join(applet)).unwrap();
        }
        if engine.is_rootless() {
            own(&root);
        }
        root
    }
}

/// Runs `command` in a new container of a busybox image with these CDI devices, and the specs of `spec_dir`.
pub fn run_podman(bed: &Bed, engine: Engine, devices: &[&str], spec_dir: &Path, command: &[&str]) -> Output {
    let image = bed.image(engine);
    run_podman_in(bed, engine, &image, devices, spec_dir, &[], command)
}

/// As [`run_podman`], in this image's directory and with more options of `podman run`.
pub fn run_podman_in(
    bed: &Bed,
    engine: Engine,
    image: &Path,
    devices: &[&str],
    spec_dir: &Path,
    options: &[&str],
    command: &[&str],
) -> Output {
    let user = bed.at(if engine.is_rootless() { "nobody" } else { "root" });
    for directory in ["", "run", "store", "runroot"] {
        let _ = fs::create_dir(user.join(directory));
    }
    let mut enter = entered(bed, spec_dir);
    if engine.is_rootless() {
        own(&user);
        let nobody = NOBODY.to_string();
        enter.args(["setpriv", "--reuid", &nobody, "--regid", &nobody, "--clear-groups"]);
    }
    enter.args([
        "env",
        "-i",
        "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        "PODMAN_IGNORE_CGROUPSV1_WARNING=1",
    ]);
    enter
        .arg(format!("HOME={}", user.display()))
        .arg(format!("XDG_RUNTIME_DIR={}/run", user.display()));
    enter.args([
        "podman",
        "--storage-driver",
        "vfs",
        "--cgroup-manager",
        "cgroupfs",
        "--events-backend",
        "none",
    ]);
    enter
        .arg("--root")
        .arg(user.join("store"))
        .arg("--runroot")
        .arg(user.join("runroot"));
    enter.arg("--runtime").arg(bed.runtime(engine));
    enter.args(["run", "--rm", "--network=none"]).args(limits());
    if engine == Engine::RootlessCrun {
        // A user without a session has no cgroup of its own to divide; runc finds that out by itself.
        enter.arg("--cgroups=disabled");
    }
    enter
        .args(devices.iter().map(|device| format!("--device={device}")))
        .args(options);
    enter.arg("--rootfs").arg(image).args(command);
    let output = enter.output().unwrap();
    end_pause_process(&user.join("run/libpod/tmp/pause.pid"));
    output
}

/// Runs `command` by crun or runc alone, in `image`. `edit` may change the configuration before.
pub fn run_bundle(bed: &Bed, engine: Engine, image: &Path, command: &[&str], edit: impl FnOnce(&mut Value)) -> Output {
    let bundle = image.with_extension("bundle");
    fs::create_dir_all(&bundle).unwrap();
    let mut config = config(image, command);
    edit(&mut config);
    fs::write(bundle.join("config.json"), config.to_string()).unwrap();
    let mut enter = entered(bed, &bed.specs());
    let name = format!("tranche-test-{}", std::process::id());
    enter
        .arg(engine.runtime())
        .arg("run")
        .arg("--bundle")
        .arg(&bundle)
        .arg(name);
    enter.output().unwrap()
}

/// A configuration that runs `command` as root in `image`, with namespaces of its own and the usual mounts.
fn config(image: &Path, command: &[&str]) -> Value {
    let capabilities = json!(["CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_KILL", "CAP_SETGID", "CAP_SETUID"]);
    json!({
        "ociVersion": "1.0.2",
        "process": {
            "terminal": false, "user": {"uid": 0, "gid": 0}, "args": command, "cwd": "/", "env": ["PATH=/bin"],
            "capabilities": {"bounding": capabilities, "effective": capabilities, "permitted": capabilities},
            "noNewPrivileges": true
        },
        "root": {"path": image, "readonly": false},
        "mounts": [
            {"destination": "/proc", "type": "proc", "source": "proc"},
            {"destination": "/dev", "type": "tmpfs", "source": "tmpfs", "options": ["nosuid", "mode=755", "size=65536k"]},
            {"destination": "/dev/pts", "type": "devpts", "source": "devpts", "options": ["nosuid", "noexec", "newinstance"]},
            {"destination": "/dev/shm", "type": "tmpfs", "source": "shm", "options": ["nosuid", "noexec", "nodev"]}
        ],
        "linux": {
            "namespaces": [{"type": "pid"}, {"type": "ipc"}, {"type": "uts"}, {"type": "mount"}, {"type": "network"}],
            "resources": {"devices": [{"allow": false, "access": "rwm"}]}
        }
    })
}

/// The beginning of a command in a mount namespace of its own.
pub fn entered(bed: &Bed, spec_dir: &Path) -> Command {
    let mut enter = Command::new("unshare");
    enter.args([
        "--mount",
        "--net",
        "--propagation",
        "private",
        concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/bed/enter.sh"),
    ]);
    enter
        .arg(spec_dir)
        .env("TRANCHE_TEST_LIB", bed.at("lib"))
        .envs(bed.dev.iter().map(|dev| ("TRANCHE_TEST_DEV", dev)));
    let [before, after] = &bed.around;
    if !before.is_empty() || !after.is_empty() {
        let script = format!("{before}\n\"$@\"\ncode=$?\n{after}\nexit $code");
        enter.args(["sh", "-c", &script, "sh"]);
    }
    enter
}

/// podman raises limits beyond what this process may have on some machines, and then no container starts.
pub fn limits() -> &'static [&'static str] {
    let raised = Command::new("prlimit")
        .args(["--nofile=1048576:1048576", "--nproc=4194304:4194304", "true"])
        .output();
    if raised.is_ok_and(|o| o.status.success()) {
        &[]
    } else {
        &["--ulimit", "nofile=1024:1024", "--ulimit", "nproc=1024:1024"]
    }
}

/// A rootless podman leaves a process that keeps its namespaces, with this run's mounts in them, for the next.
fn end_pause_process(file: &Path) {
    let Ok(text) = fs::read_to_string(file) else { return };
    let pid = text.trim().parse().unwrap();
    // It may have ended by itself.
    let _ = nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), nix::sys::signal::Signal::SIGKILL);
    let _ = fs::remove_file(file);
}

/// Gives everything below `top` to the user of rootless engines.
pub fn own(top: &Path) {
    for entry in WalkDir::new(top) {
        let entry = entry.unwrap();
        if !entry.path_is_symlink() {
            chown(entry.path(), Some(NOBODY), Some(NOBODY)).unwrap();
        }
    }
}

pub fn find(program: &str) -> Option<PathBuf> {
    let places = [
        "/usr/local/bin",
        "/usr/bin",
        "/usr/sbin",
        "/bin",
        "/sbin",
        "/usr/libexec/podman",
        "/usr/lib/podman",
    ];
    places
        .iter()
        .map(|place| Path::new(place).join(program))
        .find(|path| path.exists())
}
