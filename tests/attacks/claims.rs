//! Hostile input to `hook claim` and `hook release`: ids and bundles of states, and a state directory in which somebody
//! else can change names.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use nix::fcntl::{AT_FDCWD, RenameFlags, renameat2};
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use nix::sys::stat::Mode;
use nix::unistd::mkfifo;
use serde_json::json;

use crate::file_systems::SilentVolume;
use crate::run::{Ended, finish, is_bidirectional};
use crate::stage::temporary;
use crate::subject::Subject;
use crate::support::init::Init;
use crate::support::scene::snapshot;
use crate::trial::{Attack, Trial};

const DEVICE: &str = "GPU-11111111-2222-3333-4444-555555555555";

/// A directory with `state/` for the ledger, `bundle/` and `outside/`, which must stay as it is.
struct Scene {
    top: tempfile::TempDir,
    subject: Subject,
    init: Init,
}

/// Shares are for engines that run as root.
fn can_claim(test: &str) -> bool {
    crate::owns_machine(&format!("claims::{test}"))
}

impl Scene {
    fn new() -> Scene {
        let scene = Scene {
            top: temporary(),
            subject: Subject::current(),
            init: Init::new(),
        };
        for directory in ["state", "outside", "outside/directory", "bundle"] {
            fs::DirBuilder::new().mode(0o700).create(scene.at(directory)).unwrap();
        }
        fs::write(scene.at("outside/shadow"), "root:$y$secret:1::\n").unwrap();
        fs::write(scene.at("bundle/config.json"), r#"{"root":{"path":"rootfs"}}"#).unwrap();
        scene
    }

    fn at(&self, path: &str) -> PathBuf {
        self.top.path().join(path)
    }

    fn state(&self, id: &str) -> String {
        self.state_of(id, &self.init)
    }

    fn state_of(&self, id: &str, init: &Init) -> String {
        json!({"ociVersion": "1.0.2", "id": id, "bundle": self.at("bundle"), "pid": init.pid()}).to_string()
    }

    fn hook(&self, verb: &str, share: &str) -> Command {
        let mut command = Command::new(self.subject.hook());
        command.args([
            "hook",
            verb,
            "--device",
            DEVICE,
            "--label=gpu 0",
            "--of=10",
            "--size=1/10",
            "--share",
            share,
        ]);
        command.arg("--state-dir").arg(self.at("state"));
        command.args(self.subject.arguments(&[self.top.path()])).env_clear();
        command
    }

    fn run(&self, verb: &str, share: &str, state: &str) -> Ended {
        let start = Instant::now();
        let (code, stderr) = finish(self.hook(verb, share), state.as_bytes(), &self.subject);
        let mut wrong = Vec::new();
        if !(0..=2).contains(&code) {
            wrong.push(format!("exit code {code}"));
        }
        for line in stderr.lines() {
            let foreign = line.chars().any(|c| c.is_control() || is_bidirectional(c));
            if !line.starts_with("tranche-oci: hook") || foreign || line.len() > 16 << 10 {
                wrong.push(format!("a line that is not ours: {line:.200?}"));
            }
        }
        if stderr.contains("$y$secret") {
            wrong.push("a secret file is shown".to_owned());
        }
        Ended {
            code,
            stderr,
            took: start.elapsed(),
            wrong,
            ..Ended::default()
        }
    }

    fn outside(&self) -> BTreeMap<PathBuf, String> {
        snapshot(&self.at("outside"), &|_| true)
    }

    /// Runs both hooks and records them; `outside` must stay as it is.
    fn attack(&self, trial: &mut Trial, name: &str, state: &str) {
        for verb in ["claim", "release"] {
            let before = self.outside();
            let mut ended = self.run(verb, "0", state);
            if self.outside() != before {
                ended.wrong.push("something outside the ledger changed".to_owned());
            }
            let names = fs::read_dir(self.top.path()).unwrap().flatten().count();
            if names != 3 {
                ended.wrong.push("something was made beside the ledger".to_owned());
            }
            trial.record(&format!("{verb} {name}"), &ended);
        }
    }
}

/// One share, two containers: the first has it until it ends, and then the second.
fn twin(trial: &mut Trial) {
    let scene = Scene::new();
    let mut wrong = Vec::new();
    let mut expect = |verb: &str, state: &str, code: i32| {
        let ended = scene.run(verb, "0", state);
        if ended.code != code {
            wrong.push(format!("{verb} ended with {}: {}", ended.code, ended.stderr));
        }
    };
    let first = Init::new();
    let one = scene.state_of("one", &first);
    expect("claim", &one, 0);
    expect("claim", &scene.state("two"), 1);
    drop(first);
    expect("release", &one, 0);
    expect("claim", &scene.state("two"), 0);
    trial.record_twin("claims", &wrong);
}

#[test]
fn ids() {
    if !can_claim("ids") {
        return;
    }
    let long = "x".repeat(900_000);
    Attack::new(
        "claims::ids",
        "a container's id is a path that climbs, has escape sequences or line breaks, or does not end",
    )
    .run_one_way(|trial| {
        twin(trial);
        for id in [
            "../../outside/x",
            "../../outside/directory/x",
            "../../x",
            "/etc/tranche-attack",
            "a/b",
            "..",
            ".",
            "",
            "lock",
            "GPU-11111111-2222-3333-4444-555555555555.claims",
            "a\nb",
            "\u{1b}[2J\u{1b}]0;x\u{7}",
            "\u{202e}evil",
            "\u{0}",
            &long,
        ] {
            let scene = Scene::new();
            // Held by another, so that the refusal is said too.
            scene.run("claim", "0", &scene.state("other"));
            scene.attack(trial, &format!("{id:.40?} while it is held"), &scene.state(id));
            let scene = Scene::new();
            scene.attack(trial, &format!("{id:.40?}"), &scene.state(id));
        }
    });
}

#[test]
fn bundles() {
    if !can_claim("bundles") {
        return;
    }
    Attack::new(
        "claims::bundles",
        "the state names a bundle whose config.json never ends, waits, or is a secret file",
    )
    .run_one_way(|trial| {
        twin(trial);
        for what in ["/dev/zero", "fifo", "shadow", "directory", "a bundle that is a file"] {
            let scene = Scene::new();
            let file = scene.at("bundle/config.json");
            fs::remove_file(&file).unwrap();
            match what {
                "/dev/zero" => symlink(what, &file).unwrap(),
                "fifo" => mkfifo(&file, Mode::S_IRWXU).unwrap(),
                "shadow" => symlink(scene.at("outside/shadow"), &file).unwrap(),
                "directory" => fs::create_dir(&file).unwrap(),
                _ => {
                    fs::remove_dir(scene.at("bundle")).unwrap();
                    fs::write(scene.at("bundle"), "x").unwrap();
                }
            }
            let mut claim = scene.hook("claim", "0");
            claim.args(["--alone", "--node", "/dev/nvidia0"]);
            let before = scene.outside();
            let (code, stderr) = finish(claim, scene.state("c").as_bytes(), &scene.subject);
            let mut ended = scene.run("release", "0", &scene.state("c"));
            if code != 1 || stderr.lines().count() != 1 {
                ended.wrong.push(format!("not refused in one line: {code} {stderr}"));
            }
            if stderr.contains("$y$secret") || scene.outside() != before {
                ended.wrong.push("a secret file is shown or changed".to_owned());
            }
            trial.record(what, &ended);
        }
    });
}

/// Names that the ledger uses, and those of the naive one.
const NAMES: [&str; 6] = [
    "GPU-11111111-2222-3333-4444-555555555555.claims",
    "lock",
    "new",
    "refusals",
    "0",
    "c",
];

/// A state directory below a user's: what is in the ledger's place is the user's to choose.
#[test]
fn files_of_the_ledger() {
    if !can_claim("files_of_the_ledger") {
        return;
    }
    Attack::new(
        "claims::files_of_the_ledger",
        "a file of the ledger is a link to a secret file, to one that is made, a FIFO, a device, or endless",
    )
    .run_one_way(|trial| {
        twin(trial);
        for name in NAMES {
            for kind in ["secret", "missing", "fifo", "zero", "directory", "terabyte", "deep"] {
                let scene = Scene::new();
                let ledger = scene.at("state/ledger");
                fs::DirBuilder::new().mode(0o700).create(&ledger).unwrap();
                let place = ledger.join(name);
                match kind {
                    "secret" => symlink(scene.at("outside/shadow"), &place).unwrap(),
                    "missing" => symlink(scene.at("outside/made"), &place).unwrap(),
                    "fifo" => mkfifo(&place, Mode::S_IRWXU).unwrap(),
                    "zero" => symlink("/dev/zero", &place).unwrap(),
                    "directory" => fs::create_dir(&place).unwrap(),
                    "terabyte" => fs::File::create(&place).unwrap().set_len(1 << 40).unwrap(),
                    _ => fs::write(&place, "[".repeat(1 << 20)).unwrap(),
                }
                scene.attack(trial, &format!("{name} is {kind}"), &scene.state("c"));
            }
        }
    });
}

#[test]
fn the_ledgers_directory_is_exchanged() {
    if !can_claim("the_ledgers_directory_is_exchanged") {
        return;
    }
    Attack::new(
        "claims::the_ledgers_directory_is_exchanged",
        "the ledger's directory is a link to another, from the start or while claims are made",
    )
    .run_one_way(|trial| {
        twin(trial);
        let scene = Scene::new();
        symlink(scene.at("outside/directory"), scene.at("state/ledger")).unwrap();
        scene.attack(trial, "a link", &scene.state("c"));
        // The link is exchanged with the directory while claims are made and given back.
        let scene = Scene::new();
        fs::DirBuilder::new()
            .mode(0o700)
            .create(scene.at("state/ledger"))
            .unwrap();
        symlink(scene.at("outside/directory"), scene.at("state/away")).unwrap();
        let before = scene.outside();
        let stop = AtomicBool::new(false);
        let long = std::env::var("TRANCHE_TEST_RACE_SECONDS")
            .ok()
            .and_then(|text| text.parse().ok());
        let (ledger, away) = (scene.at("state/ledger"), scene.at("state/away"));
        let ended = std::thread::scope(|threads| {
            threads.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    let _ = renameat2(AT_FDCWD, &ledger, AT_FDCWD, &away, RenameFlags::RENAME_EXCHANGE);
                }
            });
            let end = Instant::now() + Duration::from_secs(long.unwrap_or(1));
            let mut ended = scene.run("claim", "0", &scene.state("c"));
            while Instant::now() < end && scene.outside() == before {
                for verb in ["claim", "release"] {
                    let next = scene.run(verb, "0", &scene.state("c"));
                    ended.wrong.extend(next.wrong);
                }
            }
            stop.store(true, Ordering::Relaxed);
            ended
        });
        let mut ended = ended;
        if scene.outside() != before {
            ended.wrong.push("something outside the ledger changed".to_owned());
        }
        trial.record("exchanged", &ended);
    });
}

