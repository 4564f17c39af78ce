//! One attack: an image, the host beside it, a run of the real program, and a look at what it did.
//!
//! The image and `outside/host` are furnished alike, so that a path that leaves the root arrives at the same file of the
//! host, where a step would do its work and be seen. Each run has a mount namespace of its own, as under an engine.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::io::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use nix::unistd::Uid;
use serde_json::{Value, json};

use crate::ld_so_cache;
use crate::old_kernel::has_openat2;
use crate::scene::Scene;
use crate::stub_elf::{self, Machine};
use crate::tally::Tally;
use crate::verb::{DRIVER, LIBDIR, Verb};

/// In every file of the host and in none of the image: where it appears in the image, the host was read.
const MARK: &str = "of-the-host";

/// A mount namespace, limits, and the lists of mounts around the run. The limit is one of processor time, and more than
/// the one second that the program gives itself: one that reaches it did not keep its own.
const ENTER: &str = r#"
root=$1 before=$2 after=$3 took=$4; shift 4
PREPARE
cat /proc/self/mountinfo > "$before"
cd "$root" || exit 99
RUN
cat /proc/self/mountinfo > "$after"
AFTER
exit $code
"#;

/// The hook under its limits, and the machine's uptime around it.
const RUN: &str = r#"read -r start rest < /proc/uptime
(ulimit -c 0; ulimit -t 2; ulimit -d 262144; exec "$@")
code=$?
read -r end rest < /proc/uptime
echo "$start $end" > "$took""#;

/// The same where nothing is mounted: a namespace costs more than all else.
const LIMITS: &str = r#"
took=$1; shift
RUN
exit $code
"#;

/// The exit codes for SIGXCPU: ours, and a shell's.
const XCPU: i32 = -24;
const XCPU_OF_A_SHELL: i32 = 128 + 24;

/// Longer than any run takes on a machine that is not stuck.
const HANGS: Duration = Duration::from_secs(60);

/// A scene to attack in.
pub(crate) struct Stage {
    pub(crate) scene: Scene,
    pub(crate) verb: Verb,
    /// Standard input of the hook.
    pub(crate) state: String,
    /// Shell words that run in the mount namespace before the hook, with the root directory in `$root`.
    pub(crate) before: String,
    /// And after it, with its exit code in `$code`.
    pub(crate) after: String,
    /// The hook's environment.
    pub(crate) environment: Vec<(OsString, OsString)>,
    /// A program, with arguments, that runs the hook.
    pub(crate) wrapper: Vec<OsString>,
    /// More arguments for the verb.
    pub(crate) more: Vec<OsString>,
    /// Whether the image must be as it was, to the byte.
    pub(crate) keeps_image: bool,
    mounts: tempfile::TempDir,
}

/// What was seen before an attack.
pub(crate) struct Look {
    outside: BTreeMap<PathBuf, String>,
    inside: BTreeMap<PathBuf, String>,
    machine: BTreeMap<PathBuf, String>,
}

/// What a run left behind.
pub(crate) struct Ended {
    pub(crate) code: i32,
    pub(crate) stderr: String,
    /// From the hook's start to its end, on the wall's clock, to hundredths of a second.
    pub(crate) took: Duration,
    pub(crate) wrong: Vec<String>,
}

