//! What a child does between fork(2) and execve(2), so that the program gets nothing of its parent that was not meant
//! for it.
//!
//! A process with threads may call only functions there that are safe in a signal handler (fork(2)). So all of this is
//! system calls on values that were made before, and nothing is allocated.

#![allow(unsafe_code)]

use super::terminal;
use nix::errno::Errno;
use nix::libc;
use std::ffi::{c_long, c_uint};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::Command;

/// The rights of a user, as a login would set them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Credentials {
    /// The user's id, which becomes the real, effective, saved and file system uid.
    pub uid: u32,
    /// The user's group.
    pub gid: u32,
    /// The user's supplementary groups; nothing else is kept of those of the parent.
    pub groups: Vec<u32>,
    /// The limits of resources: each a number of getrlimit(2), the soft and the hard limit.
    pub limits: Vec<(c_uint, u64, u64)>,
}

/// What the child does.
#[derive(Debug, Default)]
pub struct ChildSetup {
    /// Becomes this user; `None`: stays the user that its parent is.
    pub user: Option<Credentials>,
    /// The file `cgroup.procs` of the cgroup that it enters, open for writing.
    pub cgroup: Option<OwnedFd>,
    /// Ends, by SIGTERM, with the thread that starts it.
    pub ends_with_parent: bool,
}

/// The highest number of a signal of Linux, on all architectures of NVIDIA's driver (signal(7)).
const SIGNALS: libc::c_int = 64;

/// The most descriptors that are looked at before Linux 5.11.
const MOST_DESCRIPTORS: u64 = 1 << 20;

/// `CLOSE_RANGE_CLOEXEC` (close_range(2), Linux 5.11).
const CLOSE_RANGE_CLOEXEC: c_uint = 1 << 2;

/// `KEYCTL_JOIN_SESSION_KEYRING` (keyctl(2)).
const JOIN_SESSION_KEYRING: c_long = 1;

/// Adds `setup` to what the child of `command` does.
///
/// The program then has a session of its own without a controlling terminal, no descriptors but its three standard
/// streams, default actions and an empty mask of signals, and files that it makes are not writable for others.
pub fn prepare(command: &mut Command, setup: ChildSetup) {
    let parent = std::process::id();
    // SAFETY: `setup.apply` uses system calls alone, on memory that the closure owns.
    unsafe { command.pre_exec(move || Ok(setup.apply(parent)?)) };
}

impl ChildSetup {
    fn apply(&self, parent: u32) -> Result<(), Errno> {
        leave_session()?;
        default_signals();
        if let Some(cgroup) = &self.cgroup {
            // "0" is the process that writes (cgroups(7)). Where it may not, it stays in its parent's cgroup.
            // SAFETY: the bytes are valid, and the descriptor is open.
            unsafe { libc::write(cgroup.as_raw_fd(), c"0".as_ptr().cast(), 1) };
        }
        // SAFETY: sets a number of this process.
        unsafe { libc::umask(0o022) };
        if let Some(user) = &self.user {
            become_user(user)?;
        }
        if self.ends_with_parent {
            // After the user has changed, which takes this back (prctl(2)).
            // SAFETY: a call on numbers.
            Errno::result(unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGTERM) })?;
            // A parent that ended before sends no signal. In another pid namespace its number is 0.
            // SAFETY: asks for a number.
            let now = unsafe { libc::getppid() };
            if now != 0 && now.cast_unsigned() != parent {
                return Err(Errno::ESRCH);
            }
        }
        close_others_at_exec();
        Ok(())
    }
}

/// A session of its own, without a terminal.
fn leave_session() -> Result<(), Errno> {
    // SAFETY: a call without arguments.
    match Errno::result(unsafe { libc::setsid() }) {
        Ok(_) => Ok(()),
        // A process that becomes the program, without a child: it may lead a group already.
        Err(Errno::EPERM) => terminal::leave(),
        Err(error) => Err(error),
    }
}

