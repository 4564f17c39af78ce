//! The claim hooks as an engine runs them, in numbers and under every misfortune: real processes on a real disk.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test")]

#[path = "support/init.rs"]
mod init;
#[path = "support/skip.rs"]
mod skip;

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
use tranche::ledger::{Book, Ledger, Part};

/// A state directory, and containers that are processes without anything around them.
struct Scene {
    top: tempfile::TempDir,
}

impl Scene {
    /// A scene, or the reason why there is none: shares are for engines that run as root.
    fn new(test: &str) -> Option<Scene> {
        let map = fs::read_to_string("/proc/self/uid_map").unwrap();
        let whole = map.split_ascii_whitespace().eq(["0", "0", "4294967295"]);
        if !nix::unistd::geteuid().is_root() || !whole {
            skip::not_run(&format!("claims::{test}"), "not root of the machine");
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
                let Part::Shares(shares) = c.part else { panic!() };
                (shares[0].name.to_string(), c.holder.container.unwrap().id)
            })
            .collect();
        held.sort();
        held
    }

    fn edit(&self, from: &str, to: &str) {
        let text = fs::read_to_string(self.file()).unwrap();
        assert!(text.contains(from), "{text}");
        fs::write(self.file(), text.replace(from, to)).unwrap();
    }
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
    let mut hooks: Vec<(usize, Child)> = (0..1000)
        .map(|n| {
            if n == 300 {
                lock.take();
            }
            let mut hook = scene.hook("claim", &(n % 10).to_string(), "/b", &format!("c{n}"), init.pid());
            (n, hook.stderr(Stdio::null()).spawn().unwrap())
        })
        .collect();
    let mut won: Vec<(String, String)> = Vec::new();
    for (n, hook) in &mut hooks {
        if hook.wait().unwrap().success() {
            won.push(((*n % 10).to_string(), format!("c{n}")));
        }
    }
    won.sort();
    assert_eq!(won.len(), 10, "{won:?}");
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
    // A rootless engine's hook is root of its own user namespace. It holds nothing, since its claims are refused.
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
    assert!(line.contains("engines that run as root"), "{line}");
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
        line.contains("container c1 holds share left") && !line.contains("free"),
        "{line}"
    );
}

