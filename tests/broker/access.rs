//! Closed device nodes (`sharing.access: enforce`): who may open them, by open(2) of each user on nodes of a host that
//! tests may make.

use crate::scene::{ANN, BOB, Scene};
use crate::support::fake_turns::PROTECTED;
use crate::support::{fake_host, rights, skip, until};
use nix::sys::signal::Signal;
use rustix::process::{Gid, Uid};
use rustix::thread::{set_thread_groups, set_thread_res_gid, set_thread_res_uid};
use serde_json::{Value, json};
use std::fs::{self, OpenOptions, Permissions};
use std::io::ErrorKind;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

mod killed;

const POLICY: &str = "\
version: v1
sharing:
  dedicated: {devices: [0, 1]}
  quota: {shares: 2, all: 2}
  access: enforce
";

pub(crate) struct Bed {
    pub(crate) scene: Scene,
}

impl Bed {
    /// A host whose driver leaves nodes alone, and a broker that runs there.
    fn new(test: &str, policy: &str) -> Option<Self> {
        let mut bed = Self::without_broker(test, policy, PROTECTED)?;
        bed.start();
        Some(bed)
    }

    fn without_broker(test: &str, policy: &str, params: &str) -> Option<Self> {
        let of_host = |scene: &Scene| fake_host::build("t4x2-old-driver", &scene.at("host")).unwrap();
        Self::on_host(&format!("access::{test}"), policy, params, of_host)
    }

    /// A machine without a broker, whose host is made by `build`.
    pub(crate) fn on_host(
        test: &str,
        policy: &str,
        params: &str,
        build: impl FnOnce(&Scene) -> fake_host::Host,
    ) -> Option<Self> {
        let scene = Scene::without_broker(test)?;
        let host = build(&scene);
        if let Some(missing) = host.not_made.first() {
            skip::not_run(&format!("broker::{test}"), &missing.why);
            return None;
        }
        fs::write(scene.at("policy.yaml"), policy).unwrap();
        fs::write(scene.at("host/proc/driver/nvidia/params"), params).unwrap();
        Some(Self { scene })
    }

    pub(crate) fn start(&mut self) {
        let broker = self
            .command(&["broker"], &["spec-dir=cdi"])
            .stderr(self.log())
            .spawn()
            .unwrap();
        self.scene.watch(broker);
        // Before its first look, an earlier state may be seen.
        until("the nodes were looked at", || {
            self.scene.at("state/status.json").exists()
        });
    }

    /// `tranche` with this host, its ledger and its policy.
    pub(crate) fn command(&self, words: &[&str], more: &[&str]) -> Command {
        let tranche = self.scene.at("tranche");
        let mut command = match words {
            ["broker"] => rights::broker(tranche),
            _ => Command::new(tranche),
        };
        command.args(words);
        let places = [
            "driver-root=host",
            "dev-root=host",
            "proc-root=host/proc",
            "sys-root=host/sys",
        ];
        for place in places
            .iter()
            .chain(&["state-dir=state", "config=policy.yaml"])
            .chain(more)
        {
            let (option, path) = place.split_once('=').unwrap();
            command.arg(self.scene.option(option, path));
        }
        command.env_clear().stdin(Stdio::null());
        command
    }

    pub(crate) fn log(&self) -> fs::File {
        let log = self.scene.at("log");
        OpenOptions::new().create(true).append(true).open(log).unwrap()
    }

    fn node(&self, name: &str) -> PathBuf {
        self.scene.at("host/dev").join(name)
    }

    fn mode(&self, name: &str) -> u32 {
        self.node(name).metadata().unwrap().mode() & 0o7777
    }

    /// Whether `uid` may open the node: without a driver, that ends with ENXIO after the kernel has allowed it.
    fn may_open(&self, uid: u32, name: &str) -> bool {
        let node = self.node(name);
        let opened = std::thread::scope(|threads| {
            let thread = threads.spawn(|| {
                if uid != 0 {
                    // With the group of root, the thread would be allowed what root's group is.
                    set_thread_groups(&[]).unwrap();
                    let gid = Gid::from_raw(uid);
                    set_thread_res_gid(gid, gid, gid).unwrap();
                    let uid = Uid::from_raw(uid);
                    set_thread_res_uid(uid, uid, uid).unwrap();
                }
                OpenOptions::new().read(true).write(true).open(node)
            });
            thread.join().unwrap()
        });
        match opened {
            Err(error) if error.kind() == ErrorKind::PermissionDenied => false,
            Err(error) => {
                assert_eq!(error.raw_os_error(), Some(libc::ENXIO), "{error}");
                true
            }
            Ok(_) => true,
        }
    }

