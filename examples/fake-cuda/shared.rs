//! The GPU that several processes share: the model's state in a file.
//!
//! A lock on the first byte of the file is held while the state is read and written, and each process holds a lock on a
//! byte of its own while it lives: the kernel gives it back when the process ends, in whatever way. Locks of open file
//! descriptions (fcntl(2)) are the same in all PID namespaces.

use crate::config::{Cheat, Model};
use crate::model::{Client, Hardware, State, Task, Work};
use nix::fcntl::{FcntlArg, fcntl};
use nix::time::{ClockId, clock_gettime};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// The most processes at once.
const MOST: u64 = 64;
/// How long a wait is at most before the state is looked at again: another process may have ended.
const PATIENCE: u64 = 3_000_000;

/// This process among those that share a GPU.
#[derive(Debug)]
pub(crate) struct Shared {
    /// One thread at a time: threads of a process have the same locks.
    file: Mutex<File>,
    number: u64,
    sms: u32,
    model: &'static Model,
}

/// CLOCK_MONOTONIC in nanoseconds, which all processes of a host share.
fn now() -> u64 {
    let time = clock_gettime(ClockId::CLOCK_MONOTONIC);
    time.map_or(0, |time| Duration::from(time).as_nanos() as u64)
}

fn lock(kind: i32, byte: u64) -> libc::flock {
    // SAFETY: zeros are a value of the structure, which has numbers alone.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    lock.l_type = kind as i16;
    lock.l_whence = libc::SEEK_SET as i16;
    lock.l_start = byte as i64;
    lock.l_len = 1;
    lock
}

fn take(file: &File, byte: u64) -> bool {
    fcntl(file, FcntlArg::F_OFD_SETLKW(&lock(libc::F_WRLCK, byte))).is_ok()
}

/// Whether another process holds the byte.
fn is_taken(file: &File, byte: u64) -> bool {
    let mut found = lock(libc::F_WRLCK, byte);
    fcntl(file, FcntlArg::F_OFD_GETLK(&mut found)).is_ok() && found.l_type != libc::F_UNLCK as i16
}

fn read(file: &File) -> State {
    let mut bytes = vec![0; 64 << 10];
    let length = file.read_at(&mut bytes, 0).unwrap_or(0);
    let (numbers, _) = bytes[..length].as_chunks();
    let numbers: Vec<u64> = numbers.iter().map(|bytes| u64::from_ne_bytes(*bytes)).collect();
    State::of_numbers(&numbers).unwrap_or_default()
}

impl Shared {
    /// Joins those who use the GPU. `group` is the same for the clients of one MPS server, and `None` without MPS;
    /// `sms` are those that this process can use, of `all`.
    pub(crate) fn join(file: &Path, model: &'static Model, all: u32, group: Option<u64>, sms: u32) -> Option<Self> {
        let mut options = File::options();
        let file = options
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(file)
            .ok()?;
        let mut shared = Self {
            file: Mutex::new(file),
            number: 0,
            sms: all,
            model,
        };
        let number = shared.with(|state, file| {
            let is_free = |number: &u64| state.client(*number).is_none() && !is_taken(file, *number);
            let number = (1..MOST).find(is_free)?;
            let joined = take(file, number);
            state.clients.push(Client {
                number,
                // Contexts have groups of their own, beside the inodes of sockets.
                group: group.unwrap_or(u64::MAX - MOST + number),
                sms,
                used: 0,
                error: 0,
            });
            joined.then_some(number)
        })?;
        shared.number = number;
        Some(shared)
    }

    /// Whether the GPU breaks this promise.
    pub(crate) fn cheats(&self, cheat: Cheat) -> bool {
        self.model.cheats.contains(&cheat)
    }

    fn hardware(&self) -> Hardware<'static> {
        Hardware {
            sms: self.sms,
            model: self.model,
        }
    }

    /// Changes the state as it is now.
    fn with<T>(&self, change: impl FnOnce(&mut State, &File) -> T) -> T {
        let file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        take(&file, 0);
        let mut state = read(&file);
        // Before the first use there was nothing to do.
        state.now = state.now.max(1);
        state.keep(|number| number == self.number || is_taken(&file, number));
        state.advance(self.hardware(), now());
        let result = change(&mut state, &file);
        let bytes: Vec<u8> = state
            .to_numbers()
            .iter()
            .flat_map(|number| number.to_ne_bytes())
            .collect();
        // One write, so that a process that is killed leaves the old state or the new one.
        let _ = file.write_all_at(&bytes, 0);
        let _ = fcntl(&*file, FcntlArg::F_OFD_SETLK(&lock(libc::F_UNLCK, 0)));
        result
    }

    fn error(&self, state: &State) -> Result<(), i32> {
        match state.client(self.number).map(|client| client.error) {
            Some(0) => Ok(()),
            Some(error) => Err(error),
            // Another process has found this one dead, which cannot be.
            None => Err(999),
        }
    }

    /// Begins work in a stream.
    pub(crate) fn begin(&self, stream: u64, work: Work, amount: f64) -> Result<(), i32> {
        self.with(|state, _| {
            self.error(state)?;
            state.tasks.push(Task {
                client: self.number,
                stream,
                work,
                left: amount,
                begun: false,
            });
            Ok(())
        })
    }

    /// Waits until the work of a stream is done.
    pub(crate) fn wait(&self, stream: u64) -> Result<(), i32> {
        loop {
            let (end, at) = self.with(|state, _| {
                self.error(state)?;
                let end = state.idle_at(self.hardware(), self.number, stream);
                Ok::<_, i32>((end, state.is_idle(self.number, stream)))
            })?;
            if at {
                return Ok(());
            }
            let left = end.saturating_sub(now()).min(PATIENCE);
            std::thread::sleep(Duration::from_nanos(left));
        }
    }

    /// Bytes that the other processes have.
    pub(crate) fn used_by_others(&self) -> Result<u64, i32> {
        self.with(|state, _| {
            self.error(state)?;
            let others = state.clients.iter().filter(|client| client.number != self.number);
            Ok(others.map(|client| client.used).sum())
        })
    }

    /// Says how many bytes this process has.
    pub(crate) fn use_memory(&self, bytes: u64) {
        self.with(|state, _| {
            let own = state.clients.iter_mut().find(|client| client.number == self.number);
            if let Some(own) = own {
                own.used = bytes;
            }
        });
    }

    /// The numbers of the SMs that this process gets: those after the ones of the clients before it.
    pub(crate) fn sms(&self, cheats: bool) -> Vec<u32> {
        self.with(|state, _| {
            let Some(own) = state.client(self.number) else {
                return Vec::new();
            };
            let before = state.clients.iter().take_while(|client| client.number != self.number);
            let first: u32 = before
                .filter(|client| client.group == own.group)
                .map(|client| client.sms)
                .sum();
            match cheats {
                true => (0..self.sms).collect(),
                false => (first..first + own.sms).map(|sm| sm % self.sms).collect(),
            }
        })
    }
}
