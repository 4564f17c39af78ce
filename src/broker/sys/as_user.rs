//! Signals that are sent with the rights of a user, so that the kernel decides who may signal whom (kill(2)).
//!
//! For root, that is this process with its rights. For others, a child process has the user as its effective user, and
//! nothing of root: no capability, no group. It sends the signals by handle, says what the kernel answered, and ends.
//! The kernel compares the effective and the real user of who signals with the real and the saved user of who is
//! signalled. Therefore the child's real and saved user is one that no process has: the user can neither signal nor
//! trace the child, and so cannot keep it from its work.

#![allow(unsafe_code)]

use nix::errno::Errno;
use nix::libc;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::waitpid;
use nix::unistd::{ForkResult, Pid, fork};
use rustix::fs::{Gid, Uid};
use rustix::thread::{CapabilitySet, CapabilitySets};
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

/// A user and group that no process has: the number before the one that means none (setresuid(2)).
const NOBODY: u32 = u32::MAX - 1;

/// The most processes that one child signals: their answers fit into a pipe, and their handles into the limit of
/// descriptors that a process has by default.
pub const MOST: usize = 64;

/// The child does a few system calls that wait for nothing.
const PATIENCE: Duration = Duration::from_secs(5);

/// The bytes of an answer.
const WORD: usize = size_of::<i32>();

/// What the kernel answered to a signal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// It was sent.
    Sent,
    /// The process has ended.
    Ended,
    /// The user may not signal this process.
    Refused,
}