    /// What ANN and BOB may open of both GPUs, as `a0` and so on.
    fn open(&self) -> String {
        let pairs = [
            ("a0", ANN, "nvidia0"),
            ("a1", ANN, "nvidia1"),
            ("b0", BOB, "nvidia0"),
            ("b1", BOB, "nvidia1"),
        ];
        let open = pairs.into_iter().filter(|(_, uid, name)| self.may_open(*uid, name));
        open.map(|(word, ..)| word).collect::<Vec<_>>().join(" ")
    }

    fn claim(&self, uid: u32, name: &str, device: &str) -> Result<Value, String> {
        self.scene.ask(uid, "claim", json!({"name": name, "device": device}))
    }

    fn release(&self, uid: u32, name: &str) {
        self.scene.ask(uid, "release", json!({"what": name})).unwrap();
    }
}

#[test]
fn a_user_may_open_a_device_while_the_claim_lasts() {
    let Some(bed) = Bed::new("a_user_may_open_a_device_while_the_claim_lasts", POLICY) else {
        return;
    };
    until("the nodes are closed", || bed.open().is_empty());
    assert_eq!((bed.mode("nvidia0"), bed.mode("nvidiactl")), (0o660, 0o666));
    assert!(bed.may_open(0, "nvidia0"), "root is not locked out");
    assert!(bed.may_open(BOB, "nvidiactl") && bed.may_open(BOB, "nvidia-uvm"));
    bed.claim(ANN, "a", "0").unwrap();
    // With the answer, not later.
    assert_eq!(bed.open(), "a0");
    bed.claim(BOB, "b", "1").unwrap();
    assert_eq!(bed.open(), "a0 b1");
    bed.release(ANN, "a");
    until("the node is closed again", || bed.open() == "b1");
    bed.claim(BOB, "b2", "0").unwrap();
    assert_eq!(bed.open(), "b0 b1");
}

#[test]
fn a_broker_that_was_killed_is_repaired_by_the_next_one() {
    let test = "a_broker_that_was_killed_is_repaired_by_the_next_one";
    let Some(mut bed) = Bed::new(test, POLICY) else { return };
    bed.claim(ANN, "a", "0").unwrap();
    bed.claim(BOB, "b", "1").unwrap();
    bed.scene.stop(Signal::SIGKILL);
    // What NVIDIA's tools do, and what happens to a node that is made anew.
    for name in ["nvidia0", "nvidia1"] {
        let (node, number) = (bed.node(name), bed.node(name).metadata().unwrap().rdev());
        fs::remove_file(&node).unwrap();
        let kind = nix::sys::stat::SFlag::S_IFCHR;
        nix::sys::stat::mknod(&node, kind, nix::sys::stat::Mode::empty(), number).unwrap();
        fs::set_permissions(&node, Permissions::from_mode(0o666)).unwrap();
    }
    assert_eq!(bed.open(), "a0 a1 b0 b1");
    let said = bed.scene.of_root(&["claim", "release", "b", "--force"]);
    let said = if said.status.success() {
        said
    } else {
        bed.scene.of_root(&["claim", "release", &format!("{BOB}.b")])
    };
    assert!(said.status.success(), "{said:?}");
    fs::remove_file(bed.scene.at("state/status.json")).unwrap();
    bed.start();
    until("the lists follow from the ledger", || bed.open() == "a0");
}

#[test]
fn nodes_are_left_alone_by_a_driver_that_opens_them_again() {
    let test = "nodes_are_left_alone_by_a_driver_that_opens_them_again";
    let params = PROTECTED.replace("ModifyDeviceFiles: 0", "ModifyDeviceFiles: 1");
    let Some(mut bed) = Bed::without_broker(test, POLICY, &params) else {
        return;
    };
    bed.start();
    bed.claim(ANN, "a", "0").unwrap();
    assert_eq!((bed.open().as_str(), bed.mode("nvidia0")), ("a0 a1 b0 b1", 0o666));
    assert!(!bed.scene.at("state/nodes-closed").exists());
}

