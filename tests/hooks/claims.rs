//! The claim hooks as an engine runs them, in numbers and under every misfortune: real processes on a real disk.

mod prepared;
mod promises;
mod refusals;
mod surroundings;

use crate::support::{init, rights, skip};
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use init::Init;
use nix::fcntl::{Flock, FlockArg};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, accept, bind, connect, listen, socket_with};
use serde_json::json;
use tranche_core::ledger::{Book, HeldPart, Ledger};

/// A state directory, and containers that are processes without anything around them.
struct Scene {
    top: tempfile::TempDir,
}

impl Scene {
    /// A scene; `None` for a user, whose engine gets no shares without the broker.
    fn new(test: &str) -> Option<Scene> {
        if !rights::owns_machine(&format!("claims::{test}")) {
            return None;
        }
        Some(Scene {
            top: tempfile::tempdir().unwrap(),
        })
    }

    fn state_dir(&self) -> PathBuf {
        self.top.path().join("state")
    }

    fn file(&self) -> PathBuf {
        self.state_dir().join("ledger/GPU-11111111.claims")
    }

    /// The hook `verb` for container `id` in `bundle`, whose init is `pid`.
    fn hook(&self, verb: &str, share: &str, bundle: &str, id: &str, pid: u32) -> Command {
        let share = format!("--share={share}");
        self.with(
            verb,
            &[
                "--device=GPU-11111111",
                "--label=gpu 0",
                &share,
                "--size=1/10",
                "--of=10",
            ],
            bundle,
            id,
            pid,
        )
    }

    /// The hook `verb` with these arguments.
    fn with(&self, verb: &str, arguments: &[&str], bundle: &str, id: &str, pid: u32) -> Command {
        let state = json!({"ociVersion": "1.0.2", "id": id, "status": "creating", "bundle": bundle, "pid": pid});
        let input = self.top.path().join(format!("{id}-{verb}-{pid}.state"));
        fs::write(&input, state.to_string()).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_tranche-oci"));
        command.args(["hook", verb]).args(arguments);
        command.arg("--state-dir").arg(self.state_dir());
        command
            .env_clear()
            .stdin(File::open(&input).unwrap())
            .stdout(Stdio::null());
        command
    }

    fn claim(&self, share: &str, id: &str, init: &Init) -> Result<(), String> {
        said(self.hook("claim", share, "/b", id, init.pid()).output().unwrap())
    }

    fn release(&self, share: &str, id: &str) {
        said(self.hook("release", share, "/b", id, 0).output().unwrap()).unwrap();
    }

    /// What is in the ledger; panics where it is not sound.
    fn books(&self) -> Vec<Book> {
        let all = Ledger::open(&self.state_dir()).unwrap().books().unwrap();
        assert!(all.damaged.is_empty(), "{:?}", all.damaged);
        assert!(all.books.iter().all(Book::is_sound));
        all.books
    }

    /// Shares and the ids of who holds them, as the file says.
    fn held(&self) -> Vec<(String, String)> {
        let claims = self.books().into_iter().flat_map(|b| b.claims);
        let mut held: Vec<(String, String)> = claims
            .map(|c| {
                let HeldPart::Shares(shares) = c.part else { panic!() };
                (shares[0].name.to_string(), c.holder.container().unwrap().id.clone())
            })
            .collect();
        held.sort();
        held
    }

    /// Starts `count` containers with the process `pid` at once, each of which asks for one of ten shares. `before`
    /// gets the number of each. Returns the shares and the containers that have them.
    ///
    /// A share stays free only if each hook that asked for it waited for the lock in vain, as on a machine that is much
    /// too busy.
    fn race(&self, count: usize, pid: u32, mut before: impl FnMut(usize)) -> Vec<(String, String)> {
        let line = |n: usize| self.top.path().join(format!("c{n}.line"));
        let hooks: Vec<Child> = (0..count)
            .map(|n| {
                before(n);
                let mut hook = self.hook("claim", &(n % 10).to_string(), "/b", &format!("c{n}"), pid);
                hook.stderr(File::create(line(n)).unwrap()).spawn().unwrap()
            })
            .collect();
        let mut won = Vec::new();
        let mut refused = BTreeSet::new();
        for (n, mut hook) in hooks.into_iter().enumerate() {
            let share = (n % 10).to_string();
            if hook.wait().unwrap().success() {
                won.push((share, format!("c{n}")));
            } else if !fs::read_to_string(line(n))
                .unwrap()
                .contains("lock: has been held for ")
            {
                refused.insert(share);
            }
        }
        won.sort();
        let taken: BTreeSet<String> = won.iter().map(|(share, _)| share.clone()).collect();
        assert_eq!(taken.len(), won.len(), "two containers were given one share: {won:?}");
        assert!(
            refused.is_subset(&taken),
            "refused, and nobody has it: {refused:?} {taken:?}"
        );
        assert!(!won.is_empty());
        won
    }

