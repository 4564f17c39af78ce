//! A process that has a context, and can be suspended.

use super::blocks::{self, Blocks};
use super::{LIVE, RESTORED, SOCKET, fault, forget, hold};
use crate::config::{Gpu, Turns};
use crate::driver::{Answer, INVALID_VALUE, NOT_INITIALIZED, OUT_OF_MEMORY, UNKNOWN};
use nix::fcntl::{Flock, FlockArg};
use std::collections::BTreeMap;
use std::ffi::c_int;
use std::fs::{self, File, Permissions};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::{Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

const OPERATING_SYSTEM: c_int = 304;
const ILLEGAL_STATE: c_int = 401;
const NOT_READY: c_int = 600;

/// `CUprocessState`
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Running,
    Locked,
    Checkpointed,
    Failed,
}

pub(super) struct Target {
    pub(super) directory: PathBuf,
    pub(super) name: String,
    /// What a restore opens, as the real library opens the device again.
    node: Option<PathBuf>,
    pid: u32,
    inner: Mutex<Inner>,
    changed: Condvar,
    _live: Flock<File>,
}

pub(super) struct Inner {
    state: State,
    /// New calls wait.
    is_closed: bool,
    /// Calls that are being made.
    calls: u32,
    /// A restore has failed.
    is_broken: bool,
    /// By the UUID of the GPU, with the bytes that the GPU has in all.
    pub(super) blocks: BTreeMap<String, (Blocks, u64)>,
    open: Option<File>,
}

pub(super) static TARGET: OnceLock<Target> = OnceLock::new();

