//! A process of `tranche-load` in a share of the room.

use crate::clock;
use crate::site::Site;
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::process::{Child, ChildStderr, ChildStdin, ChildStdout, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};
use tranche_bench::event::{Event, Reader, Ready};
use tranche_bench::way::Seat;
use tranche_core::error::{Context, Error, Result};
use tranche_core::execute::Program;
use tranche_core::text::shown;
use tranche_state::mutex::lock;

/// How long the first calls of CUDA may take: without persistence mode the driver starts the GPU first.
const START: Duration = Duration::from_secs(60);

/// How long it may take to end.
const END: Duration = Duration::from_secs(2);

/// The most bytes of a line for people that are kept.
const LONGEST_LINE: u64 = 1000;

/// A process of `tranche-load`. It ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Tenant {
    name: String,
    child: Child,
    input: Option<ChildStdin>,
    output: Receiver<Result<Event>>,
    /// The last line that it printed for people.
    said: Arc<Mutex<String>>,
    is_spared: bool,
}

impl Tenant {
    /// Starts `tranche-load` with `words` in `seat`.
    ///
    /// # Errors
    /// Returns an error if it cannot be started.
    pub(crate) fn start(site: &Site, seat: &Seat, words: &[String]) -> Result<Self> {
        let name = format!(
            "{} in {}.{}",
            words.first().map_or("", String::as_str),
            seat.device,
            seat.share
        );
        Self::run(name, site.load_in(seat, words)?)
    }

    /// Starts `program`, which is `tranche-load`. Errors call it `name`.
    ///
    /// # Errors
    /// Returns an error if it cannot be started.
    pub(crate) fn run(name: String, mut program: Program) -> Result<Self> {
        program
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = program.spawn().about(&name, "cannot be started")?;
        let (events, output) = channel();
        if let Some(stdout) = child.stdout.take() {
            let reader = Reader::new(&name);
            thread::spawn(move || pass_on(stdout, reader, &events));
        }
        let said = Arc::new(Mutex::new(String::new()));
        if let Some(stderr) = child.stderr.take() {
            let said = Arc::clone(&said);
            thread::spawn(move || keep(stderr, &said));
        }
        Ok(Self {
            name,
            input: child.stdin.take(),
            child,
            output,
            said,
            is_spared: false,
        })
    }

    /// Its number.
    pub(crate) fn pid(&self) -> i32 {
        self.child.id().cast_signed()
    }

    /// Never kills it from now on: where it is suspended and resumed, the machine could hang.
    pub(crate) fn spare(&mut self) {
        self.is_spared = true;
    }

    /// Closes its input, at the end of which it ends. Returns whether it has ended within `patience`.
    pub(crate) fn leave(&mut self, patience: Duration) -> bool {
        drop(self.input.take());
        let until = Instant::now() + patience;
        loop {
            match self.child.try_wait() {
                Ok(None) if Instant::now() < until => thread::sleep(Duration::from_millis(10)),
                Ok(None) => return false,
                Ok(Some(_)) | Err(_) => return true,
            }
        }
    }

    /// Waits until it can begin.
    ///
    /// # Errors
    /// Returns why it cannot.
    pub(crate) fn ready(&mut self) -> Result<Ready> {
        match self.next(START)? {
            Some(Event::Ready(ready)) => Ok(ready),
            Some(Event::Error { call, name, .. }) => Err(self.failed(format!("{call} failed: {name}"))),
            Some(other) => Err(self.failed(format!("began with {other:?}"))),
            None => {
                // What it says comes by another thread.
                let _ = self.child.wait();
                thread::sleep(Duration::from_millis(50));
                let said = lock(&self.said).clone();
                Err(self.failed(match said.is_empty() {
                    true => "ended before it was ready".to_owned(),
                    false => format!("ended before it was ready: {said}"),
                }))
            }
        }
    }

    /// Tells it when to begin, and what.
    ///
    /// # Errors
    /// Returns an error if it has ended.
    pub(crate) fn tell(&mut self, text: &str) -> Result<()> {
        let Some(input) = self.input.as_mut() else {
            return Ok(());
        };
        match input.write_all(text.as_bytes()) {
            // Its events say why it has ended.
            Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
            told => told.about(&self.name, "cannot be told when to begin"),
        }
    }

    /// Its events up to its end.
    ///
    /// # Errors
    /// Returns an error if it still runs at the time `until` of [`clock::now`], or if a line of it is not valid.
    pub(crate) fn events(&mut self, until: u64) -> Result<Vec<Event>> {
        let mut events = Vec::new();
        loop {
            let left = Duration::from_nanos(until.saturating_sub(clock::now()?));
            match self.next(left)? {
                Some(event) => events.push(event),
                None => return Ok(events),
            }
        }
    }

    /// The next event; `None` at its end.
    fn next(&mut self, patience: Duration) -> Result<Option<Event>> {
        match self.output.recv_timeout(patience) {
            Ok(event) => event.map(Some),
            Err(RecvTimeoutError::Disconnected) => Ok(None),
            Err(RecvTimeoutError::Timeout) => {
                Err(self.failed(format!("has not answered for {} s", patience.as_secs().max(1))))
            }
        }
    }

    fn failed(&self, what: String) -> Error {
        Error::failed(&self.name, what)
    }
}

impl Drop for Tenant {
    fn drop(&mut self) {
        // What runs it ends with it. One that hangs in the driver is left to the guard.
        if self.leave(END) || self.is_spared {
            return;
        }
        // Nothing can be done about a process that cannot be killed.
        let _ = self.child.kill();
    }
}

/// Reads what a process prints for people, and keeps its last line.
fn keep(stderr: ChildStderr, said: &Mutex<String>) {
    let mut stderr = BufReader::new(stderr);
    loop {
        let mut line = Vec::new();
        match stderr.by_ref().take(LONGEST_LINE).read_until(b'\n', &mut line) {
            Ok(0) | Err(_) => return,
            Ok(_) => *lock(said) = shown(String::from_utf8_lossy(&line).trim_end()).into_owned(),
        }
    }
}

/// Reads the output of a process to its end.
fn pass_on(mut stdout: ChildStdout, mut reader: Reader, events: &Sender<Result<Event>>) {
    let mut bytes = vec![0; 64 << 10];
    loop {
        let read = match stdout.read(&mut bytes) {
            Ok(0) => match reader.finish() {
                Ok(()) => return,
                Err(error) => Err(error),
            },
            Ok(count) => reader.read(bytes.get(..count).unwrap_or_default()),
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(error) => Err(Error::failed("tranche-load", "cannot be read").from_source(error)),
        };
        let (read, is_over) = match read {
            Ok(read) => (read.into_iter().map(Ok).collect(), false),
            Err(error) => (vec![Err(error)], true),
        };
        for event in read {
            // Nobody waits for the rest.
            if events.send(event).is_err() {
                return;
            }
        }
        if is_over {
            return;
        }
    }
}
