//! The one place that executes another program.
//!
//! A program gets nothing of its parent but what is passed to it: an empty environment, `/` as its directory, a session
//! of its own without a controlling terminal, its three standard streams and no other descriptor, default actions of
//! signals, none of them blocked, and the umask 022. Who started the parent from a terminal, with open files or with
//! ignored signals, gives none of that on: a program of a user could otherwise type into root's terminal (TIOCSTI,
//! ioctl_tty(2)), and a daemon could not be ended by SIGTERM.
//!
//! As a user, a program also gets the user's groups and an ordinary user's limits, and none of root's capabilities,
//! priority, keys, or protection from the end when memory is short.
//!
//! `tests/layers.rs` forbids `Command::new` elsewhere.

use crate::sys::child::{self, ChildSetup, Credentials};
use nix::sys::resource::{Resource, getrlimit};
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

/// A user for whom a program is executed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AsUser {
    /// The user's id.
    pub uid: u32,
    /// The group of the user's account.
    pub gid: u32,
    /// The supplementary groups of the user's account; empty without an account.
    pub groups: Vec<u32>,
}

/// A program that is going to be executed. Its standard streams lead to `/dev/null` unless it is given others.
#[derive(Debug)]
pub struct Program {
    command: Command,
    setup: ChildSetup,
}

impl Program {
    /// The program at `path`, without arguments.
    pub fn new(path: impl AsRef<OsStr>) -> Self {
        let mut command = Command::new(path);
        command.env_clear().current_dir("/");
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        Self {
            command,
            setup: ChildSetup::default(),
        }
    }

    /// Adds an argument.
    pub fn arg(&mut self, argument: impl AsRef<OsStr>) -> &mut Self {
        self.command.arg(argument);
        self
    }

    /// Adds arguments.
    pub fn args(&mut self, arguments: impl IntoIterator<Item = impl AsRef<OsStr>>) -> &mut Self {
        self.command.args(arguments);
        self
    }

    /// Sets a variable of its environment.
    pub fn env(&mut self, name: impl AsRef<OsStr>, value: impl AsRef<OsStr>) -> &mut Self {
        self.command.env(name, value);
        self
    }

    /// Sets variables of its environment.
    pub fn envs(&mut self, variables: impl IntoIterator<Item = (impl AsRef<OsStr>, impl AsRef<OsStr>)>) -> &mut Self {
        self.command.envs(variables);
        self
    }

    /// Gives it the environment of this process. Only for a program that a person could start in the same way: an
    /// engine finds its daemon and its user's files by the environment.
    pub fn environment_of_caller(&mut self) -> &mut Self {
        self.envs(std::env::vars_os())
    }

    /// Sets its standard input.
    pub fn stdin(&mut self, stdin: impl Into<Stdio>) -> &mut Self {
        self.command.stdin(stdin);
        self
    }

    /// Sets its standard output.
    pub fn stdout(&mut self, stdout: impl Into<Stdio>) -> &mut Self {
        self.command.stdout(stdout);
        self
    }

    /// Sets its standard error.
    pub fn stderr(&mut self, stderr: impl Into<Stdio>) -> &mut Self {
        self.command.stderr(stderr);
        self
    }

    /// Executes it as this user.
    pub fn as_user(&mut self, user: &AsUser) -> &mut Self {
        self.setup.user = Some(Credentials {
            uid: user.uid,
            gid: user.gid,
            groups: user.groups.clone(),
            limits: limits_of_a_user(),
        });
        self
    }

    /// Lets it enter the cgroup whose `cgroup.procs` this is, open for writing. It stays in this process's cgroup if
    /// the kernel refuses that.
    pub fn in_cgroup(&mut self, processes: OwnedFd) -> &mut Self {
        self.setup.cgroup = Some(processes);
        self
    }

