//! Sees that a suspended process wants the GPU.
//!
//! A call of a suspended process waits inside the driver's library, and neither the driver nor NVML tells. So the
//! kernel is asked to report each entry into one of a dozen functions of the library, for suspended processes alone: a
//! probe costs them up to 15 µs for each call, and others nothing. The first call that is seen ends the probes of
//! its process.
//!
//! The probes are uprobes of a whole process with a small program (bpf(2), `BPF_TRACE_UPROBE_MULTI`, Linux 6.6). Those
//! of perf_event_open(2) are of one thread each (tried with Linux 6.18):
//! - A new thread has none until it is found, so a call that it makes at once is never seen. If it inherits them
//!   (`inherit`), the kernel makes them anew with the rights and from the memory of the probed process. That fails with
//!   EFAULT, and with it the making of the thread: a tenant's program would break.
//! - To remove one takes 60 to 120 ms, one after another, and new ones wait meanwhile: minutes for a hundred threads.
//!
//! A process is probed only if it has mapped the file of the host's library: an image may bring a library of its own,
//! of which no call is seen. Its files are never opened by the paths of its own root, which it could change.
//!
//! Probe a process before it is locked: a call that has begun before is not seen.

mod library;
mod program;

pub use library::{FUNCTIONS, HostLibrary};

use crate::sys::bpf::{Marks, ProbeProgram, ProcessProbes};
use crate::sys::ring::Ring;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::time::{ClockId, clock_gettime};
use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::sync::mpsc::{self, Sender};
use std::thread;
use std::time::{Duration, Instant};
use tranche_core::process_identity::ProcessIdentity;

/// How many processes can be watched at once. Each writes a few bytes at its first call, for which the page has room.
pub const MOST: usize = 100;

/// Why the wishes of a process, or of all of them, cannot be seen. It is no failure: a person can resume a claim, and
/// turns end.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NoWishes {
    /// The kernel lacks such probes.
    #[error("this kernel cannot probe a process (it needs Linux 6.6 with CONFIG_UPROBES and CONFIG_BPF_SYSCALL)")]
    NoProbes,
    /// The kernel, its lockdown or SELinux refuses them.
    #[error("the kernel refuses probes ({0}): lockdown or SELinux may forbid them, or a right is missing")]
    Refused(String),
    /// The library cannot be read, or has none of the functions.
    #[error("the driver's libcuda.so.1 cannot be probed: {0}")]
    Library(String),
    /// The process has not mapped the host's library: it uses one of its own image, or none yet.
    #[error("process {0} does not use the host's libcuda.so.1")]
    OtherLibrary(i32),
    /// More processes than are watched at once.
    #[error("{0} processes are watched already, which is the most")]
    TooMany(usize),
    /// It has ended.
    #[error("process {0} has ended")]
    Ended(i32),
}

/// The suspended processes, and since when each of them has wanted the GPU.
#[derive(Debug)]
pub struct Wishes {
    library: HostLibrary,
    program: ProbeProgram,
    /// Which processes have called.
    marks: Marks,
    calls: Ring,
    processes: BTreeMap<ProcessIdentity, Watched>,
    /// The number that the last process has in `calls`. None is used twice.
    last: u64,
    /// How many processes are watched at once, at most. Each takes a descriptor.
    most: usize,
    /// Takes probes to a thread that removes them: the kernel waits for all processors then.
    removed: Sender<ProcessProbes>,
}

/// A process of which calls are looked for.
#[derive(Debug)]
struct Watched {
    number: u64,
    /// Since the boot.
    wants_since: Option<Duration>,
    /// Until its first call is seen.
    probes: Option<ProcessProbes>,
}

impl Wishes {
    /// Probes functions of this library. At most so many processes are watched at once, and no more than [`MOST`].
    ///
    /// # Errors
    /// Returns why no wish can be seen on this machine.
    pub fn new(library: HostLibrary, most: usize) -> Result<Self, NoWishes> {
        let calls = Ring::new().map_err(|e| refusal(&e))?;
        let marks = Marks::new(program::MARKS).map_err(|e| refusal(&e))?;
        let program = program::telling(marks.as_fd().as_raw_fd(), calls.as_fd().as_raw_fd());
        let program = ProbeProgram::load(&program, program::NAME).map_err(|e| refusal(&e))?;
        let (removed, probes) = mpsc::channel::<ProcessProbes>();
        // It ends when this value is dropped and all probes are removed.
        let remover = thread::Builder::new().name("probes".to_owned());
        let remover = remover.spawn(move || probes.into_iter().for_each(drop));
        remover.map_err(|e| refusal(&e))?;
        let mut wishes = Self {
            library,
            program,
            marks,
            calls,
            processes: BTreeMap::new(),
            last: 0,
            most: most.min(MOST),
            removed,
        };
        // Whether the kernel lets this process do it at all shows at this process itself.
        let own = wishes.probe(nix::unistd::getpid().as_raw());
        wishes.remove(own.map_err(|e| refusal(&e))?);
        Ok(wishes)
    }