#[test]
fn an_mps_daemon_is_who_listens_and_not_what_it_left() {
    let Some(scene) = Scene::new("an_mps_daemon_is_who_listens_and_not_what_it_left") else {
        return;
    };
    let pipe = scene.top.path().join("pipe");
    fs::create_dir(&pipe).unwrap();
    let control = pipe.join("control");
    let init = Init::new();
    let claim = || {
        let daemon = format!("--daemon={}", pipe.display());
        let arguments = [
            "--device=GPU-11111111",
            "--label=gpu 0",
            "--share=0",
            "--size=mps:7000:10",
            "--of=10",
            &daemon,
        ];
        said(scene.with("claim", &arguments, "/b", "c", init.pid()).output().unwrap())
    };
    let refused = |says: &str| {
        let line = claim().unwrap_err();
        assert!(line.contains(says) && line.contains("tranche plan"), "{line}");
    };
    refused("no MPS daemon is there");
    fs::write(&control, "").unwrap();
    refused("is gone");
    fs::remove_file(&control).unwrap();
    drop(bound(&control));
    refused("is gone");
    // What a killed daemon leaves, and its number is another process's by now.
    fs::write(
        pipe.join("nvidia-cuda-mps-control.pid"),
        format!("{}\n", std::process::id()),
    )
    .unwrap();
    refused("is gone");
    fs::remove_file(&control).unwrap();
    let daemon = listening(&control);
    let client = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap();
    connect(&client, &SocketAddrUnix::new(&control).unwrap()).unwrap();
    // Stopped, or hung: its queue is full, and a client would wait for ever.
    refused("does not answer");
    assert!(scene.books().is_empty());
    drop(accept(&daemon).unwrap());
    claim().unwrap();
    assert_eq!(scene.held(), [("0".to_owned(), "c".to_owned())]);
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

#[test]
#[cfg(feature = "cli")]
fn directories_may_be_named_from_where_one_stands() {
    let Some(scene) = Scene::new("directories_may_be_named_from_where_one_stands") else {
        return;
    };
    let top = scene.top.path();
    let policy = "version: v1\nsharing:\n  timeSlicing:\n    resources:\n    - {name: nvidia.com/gpu, replicas: 4}\n";
    fs::write(top.join("policy.yaml"), policy).unwrap();
    fs::create_dir(top.join("cdi")).unwrap();
    let tranche = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tranche"));
        command
            .args(arguments)
            .args(["--state-dir", "state"])
            .env_clear()
            .current_dir(top);
        let output = command.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    };
    let host = ["--inventory", "sim:t4x2", "--config", "policy.yaml"];
    let claim = [
        "claim",
        "create",
        "--name=one",
        "--shares=3",
        "--of=0",
        "--spec-dir=cdi",
    ];
    tranche(&[&claim[..], &host].concat());
    tranche(&[&["cdi", "generate", "--output=cdi/nvidia.yaml"][..], &host].concat());
    // A hook runs wherever the engine does.
    let claimed = fs::read_to_string(top.join("cdi/nvidia.com-claim_one.yaml")).unwrap();
    let generated = fs::read_to_string(top.join("cdi/nvidia.yaml")).unwrap();
    for (text, option) in [
        (&claimed, "spec-file"),
        (&claimed, "state-dir"),
        (&generated, "state-dir"),
    ] {
        assert!(
            text.contains(&format!("--{option}={}/", top.display())),
            "{option}: {text}"
        );
    }
    tranche(&["claim", "release", "one", "--spec-dir=cdi"]);
    assert!(!top.join("cdi/nvidia.com-claim_one.yaml").exists());
}

#[test]
fn a_reboot_a_number_used_again_and_a_clock_that_jumps() {
    let Some(scene) = Scene::new("a_reboot_a_number_used_again_and_a_clock_that_jumps") else {
        return;
    };
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    let (one, two) = (Init::new(), Init::new());
    scene.claim("0", "one", &one).unwrap();
    assert!(scene.claim("0", "two", &two).is_err());
    scene.edit(boot.trim(), "00000000-0000-0000-0000-000000000000");
    scene.claim("0", "two", &two).expect("nothing of an earlier boot runs");

    let process = scene.books()[0].claims[0].holder.process.clone().unwrap();
    let numbers = |start: u64| format!("\t{}\t{start}\t{}\t", process.pid, process.namespace);
    scene.edit(&numbers(process.start), &numbers(1));
    scene
        .claim("0", "one", &one)
        .expect("the number is another process's now");

    let since = scene.books()[0].claims[0].since;
    scene.edit(&format!("\t{since}\t"), "\t4102444800\t");
    let line = scene.claim("0", "two", &two).unwrap_err();
    assert!(line.contains("since 2100-01-01 00:00:00 UTC"), "{line}");
}

#[test]
fn a_ledger_that_is_not_ours() {
    let Some(scene) = Scene::new("a_ledger_that_is_not_ours") else {
        return;
    };
    let (one, two) = (Init::new(), Init::new());
    scene.claim("0", "one", &one).unwrap();
    let good = fs::read_to_string(scene.file()).unwrap();
    for (bad, says) in [
        (&good[..good.len() / 2], "line 2 is not valid in a ledger"),
        (&good.replace("tranche-ledger 2", "tranche-ledger 7"), "has format 7"),
        ("GPU memory is full\n", "line 1 is not valid in a ledger"),
    ] {
        fs::write(scene.file(), bad).unwrap();
        let line = scene.claim("1", "two", &two).unwrap_err();
        assert!(line.contains(says) && line.contains("GPU-11111111.claims"), "{line}");
        assert_eq!(fs::read_to_string(scene.file()).unwrap(), bad, "nothing is lost");
        let status = Command::new(env!("CARGO_BIN_EXE_tranche"))
            .args(["status", "--state-dir"])
            .arg(scene.state_dir())
            .output()
            .unwrap();
        let line = String::from_utf8(status.stderr).unwrap();
        assert!(
            status.status.code() == Some(1) && line.contains(says) && line.lines().count() == 1,
            "{line}"
        );
    }
    fs::write(scene.file(), &good).unwrap();
    scene.claim("1", "two", &two).unwrap();
    std::os::unix::fs::chown(scene.state_dir().join("ledger"), Some(65534), Some(65534)).unwrap();
    let line = scene.claim("2", "three", &two).unwrap_err();
    assert!(line.contains("is not a directory of the user who runs this"), "{line}");
}

