//! Processes of several users that change what they are, and those that write down who signals them.

use crate::until::until;
use std::fs::{self, Permissions};
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};

/// A user, as every system has one or can have one.
const USER: u32 = 65_533;

/// A process that does not outlive the test.
pub struct Program {
    pub child: Child,
    stdin: ChildStdin,
}

impl Program {
    /// A process of `uid` that runs a script of perl. It has printed a byte, and reads lines.
    pub fn new(uid: u32, script: &str) -> Program {
        let mut command = Command::new("perl");
        command.args(["-e", &format!("$| = 1; {script}")]).uid(uid).gid(uid);
        Program::of(command)
    }

    /// The same in a user namespace of its own, which `uid` makes. Its users are still to be named.
    pub fn in_namespace(uid: u32, script: &str) -> Program {
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

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    fn has_printed(&mut self) {
        self.child.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
    }

    /// Lets it read a line, if it does.
    pub fn line(&mut self) {
        let _ = self.stdin.write_all(b"\n");
    }

    /// Lets it read a line, and waits until it has printed another byte.
    pub fn go_on(&mut self) {
        self.line();
        self.has_printed();
    }

    pub fn lives(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    pub fn is_killed(&mut self) -> bool {
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
pub const BECOME: &str = "POSIX::setuid(0) or die;";

/// A process that writes down each signal that it gets and can write down.
pub struct Canary {
    pub program: Program,
    signals: PathBuf,
}

/// What a canary does in addition.
const RECORDS: &str = "for my $s (qw(HUP INT QUIT TERM USR1 USR2 ALRM CONT)) { $SIG{$s} = sub { open(my $f, '>>', $ARGV[0]); \
                       print $f $s } } ";

impl Canary {
    /// One of the user `uid` of the host.
    pub fn of_user(top: &Path, name: &str, uid: u32) -> Canary {
        let signals = file(top, name);
        let mut command = Command::new("perl");
        command
            .args(["-e", &format!("$| = 1; {RECORDS} print 1; sleep 1000 while 1")])
            .arg(&signals);
        let program = Program::of(command.uid(uid).gid(uid));
        Canary { program, signals }
    }

    /// One that root started in a user namespace with this map, in which it became user 0.
    pub fn in_namespace(top: &Path, name: &str, map: &str) -> Canary {
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
    pub fn is_untouched(&mut self) -> bool {
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
pub fn maps() -> [(&'static str, String); 2] {
    let lxc = format!("0 100000 1000\n1000 {USER} 1\n1001 101001 64535\n");
    [("all", "0 0 65536\n".to_owned()), ("lxc", lxc)]
}

/// A copy of setpriv that anybody becomes root with.
pub fn setuid_program(top: &Path) -> PathBuf {
    let path = top.join("setuid");
    fs::copy("/usr/bin/setpriv", &path).unwrap();
    fs::set_permissions(&path, Permissions::from_mode(0o4755)).unwrap();
    path
}

/// What a program does that becomes root's at SIGTERM.
pub fn becomes_root(setuid: &Path) -> String {
    format!(
        "$SIG{{TERM}} = sub {{ exec '{}', qw(--reuid=0 --regid=0 --clear-groups sleep 1000) }}; print 1; sleep 1000 while 1",
        setuid.display()
    )
}

/// What ignores SIGTERM.
pub const STUBBORN: &str = "$SIG{TERM} = 'IGNORE'; print 1; sleep 1000 while 1";
