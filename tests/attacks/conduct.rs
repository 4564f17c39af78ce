//! How the hook conducts itself on images that mean no harm. Each of these is what an attacker would profit from who
//! finds something that nobody thought of, and each is tried on the naive program with one fault alone.

use std::fs;
use std::io::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::run::Ended;
use crate::stage::{MARK, Stage};
use crate::trial::Attack;
use crate::verb::{VERBS, Verb};
use crate::{can_mount, owns_machine};

/// CAP_CHOWN, CAP_DAC_OVERRIDE, CAP_FOWNER and CAP_SYS_ADMIN, by their numbers in linux/capability.h.
const ALLOWED: u64 = 1 << 0 | 1 << 1 | 1 << 3 | 1 << 21;

/// A hook that waits for the rest of its state.
struct Waiting {
    child: Child,
    _program: tempfile::TempDir,
}

impl Waiting {
    /// Starts the hook as this user. It has given up everything before it reads a byte.
    fn start(stage: &Stage, uid: u32) -> Option<Waiting> {
        let directory = crate::stage::temporary();
        fs::set_permissions(directory.path(), PermissionsExt::from_mode(0o755)).unwrap();
        let program = directory.path().join("tranche-oci");
        // By another process: one that this one starts meanwhile would hold the file open for writing.
        let copied = Command::new("cp").arg(stage.subject.hook()).arg(&program).status();
        assert!(copied.unwrap().success());
        let mut command = Command::new("setpriv");
        let uid = uid.to_string();
        command
            .args(["--reuid", &uid, "--regid", &uid, "--clear-groups"])
            .arg(&program);
        command.args(["hook", stage.verb.name]);
        command
            .arg(format!("--state-dir={}", stage.scene.state_dir().display()))
            .args(stage.verb.arguments);
        command.args(stage.subject.arguments(&[&stage.scene.at("")]));
        let child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut waiting = Waiting {
            child,
            _program: directory,
        };
        let end = Instant::now() + Duration::from_secs(60);
        while Instant::now() < end && waiting.child.try_wait().unwrap().is_none() {
            if waiting.text("wchan").contains("pipe_read") {
                return Some(waiting);
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        None
    }

    fn text(&self, file: &str) -> String {
        fs::read_to_string(format!("/proc/{}/{file}", self.child.id())).unwrap_or_default()
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        drop(self.child.stdin.take().map(|mut input| input.write_all(b"{}")));
        let _ = self.child.wait();
    }
}

/// What the hook still has when it begins with its work.
fn powers(stage: &Stage) -> Vec<String> {
    let mut wrong = Vec::new();
    let Some(hook) = Waiting::start(stage, 0) else {
        return vec!["it does not wait for its state".to_owned()];
    };
    let status = hook.text("status");
    let value = |name: &str| {
        let line = status
            .lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        line.unwrap_or_default().trim().to_owned()
    };
    for (set, allowed) in [("CapPrm", ALLOWED), ("CapEff", ALLOWED), ("CapInh", 0), ("CapAmb", 0)] {
        let has = u64::from_str_radix(&value(set), 16).unwrap();
        if has & !allowed != 0 {
            wrong.push(format!("{set} has {:x} too much", has & !allowed));
        }
    }
    if value("NoNewPrivs") != "1" {
        wrong.push("it may gain privileges".to_owned());
    }
    if !hook
        .text("limits")
        .lines()
        .any(|line| line.starts_with("Max core file size        0 "))
    {
        wrong.push("it may leave a core file".to_owned());
    }
    wrong
}

/// Whether processes of the same user can trace the hook: the kernel gives the files of one that cannot be to root.
fn can_be_traced(stage: &Stage) -> Vec<String> {
    let Some(hook) = Waiting::start(stage, 65534) else {
        return vec!["it does not wait for its state".to_owned()];
    };
    let owner = fs::metadata(format!("/proc/{}/stat", hook.child.id())).unwrap().uid();
    (owner != 0)
        .then(|| "others can trace it".to_owned())
        .into_iter()
        .collect()
}

fn seen(wrong: Vec<String>) -> Ended {
    Ended {
        wrong,
        ..Ended::default()
    }
}

#[test]
fn what_it_keeps() {
    // An ordinary user has nothing to give up, and in a user namespace nobody may look at the process.
    if !owns_machine("conduct::what_it_keeps") {
        return;
    }
    Attack::new(
        "conduct::what_it_keeps",
        "a program that takes the hook over finds capabilities, new privileges, a core file, or a process that can be traced",
    )
    .fault("capabilities")
    .run_one_way(|trial| {
        for verb in VERBS {
            trial.twin(&Stage::new(verb));
            let stage = Stage::new(verb);
            trial.record(&format!("{} powers", verb.name), &seen(powers(&stage)));
            trial.record(&format!("{} traced", verb.name), &seen(can_be_traced(&stage)));
        }
    });
}

/// Modes of what is new or other in the image, which are not those of READABLE files and directories.
fn odd_modes(stage: &Stage, before: &std::collections::BTreeMap<std::path::PathBuf, String>) -> Vec<String> {
    let now = stage.scene.inside();
    let changed = now.iter().filter(|(path, text)| before.get(*path) != Some(text));
    let mut wrong = Vec::new();
    for (path, _) in changed {
        let meta = fs::symlink_metadata(path).unwrap();
        let mode = meta.mode() & 0o7777;
        let new = !before.contains_key(path);
        let good = if meta.is_dir() {
            !new || mode == 0o755
        } else {
            matches!(mode, 0o644 | 0o444)
        };
        if !meta.is_symlink() && !good && !path.ends_with("dev/nvidia-caps") {
            wrong.push(format!("{} has mode {mode:o}", path.display()));
        }
    }
    wrong
}

#[test]
fn modes_of_what_it_writes() {
    Attack::new(
        "conduct::modes_of_what_it_writes",
        "a user of the container changes what the hook wrote, or runs it as root: files are never writable for others",
    )
    .fault("modes")
    .run(|trial| {
        for verb in VERBS {
            trial.twin(&Stage::new(verb));
            let stage = Stage::new(verb);
            let before = stage.scene.inside();
            trial.attack_and(verb.name, &stage, |_| odd_modes(&stage, &before));
        }
    });
}

#[test]
fn the_engines_umask() {
    Attack::new(
        "conduct::the_engines_umask",
        "the engine's umask is 0 or 077, and what the hook makes is writable for everybody or readable for nobody",
    )
    .fault("umask")
    .run(|trial| {
        for verb in [
            "prepare",
            "create-symlinks",
            "update-application-profile",
            "update-ldcache",
        ]
        .map(Verb::named)
        {
            trial.twin(&Stage::new(verb));
            for mask in ["0", "077", "0777"] {
                let mut stage = Stage::new(verb);
                for path in ["/etc/nvidia", "/dev/dri/by-path"] {
                    stage.clear(path);
                }
                stage.more = vec!["--link".into(), "x::/new/directory/y".into()];
                stage.wrapper = ["sh", "-c", &format!("umask {mask}; exec \"$@\""), "sh"]
                    .map(Into::into)
                    .to_vec();
                let before = stage.scene.inside();
                trial.attack_and(&format!("{} {mask}", verb.name), &stage, |_| odd_modes(&stage, &before));
            }
        }
    });
}

#[test]
fn covers_of_a_read_only_root() {
    if !can_mount("covers_of_a_read_only_root") {
        return;
    }
    Attack::new(
        "conduct::covers_of_a_read_only_root",
        "root in the container writes to a file that was laid over one of a read-only root",
    )
    .fault("cover")
    .run(|trial| {
        for verb in ["prepare", "update-ldcache", "disable-device-node-modification"].map(Verb::named) {
            let read_only = || {
                let mut stage = Stage::new(verb);
                stage.configure(None, true);
                stage.keeps_image = true;
                stage
            };
            // Served on a root that may be written: a cover that can be written is what the attack itself looks at.
            trial.twin(&Stage::new(Verb::named("update-ldcache")));
            trial.attack_and(verb.name, &read_only(), |ended| {
                let wide = ended
                    .covers
                    .iter()
                    .filter(|cover| !matches!(cover.mode.as_str(), "644 0:0" | "444 0:0"));
                wide.map(|cover| format!("{} has mode {}", cover.path, cover.mode))
                    .collect()
            });
        }
    });
}

/// A start that fails in the middle leaves no links that another start would take for the image's own.
#[test]
fn a_start_that_fails_half_way() {
    Attack::new(
        "conduct::a_start_that_fails_half_way",
        "the second half of the work is made to fail, and links of the first half stay in the image",
    )
    .fault("undo")
    .run(|trial| {
        for verb in ["prepare", "create-symlinks"].map(Verb::named) {
            trial.twin(&Stage::new(verb));
            // Where the second link is to be lies a directory with a file.
            let mut stage = Stage::new(verb);
            fs::create_dir_all(stage.image("/taken/file")).unwrap();
            stage.more = ["--link", "x::/fresh", "--link", "x::/taken"].map(Into::into).to_vec();
            trial.attack_and(verb.name, &stage, |ended| {
                let stays = ended.code != 0 && fs::read_link(stage.image("/fresh")).is_ok();
                let served = (ended.code == 0).then(|| "it did not fail".to_owned());
                let stays = stays.then(|| "a link stays after a start that failed".to_owned());
                stays.into_iter().chain(served).collect()
            });
        }
        // The cache cannot be replaced after the links were made.
        let verb = Verb::named("prepare");
        let stage = Stage::new(verb);
        fs::create_dir(stage.clear("/etc/ld.so.cache")).unwrap();
        let link = stage.image("/usr/lib/x86_64-linux-gnu/libcuda.so");
        trial.attack_and("prepare, the cache is a directory", &stage, |ended| {
            let stays = ended.code != 0 && fs::read_link(&link).is_ok();
            stays
                .then(|| "a link stays after a start that failed".to_owned())
                .into_iter()
                .collect()
        });
    });
}

/// A handle is opened again through /proc/self/fd. Where something else than /proc is mounted there, in an engine's
/// namespace that is prepared for it, that gives another file.
#[test]
fn a_false_proc() {
    // In a user namespace the hook can mount no /proc of its own.
    if !owns_machine("conduct::a_false_proc") {
        return;
    }
    Attack::new(
        "conduct::a_false_proc",
        "/proc is not the kernel's, and opening a file again through /proc/self/fd gives another file",
    )
    .fault("reopening")
    .run(|trial| {
        for verb in ["prepare", "update-ldcache"].map(Verb::named) {
            trial.twin(&Stage::new(verb));
            let mut stage = Stage::new(verb);
            let fake = format!(
                "mount -t tmpfs tmpfs /proc && for of in self thread-self; do mkdir -p /proc/$of/fd
                for n in $(seq 0 40); do echo /{MARK} > /proc/$of/fd/$n; done; done; exec \"$@\""
            );
            stage.wrapper = ["unshare", "-m", "sh", "-c", &fake, "sh"].map(Into::into).to_vec();
            trial.attack(verb.name, &stage);
        }
    });
}