    fn edit(&self, from: &str, to: &str) {
        let text = fs::read_to_string(self.file()).unwrap();
        assert!(text.contains(from), "{text}");
        fs::write(self.file(), summed(&text.replace(from, to))).unwrap();
    }
}

/// The text of a book with the checksum of what is before it: FNV-1a with 64 bits.
fn summed(text: &str) -> String {
    let (before, _) = text.rsplit_once(' ').unwrap();
    let step = |sum: u64, byte: &u8| (sum ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01B3);
    let sum = format!("{before} ").as_bytes().iter().fold(0xCBF2_9CE4_8422_2325, step);
    format!("{before} {sum:016x}\n")
}

/// Success, or the one line that the hook wrote.
fn said(output: Output) -> Result<(), String> {
    let text = String::from_utf8(output.stderr).unwrap();
    if output.status.success() {
        assert_eq!(text, "");
        return Ok(());
    }
    assert_eq!(text.lines().count(), 1, "{text}");
    Err(text)
}

#[test]
fn a_thousand_at_once_for_ten_shares() {
    let Some(scene) = Scene::new("a_thousand_at_once_for_ten_shares") else {
        return;
    };
    Ledger::open(&scene.state_dir()).unwrap();
    let init = Init::new();
    // Hundreds come to the lock before one gets it.
    let lock = File::create(scene.state_dir().join("ledger/lock")).unwrap();
    let lock = Flock::lock(lock, FlockArg::LockExclusive).map_err(|e| e.1).unwrap();
    let mut lock = Some(lock);
    let won = scene.race(1000, init.pid(), |n| {
        if n == 300 {
            lock.take();
        }
    });
    assert_eq!(scene.held(), won, "the ledger says what the hooks said");
}

#[test]
fn taken_and_given_back_over_and_over_by_many() {
    let Some(scene) = Scene::new("taken_and_given_back_over_and_over_by_many") else {
        return;
    };
    let in_use: Vec<AtomicBool> = (0..4).map(|_| AtomicBool::new(false)).collect();
    let taken = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for thread in 0..16 {
            let (scene, in_use, taken) = (&scene, &in_use, &taken);
            scope.spawn(move || {
                for round in 0..12 {
                    let share = (thread + round) % in_use.len();
                    let (name, id) = (share.to_string(), format!("c{thread}-{round}"));
                    let init = Init::new();
                    if scene.claim(&name, &id, &init).is_ok() {
                        assert!(!in_use[share].swap(true, Ordering::SeqCst), "two hold share {share}");
                        taken.fetch_add(1, Ordering::SeqCst);
                        assert!(in_use[share].swap(false, Ordering::SeqCst));
                        drop(init);
                        // Every third engine crashes before its poststop.
                        if round % 3 > 0 {
                            scene.release(&name, &id);
                        }
                    }
                }
            });
        }
    });
    assert!(taken.load(Ordering::SeqCst) >= 16);
    for share in 0..in_use.len() {
        let init = Init::new();
        scene
            .claim(&share.to_string(), "last", &init)
            .expect("no share is lost");
    }
}