/// A hook as a shell runs it.
fn in_shell(scene: &Scene, share: &str, id: &str, init: &Init) -> String {
    let hook = scene.hook("claim", share, "/b", id, init.pid());
    let words = std::iter::once(hook.get_program()).chain(hook.get_args());
    let words: Vec<String> = words.map(|w| format!("'{}'", w.to_str().unwrap())).collect();
    let state = scene.top.path().join(format!("{id}-claim-{}.state", init.pid()));
    format!("{} < '{}'", words.join(" "), state.display())
}

#[test]
fn a_full_disk_and_one_that_is_read_only() {
    let test = "a_full_disk_and_one_that_is_read_only";
    let Some(scene) = Scene::new(test) else { return };
    let init = Init::new();
    let [one, two, three] = ["one", "two", "three"].map(|id| {
        let share = if id == "one" { "0" } else { "1" };
        in_shell(&scene, share, id, &init)
    });
    let dir = scene.state_dir();
    fs::create_dir_all(&dir).unwrap();
    // Whoever has no room to write refuses, and the first keeps what it has.
    let script = format!(
        "mount -t tmpfs -o size=32k,mode=755 tmpfs {dir} || exit 9
         {one} || exit 1
         dd if=/dev/zero of={dir}/fill bs=4k count=1000 2> /dev/null
         {two} && exit 2
         {status} || exit 3
         rm {dir}/fill
         {two} || exit 4
         mount -o remount,ro {dir} || exit 9
         {three} && exit 5
         {status}",
        dir = dir.display(),
        status = format_args!("{} status --state-dir {}", env!("CARGO_BIN_EXE_tranche"), dir.display()),
    );
    let output = Command::new("unshare")
        .args(["-m", "--propagation", "private", "sh", "-c", &script])
        .output()
        .unwrap();
    let (out, err) = (
        String::from_utf8_lossy(&output.stdout).into_owned(),
        String::from_utf8_lossy(&output.stderr).into_owned(),
    );
    if output.status.code() == Some(9) || err.contains("unshare") {
        return skip::not_run(&format!("claims::{test}"), "may not mount");
    }
    assert!(output.status.success(), "{:?}\n{out}\n{err}", output.status);
    assert_eq!(
        out.lines()
            .filter(|l| l.contains(".0  ") && l.contains(" held "))
            .count(),
        2,
        "status can be asked on both:\n{out}"
    );
    let second = out.lines().filter(|l| l.contains(".1  ") && l.contains(" held "));
    assert_eq!(second.count(), 1, "{out}");
    let lines: Vec<&str> = err.lines().collect();
    assert_eq!(lines.len(), 2, "{err}");
    assert!(
        lines[0].contains("/ledger/new: cannot be written: No space left on device"),
        "{err}"
    );
    assert!(
        lines[1].contains("/ledger/lock: cannot be opened: Read-only file system"),
        "{err}"
    );
}