/// The lock's file is removed while containers start: two of them would hold locks of two files.
#[test]
fn the_lock_is_removed() {
    if !can_claim("the_lock_is_removed") {
        return;
    }
    Attack::new(
        "claims::the_lock_is_removed",
        "the lock file is removed again and again while containers start, so that two of them get one share",
    )
    .run_one_way(|trial| {
        twin(trial);
        let long = std::env::var("TRANCHE_TEST_RACE_SECONDS")
            .ok()
            .and_then(|text| text.parse().ok());
        let end = Instant::now() + Duration::from_secs(long.unwrap_or(2));
        for round in 0.. {
            if round > 0 && Instant::now() > end {
                break;
            }
            let scene = Scene::new();
            scene.run("claim", "1", &scene.state("first"));
            let stop = AtomicBool::new(false);
            let won = std::thread::scope(|threads| {
                threads.spawn(|| {
                    while !stop.load(Ordering::Relaxed) {
                        let _ = fs::remove_file(scene.at("state/ledger/lock"));
                    }
                });
                let starts: Vec<_> = (0..12)
                    .map(|n| {
                        let scene = &scene;
                        threads.spawn(move || scene.run("claim", "0", &scene.state(&format!("c{n}"))).code == 0)
                    })
                    .collect();
                let won = starts
                    .into_iter()
                    .filter_map(|start| start.join().ok())
                    .filter(|won| *won)
                    .count();
                stop.store(true, Ordering::Relaxed);
                won
            });
            let mut ended = scene.run("release", "1", &scene.state("first"));
            if won > 1 {
                ended.wrong.push(format!("{won} containers have the share"));
            }
            trial.record("removed", &ended);
        }
    });
}