    /// Looks for calls of `process` from now on. One that is watched already keeps what was seen.
    ///
    /// # Errors
    /// Returns why its calls cannot be seen. It is not watched then.
    pub fn watch(&mut self, process: ProcessIdentity) -> Result<(), NoWishes> {
        if self.processes.contains_key(&process) {
            return Ok(());
        }
        if self.processes.len() >= self.most {
            return Err(NoWishes::TooMany(self.most));
        }
        let ended = NoWishes::Ended(process.pid);
        let held = process.hold().map_err(|e| NoWishes::Refused(e.to_string()))?;
        let held = held.ok_or_else(|| ended.clone())?;
        if !self.library.is_mapped_by(process.pid) {
            return Err(NoWishes::OtherLibrary(process.pid));
        }
        let probes = self.probe(process.pid).map_err(|e| match e.raw_os_error() {
            Some(code) if code == Errno::ESRCH as i32 => ended.clone(),
            _ => refusal(&e),
        })?;
        // The number was that of this process, if it has not ended now.
        if held.has_ended().map_err(|e| NoWishes::Refused(e.to_string()))? {
            self.remove(probes);
            return Err(ended);
        }
        let watched = Watched {
            number: self.last,
            wants_since: None,
            probes: Some(probes),
        };
        self.processes.insert(process, watched);
        Ok(())
    }

    /// Looks for its calls no more, and forgets its wish.
    pub fn forget(&mut self, process: ProcessIdentity) {
        let watched = self.processes.remove(&process);
        if let Some(probes) = watched.and_then(|watched| watched.probes) {
            self.remove(probes);
        }
    }

    /// Since when a process has wanted the GPU, as a time since the boot; `None` if it has made no call.
    pub fn since(&self, process: ProcessIdentity) -> Option<Duration> {
        self.processes.get(&process)?.wants_since
    }

    /// Waits until a call is made, at most for `limit`. Returns the processes that have made their first call. [`AsFd`]
    /// has a descriptor that can be read from when a call was made; then this returns at once.
    ///
    /// # Errors
    /// Returns the kernel's error.
    pub fn wait(&mut self, limit: Duration) -> io::Result<Vec<ProcessIdentity>> {
        let until = Instant::now() + limit;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let mut fds = [PollFd::new(self.calls.as_fd(), PollFlags::POLLIN)];
            match poll(&mut fds, PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX)) {
                Ok(_) | Err(Errno::EINTR) => {}
                Err(e) => return Err(e.into()),
            }
            let seen = self.take()?;
            if !seen.is_empty() || left.is_zero() {
                return Ok(seen);
            }
        }
    }

    /// The processes whose first call was reported. Their probes are removed.
    fn take(&mut self) -> io::Result<Vec<ProcessIdentity>> {
        let now = clock_gettime(ClockId::CLOCK_BOOTTIME).map(Duration::from)?;
        let numbers = self.calls.take();
        let mut seen = Vec::new();
        // A number that is unknown is that of a process that was forgotten meanwhile.
        for (process, watched) in &mut self.processes {
            if watched.wants_since.is_none() && numbers.contains(&watched.number) {
                watched.wants_since = Some(now);
                seen.push((*process, watched.probes.take()));
            }
        }
        let processes = seen.into_iter().map(|(process, probes)| {
            if let Some(probes) = probes {
                self.remove(probes);
            }
            process
        });
        Ok(processes.collect())
    }

    fn probe(&mut self, process: i32) -> io::Result<ProcessProbes> {
        self.last += 1;
        // Another process may have had the mark, thousands of processes ago. One that still waits keeps it.
        let is_taken = |number| {
            self.processes
                .values()
                .any(|watched| program::mark(watched.number) == number)
        };
        while is_taken(program::mark(self.last)) {
            self.last += 1;
        }
        self.marks.clear(program::mark(self.last))?;
        self.library.probe(&self.program, self.last, process)
    }

    fn remove(&self, probes: ProcessProbes) {
        // The thread lives as long as this does. Without it, they are removed here.
        if let Err(mpsc::SendError(probes)) = self.removed.send(probes) {
            drop(probes);
        }
    }
}

impl AsFd for Wishes {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.calls.as_fd()
    }
}

fn refusal(error: &io::Error) -> NoWishes {
    // What the kernel does not know is an invalid argument to it.
    let unknown = [Errno::EINVAL, Errno::ENOSYS, Errno::EOPNOTSUPP].map(|errno| errno as i32);
    match error.raw_os_error() {
        Some(code) if unknown.contains(&code) => NoWishes::NoProbes,
        _ => NoWishes::Refused(error.to_string()),
    }
}

#[cfg(test)]
mod tests;