#[test]
fn a_policy_that_opens_the_nodes_has_its_effect_while_claims_are_held() {
    let test = "a_policy_that_opens_the_nodes_has_its_effect_while_claims_are_held";
    let Some(bed) = Bed::new(test, POLICY) else { return };
    bed.claim(ANN, "a", "0").unwrap();
    assert_eq!(bed.open(), "a0");
    fs::write(bed.scene.at("policy.yaml"), POLICY.replace("enforce", "open")).unwrap();
    bed.claim(BOB, "b", "1").unwrap();
    assert_eq!(bed.open(), "a0 a1 b0 b1");
    assert_eq!(bed.mode("nvidia0"), 0o666);
    assert!(!bed.scene.at("state/nodes-closed").exists());
    // Somebody else has made a node that tranche has not closed, and keeps it as it is.
    fs::set_permissions(bed.node("nvidia1"), Permissions::from_mode(0o600)).unwrap();
    bed.release(BOB, "b");
    bed.claim(BOB, "b", "1").unwrap();
    assert_eq!(bed.mode("nvidia1"), 0o600);
    fs::write(bed.scene.at("policy.yaml"), POLICY).unwrap();
    bed.release(BOB, "b");
    bed.claim(BOB, "c", "1").unwrap();
    assert_eq!(bed.open(), "a0 b1", "the claim of before counts on");
}

#[test]
fn monitors_need_no_claim_and_unknown_ones_cost_themselves() {
    let test = "monitors_need_no_claim_and_unknown_ones_cost_themselves";
    let monitors = format!("{POLICY}  monitors: {{users: [{BOB}, no-such-user], groups: [no-such-group]}}\n");
    let Some(bed) = Bed::new(test, &monitors) else { return };
    until("the nodes are closed", || bed.open() == "b0 b1");
    bed.claim(ANN, "a", "0").unwrap();
    bed.claim(ANN, "a2", "1").unwrap();
    bed.release(ANN, "a2");
    until("the node is closed again", || bed.open() == "a0 b0 b1");
    let log = fs::read_to_string(bed.scene.at("log")).unwrap();
    for name in ["user no-such-user", "group no-such-group"] {
        assert_eq!(log.matches(name).count(), 1, "{log}");
    }
}

/// Accounts of the broker's machine. 300000 and those after it belong to two users.
const PASSWD: &str = "root:x:0:0::/:/bin/sh\nann:x:65534:65534::/:/bin/sh\nbob:x:65533:65533::/:/bin/sh\n";
const SUBUID: &str = "ann:200000:1000\nann:300000:10\nbob:300000:10\n";

/// The init of a container of ANN, whose user 0 is ANN, and whose others are `map`.
struct Container(Child);

impl Container {
    fn new(map: &str) -> Self {
        let mut command = Command::new("setpriv");
        command.args([
            format!("--reuid={ANN}"),
            format!("--regid={ANN}"),
            "--clear-groups".into(),
        ]);
        command
            .args(["unshare", "--user", "sleep", "1000"])
            .stdin(Stdio::null());
        let child = command.spawn().unwrap();
        let of = |file: &str| format!("/proc/{}/{file}", child.id());
        until("unshare has become sleep", || {
            fs::read_to_string(of("comm")).unwrap().trim_end() == "sleep"
        });
        fs::write(of("uid_map"), format!("0 {ANN} 1\n{map}\n")).unwrap();
        Self(child)
    }
}

impl Drop for Container {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_container_may_open_a_device_as_a_subordinate_uid_of_its_user_alone() {
    let test = "a_container_may_open_a_device_as_a_subordinate_uid_of_its_user_alone";
    let Some(mut bed) = Bed::without_broker(test, POLICY, PROTECTED) else {
        return;
    };
    let broker = bed.command(&["broker"], &["spec-dir=cdi"]);
    let mut command = bed
        .scene
        .with_files(&[("/etc/passwd", PASSWD), ("/etc/subuid", SUBUID)]);
    command
        .arg(broker.get_program())
        .args(broker.get_args())
        .stderr(bed.log());
    bed.scene.watch(command.spawn().unwrap());
    until("the node is closed", || bed.mode("nvidia0") == 0o660);
    let container = Container::new("1 200000 100\n101 300000 10\n200 400000 10");
    let enter = |user: u32| {
        let request = json!({"device": crate::scene::GPU_0, "whole": true, "container": crate::scene::container("c"),
                             "pid": container.0.id(), "user": user});
        bed.scene.ask(ANN, "enter", request)
    };
    for (user, what) in [
        (101, "uid 300000 on the host"),
        (200, "uid 400000 on the host"),
        (5000, "has no uid"),
    ] {
        let line = enter(user).unwrap_err();
        assert!(
            line.contains(what) && line.contains(&format!("user {user} of the container")),
            "{line}"
        );
        assert!(!bed.may_open(ANN, "nvidia0"));
    }
    enter(5).unwrap();
    assert!(bed.may_open(ANN, "nvidia0") && bed.may_open(200_004, "nvidia0"));
    assert!(!bed.may_open(200_005, "nvidia0") && !bed.may_open(200_004, "nvidia1"));
    drop(container);
    // The next look finds that the container has ended.
    let _ = bed.claim(BOB, "b", "1");
    until("the node is closed again", || !bed.may_open(200_004, "nvidia0"));
}