/// The file that `release` removes with a claim made beforehand.
#[test]
fn the_specification_of_a_claim() {
    if !can_claim("the_specification_of_a_claim") {
        return;
    }
    Attack::new(
        "claims::the_specification_of_a_claim",
        "a container that never had the claim ends, and the specification of somebody's live claim is removed",
    )
    .run_one_way(|trial| {
        twin(trial);
        for suffix in ["json", "claims"] {
            let scene = Scene::new();
            let spec = scene.at("outside/spec.json");
            fs::write(&spec, "{}").unwrap();
            fs::set_permissions(&spec, PermissionsExt::from_mode(0o644)).unwrap();
            let make = json!({"format": 0, "device": DEVICE, "claims": [{"name": "alice"}]});
            fs::DirBuilder::new()
                .mode(0o700)
                .create(scene.at("state/ledger"))
                .unwrap();
            // A book that cannot be read says nothing of who holds what: the specification stays.
            fs::write(scene.at(&format!("state/ledger/{DEVICE}.{suffix}")), make.to_string()).unwrap();
            let mut release = scene.hook("release", "0");
            release.args(["--claim", "alice", "--spec-file"]).arg(&spec);
            let (code, stderr) = finish(release, scene.state("stranger").as_bytes(), &scene.subject);
            let mut ended = scene.run("release", "0", &scene.state("stranger"));
            if !spec.exists() {
                ended.wrong.push(format!("the specification is gone: {code} {stderr}"));
            }
            trial.record(&format!("a stranger's release, {suffix}"), &ended);
        }
    });
}