#[test]
fn killed_at_any_moment() {
    let Some(scene) = Scene::new("killed_at_any_moment") else {
        return;
    };
    let killed = |mut hook: Command, after: u64| {
        let mut child = hook.stderr(Stdio::null()).spawn().unwrap();
        std::thread::sleep(Duration::from_micros(after));
        let _ = child.kill();
        let _ = child.wait();
        scene.books();
    };
    let other = Init::new();
    scene.claim("9", "other", &other).unwrap();
    for round in 0..150u64 {
        // Spread over the few milliseconds that a hook runs.
        let after = round * 37 % 4000;
        let id = format!("c{round}");
        let init = Init::new();
        killed(scene.hook("claim", "0", "/b", &id, init.pid()), after);
        let held = scene.held();
        assert!(held.contains(&("9".into(), "other".into())), "{held:?}");
        drop(init);
        // Whether the claim was written or not, the next one gets the share.
        let init = Init::new();
        let next = format!("{id}-next");
        scene.claim("0", &next, &init).unwrap();
        drop(init);
        killed(scene.hook("release", "0", "/b", &next, 0), after);
        let init = Init::new();
        scene.claim("0", &format!("{id}-last"), &init).unwrap();
    }
    assert!(
        scene.claim("9", "late", &other).is_err(),
        "the first claim is still there"
    );
}

#[test]
fn a_hook_in_another_pid_namespace() {
    let Some(scene) = Scene::new("a_hook_in_another_pid_namespace") else {
        return;
    };
    let inner = scene.hook("claim", "0", "/inner", "c", 2);
    let arguments: Vec<_> = inner.get_args().map(|a| a.to_owned()).collect();
    // Process 2 of the new namespace is the container; when the namespace ends, nobody outside can tell.
    let output = Command::new("unshare")
        .args([
            "--pid",
            "--fork",
            "--mount-proc",
            "sh",
            "-c",
            "sleep 1000 & \"$@\"",
            "sh",
        ])
        .arg(inner.get_program())
        .args(&arguments)
        .stdin(File::open(scene.top.path().join("c-claim-2.state")).unwrap())
        .output()
        .unwrap();
    if String::from_utf8_lossy(&output.stderr).contains("unshare") {
        return skip::not_run(
            "claims::a_hook_in_another_pid_namespace",
            "may not make a pid namespace",
        );
    }
    said(output).unwrap();
    let init = Init::new();
    let line = scene.claim("0", "outer", &init).unwrap_err();
    assert!(line.contains("container c holds share 0 since"), "{line}");
    said(scene.hook("release", "0", "/inner", "c", 0).output().unwrap()).unwrap();
    scene.claim("0", "outer", &init).unwrap();
}

#[test]
fn one_id_of_two_engines() {
    let Some(scene) = Scene::new("one_id_of_two_engines") else {
        return;
    };
    let (first, second) = (Init::new(), Init::new());
    let claim =
        |bundle: &str, init: &Init| said(scene.hook("claim", "0", bundle, "same", init.pid()).output().unwrap());
    // Two engines, and two namespaces of containerd.
    claim("/run/containerd/io.containerd.runtime.v2.task/default/same", &first).unwrap();
    assert!(claim("/run/containerd/io.containerd.runtime.v2.task/k8s.io/same", &second).is_err());
    let other = "/var/lib/containers/storage/overlay-containers/same/userdata";
    assert!(claim(other, &second).is_err());
    said(scene.hook("release", "0", other, "same", 0).output().unwrap()).unwrap();
    assert_eq!(scene.held().len(), 1, "the other engine's container gave back nothing");
}

/// The hook that a spec has once, for all its devices.
fn release_all(scene: &Scene, id: &str) -> Output {
    scene.with("release", &[], "/b", id, 0).output().unwrap()
}

#[test]
fn a_release_of_no_device_is_of_all_that_the_container_holds() {
    let Some(scene) = Scene::new("a_release_of_no_device_is_of_all_that_the_container_holds") else {
        return;
    };
    let (one, two) = (Init::new(), Init::new());
    let claim = |device: &str, id: &str, init: &Init| {
        let arguments = [format!("--device={device}"), "--share=0".into(), "--size=1/10".into()];
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        said(scene.with("claim", &arguments, "/b", id, init.pid()).output().unwrap())
    };
    claim("GPU-11111111", "one", &one).unwrap();
    claim("GPU-22222222", "one", &one).unwrap();
    claim("GPU-33333333", "two", &two).unwrap();
    said(release_all(&scene, "one")).unwrap();
    assert_eq!(scene.held().len(), 3, "a container that lives keeps what it holds");
    drop(one);
    let other_bundle = scene.with("release", &[], "/other", "one", 0).output().unwrap();
    said(other_bundle).unwrap();
    assert_eq!(
        scene.held().len(),
        3,
        "another engine's container of that name holds nothing"
    );
    // A book that nobody can read keeps no other from being changed.
    let damaged = scene.state_dir().join("ledger/GPU-00000000.claims");
    fs::write(&damaged, "?").unwrap();
    let output = release_all(&scene, "one");
    let line = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "an engine can do nothing about it");
    assert!(
        line.contains("GPU-00000000.claims: line 1 is not valid") && line.lines().count() == 1,
        "{line}"
    );
    fs::remove_file(&damaged).unwrap();
    assert_eq!(scene.held(), [("0".to_owned(), "two".to_owned())]);
}