#[test]
fn who_looks_from_another_time_namespace_evicts_nobody() {
    let test = "who_looks_from_another_time_namespace_evicts_nobody";
    let Some(scene) = Scene::new(test) else { return };
    let (init, other) = (Init::new(), Init::new());
    let shifted = |boottime: &str, command: &Command| {
        let mut shifted = Command::new("unshare");
        shifted.args(["--time", "--boottime", boottime, "--fork"]);
        shifted.arg(command.get_program()).args(command.get_args());
        shifted
    };
    let probe = shifted("100000", &Command::new("true")).output().unwrap();
    if !probe.status.success() {
        return skip::not_run(&format!("claims::{test}"), "may not make a time namespace");
    }
    scene.claim("0", "one", &init).unwrap();
    for boottime in ["100000", "-20"] {
        let claim = scene.hook("claim", "0", "/b", "two", other.pid());
        let mut from_there = shifted(boottime, &claim);
        from_there.stdin(File::open(scene.top.path().join(format!("two-claim-{}.state", other.pid()))).unwrap());
        let line = said(from_there.output().unwrap()).unwrap_err();
        assert!(line.contains("container one holds share 0"), "{boottime}: {line}");
        // What is recorded there is the same process here.
        let claim = scene.hook("claim", "1", "/b", "two", other.pid());
        let mut from_there = shifted(boottime, &claim);
        from_there.stdin(File::open(scene.top.path().join(format!("two-claim-{}.state", other.pid()))).unwrap());
        said(from_there.output().unwrap()).unwrap();
        let line = scene.claim("1", "three", &init).unwrap_err();
        assert!(line.contains("container two holds share 1"), "{boottime}: {line}");
    }
    drop(other);
    scene
        .claim("1", "three", &init)
        .expect("who is gone is gone from everywhere");
}

#[test]
fn a_lock_that_is_removed_while_containers_start_gives_no_share_to_two() {
    let Some(scene) = Scene::new("a_lock_that_is_removed_while_containers_start_gives_no_share_to_two") else {
        return;
    };
    let init = Init::new();
    Ledger::open(&scene.state_dir()).unwrap();
    let lock = scene.state_dir().join("ledger/lock");
    let over = AtomicBool::new(false);
    let won: usize = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::SeqCst) {
                fs::remove_file(&lock).ok();
                std::thread::sleep(Duration::from_micros(200));
            }
        });
        let mut hooks: Vec<Child> = (0..300)
            .map(|n| {
                let mut hook = scene.hook("claim", &(n % 10).to_string(), "/b", &format!("c{n}"), init.pid());
                hook.stderr(Stdio::null()).spawn().unwrap()
            })
            .collect();
        let won = hooks
            .iter_mut()
            .filter_map(|hook| hook.wait().unwrap().success().then_some(()))
            .count();
        over.store(true, Ordering::SeqCst);
        won
    });
    assert_eq!(
        (won, scene.held().len()),
        (10, 10),
        "who was told that it holds a share does"
    );
}

#[test]
fn a_lock_that_is_held_long_names_who_holds_it() {
    let Some(scene) = Scene::new("a_lock_that_is_held_long_names_who_holds_it") else {
        return;
    };
    let init = Init::new();
    scene.claim("0", "one", &init).unwrap();
    let lock = scene.state_dir().join("ledger/lock");
    let ready = scene.top.path().join("ready");
    let script = format!("touch {}; exec sleep 1000", ready.display());
    let mut holder = Command::new("flock")
        .arg(&lock)
        .args(["sh", "-c", &script])
        .spawn()
        .unwrap();
    while !ready.exists() {
        std::thread::sleep(Duration::from_millis(1));
    }
    // Whoever only looks waits for nobody.
    assert_eq!(scene.held(), [("0".to_owned(), "one".to_owned())]);
    let line = scene.claim("1", "two", &init).unwrap_err();
    let says = format!("ledger/lock: has been held for 8 s by process {} (", holder.id());
    assert!(line.contains(&says), "{line}\nexpected {says}");
    let child = fs::read_to_string(format!("/proc/{0}/task/{0}/children", holder.id())).unwrap();
    holder.kill().unwrap();
    holder.wait().unwrap();
    // flock leaves the lock to what it runs.
    let child = nix::unistd::Pid::from_raw(child.trim().parse().unwrap());
    nix::sys::signal::kill(child, nix::sys::signal::Signal::SIGKILL).unwrap();
    scene.claim("1", "two", &init).unwrap();
}