/// Sends `signal` to each of `processes`, which are at most [`MOST`] handles, as the user `uid`; without a signal, the
/// kernel is asked whether it might be sent. The answers have the order of the handles.
///
/// # Errors
/// Returns an error if no child process can be made, if it cannot become the user, or if it does not answer. Some
/// signals may have been sent then.
pub fn signal(uid: u32, processes: &[BorrowedFd<'_>], signal: Option<Signal>) -> io::Result<Vec<Answer>> {
    if processes.is_empty() {
        return Ok(Vec::new());
    }
    if processes.len() > MOST {
        return Err(io::Error::from(io::ErrorKind::InvalidInput));
    }
    let number = signal.map_or(0, |signal| signal as i32);
    let mut words = [0; MOST];
    let answers = words.get_mut(..processes.len()).unwrap_or_default();
    let mut descriptors = [i32::MAX; MOST + 1];
    let (reading, writing) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
    let open = processes.iter().map(AsRawFd::as_raw_fd).chain([writing.as_raw_fd()]);
    descriptors.iter_mut().zip(open).for_each(|(place, open)| *place = open);
    descriptors.sort_unstable();
    // SAFETY: this process has several threads, so the child only makes system calls until it ends: `child` allocates
    // nothing, takes no lock, cannot panic, and returns to nobody.
    match unsafe { fork() }? {
        ForkResult::Child => {
            close_others(&descriptors);
            child(uid, processes, number, answers, writing.as_fd())
        }
        ForkResult::Parent { child } => {
            drop(writing);
            let mut bytes = Vec::with_capacity((MOST + 1) * WORD);
            let read = read(reading, &mut bytes);
            if read.is_err() {
                // It may have ended by now; until it is waited for, its number is nobody else's.
                let _ = kill(child, Signal::SIGKILL);
            }
            wait(child)?;
            read?;
            parse(&bytes, processes.len())
        }
    }
}

/// Closes everything but `kept`, which are in their order. So the child has no lock of its parent's, not even if that
/// is killed now. Before Linux 5.9, all of them stay open for the short time that the child lives.
fn close_others(kept: &[i32]) {
    let mut first = 0;
    for descriptor in kept {
        if first < *descriptor {
            // SAFETY: the child uses none of these, and runs nothing that belongs to their owners.
            unsafe { libc::syscall(libc::SYS_close_range, first, descriptor - 1, 0) };
        }
        first = descriptor.saturating_add(1);
    }
}

/// What the child does. It writes 0 and an error number for each process, or the error number of what kept it from
/// becoming the user.
fn child(uid: u32, processes: &[BorrowedFd<'_>], signal: i32, answers: &mut [i32], to: BorrowedFd<'_>) -> ! {
    // A container of root's engine may run as any user, and root may end it.
    let became = match uid {
        0 => 0,
        _ => become_user(uid).map_or_else(rustix::io::Errno::raw_os_error, |()| 0),
    };
    write(to, &became.to_ne_bytes());
    if became == 0 {
        for (process, answer) in processes.iter().zip(answers.iter_mut()) {
            // SAFETY: the handle is open, a null pointer stands for the usual information about the sender, and the
            // call has no flags.
            let sent = unsafe {
                libc::syscall(
                    libc::SYS_pidfd_send_signal,
                    process.as_raw_fd(),
                    signal,
                    std::ptr::null::<libc::siginfo_t>(),
                    0,
                )
            };
            *answer = match sent {
                0 => 0,
                _ => Errno::last_raw(),
            };
        }
        for answer in answers {
            write(to, &answer.to_ne_bytes());
        }
    }
    // SAFETY: ends the process without running anything of it.
    unsafe { libc::_exit(0) }
}

/// Gives up everything of root in the thread that calls it, which is the only one of its process.
fn become_user(uid: u32) -> rustix::io::Result<()> {
    let nobody = (Uid::from_raw(NOBODY), Gid::from_raw(NOBODY));
    rustix::thread::set_thread_groups(&[])?;
    rustix::thread::set_thread_res_gid(nobody.1, nobody.1, nobody.1)?;
    rustix::thread::set_thread_res_uid(nobody.0, Uid::from_raw(uid), nobody.0)?;
    // The kernel has taken the capabilities away, unless this process was started in a way that prevents it
    // (SECBIT_NO_SETUID_FIXUP).
    let none = CapabilitySet::empty();
    let none = CapabilitySets {
        effective: none,
        permitted: none,
        inheritable: none,
    };
    rustix::thread::set_capabilities(None, none)?;
    rustix::thread::set_no_new_privs(true)
}

fn write(to: BorrowedFd<'_>, word: &[u8]) {
    // If nobody reads it any more, nobody needs it. A few bytes are written as a whole (pipe(7)).
    let _ = rustix::io::write(to, word);
}

/// Reads all that the child writes.
fn read(from: OwnedFd, bytes: &mut Vec<u8>) -> io::Result<()> {
    let until = Instant::now() + PATIENCE;
    let mut from = File::from(from);
    let mut piece = [0; (MOST + 1) * WORD];
    loop {
        let left = until.saturating_duration_since(Instant::now());
        let timeout = PollTimeout::try_from(left).unwrap_or(PollTimeout::ZERO);
        match poll(&mut [PollFd::new(from.as_fd(), PollFlags::POLLIN)], timeout) {
            Ok(0) => return Err(io::Error::from(io::ErrorKind::TimedOut)),
            Ok(_) => {}
            Err(Errno::EINTR) => continue,
            Err(error) => return Err(error.into()),
        }
        match from.read(&mut piece)? {
            0 => return Ok(()),
            read => bytes.extend_from_slice(piece.get(..read).unwrap_or_default()),
        }
    }
}

fn wait(child: Pid) -> io::Result<()> {
    loop {
        match waitpid(child, None) {
            Err(Errno::EINTR) => {}
            waited => return Ok(waited.map(drop)?),
        }
    }
}

/// The answers of which the child wrote these bytes.
fn parse(bytes: &[u8], processes: usize) -> io::Result<Vec<Answer>> {
    let mut words = bytes.chunks(WORD).map(|word| word.try_into().map(i32::from_ne_bytes));
    let mut next = || match words.next() {
        Some(Ok(word)) => Ok(word),
        _ => Err(io::Error::other(
            "the process that acts as the user ended without an answer",
        )),
    };
    match next()? {
        0 => {}
        error => return Err(io::Error::from_raw_os_error(error)),
    }
    let answer = |_| match next()? {
        0 => Ok(Answer::Sent),
        libc::ESRCH => Ok(Answer::Ended),
        libc::EPERM => Ok(Answer::Refused),
        error => Err(io::Error::from_raw_os_error(error)),
    };
    (0..processes).map(answer).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::process::{PidfdFlags, pidfd_open};
    use std::os::unix::process::{CommandExt, ExitStatusExt};
    use std::process::{Child, Command, Stdio};

    const BOB: u32 = 65_533;
    const EVE: u32 = 65_532;
    /// No other test has processes of this user, all of which are killed.
    const NOT_SHARED: u32 = 64_321;

    fn is_root(test: &str) -> bool {
        let is_root = nix::unistd::geteuid().is_root();
        if !is_root {
            println!("not run: sys::as_user::{test}: not root");
        }
        is_root
    }

    /// A process of `uid`, which has become it.
    fn sleeping(uid: u32) -> Child {
        let mut command = Command::new("sleep");
        command
            .arg("1000")
            .uid(uid)
            .gid(uid)
            .stdin(Stdio::null())
            .spawn()
            .unwrap()
    }

    fn handle(child: &Child) -> OwnedFd {
        let pid = rustix::process::Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
        pidfd_open(pid, PidfdFlags::empty()).unwrap()
    }

    #[test]
    fn the_kernel_lets_a_user_signal_the_user_s_own_processes_alone() {
        if !is_root("the_kernel_lets_a_user_signal_the_user_s_own_processes_alone") {
            return;
        }
        let mut children = [BOB, EVE, 0, BOB].map(sleeping);
        children[3].kill().unwrap();
        children[3].wait().unwrap();
        // Its handle can only be had before it ends.
        let mut ended = sleeping(BOB);
        let of_ended = handle(&ended);
        ended.kill().unwrap();
        ended.wait().unwrap();
        let handles: Vec<OwnedFd> = children[..3].iter().map(handle).collect();
        let mut all: Vec<BorrowedFd<'_>> = handles.iter().map(AsFd::as_fd).collect();
        all.push(of_ended.as_fd());
        let expected = [Answer::Sent, Answer::Refused, Answer::Refused, Answer::Ended];
        assert_eq!(signal(BOB, &all, None).unwrap(), expected);
        assert!(
            children[..3]
                .iter_mut()
                .all(|child| child.try_wait().unwrap().is_none())
        );
        assert_eq!(signal(BOB, &all, Some(Signal::SIGKILL)).unwrap(), expected);
        assert_eq!(children[0].wait().unwrap().signal(), Some(9));
        for child in &mut children[1..3] {
            assert!(child.try_wait().unwrap().is_none());
            child.kill().unwrap();
            child.wait().unwrap();
        }
        assert!(signal(BOB, &[], None).unwrap().is_empty());
    }

    /// A user who signals every process of the user's own again and again.
    #[test]
    fn a_user_cannot_end_the_process_that_acts_for_the_user() {
        if !is_root("a_user_cannot_end_the_process_that_acts_for_the_user") {
            return;
        }
        let mut command = Command::new("perl");
        command.args(["-e", "$| = 1; print 1; kill('KILL', -1) while 1"]);
        let mut shooter = command
            .uid(NOT_SHARED)
            .gid(NOT_SHARED)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        shooter.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
        let of_shooter = handle(&shooter);
        let asked = |_| signal(NOT_SHARED, &[of_shooter.as_fd()], None).unwrap();
        assert!((0..300).map(asked).all(|answers| answers == [Answer::Sent]));
        assert_eq!(
            signal(NOT_SHARED, &[of_shooter.as_fd()], Some(Signal::SIGKILL)).unwrap(),
            [Answer::Sent]
        );
        shooter.wait().unwrap();
    }

    #[test]
    fn an_answer_is_read_as_it_was_written() {
        let bytes = |words: &[i32]| words.iter().flat_map(|word| word.to_ne_bytes()).collect::<Vec<u8>>();
        assert_eq!(
            parse(&bytes(&[0, 0, libc::ESRCH]), 2).unwrap(),
            [Answer::Sent, Answer::Ended]
        );
        let error = parse(&bytes(&[libc::EINVAL]), 2).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EINVAL));
        for short in [&bytes(&[]), &bytes(&[0, 0]), &bytes(&[0, 0, 0])[..11]] {
            assert!(parse(short, 2).is_err(), "{short:?}");
        }
    }
}
