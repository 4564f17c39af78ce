//! A process of `tranche-load` in a share of the room.

use crate::clock;
use std::ffi::OsString;
use std::io::{ErrorKind, Read, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::Duration;
use tranche_bench::event::{Event, Ready, Reader};
use tranche_bench::way::Seat;
use tranche_core::error::{Context, Error, Result};
use tranche_core::own_programs;

/// How long the first calls of CUDA may take: without persistence mode the driver starts the GPU first.
const START: Duration = Duration::from_secs(60);

/// How a program is started in a share of the room.
pub(crate) trait Launch {
    /// The command of `program` with `arguments` in `seat`.
    ///
    /// # Errors
    /// Returns an error if a program of tranche is missing.
    fn command(&self, seat: &Seat, program: &[OsString]) -> Result<Command>;
}

/// A process of `tranche-load`. It ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Tenant {
    name: String,
    child: Child,
    input: Option<ChildStdin>,
    output: Receiver<Result<Event>>,
}

impl Tenant {
    /// Starts `tranche-load` with `words` in `seat`.
    ///
    /// # Errors
    /// Returns an error if it cannot be started.
    pub(crate) fn start(launch: &impl Launch, seat: &Seat, words: &[String]) -> Result<Self> {
        let name = format!("{} in {}.{}", words.first().map_or("", String::as_str), seat.device, seat.share);
        let mut program = vec![own_programs::find("tranche-load")?.into_os_string()];
        program.extend(words.iter().map(OsString::from));
        let mut command = launch.command(seat, &program)?;
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().about(&name, "cannot be started")?;
        let (events, output) = channel();
        if let Some(stdout) = child.stdout.take() {
            let reader = Reader::new(&name);
            thread::spawn(move || pass_on(stdout, reader, &events));
        }
        Ok(Self {
            name,
            input: child.stdin.take(),
            child,
            output,
        })
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
            None => Err(self.failed("ended before it was ready".to_owned())),
        }
    }

    /// Tells it when to begin, and what.
    ///
    /// # Errors
    /// Returns an error if it has ended.
    pub(crate) fn tell(&mut self, text: &str) -> Result<()> {
        let Some(input) = self.input.as_mut() else { return Ok(()) };
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
        // It ends at the end of its input, and what runs it with it. One that hangs in the driver is left to the guard.
        drop(self.input.take());
        for _ in 0..200 {
            match self.child.try_wait() {
                Ok(None) => thread::sleep(Duration::from_millis(10)),
                Ok(Some(_)) | Err(_) => return,
            }
        }
        // Nothing can be done about a process that cannot be killed.
        let _ = self.child.kill();
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