#[test]
fn promises_of_two_policies_fit_one_device_together() {
    let Some(scene) = Scene::new("promises_of_two_policies_fit_one_device_together") else {
        return;
    };
    let init = Init::new();
    let claim = |device: &str, what: &[&str], id: &str| {
        let device = format!("--device={device}");
        let arguments = [&[device.as_str(), "--label=gpu 0"], what].concat();
        said(scene.with("claim", &arguments, "/b", id, init.pid()).output().unwrap())
    };
    let share = |name: &str, size: &str, id: &str| {
        let (name, size) = (format!("--share={name}"), format!("--size={size}"));
        claim("GPU-11111111", &[&name, &size, "--capacity=81559:100"], id)
    };
    share("0", "mps:40779:50", "one").unwrap();
    share("1", "mps:40779:50", "two").unwrap();
    let line = share("big", "mps:65536:80", "three").unwrap_err();
    assert!(
        line.contains("it needs 80% of compute, and 100% of 100% are held: by container one, container two"),
        "{line}"
    );
    share("small", "mps:12288:20", "four").unwrap_err();
    let line = share("0", "1/10", "five").unwrap_err();
    assert!(line.contains("in use under mps"), "{line}");
    assert!(claim("GPU-11111111", &["--whole"], "six").is_err());
    assert!(
        claim("GPU-11111111/7/0", &["--whole"], "seven")
            .unwrap_err()
            .contains("GPU-11111111 since")
    );
    claim("GPU-22222222/7/0", &["--whole"], "eight").unwrap();
    assert!(claim("GPU-22222222", &["--whole"], "nine").is_err());
    claim("GPU-22222222/8/0", &["--whole"], "ten").unwrap();
    assert_eq!(scene.books().iter().map(|book| book.claims.len()).sum::<usize>(), 4);
}

