//! What the broker does for a user it does as the user: processes that are not the user's are neither held nor ended,
//! whatever the user's processes become and wherever they go.

use crate::limits::{refresh, scene};
use crate::scene::{BOB, GPU_0, Scene, container};
use crate::support::test_cgroup::TestCgroup;
use crate::support::{skip, until};
use serde_json::{Value, json};
use std::fs::{self, Permissions};
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

/// Everything of users is ended after a second, and killed a second later.
pub(crate) const RULES: &str = "    default: {maxShares: 10, maxHold: 1s, atLimit: end, grace: 1s}\n";

/// A process that does not outlive the test.
pub(crate) struct Program {
    pub(crate) child: Child,
    stdin: ChildStdin,
}

impl Program {
    /// A process of `uid` that runs a script of perl. It has printed a byte, and reads lines.
    pub(crate) fn new(uid: u32, script: &str) -> Program {
        let mut command = Command::new("perl");
        command.args(["-e", &format!("$| = 1; {script}")]).uid(uid).gid(uid);
        Program::of(command)
    }

    /// The same in a user namespace of its own, which `uid` makes. Its users are still to be named.
    pub(crate) fn in_namespace(uid: u32, script: &str) -> Program {
        Program::new(uid, &format!("{UNSHARE} {script}"))
    }