    /// Lets it get SIGTERM when the thread that starts it ends, for example because this program is killed: in a
    /// session of its own, Ctrl-C does not reach it. Only for a program for whose end that thread waits.
    pub fn ends_with_caller(&mut self) -> &mut Self {
        self.setup.ends_with_parent = true;
        self
    }

    /// Starts it.
    ///
    /// # Errors
    /// Returns the kernel's error if it cannot be executed, or if the child cannot become what was asked for.
    pub fn spawn(mut self) -> io::Result<Child> {
        child::prepare(&mut self.command, self.setup);
        self.command.spawn()
    }

    /// Runs it to its end, without a deadline, and returns what it printed.
    ///
    /// # Errors
    /// As [`Program::spawn`].
    pub fn output(mut self) -> io::Result<Output> {
        self.ends_with_caller().stdout(Stdio::piped()).stderr(Stdio::piped());
        self.spawn()?.wait_with_output()
    }

    /// Replaces this process by it. Returns only why that failed.
    pub fn replace_this_process(mut self) -> io::Error {
        child::prepare(&mut self.command, self.setup);
        self.command.exec()
    }
}

/// Replaces this process by another program of tranche, which has what this one was started with: environment,
/// directory, descriptors and terminal. Returns only why that failed.
pub fn become_program(path: &Path, words: impl IntoIterator<Item = impl AsRef<OsStr>>) -> io::Error {
    Command::new(path).args(words).exec()
}

/// The limits that the kernel gives its first process and systemd an ordinary user (`INIT_RLIMITS`, asm-generic/
/// resource.h; systemd-system.conf(5), `DefaultLimitNOFILE=`), or less where this process has less: each a number of
/// getrlimit(2), the soft and the hard limit.
fn limits_of_a_user() -> Vec<(u32, u64, u64)> {
    const NONE: u64 = u64::MAX;
    // How many threads the kernel can have at all; half of it is what one user gets (kernel/fork.c).
    let threads = fs::read_to_string("/proc/sys/kernel/threads-max").ok();
    let processes = threads
        .and_then(|text| text.trim().parse::<u64>().ok())
        .map_or(NONE, |all| all / 2);
    let table = [
        (Resource::RLIMIT_CPU, NONE, NONE),
        (Resource::RLIMIT_FSIZE, NONE, NONE),
        (Resource::RLIMIT_DATA, NONE, NONE),
        (Resource::RLIMIT_STACK, 8 << 20, NONE),
        // A core file may have what the program read.
        (Resource::RLIMIT_CORE, 0, 0),
        (Resource::RLIMIT_RSS, NONE, NONE),
        (Resource::RLIMIT_NPROC, processes, processes),
        (Resource::RLIMIT_NOFILE, 1024, 512 << 10),
        (Resource::RLIMIT_MEMLOCK, 8 << 20, 8 << 20),
        (Resource::RLIMIT_AS, NONE, NONE),
        (Resource::RLIMIT_LOCKS, NONE, NONE),
        (Resource::RLIMIT_SIGPENDING, processes, processes),
        (Resource::RLIMIT_MSGQUEUE, 800 << 10, 800 << 10),
        (Resource::RLIMIT_NICE, 0, 0),
        (Resource::RLIMIT_RTPRIO, 0, 0),
        (Resource::RLIMIT_RTTIME, NONE, NONE),
    ];
    let own = |resource| getrlimit(resource).map_or(NONE, |(_, hard)| hard);
    let limits = table.into_iter().map(|(resource, soft, hard)| {
        let own = own(resource);
        (resource as u32, soft.min(own), hard.min(own))
    });
    limits.collect()
}