#[test]
fn a_neighbour_is_told_by_its_number_and_not_by_its_name() {
    let test = "a_neighbour_is_told_by_its_number_and_not_by_its_name";
    let Some(scene) = Scene::new(test) else { return };
    let top = scene.top.path();
    let at = |name: &str| top.join(name).display().to_string();
    for directory in ["bundle", "dev/nvidia-caps", "one", "empty", "caps/nvidia-caps"] {
        fs::create_dir_all(top.join(directory)).unwrap();
    }
    for (node, major, minor) in [
        ("dev/nvidia0", 195, 0),
        ("dev/nvidia1", 195, 1),
        ("dev/nvidiactl", 195, 255),
        ("dev/nvidia-uvm", 235, 0),
        ("dev/nvidia-caps/nvidia-cap3", 236, 3),
        ("dev/nvidia-caps/nvidia-cap4", 236, 4),
        ("one/nvidia0", 195, 0),
        ("one/nvidiactl", 195, 255),
        ("caps/nvidia-caps/other-name", 236, 4),
    ] {
        let kind = nix::sys::stat::SFlag::S_IFCHR;
        let mode = nix::sys::stat::Mode::from_bits_truncate(0o666);
        let made = nix::sys::stat::mknod(&top.join(node), kind, mode, nix::sys::stat::makedev(major, minor));
        if made.is_err() {
            return skip::not_run(&format!("claims::{test}"), "may not make device nodes");
        }
    }
    std::os::unix::fs::symlink("dev", top.join("link")).unwrap();
    let pipe = top.join("pipe");
    fs::create_dir(&pipe).unwrap();
    let daemon = bound(&pipe.join("control"));
    listen(&daemon, 100).unwrap();
    let init = Init::new();
    let bundle = at("bundle");
    let claim = |config: serde_json::Value, nodes: &[String]| {
        fs::write(top.join("bundle/config.json"), config.to_string()).unwrap();
        let daemon = format!("--daemon={}", pipe.display());
        let mut arguments = vec![
            "--device=GPU-11111111",
            "--label=gpu 0",
            "--share=0",
            "--size=mps:1:1",
            &daemon,
        ];
        arguments.extend(nodes.iter().map(String::as_str));
        said(
            scene
                .with("claim", &arguments, &bundle, "c", init.pid())
                .output()
                .unwrap(),
        )
    };
    let device =
        |path: &str, major: u32, minor: u32| json!({"path": path, "type": "c", "major": major, "minor": minor});
    let bind = |source: &str, option: &str| {
        json!({"destination": "/mnt/x", "source": if source.starts_with('/') || source.starts_with("..") { source.to_owned() }
            else { at(source) }, "type": "bind", "options": [option]})
    };
    let gpu = [format!("--node=/dev/nvidia0:{}", at("dev/nvidia0"))];
    let own = device("/dev/nvidia0", 195, 0);
    for (devices, mounts, says) in [
        (
            vec![
                own.clone(),
                device("/dev/nvidiactl", 195, 255),
                device("/dev/nvidia-uvm", 235, 0),
            ],
            vec![],
            None,
        ),
        // The share's own device under another name is the same device.
        (
            vec![device("/dev/foo", 195, 0)],
            vec![bind("one", "rbind"), bind("empty", "bind")],
            None,
        ),
        (
            vec![own.clone(), device("/dev/nvidia1", 195, 1)],
            vec![],
            Some("/dev/nvidia1"),
        ),
        (vec![own.clone(), device("/dev/foo", 195, 1)], vec![], Some("/dev/foo")),
        (
            vec![own.clone(), device("/dev//nvidia1", 195, 1)],
            vec![],
            Some("/dev/nvidia1"),
        ),
        (
            vec![own.clone(), device("/dev/./nvidia1", 195, 1)],
            vec![],
            Some("/dev/nvidia1"),
        ),
        // A node of that name that is another GPU.
        (vec![device("/dev/nvidia0", 195, 1)], vec![], Some("/dev/nvidia0")),
        (vec![], vec![bind("dev", "rbind")], Some("/mnt/x/nvidia1")),
        (vec![], vec![bind("link", "bind")], Some("/mnt/x/nvidia1")),
        (vec![], vec![bind("", "rbind")], Some("/mnt/x/dev/nvidia1")),
        (vec![], vec![bind("", "bind")], Some("/mnt/x/dev/nvidia1")),
        (vec![], vec![bind("dev/nvidia1", "bind")], Some("gpu 0 /mnt/x:")),
        (vec![], vec![bind("../dev/nvidia1", "bind")], Some("gpu 0 /mnt/x:")),
    ] {
        let config = json!({"root": {"path": "r"}, "mounts": mounts, "linux": {"devices": devices}});
        let result = claim(config.clone(), &gpu);
        match (says, result) {
            (None, result) => result.unwrap_or_else(|line| panic!("{config}: {line}")),
            (Some(says), result) => {
                let line = result.expect_err(&config.to_string());
                assert!(
                    line.contains(says) && line.contains("another device (195:1)"),
                    "{config}: {line}"
                );
                assert!(!line.contains("claim create"), "no claim is of two devices: {line}");
            }
        }
    }
    let mig = [
        gpu[0].clone(),
        format!(
            "--node=/dev/nvidia-caps/nvidia-cap3:{}",
            at("dev/nvidia-caps/nvidia-cap3")
        ),
    ];
    let other = json!({"root": {"path": "r"}, "mounts": [bind("caps", "bind")], "linux": {"devices": [own.clone()]}});
    assert!(
        claim(other, &mig)
            .unwrap_err()
            .contains("/mnt/x/nvidia-caps/other-name: is another device (236:4)")
    );
    let gone = [format!("--node=/dev/nvidia0:{}", at("dev/nvidia7"))];
    claim(json!({"linux": {"devices": [own]}}), &gone).expect("the number in the container is all there is");
    assert!(
        claim(json!({"linux": {"devices": []}}), &gone)
            .unwrap_err()
            .contains("is not a device node")
    );
}