    fn of(mut command: impl std::borrow::BorrowMut<Command>) -> Program {
        let command = command.borrow_mut();
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        let mut child = command.spawn().unwrap();
        let stdin = child.stdin.take().unwrap();
        let mut program = Program { child, stdin };
        program.has_printed();
        program
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    fn has_printed(&mut self) {
        self.child.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
    }

    /// Lets it read a line, if it does.
    pub(crate) fn line(&mut self) {
        let _ = self.stdin.write_all(b"\n");
    }

    /// Lets it read a line, and waits until it has printed another byte.
    fn go_on(&mut self) {
        self.line();
        self.has_printed();
    }

    pub(crate) fn lives(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    fn is_killed(&mut self) -> bool {
        until("it is killed", || !self.lives());
        self.child.wait().unwrap().signal() == Some(9)
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Makes a user namespace (unshare(2)). A program that makes it and executes this one loses its rights in it meanwhile.
const UNSHARE: &str = if cfg!(target_arch = "x86_64") {
    "require POSIX; syscall(272, 0x10000000) == 0 or die;"
} else {
    "require POSIX; syscall(97, 0x10000000) == 0 or die;"
};

/// Becomes user 0 of the namespace.
pub(crate) const BECOME: &str = "POSIX::setuid(0) or die;";

/// A process that writes down each signal that it gets and can write down.
pub(crate) struct Canary {
    pub(crate) program: Program,
    signals: PathBuf,
}

/// What a canary does in addition.
const RECORDS: &str = "for my $s (qw(HUP INT QUIT TERM USR1 USR2 ALRM CONT)) { $SIG{$s} = sub { open(my $f, '>>', $ARGV[0]); \
                       print $f $s } } ";

impl Canary {
    /// One of the user `uid` of the host.
    pub(crate) fn of_user(top: &Path, name: &str, uid: u32) -> Canary {
        let signals = file(top, name);
        let mut command = Command::new("perl");
        command
            .args(["-e", &format!("$| = 1; {RECORDS} print 1; sleep 1000 while 1")])
            .arg(&signals);
        let program = Program::of(command.uid(uid).gid(uid));
        Canary { program, signals }
    }

    /// One that root started in a user namespace with this map, in which it became user 0.
    pub(crate) fn in_namespace(top: &Path, name: &str, map: &str) -> Canary {
        let signals = file(top, name);
        let script = format!("$| = 1; {UNSHARE} {RECORDS} print 1; <STDIN>; {BECOME} print 2; sleep 1000 while 1");
        let mut command = Command::new("perl");
        command.args(["-e", &script]).arg(&signals);
        let mut program = Program::of(command);
        fs::write(format!("/proc/{}/uid_map", program.pid()), map).unwrap();
        program.go_on();
        Canary { program, signals }
    }

    /// Whether it lives, and nobody has signalled it.
    pub(crate) fn is_untouched(&mut self) -> bool {
        self.program.lives() && fs::read_to_string(&self.signals).unwrap().is_empty()
    }
}

fn file(top: &Path, name: &str) -> PathBuf {
    let file = top.join(name);
    fs::write(&file, "").unwrap();
    fs::set_permissions(&file, Permissions::from_mode(0o666)).unwrap();
    file
}

/// The maps of two containers of root: all users of the host, and those of LXC, in which the user is mapped as well.
fn maps() -> [(&'static str, String); 2] {
    let lxc = format!("0 100000 1000\n1000 {BOB} 1\n1001 101001 64535\n");
    [("all", "0 0 65536\n".to_owned()), ("lxc", lxc)]
}

pub(crate) fn enter(scene: &Scene, id: &str, pid: u32) -> Result<Value, String> {
    let fields = json!({"device": GPU_0, "share": "any", "container": container(id), "pid": pid});
    scene.ask(BOB, "enter", fields)
}

/// Why each claim of the user cannot be ended, as the user sees it.
fn not_ended(scene: &Scene) -> Vec<String> {
    let list = scene.ask(BOB, "list", json!({})).unwrap();
    let claims = list["claims"].as_array().unwrap();
    let why = |claim: &Value| Some(claim["cannot_be_ended"].as_str()?.to_owned());
    claims.iter().filter_map(why).collect()
}

/// A copy of setpriv that anybody becomes root with.
pub(crate) fn setuid_program(scene: &Scene) -> PathBuf {
    let path = scene.at("setuid");
    fs::copy("/usr/bin/setpriv", &path).unwrap();
    fs::set_permissions(&path, Permissions::from_mode(0o4755)).unwrap();
    path
}

/// What a program does that becomes root's at SIGTERM.
pub(crate) fn becomes_root(setuid: &Path) -> String {
    format!(
        "$SIG{{TERM}} = sub {{ exec '{}', qw(--reuid=0 --regid=0 --clear-groups sleep 1000) }}; print 1; sleep 1000 while 1",
        setuid.display()
    )
}

#[test]
fn no_user_registers_a_process_whose_namespace_has_the_user_s_number() {
    let test = "no_user_registers_a_process_whose_namespace_has_the_user_s_number";
    let Some(scene) = scene(test, RULES) else { return };
    for (name, map) in maps() {
        let mut canary = Canary::in_namespace(scene.at("").as_path(), name, &map);
        let refused = enter(&scene, name, canary.program.pid());
        // As long as it takes to end it, if it were held.
        sleep(Duration::from_secs(13));
        assert!(canary.is_untouched(), "{name}: it was signalled for the user");
        let refused = refused.unwrap_err();
        assert!(refused.contains(&format!("does not belong to user {BOB}")), "{refused}");
    }
    // What the kernel lets the user signal is the user's, whatever its number is.
    let mut own = Program::in_namespace(BOB, &format!("print 1; <STDIN>; {BECOME} print 2; sleep 1000 while 1"));
    fs::write(format!("/proc/{}/uid_map", own.pid()), "0 200000 1000\n").unwrap();
    own.go_on();
    enter(&scene, "own", own.pid()).unwrap();
}

#[test]
fn another_user_s_process_in_the_cgroup_of_a_claim_is_shown_and_neither_signalled_nor_frozen() {
    let test = "another_user_s_process_in_the_cgroup_of_a_claim_is_shown_and_neither_signalled_nor_frozen";
    for version in [1, 2] {
        let cgroup = match version {
            1 => TestCgroup::new("acts-1"),
            _ => TestCgroup::version_2("acts-2"),
        };
        let cgroup = match cgroup {
            Ok(cgroup) => cgroup,
            Err(why) => return skip::not_run(&format!("broker::{test}"), &why),
        };
        let Some(mut scene) = scene(test, RULES) else { return };
        let top = scene.at("");
        let [a, b] = maps().map(|(name, map)| Canary::in_namespace(&top, name, &map));
        let mut canaries = vec![a, b, Canary::of_user(&top, "root", 0)];
        let mut own = [Program::new(BOB, STUBBORN), Program::new(BOB, STUBBORN)];
        cgroup.add(own[0].pid());
        enter(&scene, "c", own[0].pid()).unwrap();
        assert!(scene.claims()[0].process.as_ref().unwrap().cgroup.is_some());
        cgroup.add(own[1].pid());
        canaries.iter().for_each(|canary| cgroup.add(canary.program.pid()));
        assert!(own.iter_mut().all(Program::is_killed));
        until(
            "the user sees why it is still held",
            || matches!(&not_ended(&scene)[..], [why] if why.contains("is not the user's to end")),
        );
        refresh(&scene);
        let status = scene.tranche(0, &["status", "--no-gpu"]);
        let status = String::from_utf8(status.stdout).unwrap();
        assert!(status.contains("cannot be ended: process"), "{status}");
        // Two more looks.
        sleep(Duration::from_secs(11));
        assert!(canaries.iter_mut().all(Canary::is_untouched));
        if version == 2 {
            let freeze = fs::read_to_string(cgroup.0.join("cgroup.freeze")).unwrap();
            assert_eq!(freeze, "0\n");
        }
        assert!(!scene.at("state/frozen.json").exists());
        // The claim gets nothing new, and ends with what is in its cgroup.
        let other = Program::new(BOB, STUBBORN);
        let again = enter(&scene, "c", other.pid());
        assert!(again.is_err(), "{again:?}");
        drop(canaries);
        until("nothing is held", || scene.seen(BOB).is_empty());
        until("nothing is said any more", || {
            !scene.at("state/not-ended.json").exists()
        });
        scene.stop(nix::sys::signal::Signal::SIGTERM);
    }
}

/// What ignores SIGTERM.
const STUBBORN: &str = "$SIG{TERM} = 'IGNORE'; print 1; sleep 1000 while 1";

#[test]
fn a_program_that_becomes_root_s_at_sigterm_is_not_killed_and_its_claim_says_so() {
    let test = "a_program_that_becomes_root_s_at_sigterm_is_not_killed_and_its_claim_says_so";
    let Some(scene) = scene(test, RULES) else { return };
    let mut program = Program::new(BOB, &becomes_root(&setuid_program(&scene)));
    enter(&scene, "c", program.pid()).unwrap();
    let is_root = || {
        let status = fs::read_to_string(format!("/proc/{}/status", program.pid())).unwrap();
        status.contains("Uid:\t0\t0\t0\t0")
    };
    until("it has become root's", is_root);
    until("the user sees why it is still held", || {
        let expected = format!("process {} (sleep), of user 0, is not the user's to end", program.pid());
        not_ended(&scene) == [expected]
    });
    // Two more looks.
    sleep(Duration::from_secs(11));
    assert!(program.lives(), "it was killed for the user");
    drop(program);
    until("nothing is held", || scene.seen(BOB).is_empty());
}

#[test]
fn a_program_that_becomes_one_of_the_user_s_subordinate_uids_is_ended() {
    let test = "a_program_that_becomes_one_of_the_user_s_subordinate_uids_is_ended";
    let Some(scene) = scene(test, RULES) else { return };
    let script = format!("$SIG{{TERM}} = 'IGNORE'; print 1; <STDIN>; {BECOME} print 2; sleep 1000 while 1");
    let mut program = Program::in_namespace(BOB, &script);
    enter(&scene, "c", program.pid()).unwrap();
    // As newuidmap(1) does it for the user.
    fs::write(format!("/proc/{}/uid_map", program.pid()), "0 200000 1000\n").unwrap();
    program.go_on();
    let status = fs::read_to_string(format!("/proc/{}/status", program.pid())).unwrap();
    assert!(status.contains("Uid:\t200000\t200000\t200000"), "{status}");
    assert!(program.is_killed());
    until("nothing is held", || scene.seen(BOB).is_empty());
}

#[test]
fn a_worker_far_below_the_cgroup_of_a_claim_is_ended() {
    let test = "a_worker_far_below_the_cgroup_of_a_claim_is_ended";
    for version in [1, 2] {
        let cgroup = match version {
            1 => TestCgroup::new("deep-1"),
            _ => TestCgroup::version_2("deep-2"),
        };
        let cgroup = match cgroup {
            Ok(cgroup) => cgroup,
            Err(why) => return skip::not_run(&format!("broker::{test}"), &why),
        };
        let Some(scene) = scene(test, RULES) else { return };
        let mut own = [Program::new(BOB, STUBBORN), Program::new(BOB, STUBBORN)];
        cgroup.add(own[0].pid());
        enter(&scene, "c", own[0].pid()).unwrap();
        let deepest = (0..20).fold(cgroup.0.clone(), |path, _| path.join("x"));
        fs::create_dir_all(&deepest).unwrap();
        fs::write(deepest.join("cgroup.procs"), own[1].pid().to_string()).unwrap();
        assert!(own.iter_mut().all(Program::is_killed));
        for directory in deepest.ancestors().take_while(|path| *path != cgroup.0) {
            until("it is empty", || fs::remove_dir(directory).is_ok());
        }
        until("nothing is held", || scene.seen(BOB).is_empty());
    }
}