impl Stage {
    /// A furnished image and host, before any attack.
    pub(crate) fn new(verb: Verb) -> Stage {
        let scene = Scene::of(temporary());
        furnish(&scene.image("/"), "of-the-image");
        furnish(&scene.at("outside/host"), MARK);
        let stage = Stage {
            state: scene.state(),
            scene,
            verb,
            more: Vec::new(),
            keeps_image: false,
            mounts: temporary(),
            before: String::new(),
            after: String::new(),
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

    /// Runs the hook, counts it as an attack, and gives what it said.
    pub(crate) fn attack(&self, name: &str, tally: &mut Tally) -> Ended {
        let before = self.look();
        let mut ended = self.run();
        self.compare(&before, &mut ended.wrong);
        tally.count(name, ended.code, ended.took, &ended.wrong);
        ended
    }

    /// As [`Self::attack`], on an image with something in it that nobody should read whole; `tidy` takes it away again
    /// before what is left is looked at.
    pub(crate) fn attack_unread(&self, name: &str, tidy: impl FnOnce(), tally: &mut Tally) -> Ended {
        let before = Look {
            outside: self.scene.outside(),
            inside: BTreeMap::new(),
            machine: sentinels(),
        };
        let mut ended = self.run();
        tidy();
        self.compare(&before, &mut ended.wrong);
        tally.count(name, ended.code, ended.took, &ended.wrong);
        ended
    }

    /// As [`Self::attack`], where a directory of the host is part of the container: what is in it may be seen there.
    pub(crate) fn attack_volume(&self, name: &str, tally: &mut Tally) -> Ended {
        let before = self.look();
        let mut ended = self.run();
        self.compare(&before, &mut ended.wrong);
        ended.wrong.retain(|line| !line.ends_with("holds what the host holds"));
        tally.count(name, ended.code, ended.took, &ended.wrong);
        ended
    }

    /// Everything that an attack could change.
    pub(crate) fn look(&self) -> Look {
        Look {
            outside: self.scene.outside(),
            inside: self.scene.inside(),
            machine: sentinels(),
        }
    }

    /// What is not as it was and should be.
    pub(crate) fn compare(&self, before: &Look, wrong: &mut Vec<String>) {
        let now = self.look();
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

    /// Runs the hook and looks at all that can be seen without the files.
    pub(crate) fn run(&self) -> Ended {
        let root = self.image("/");
        let lists = [self.mounts.path().join("before"), self.mounts.path().join("after")];
        let took = self.mounts.path().join("took");
        // These three never mount.
        let mounts = !matches!(
            self.verb.name,
            "create-symlinks" | "update-application-profile" | "chmod"
        );
        let mut command = if Uid::effective().is_root() && (mounts || !self.before.is_empty()) {
            let mut command = Command::new("unshare");
            command
                .args(["-m", "--propagation", "slave", "sh", "-c"])
                .arg(
                    ENTER
                        .replace("RUN", RUN)
                        .replace("PREPARE", &self.before)
                        .replace("AFTER", &self.after),
                )
                .arg("sh")
                .arg(&root)
                .args(&lists)
                .arg(&took);
            command
        } else {
            let mut command = Command::new("sh");
            command.args(["-c", &LIMITS.replace("RUN", RUN), "sh"]).arg(&took);
            command
        };
        if !self.environment.is_empty() {
            command.arg("env");
        }
        for (name, value) in &self.environment {
            let mut both = name.clone();
            both.push("=");
            both.push(value);
            command.arg(both);
        }
        command
            .args(&self.wrapper)
            .arg(program())
            .args(["hook", self.verb.name])
            .arg(format!("--state-dir={}", self.scene.state_dir().display()));
        command.args(self.verb.arguments).args(&self.more);
        command
            .env_clear()
            .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
            .current_dir(&root);
        let here = fs::read_to_string("/proc/self/mountinfo").unwrap();
        let (code, stderr) = run(command, self.state.as_bytes());
        let mut wrong = complaints(code, &stderr);
        wrong.extend(new_mounts(
            &here,
            &fs::read_to_string("/proc/self/mountinfo").unwrap(),
            &root,
        ));
        if let [Ok(before), Ok(after)] = lists.map(fs::read_to_string) {
            wrong.extend(new_mounts(&before, &after, &root));
        }
        Ended {
            code,
            stderr,
            took: seconds_between(&took),
            wrong,
        }
    }
}

/// A directory in memory: there are thousands of scenes, and a disk that others use would stop some for a minute.
pub(crate) fn temporary() -> tempfile::TempDir {
    tempfile::tempdir_in(in_memory()).unwrap()
}

fn in_memory() -> PathBuf {
    let memory = Path::new("/dev/shm");
    if memory.is_dir() {
        memory.to_owned()
    } else {
        std::env::temp_dir()
    }
}

/// The program that is attacked: as it is shipped, where `make test` has built it.
pub(crate) fn program() -> PathBuf {
    std::env::var_os("TRANCHE_OCI_STATIC").map_or_else(|| env!("CARGO_BIN_EXE_tranche-oci").into(), PathBuf::from)
}

/// What the shell noted of the machine's uptime before and after; nothing where it did not come to that.
fn seconds_between(file: &Path) -> Duration {
    let text = fs::read_to_string(file).unwrap_or_default();
    let times: Vec<f64> = text.split_whitespace().map(|t| t.parse().unwrap()).collect();
    match times[..] {
        [start, end] => Duration::from_secs_f64((end - start).max(0.0)),
        _ => Duration::ZERO,
    }
}

fn run(mut command: Command, input: &[u8]) -> (i32, String) {
    let start = Instant::now();
    // A file: a pipe that nobody reads is full after 64 KiB, and a line may be longer.
    let said = tempfile::NamedTempFile::new_in(in_memory()).unwrap();
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(said.reopen().unwrap())
        .spawn()
        .unwrap();
    // A program may end without reading its input.
    let _ = child.stdin.take().unwrap().write_all(input);
    while child.try_wait().unwrap().is_none() {
        if start.elapsed() > HANGS {
            child.kill().unwrap();
            return (-1, "it hangs".to_owned());
        }
        std::thread::sleep(Duration::from_micros(500));
    }
    let status = child.wait().unwrap();
    let stderr = String::from_utf8_lossy(&fs::read(said.path()).unwrap()).into_owned();
    let signal = status.signal().unwrap_or(1);
    (status.code().unwrap_or(-signal), stderr)
}

/// What is wrong with an exit code and with what was said.
fn complaints(code: i32, stderr: &str) -> Vec<String> {
    let mut wrong = Vec::new();
    // A walk without openat2 can be made as long as an image likes: then the hook ends itself by a signal after a second
    // of work. Anything else is a program that aborts or crashes, or that others had to end.
    let ended_itself = !has_openat2() && matches!(code, XCPU | XCPU_OF_A_SHELL);
    if !(0..=2).contains(&code) && !ended_itself {
        wrong.push(format!("exit code {code}"));
    }
    for line in stderr.lines() {
        if ended_itself && line.starts_with("CPU time limit exceeded") {
            continue;
        }
        if !line.starts_with("tranche-oci: hook") || line.chars().any(char::is_control) {
            wrong.push(format!("a line that is not ours: {line:?}"));
        }
    }
    if code != 0 && stderr.is_empty() && !ended_itself {
        wrong.push("it failed without a word".to_owned());
    }
    wrong
}

/// Mounts that are new and not below the root.
fn new_mounts(before: &str, after: &str, root: &Path) -> Vec<String> {
    let new = after.lines().filter(|line| !before.lines().any(|old| old == *line));
    let gone = before.lines().filter(|line| !after.lines().any(|now| now == *line));
    let outside = new.filter(|line| {
        let at = line.split(' ').nth(4).unwrap_or_default();
        !Path::new(at).starts_with(root) || Path::new(at) == root
    });
    outside
        .chain(gone)
        .map(|line| format!("a mount of the host: {line}"))
        .collect()
}

fn differences(
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

/// A root with a file at every path that a hook touches. `mark` is in each.
pub(crate) fn furnish(top: &Path, mark: &str) {
    let write = |path: &str, bytes: &[u8]| {
        let file = top.join(path.trim_start_matches('/'));
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, bytes).unwrap();
    };
    let library = |name: &str| {
        let mut bytes = stub_elf::library("libcuda.so.1", Machine::X86_64).unwrap();
        bytes.extend_from_slice(name.as_bytes());
        bytes
    };
    let own = format!("lib{mark}.so.1");
    let cache = ld_so_cache::write(vec![ld_so_cache::Entry::new(
        &Path::new("/opt/lib").join(&own),
        &own,
        Machine::X86_64,
    )]);
    write("/etc/ld.so.cache", &cache);
    write(
        "/etc/ld.so.conf",
        format!("include /etc/ld.so.conf.d/*.conf\n# {mark}\n").as_bytes(),
    );
    write("/etc/ld.so.conf.d/image.conf", format!("/opt/{mark}\n").as_bytes());
    write("/etc/ld-musl-x86_64.path", format!("/lib:/opt/{mark}\n").as_bytes());
    for loader in ["/lib64/ld-linux-x86-64.so.2", "/lib/ld-musl-x86_64.so.1"] {
        write(loader, mark.as_bytes());
    }
    write(&format!("{LIBDIR}/libcuda.so.{DRIVER}"), &library(mark));
    write("/usr/local/cuda/compat/libcuda.so.590.44.01", &library(mark));
    write(
        "/proc/driver/nvidia/params",
        format!("ModifyDeviceFiles: 1\nRmMsg: \"{mark}\"\n").as_bytes(),
    );
    write(
        "/etc/nvidia/nvidia-application-profiles-rc.d/10-container.conf",
        mark.as_bytes(),
    );
    write("/dev/dri/card0", mark.as_bytes());
    for directory in ["dev/dri/by-path", "dev/nvidia-caps", "opt/lib"] {
        fs::create_dir_all(top.join(directory)).unwrap();
    }
    fs::set_permissions(top.join("dev/nvidia-caps"), PermissionsExt::from_mode(0o700)).unwrap();
}
