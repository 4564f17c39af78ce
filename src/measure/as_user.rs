//! Runs programs as a user, in shares that root has got for them.
//!
//! `tranche run` of the room is root's, and starts the program of tranche again, which then becomes the user or starts
//! the user's command. The share's variables are in its environment.

use nix::sys::prctl::set_child_subreaper;
use nix::sys::signal::{Signal, kill, killpg};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;
use std::ffi::OsString;
use std::fs;
use std::io::{self, Read};
use std::process::{ExitStatus, Stdio};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};
use tranche_core::error::{Context, Error, Result};
use tranche_core::execute::Program;
use tranche_state::accounts::{AccountSources, Accounts, Login};

/// The shell by which a command is run.
const SHELL: &str = "/bin/sh";

/// Enters the directory of the person who called, and runs the command, which may be several programs.
const SCRIPT: &str = r#"cd -- "$1" && exec /bin/sh -c "$2""#;

/// Where a user's programs are found, if the account sets nothing else.
const PATH: &str = "/usr/local/bin:/usr/bin:/bin";

/// How long a command may take to end after SIGTERM.
const END: Duration = Duration::from_secs(2);

/// How often it is looked whether a command has ended.
const TICK: Duration = Duration::from_millis(20);

/// A user of this machine.
#[derive(Debug, Clone)]
pub struct Person {
    /// The name or the uid, as it was typed.
    pub name: String,
    login: Login,
}

impl Person {
    /// The user with this name, or with this uid. It asks NSS.
    ///
    /// # Errors
    /// Returns a usage error if this machine has no such account.
    pub fn find(name: &str) -> Result<Self> {
        let accounts = Accounts::new(AccountSources::default());
        let uid = accounts.user(name)?;
        let login = accounts.login(uid).ok_or_else(|| {
            Error::usage(format!("user {name}"), "has no account with a home on this machine")
                .hint("getent passwd shows the accounts")
        })?;
        Ok(Self {
            name: name.to_owned(),
            login,
        })
    }

    /// The group of the account.
    pub(crate) fn gid(&self) -> u32 {
        self.login.user.gid
    }

    /// Replaces this process by the program `words` with the environment of this one. Returns only why that failed.
    pub fn run_instead(&self, words: &[OsString]) -> Error {
        let Some((path, arguments)) = words.split_first() else {
            return Error::usage("program", "is not named");
        };
        let mut program = Program::new(path);
        program.args(arguments).environment_of_caller();
        program
            .stdin(Stdio::inherit())
            .stdout(Stdio::inherit())
            .stderr(Stdio::inherit());
        self.become_in(&mut program);
        Error::failed(path.display(), "cannot be started").from_source(program.replace_this_process())
    }

    /// Runs `command` by a shell in `directory`, with what a login of the user has and the variables of the share,
    /// until it ends, or until the end of standard input; then it returns `None`. Nothing is left of it: its processes
    /// get SIGTERM, and two seconds later SIGKILL.
    ///
    /// # Errors
    /// Returns an error if it cannot be started.
    pub fn run(&self, command: &str, directory: &str) -> Result<Option<ExitStatus>> {
        // A process that leaves the group of its parent becomes a child of this process when that ends.
        set_child_subreaper(true).about("command", "cannot be watched")?;
        let mut program = Program::new(SHELL);
        program.args(["-c", SCRIPT, "sh", directory, command]);
        program.envs(std::env::vars_os().filter(|(name, _)| is_of_share(name)));
        program.envs([("HOME", self.login.home.as_str()), ("PATH", PATH), ("SHELL", SHELL)]);
        program.envs([("USER", &self.name), ("LOGNAME", &self.name)]);
        program.stdout(Stdio::inherit()).stderr(Stdio::inherit());
        self.become_in(&mut program);
        program.ends_with_caller();
        let mut child = program.spawn().about("command", "cannot be started")?;
        let (ended, end) = channel();
        thread::spawn(move || {
            let _ = io::copy(&mut io::stdin().lock().by_ref(), &mut io::sink());
            // Nobody listens after the end of the command.
            let _ = ended.send(());
        });
        let group = i32::try_from(child.id()).map_or(Pid::this(), Pid::from_raw);
        let status = loop {
            if let Some(status) = child.try_wait().about("command", "cannot be waited for")? {
                break Some(status);
            }
            if !matches!(end.recv_timeout(TICK), Err(RecvTimeoutError::Timeout)) {
                break None;
            }
        };
        end_group(group);
        end_others();
        Ok(status)
    }

    fn become_in(&self, program: &mut Program) {
        // Without this, a person who is not root could not try it: only root can become another user.
        if self.login.user.uid != nix::unistd::geteuid().as_raw() || self.login.user.uid == 0 {
            program.as_user(&self.login.user);
        }
    }
}

/// Whether a share sets this variable.
fn is_of_share(name: &OsString) -> bool {
    let name = name.to_string_lossy();
    name.starts_with("CUDA_") || name.starts_with("NVIDIA_")
}

/// Ends the processes of a group of which this process may have waited for the first one. While the group has another
/// one, the kernel gives its number to nobody else.
fn end_group(group: Pid) {
    let until = Instant::now() + END;
    let mut is_left = killpg(group, Signal::SIGTERM).is_ok();
    while is_left && Instant::now() < until {
        reap();
        thread::sleep(TICK);
        is_left = killpg(group, None).is_ok();
    }
    if is_left {
        // It may have ended just now.
        let _ = killpg(group, Signal::SIGKILL);
    }
}

/// Ends what has left the group and its parents, and is a child of this process now.
fn end_others() {
    let until = Instant::now() + END;
    while reap() && Instant::now() < until {
        for child in children() {
            // It is waited for by this process alone, so the number is still its own.
            let _ = kill(child, Signal::SIGKILL);
        }
        thread::sleep(TICK);
    }
}

/// Waits for the children that have ended. Returns whether others are left.
fn reap() -> bool {
    loop {
        match waitpid(None, Some(WaitPidFlag::WNOHANG)) {
            Ok(WaitStatus::StillAlive) => return true,
            Ok(_) => {}
            Err(_) => return false,
        }
    }
}

/// The children of this process (proc(5), `children`; kernels without that file have none).
fn children() -> Vec<Pid> {
    let tasks = fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    let lists = tasks.filter_map(|task| fs::read_to_string(task.path().join("children")).ok());
    let numbers = |list: String| -> Vec<i32> { list.split_whitespace().filter_map(|one| one.parse().ok()).collect() };
    lists.flat_map(numbers).map(Pid::from_raw).collect()
}