/// A user of a root engine may bind a directory of his own, and the hook of an MPS share looks for device nodes there.
#[test]
fn a_volume_that_never_answers() {
    if !can_claim("a_volume_that_never_answers") {
        return;
    }
    if !Path::new("/dev/fuse").exists() {
        return crate::support::skip::not_run("attacks::claims::a_volume_that_never_answers", "no /dev/fuse");
    }
    let attack = Attack::new(
        "claims::a_volume_that_never_answers",
        "a directory that is bound into a container with a share is a FUSE volume whose server is silent: nobody else may wait",
    )
    .naive_passes("it looks at no volume");
    std::thread::scope(|threads| {
        // The mounts are in a namespace of this thread and of what it starts.
        threads.spawn(|| {
            unshare(CloneFlags::CLONE_FS | CloneFlags::CLONE_NEWNS).unwrap();
            let private = MsFlags::MS_REC | MsFlags::MS_PRIVATE;
            mount(None::<&str>, "/", None::<&str>, private, None::<&str>).unwrap();
            attack.run_one_way(|trial| {
                twin(trial);
                for (name, bound) in [
                    ("itself", "volume"),
                    ("a directory in it", "volume/data"),
                    ("by a link", "link"),
                ] {
                    trial.record(name, &with_a_silent_volume(bound));
                }
            });
        });
    });
}

/// A start whose container binds the silent volume, and beside it one that needs another share of the same ledger.
fn with_a_silent_volume(bound: &str) -> Ended {
    let scene = Scene::new();
    fs::create_dir(scene.at("volume")).unwrap();
    symlink(scene.at("volume/x"), scene.at("link")).unwrap();
    let mount = json!({"destination": "/data", "type": "bind", "source": scene.at(bound), "options": ["rbind"]});
    let config = json!({"root": {"path": "rootfs"}, "mounts": [mount]});
    fs::write(scene.at("bundle/config.json"), config.to_string()).unwrap();
    let before = scene.outside();
    let mut volume = SilentVolume::mount(&scene.at("volume")).unwrap();
    let mut claim = scene.hook("claim", "0");
    claim.arg("--node=/dev/null");
    let (state, subject) = (scene.state("waits"), scene.subject.clone());
    let (code, stderr, free) = std::thread::scope(|threads| {
        let waiting = threads.spawn(|| finish(claim, state.as_bytes(), &subject));
        // Long enough to look at the volume on a machine that is not busy. On one that is, less is tried.
        std::thread::sleep(Duration::from_millis(300));
        let waits = !waiting.is_finished();
        let free = scene.run("claim", "1", &scene.state("free"));
        volume.end();
        let (code, stderr) = waiting.join().unwrap();
        (code, stderr, (free, waits))
    });
    let (mut free, waits) = free;
    if free.code != 0 && subject.is_real() {
        free.wrong
            .push(format!("another container gets no share: {}", free.stderr));
    }
    if !waits && subject.is_real() {
        free.wrong
            .push(format!("the start did not wait for the volume: {code} {stderr}"));
    }
    if scene.outside() != before {
        free.wrong.push("something outside the ledger changed".to_owned());
    }
    free
}