/// A call of the application, until it is dropped. It waits while the process is locked.
pub(crate) struct Call(Option<&'static Target>);

impl Drop for Call {
    fn drop(&mut self) {
        if let Some(target) = self.0 {
            target.inner().calls -= 1;
            target.changed.notify_all();
        }
    }
}

/// Whether this process can be suspended.
pub(crate) fn is_target() -> bool {
    TARGET.get().is_some()
}

/// Begins a call.
pub(crate) fn call() -> Answer<Call> {
    let Some(target) = TARGET.get() else {
        return Ok(Call(None));
    };
    // CUDA cannot be used in a child that does not execute a program.
    if std::process::id() != target.pid {
        return Err(NOT_INITIALIZED);
    }
    let mut inner = target.inner();
    while inner.is_closed {
        inner = target.changed.wait(inner).unwrap_or_else(PoisonError::into_inner);
    }
    inner.calls += 1;
    Ok(Call(Some(target)))
}

/// Makes this process a target, once.
pub(crate) fn begin(turns: &Turns) -> Answer {
    if TARGET.get().is_none() {
        let target = Target::new(turns).ok_or(UNKNOWN)?;
        let listener = UnixListener::bind(target.path(SOCKET)).map_err(|_| UNKNOWN)?;
        // Also for a caller that is another user: the real library lets those ask who may trace the process.
        fs::set_permissions(target.path(SOCKET), Permissions::from_mode(0o777)).map_err(|_| UNKNOWN)?;
        if TARGET.set(target).is_ok() {
            // SAFETY: the function takes nothing and lives as long as the library, which is never unloaded.
            unsafe { libc::atexit(end) };
            let thread = std::thread::Builder::new().name("cuda-EvtHandlr".to_owned());
            thread.spawn(move || serve(&listener)).map_err(|_| UNKNOWN)?;
        }
    }
    let mut inner = TARGET.get().ok_or(UNKNOWN)?.inner();
    if let (None, Some(node)) = (&inner.open, &turns.node) {
        inner.open = Some(File::open(node).map_err(|_| OPERATING_SYSTEM)?);
    }
    Ok(())
}

/// What a process leaves that ends by itself.
extern "C" fn end() {
    if let Some(target) = TARGET.get().filter(|target| target.pid == std::process::id()) {
        let _held = hold(&target.directory);
        forget(&target.directory, &target.name);
    }
}

/// Bytes that other processes have on the GPU.
pub(crate) fn used_by_others(gpu: &Gpu) -> u64 {
    let Some(target) = TARGET.get() else { return 0 };
    let _held = hold(&target.directory);
    blocks::used_by_others(&target.directory, &target.directory.join(&gpu.uuid), &target.name)
}

impl Target {
    fn new(turns: &Turns) -> Option<Self> {
        fs::create_dir_all(&turns.directory).ok()?;
        let pid = std::process::id();
        let since = SystemTime::now().duration_since(UNIX_EPOCH).ok()?.as_nanos();
        let name = format!("{pid}-{since}");
        let live = File::create(turns.directory.join(&name).with_extension(LIVE)).ok()?;
        Some(Self {
            directory: turns.directory.clone(),
            name,
            node: turns.node.clone(),
            pid,
            inner: Mutex::new(Inner {
                state: State::Running,
                is_closed: false,
                calls: 0,
                is_broken: false,
                blocks: BTreeMap::new(),
                open: None,
            }),
            changed: Condvar::new(),
            _live: Flock::lock(live, FlockArg::LockExclusive).ok()?,
        })
    }

    fn path(&self, extension: &str) -> PathBuf {
        self.directory.join(&self.name).with_extension(extension)
    }

    pub(super) fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does what a caller asks for, and returns a number for it.
    fn answer(&self, verb: &str, number: u64) -> Answer<c_int> {
        let fault = fault(&self.directory, verb);
        match fault.as_deref() {
            None | Some("damage") => {}
            Some("hang") => loop {
                std::thread::park();
            },
            Some("fail") => {
                self.inner().state = State::Failed;
                return Err(UNKNOWN);
            }
            Some(code) => return Err(code.parse().unwrap_or(UNKNOWN)),
        }
        match verb {
            // SAFETY: takes nothing.
            "thread" => return Ok(unsafe { libc::gettid() }),
            "state" => return Ok(self.inner().state as c_int),
            "lock" => self.lock(Duration::from_millis(number))?,
            "checkpoint" => self.checkpoint()?,
            "restore" => {
                self.restore()?;
                if fault.is_some() {
                    self.inner().blocks.values().for_each(|(blocks, _)| blocks.damage());
                }
            }
            "unlock" => {
                let mut inner = self.inner();
                in_state(&inner, State::Locked)?;
                (inner.state, inner.is_closed) = (State::Running, false);
                self.changed.notify_all();
            }
            _ => return Err(INVALID_VALUE),
        }
        Ok(0)
    }

    fn lock(&self, timeout: Duration) -> Answer {
        let until = Instant::now() + timeout;
        let mut inner = self.inner();
        in_state(&inner, State::Running)?;
        inner.is_closed = true;
        while inner.calls > 0 {
            let left = match timeout.is_zero() {
                true => Duration::from_secs(3600),
                false => until.saturating_duration_since(Instant::now()),
            };
            if left.is_zero() {
                inner.is_closed = false;
                self.changed.notify_all();
                return Err(NOT_READY);
            }
            let waited = self.changed.wait_timeout(inner, left);
            (inner, _) = waited.unwrap_or_else(PoisonError::into_inner);
        }
        inner.state = State::Locked;
        Ok(())
    }

    fn checkpoint(&self) -> Answer {
        let mut inner = self.inner();
        in_state(&inner, State::Locked)?;
        for (blocks, _) in inner.blocks.values_mut() {
            blocks.copy_out().map_err(|_| UNKNOWN)?;
        }
        inner.open = None;
        inner.state = State::Checkpointed;
        let _ = fs::remove_file(self.path(RESTORED));
        Ok(())
    }

    fn restore(&self) -> Answer {
        let mut inner = self.inner();
        in_state(&inner, State::Checkpointed)?;
        if inner.is_broken {
            return Err(OPERATING_SYSTEM);
        }
        inner.is_broken = true;
        if let Some(node) = &self.node {
            inner.open = Some(File::open(node).map_err(|_| OPERATING_SYSTEM)?);
        }
        let _held = hold(&self.directory).ok_or(UNKNOWN)?;
        for (uuid, (own, total)) in &mut inner.blocks {
            let place = self.directory.join(uuid);
            let others = blocks::used_by_others(&self.directory, &place, &self.name);
            if others + own.bytes() > *total {
                return Err(OUT_OF_MEMORY);
            }
            own.copy_in(&place, &self.name).map_err(|_| UNKNOWN)?;
        }
        inner.is_broken = false;
        inner.state = State::Locked;
        fs::write(self.path(RESTORED), "").map_err(|_| UNKNOWN)
    }
}

fn in_state(inner: &Inner, state: State) -> Answer {
    match inner.state == state {
        true => Ok(()),
        false => Err(ILLEGAL_STATE),
    }
}

/// Answers callers, one after another, as the real thread does.
fn serve(listener: &UnixListener) {
    for caller in listener.incoming().flatten() {
        let _ = answer(&caller);
    }
}

fn answer(mut caller: &UnixStream) -> std::io::Result<()> {
    let mut line = String::new();
    BufReader::new(caller).read_line(&mut line)?;
    let (verb, number) = line.trim().split_once(' ').unwrap_or((line.trim(), "0"));
    let Some(target) = TARGET.get() else { return Ok(()) };
    let answer = target.answer(verb, number.parse().unwrap_or(0));
    let (code, value) = answer.map_or_else(|code| (code, 0), |value| (0, value));
    writeln!(caller, "{code} {value}")
}
