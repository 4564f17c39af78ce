//! A disk that is full, or can only be read, from a chosen write on.
//!
//! The kernel asks this process about each call of the processes of a test that may write (seccomp_unotify(2)). A small
//! file system that is filled would fail at the same few places each time. Here every write of a program can be the
//! first that fails, also one in the middle of a change, and what was written before is on the disk.
#![allow(unsafe_code, reason = "nothing wraps this part of seccomp(2)")]

use nix::libc::{self, c_long};
use std::fs::{self, File};
use std::io;
use std::mem;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::fs::FileExt;
use std::path::{Component, Path, PathBuf};
use std::process::{Child, Command};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;

/// How a disk fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Failure {
    /// It has no room: nothing is created, and nothing is written. Files are replaced and removed.
    Full,
    /// It can only be read, as one that its file system does not trust any more.
    ReadOnly,
}

impl Failure {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Full, Self::ReadOnly];

    fn error(self) -> i32 {
        match self {
            Self::Full => libc::ENOSPC,
            Self::ReadOnly => libc::EROFS,
        }
    }
}

/// When the disk fails, and what it has seen since that was said.
#[derive(Debug, Default)]
struct Plan {
    failure: Option<Failure>,
    /// The directories that are on the disk, with everything below them.
    tops: Vec<PathBuf>,
    /// Directories below those that are on another disk.
    except: Vec<PathBuf>,
    /// How many writes succeed before.
    spared: usize,
    seen: usize,
    failed: Vec<String>,
}

/// The disk of the processes that were started with it.
#[derive(Debug, Clone, Default)]
pub struct FailingDisk {
    plan: Arc<Mutex<Plan>>,
}

impl FailingDisk {
    /// Starts `command`. What it and its children write is on this disk.
    ///
    /// # Errors
    /// Returns why it does not start, or that the kernel lets no process answer the calls of another (before 5.5, or
    /// without a right to).
    pub fn spawn(&self, command: &mut Command) -> io::Result<Child> {
        let (to_watch, listener) = mpsc::channel();
        let plan = self.plan.clone();
        // Not in the thread that is asked about.
        let watching = thread::spawn(move || {
            if let Ok(listener) = listener.recv() {
                watch(&listener, &plan);
            }
        });
        let started = thread::scope(|threads| {
            let starting = threads.spawn(move || {
                let listener = ask_from_here_on()?;
                to_watch.send(listener).map_err(io::Error::other)?;
                command.spawn()
            });
            starting.join().unwrap()
        });
        // It ends with the last process that is asked about.
        drop(watching);
        started
    }

    /// From now on: after `spared` writes below one of `tops`, and not below one of `except`, all further ones fail.
    pub fn fail(&self, failure: Failure, tops: &[PathBuf], except: &[PathBuf], spared: usize) {
        *self.plan.lock().unwrap() = Plan {
            failure: Some(failure),
            tops: tops.to_vec(),
            except: except.to_vec(),
            spared,
            ..Plan::default()
        };
    }

    /// From now on everything succeeds. Returns what has failed.
    pub fn mend(&self) -> Vec<String> {
        mem::take(&mut *self.plan.lock().unwrap()).failed
    }
}

impl Plan {
    /// The error of this call, if it fails.
    fn judge(&mut self, call: &Call) -> Option<i32> {
        let failure = self.failure?;
        let path = call.write(failure)?;
        let is_below = |tops: &[PathBuf]| tops.iter().any(|top| path.starts_with(top));
        if !is_below(&self.tops) || is_below(&self.except) {
            return None;
        }
        self.seen += 1;
        if self.seen <= self.spared {
            return None;
        }
        self.failed.push(format!("{} {}", call.name(), path.display()));
        Some(failure.error())
    }
}

/// The calls that are asked about.
const CALLS: &[(c_long, &str)] = &[
    (libc::SYS_openat, "openat"),
    (libc::SYS_openat2, "openat2"),
    (libc::SYS_write, "write"),
    (libc::SYS_pwrite64, "pwrite64"),
    (libc::SYS_writev, "writev"),
    (libc::SYS_ftruncate, "ftruncate"),
    (libc::SYS_fchmod, "fchmod"),
    (libc::SYS_fchmodat, "fchmodat"),
    (libc::SYS_fchown, "fchown"),
    (libc::SYS_utimensat, "utimensat"),
    (libc::SYS_mkdirat, "mkdirat"),
    (libc::SYS_symlinkat, "symlinkat"),
    (libc::SYS_linkat, "linkat"),
    (libc::SYS_unlinkat, "unlinkat"),
    (libc::SYS_renameat2, "renameat2"),
    (libc::SYS_renameat, "renameat"),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_open, "open"),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_creat, "creat"),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_chmod, "chmod"),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_mkdir, "mkdir"),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_symlink, "symlink"),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_link, "link"),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_unlink, "unlink"),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_rmdir, "rmdir"),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_rename, "rename"),
];