/// No signal is blocked, and none is ignored: a program that its starter let ignore SIGTERM could not be ended.
fn default_signals() {
    /// Bytes of a set of signals (rt_sigaction(2)).
    const SET: usize = 8;
    // The kernel's structure of an action is at most four words (linux/signal.h): SIG_DFL, no flags, an empty mask. The
    // C library would refuse its own signals, which a starter may ignore, too.
    let default = [0u64; 8];
    for signal in 1..=SIGNALS {
        // The kernel refuses SIGKILL and SIGSTOP.
        // SAFETY: the pointer is to more bytes than the kernel reads, and the action calls no function.
        unsafe {
            libc::syscall(
                libc::SYS_rt_sigaction,
                signal,
                default.as_ptr(),
                std::ptr::null_mut::<u64>(),
                SET,
            )
        };
    }
    // SAFETY: zero is the empty set.
    let none: libc::sigset_t = unsafe { std::mem::zeroed() };
    // SAFETY: the pointer is valid.
    unsafe { libc::sigprocmask(libc::SIG_SETMASK, &raw const none, std::ptr::null_mut()) };
}

/// Gives up everything of the parent's user, root, that the kernel lets a process inherit.
fn become_user(user: &Credentials) -> Result<(), Errno> {
    // SAFETY: system calls on numbers, on C strings and on slices that outlive them. The calls of the C library for
    // users also change the other threads; this process has one, and the kernel's own calls are enough.
    unsafe {
        // How likely it is killed when memory is short: as any program of the user. Refused where the parent may be
        // killed more likely, and the program then, too.
        let score = libc::open(c"/proc/self/oom_score_adj".as_ptr(), libc::O_WRONLY | libc::O_CLOEXEC);
        if score >= 0 {
            libc::write(score, c"0".as_ptr().cast(), 1);
            libc::close(score);
        }
        libc::setpriority(libc::PRIO_PROCESS, 0, 0);
        let parameter = std::mem::zeroed::<libc::sched_param>();
        libc::sched_setscheduler(0, libc::SCHED_OTHER, &raw const parameter);
        // The keys in the session of root. A kernel without keys, or a filter, has none to give away.
        libc::syscall(libc::SYS_keyctl, JOIN_SESSION_KEYRING, std::ptr::null::<libc::c_char>());
        for (resource, soft, hard) in &user.limits {
            let limit = libc::rlimit {
                rlim_cur: *soft,
                rlim_max: *hard,
            };
            Errno::result(libc::setrlimit(*resource as _, &raw const limit))?;
        }
        // Root's capabilities must not survive the change of the user (capabilities(7), "SECBIT_NO_SETUID_FIXUP").
        libc::prctl(libc::PR_SET_SECUREBITS, 0, 0, 0, 0);
        libc::prctl(libc::PR_CAP_AMBIENT, libc::PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
        Errno::result(libc::syscall(
            libc::SYS_setgroups,
            user.groups.len(),
            user.groups.as_ptr(),
        ))?;
        Errno::result(libc::syscall(libc::SYS_setresgid, user.gid, user.gid, user.gid))?;
        Errno::result(libc::syscall(libc::SYS_setresuid, user.uid, user.uid, user.uid))?;
        if user.uid != 0 {
            no_capabilities()?;
        }
    }
    Ok(())
}

/// Gives up all capabilities, also those that a program with file capabilities would inherit.
fn no_capabilities() -> Result<(), Errno> {
    /// `_LINUX_CAPABILITY_VERSION_3` (capget(2)).
    const VERSION_3: u32 = 0x2008_0522;
    let header: [u32; 2] = [VERSION_3, 0];
    let none = [0u32; 6];
    // SAFETY: the header is the version and the process, 0 for this one. The data of version 3 is two structures of
    // three numbers.
    Errno::result(unsafe { libc::syscall(libc::SYS_capset, header.as_ptr(), none.as_ptr()) }).map(drop)
}

/// Lets every descriptor but the standard streams end with execve(2), also those that this program was started with.
/// They stay open until then: one of them reports to the parent that the program cannot be executed.
fn close_others_at_exec() {
    let (first, last): (c_uint, c_uint) = (3, c_uint::MAX);
    // SAFETY: a call on numbers, which closes nothing.
    if unsafe { libc::syscall(libc::SYS_close_range, first, last, CLOSE_RANGE_CLOEXEC) } == 0 {
        return;
    }
    let mut limit = libc::rlimit {
        rlim_cur: MOST_DESCRIPTORS,
        rlim_max: MOST_DESCRIPTORS,
    };
    // SAFETY: the pointer is valid for a write. If the call fails, the values above count.
    unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) };
    for descriptor in 3..limit.rlim_max.min(MOST_DESCRIPTORS) {
        // SAFETY: asks about a number, which need not be a descriptor.
        unsafe { libc::fcntl(descriptor as libc::c_int, libc::F_SETFD, libc::FD_CLOEXEC) };
    }
}
