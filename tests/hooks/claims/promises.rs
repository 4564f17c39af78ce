//! That nothing is promised twice, whatever happens between two starts.

use super::*;
use crate::support::until;
use nix::sys::signal::{SigSet, Signal, kill};
use nix::unistd::Pid;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use tranche_core::messages::Messages;

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
    let won = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::SeqCst) {
                fs::remove_file(&lock).ok();
                std::thread::sleep(Duration::from_micros(200));
            }
        });
        let won = catch_unwind(AssertUnwindSafe(|| scene.race(300, init.pid(), drop)));
        over.store(true, Ordering::SeqCst);
        won.unwrap_or_else(|panic| resume_unwind(panic))
    });
    assert_eq!(scene.held(), won, "the ledger says what the hooks said");
}

/// The kernel's signal may come at any instruction; here it comes while the hook waits.
#[test]
fn a_hook_that_its_limit_of_processor_time_ends_leaves_its_message() {
    let Some(scene) = Scene::new("a_hook_that_its_limit_of_processor_time_ends_leaves_its_message") else {
        return;
    };
    let (first, second) = (Init::new(), Init::new());
    scene.claim("1", "first", &first).unwrap();
    // The first message makes the directory of messages.
    scene.claim("1", "refused", &second).unwrap_err();
    let lock = File::create(scene.state_dir().join("ledger/lock")).unwrap();
    let lock = Flock::lock(lock, FlockArg::LockExclusive).map_err(|e| e.1).unwrap();
    let mut hook = scene.hook("claim", "2", "/b", "slow", second.pid());
    // Its starter may have blocked the signal.
    let hook = blocking(Signal::SIGXCPU, || hook.stderr(Stdio::piped()).spawn().unwrap());
    let tasks = format!("/proc/{}/task", hook.id());
    // A thread of it waits for the lock.
    until("the hook waits", || fs::read_dir(&tasks).unwrap().count() > 1);
    kill(Pid::from_raw(hook.id().try_into().unwrap()), Signal::SIGXCPU).unwrap();
    let ended = hook.wait_with_output().unwrap();
    drop(lock);
    let what = "hook: has used the processor time that a hook may take, and ended";
    let line = String::from_utf8(ended.stderr).unwrap();
    assert_eq!(ended.status.code(), Some(1), "{line}");
    assert_eq!(line, format!("tranche-oci: hook claim: {what}\n"));
    let messages = Messages::existing(&scene.state_dir(), None).unwrap().unwrap();
    let all = messages.all().unwrap().messages;
    let kept: Vec<_> = all.iter().filter(|message| message.container == "slow").collect();
    assert_eq!(kept.len(), 1, "{all:?}");
    assert_eq!((kept[0].hook.as_str(), kept[0].text.as_str()), ("claim", what));
    // What it did not finish is not held.
    scene.claim("2", "later", &second).unwrap();
}

/// What `what` starts has this signal blocked.
fn blocking<T>(signal: Signal, what: impl FnOnce() -> T) -> T {
    let set = SigSet::from_iter([signal]);
    set.thread_block().unwrap();
    let result = what();
    set.thread_unblock().unwrap();
    result
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
    until("the other process holds the lock", || ready.exists());
    // A program that only reads does not wait for the lock.
    assert_eq!(scene.held(), [("0".to_owned(), "one".to_owned())]);
    let line = scene.claim("1", "two", &init).unwrap_err();
    let says = format!("ledger/lock: has been held for 8 s by process {} (", holder.id());
    assert!(line.contains(&says), "{line}\nexpected {says}");
    let child = fs::read_to_string(format!("/proc/{0}/task/{0}/children", holder.id())).unwrap();
    holder.kill().unwrap();
    holder.wait().unwrap();
    // flock leaves the lock to what it runs.
    let child = Pid::from_raw(child.trim().parse().unwrap());
    kill(child, Signal::SIGKILL).unwrap();
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
        // The highest minor of a GPU, and the lowest that is not one (nv-chardev-numbers.h).
        (
            vec![own.clone(), device("/dev/foo", 195, 247)],
            vec![],
            Some("/dev/foo"),
        ),
        (vec![own.clone(), device("/dev/foo", 195, 248)], vec![], None),
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
                    line.contains(says) && line.contains("another device (195:"),
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
    let config = |devices| json!({"root": {"path": "r"}, "linux": {"devices": devices}});
    claim(config(vec![own]), &gone).expect("the number in the container is all there is");
    assert!(
        claim(config(vec![]), &gone)
            .unwrap_err()
            .contains("is not a device node")
    );
}