/// Whether systemd is the init, so that a program can be a transient unit of it (sd_booted(3)).
pub fn is_under_systemd() -> bool {
    Path::new("/run/systemd/system").is_dir()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::until::until;
    use nix::sys::signal::{SigSet, Signal};
    use rustix::io::{FdFlags, fcntl_setfd};

    /// The fields of `/proc/PID/status` of a shell that `program` starts, and more. The shell waits for another one
    /// meanwhile: while it starts a program, it blocks signals.
    fn status(mut program: Program) -> String {
        program.args([
            "-c",
            "(cat /proc/$$/status; echo; echo $(ls /proc/$$/fd); cat /proc/$$/stat; pwd; env); exit 0",
        ]);
        let output = program.output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    fn field<'t>(status: &'t str, name: &str) -> &'t str {
        let mut lines = status.lines();
        lines.find_map(|line| line.strip_prefix(name)).unwrap().trim()
    }

    #[test]
    fn nothing_is_inherited_that_is_not_passed() {
        let leaked = fs::File::open("/proc/self/status").unwrap();
        fcntl_setfd(&leaked, FdFlags::empty()).unwrap();
        let blocked = SigSet::from_iter([Signal::SIGTERM, Signal::SIGUSR1]);
        blocked.thread_block().unwrap();
        let mut program = Program::new("/bin/sh");
        program.env("PASSED", "1");
        let status = status(program);
        blocked.thread_unblock().unwrap();
        assert_eq!(field(&status, "SigBlk:"), "0".repeat(16));
        assert_eq!(field(&status, "SigIgn:"), "0".repeat(16));
        let pid = field(&status, "Pid:");
        assert!(status.lines().any(|line| line == "0 1 2"), "{status}");
        let stat = status
            .lines()
            .find(|line| line.starts_with(&format!("{pid} (")))
            .unwrap();
        // State, parent, group, session, terminal (proc(5)).
        let fields: Vec<&str> = stat.rsplit_once(") ").unwrap().1.split(' ').collect();
        assert_eq!((fields[2], fields[3], fields[4]), (pid, pid, "0"));
        let rest: Vec<&str> = status.lines().skip_while(|line| *line != stat).skip(1).collect();
        assert_eq!((rest[0], rest.contains(&"PASSED=1")), ("/", true));
        assert!(!status.contains("\nHOME="), "{status}");
    }

    #[test]
    fn as_a_user_nothing_of_root_is_left() {
        if !nix::unistd::geteuid().is_root() {
            println!("not run: execute: not root");
            return;
        }
        let user = AsUser {
            uid: 65534,
            gid: 65533,
            groups: vec![65533, 65000],
        };
        let mut program = Program::new("/bin/sh");
        program.as_user(&user);
        let status = status(program);
        assert_eq!(field(&status, "Uid:"), ["65534"; 4].join("\t"));
        assert_eq!(field(&status, "Gid:"), ["65533"; 4].join("\t"));
        assert_eq!(field(&status, "Groups:"), "65000 65533");
        for set in ["CapInh:", "CapPrm:", "CapEff:", "CapAmb:"] {
            assert_eq!(field(&status, set), "0".repeat(16), "{set}");
        }
    }

    #[test]
    fn limits_are_never_higher_than_those_of_this_process() {
        for (resource, soft, hard) in limits_of_a_user() {
            assert!(soft <= hard, "{resource}");
        }
        let (_, own) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
        let files = limits_of_a_user()
            .into_iter()
            .find(|(one, ..)| *one == Resource::RLIMIT_NOFILE as u32);
        assert_eq!(files.unwrap().2, own.min(512 << 10));
    }

    #[test]
    fn it_ends_with_the_thread_that_started_it_where_that_was_asked_for() {
        let start = |ends: bool| {
            let mut program = Program::new("/bin/sleep");
            program.arg("1000");
            if ends {
                program.ends_with_caller();
            }
            std::thread::spawn(|| program.spawn().unwrap()).join().unwrap()
        };
        let (mut tied, mut free) = (start(true), start(false));
        until("it has ended", || tied.try_wait().unwrap().is_some());
        assert!(free.try_wait().unwrap().is_none());
        free.kill().unwrap();
        free.wait().unwrap();
    }

    #[test]
    fn a_program_that_is_missing_is_an_error_of_the_caller() {
        let error = Program::new("/no/such/program").spawn().unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
    }
}