/// A call of a process that waits for the answer.
struct Call {
    pid: u32,
    number: c_long,
    arguments: [u64; 6],
}

impl Call {
    fn name(&self) -> &'static str {
        let found = CALLS.iter().find(|(number, _)| *number == self.number);
        found.map_or("?", |(_, name)| name)
    }

    /// The path that the call would change, if a disk that fails so refuses it.
    fn write(&self, failure: Failure) -> Option<PathBuf> {
        let [first, second, third, ..] = self.arguments;
        let is_read_only = failure == Failure::ReadOnly;
        match self.name() {
            "openat" => self.opened(self.path(Some(first), second)?, third, failure),
            "openat2" => self.opened(self.path(Some(first), second)?, self.word(third)?, failure),
            "open" => self.opened(self.path(None, first)?, second, failure),
            "creat" | "mkdir" => self.path(None, first),
            "mkdirat" => self.path(Some(first), second),
            "symlink" | "link" => self.path(None, second),
            "symlinkat" => self.path(Some(second), third),
            "linkat" => self.path(Some(third), self.arguments[3]),
            "write" | "pwrite64" | "writev" => self.file(first),
            "ftruncate" | "fchmod" | "fchown" if is_read_only => self.file(first),
            "chmod" | "unlink" | "rmdir" | "rename" if is_read_only => self.path(None, first),
            "fchmodat" | "unlinkat" | "renameat" | "renameat2" if is_read_only => self.path(Some(first), second),
            // Without a path, it is about the descriptor.
            "utimensat" if is_read_only && second == 0 => self.file(first),
            "utimensat" if is_read_only => self.path(Some(first), second),
            _ => None,
        }
    }

    /// What is opened, where that changes the disk.
    fn opened(&self, path: PathBuf, flags: u64, failure: Failure) -> Option<PathBuf> {
        let has = |flag: i32| flags & flag as u64 == flag as u64;
        if has(libc::O_PATH) {
            return None;
        }
        let exists = fs::symlink_metadata(&path);
        let makes = has(libc::O_TMPFILE) || has(libc::O_CREAT) && exists.is_err();
        let is_file = exists.is_ok_and(|found| found.is_file());
        let writes = flags & libc::O_ACCMODE as u64 != libc::O_RDONLY as u64 || has(libc::O_TRUNC);
        let is_refused = makes || failure == Failure::ReadOnly && is_file && writes && !has(libc::O_EXCL);
        is_refused.then_some(path)
    }

    /// The file behind a descriptor; `None` for a socket, a pipe or a file without a name.
    fn file(&self, descriptor: u64) -> Option<PathBuf> {
        let found = fs::read_link(format!("/proc/{}/fd/{}", self.pid, descriptor as RawFd)).ok()?;
        found.is_absolute().then_some(found)
    }

    /// The path at `address`, from the directory that `directory` is or from the current one.
    fn path(&self, directory: Option<u64>, address: u64) -> Option<PathBuf> {
        let text = self.text(address)?;
        let from = match directory.map(|one| one as RawFd) {
            None | Some(libc::AT_FDCWD) => fs::read_link(format!("/proc/{}/cwd", self.pid)).ok()?,
            Some(descriptor) => self.file(descriptor as u64).unwrap_or_default(),
        };
        let mut path = PathBuf::new();
        for part in from.join(text).components() {
            match part {
                Component::CurDir => {}
                Component::ParentDir => drop(path.pop()),
                other => path.push(other),
            }
        }
        Some(path)
    }

    fn memory(&self, address: u64, most: usize) -> Option<Vec<u8>> {
        let mut bytes = vec![0; most];
        let file = File::open(format!("/proc/{}/mem", self.pid)).ok()?;
        // A page that follows may not exist.
        let page = 4096 - address as usize % 4096;
        let mut read = file.read_at(&mut bytes[..page.min(most)], address).ok()?;
        if read < most {
            read += file.read_at(&mut bytes[read..], address + read as u64).unwrap_or(0);
        }
        bytes.truncate(read);
        Some(bytes)
    }

    fn text(&self, address: u64) -> Option<PathBuf> {
        let bytes = self.memory(address, libc::PATH_MAX as usize)?;
        let end = bytes.iter().position(|byte| *byte == 0)?;
        Some(PathBuf::from(String::from_utf8(bytes[..end].to_vec()).ok()?))
    }

    fn word(&self, address: u64) -> Option<u64> {
        Some(u64::from_ne_bytes(self.memory(address, 8)?.try_into().ok()?))
    }
}