#[test]
fn a_release_with_nothing_to_give_back_is_silent_and_leaves_no_trace() {
    let test = "a_release_with_nothing_to_give_back_is_silent_and_leaves_no_trace";
    let Some(scene) = Scene::new(test) else { return };
    said(release_all(&scene, "none")).unwrap();
    assert!(!scene.state_dir().exists(), "no ledger is made to look into");
    let init = Init::new();
    scene.claim("0", "one", &init).unwrap();
    let was = |file: PathBuf| {
        (
            fs::read(&file).unwrap(),
            std::os::unix::fs::MetadataExt::ino(&fs::metadata(&file).unwrap()),
        )
    };
    let before = was(scene.file());
    said(release_all(&scene, "none")).unwrap();
    assert_eq!(was(scene.file()), before, "a book that nothing changes is not written");
    // A rootless engine's hook is root of its own user namespace. It has what the broker gives it, which does not run.
    let rootless = |verb: &str, arguments: &[&str]| {
        let hook = scene.with(verb, arguments, "/b", "one", init.pid());
        let state = scene.top.path().join(format!("one-{verb}-{}.state", init.pid()));
        Command::new("unshare")
            .args(["--user", "--map-root-user"])
            .arg(hook.get_program())
            .args(hook.get_args())
            .stdin(File::open(state).unwrap())
            .output()
            .unwrap()
    };
    let output = rootless("release", &[]);
    if String::from_utf8_lossy(&output.stderr).contains("unshare") {
        return skip::not_run(&format!("claims::{test}"), "may not make a user namespace");
    }
    said(output).unwrap();
    let line = said(rootless(
        "claim",
        &["--device=GPU-11111111", "--share=1", "--size=1/10"],
    ))
    .unwrap_err();
    assert!(
        line.contains("get shares from the broker, which does not run; start it"),
        "{line}"
    );
    assert_eq!(was(scene.file()), before);
}

#[test]
fn what_fits_beside_a_share_of_an_earlier_policy_is_not_guessed() {
    let Some(scene) = Scene::new("what_fits_beside_a_share_of_an_earlier_policy_is_not_guessed") else {
        return;
    };
    let init = Init::new();
    let claim = |what: &str, of: &str, id: &str| {
        let arguments = ["--device=GPU-11111111", "--label=gpu 0", what, "--size=mps:7000:50", of];
        let arguments = if what == "--whole" {
            [&arguments[..3], &[of]].concat()
        } else {
            arguments.to_vec()
        };
        said(scene.with("claim", &arguments, "/b", id, init.pid()).output().unwrap())
    };
    claim("--share=left", "--of=left,right", "c1").unwrap();
    let line = claim("--whole", "--of=left,right", "c2").unwrap_err();
    assert!(line.ends_with("free: right\n"), "{line}");
    // Now the policy has other shares: `big` may be more than the half that is left.
    let line = claim("--whole", "--of=big,small", "c2").unwrap_err();
    assert!(
        line.contains("container c1 holds share left")
            && line.ends_with("; refused until container c1 on share left has ended\n"),
        "{line}"
    );
}

/// A daemon's socket, with room for one client who waits.
fn listening(path: &Path) -> OwnedFd {
    let daemon = bound(path);
    listen(&daemon, 0).unwrap();
    daemon
}

/// A socket on which nobody listens. No process that another test starts at this moment keeps it either.
fn bound(path: &Path) -> OwnedFd {
    let daemon = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap();
    bind(&daemon, &SocketAddrUnix::new(path).unwrap()).unwrap();
    daemon
}