/// From here on the calls of this thread, and of every process that it starts, wait until the listener is asked.
fn ask_from_here_on() -> io::Result<OwnedFd> {
    // SAFETY: they make a value of their arguments.
    let (load, allow, ask) = unsafe {
        (
            libc::BPF_STMT((libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16, 0),
            libc::BPF_STMT((libc::BPF_RET | libc::BPF_K) as u16, libc::SECCOMP_RET_ALLOW),
            libc::BPF_STMT((libc::BPF_RET | libc::BPF_K) as u16, libc::SECCOMP_RET_USER_NOTIF),
        )
    };
    let mut program = vec![load];
    for (index, (number, _)) in CALLS.iter().enumerate() {
        let to_ask = (CALLS.len() - index) as u8;
        // SAFETY: as above.
        program.push(unsafe {
            libc::BPF_JUMP(
                (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16,
                *number as u32,
                to_ask,
                0,
            )
        });
    }
    program.extend([allow, ask]);
    let filter = libc::sock_fprog {
        len: program.len() as u16,
        filter: program.as_mut_ptr(),
    };
    // SAFETY: the kernel copies the program, which lives until then.
    let listener = unsafe {
        libc::syscall(
            libc::SYS_seccomp,
            libc::SECCOMP_SET_MODE_FILTER,
            libc::SECCOMP_FILTER_FLAG_NEW_LISTENER,
            &raw const filter,
        )
    };
    if listener < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just made it, and nobody else has it.
    Ok(unsafe { OwnedFd::from_raw_fd(listener as RawFd) })
}

/// Answers until no process is left that is asked about.
fn watch(listener: &OwnedFd, plan: &Mutex<Plan>) {
    loop {
        let mut ready = libc::pollfd {
            fd: listener.as_raw_fd(),
            events: libc::POLLIN,
            revents: 0,
        };
        // SAFETY: one element, which lives until the call returns.
        let polled = unsafe { libc::poll(&raw mut ready, 1, -1) };
        if polled < 0 || ready.revents & libc::POLLIN == 0 {
            match io::Error::last_os_error().kind() {
                io::ErrorKind::Interrupted if polled < 0 => continue,
                _ => return,
            }
        }
        // SAFETY: the kernel wants zeroes, and all fields are numbers.
        let mut asked: libc::seccomp_notif = unsafe { mem::zeroed() };
        // SAFETY: the kernel writes one such value.
        let received = unsafe { libc::ioctl(listener.as_raw_fd(), libc::SECCOMP_IOCTL_NOTIF_RECV, &raw mut asked) };
        if received != 0 {
            // The process was killed meanwhile.
            continue;
        }
        let call = Call {
            pid: asked.pid,
            number: asked.data.nr as c_long,
            arguments: asked.data.args,
        };
        let error = plan.lock().unwrap().judge(&call);
        let mut answer = libc::seccomp_notif_resp {
            id: asked.id,
            val: 0,
            error: -error.unwrap_or(0),
            flags: match error {
                Some(_) => 0,
                None => libc::SECCOMP_USER_NOTIF_FLAG_CONTINUE as u32,
            },
        };
        // SAFETY: the kernel reads one such value. A process that was killed meanwhile needs no answer.
        unsafe { libc::ioctl(listener.as_raw_fd(), libc::SECCOMP_IOCTL_NOTIF_SEND, &raw mut answer) };
    }
}

/// All files below `top`, by their path from there.
pub fn files(top: &Path) -> Vec<PathBuf> {
    let found = walkdir::WalkDir::new(top).sort_by_file_name().into_iter().flatten();
    let files = found.filter(|entry| entry.file_type().is_file());
    files
        .filter_map(|entry| Some(entry.path().strip_prefix(top).ok()?.to_owned()))
        .collect()
}
