//! A command of a user in a share of the room, whose figures are read from what it prints.

use crate::clock;
use crate::site::Site;
use std::ffi::OsString;
use std::io::{BufRead, BufReader, Read};
use std::os::fd::BorrowedFd;
use std::process::{Child, ChildStdin, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;
use tranche_bench::latency::FigureRule;
use tranche_bench::schedule::Window;
use tranche_bench::way::Seat;
use tranche_core::error::{Context, Error, Result};
use tranche_core::text::{cut, shown};
use tranche_state::mutex::lock;

/// How often it is looked whether a command has printed its first figure, in nanoseconds.
const LOOK: u64 = 50_000_000;

/// The longest line of which anything is read, in bytes.
const LONGEST_LINE: u64 = 1 << 16;

/// The longest line that an error repeats, in bytes.
const LONGEST_SAID: usize = 200;

/// The most figures that are kept of a command: a thousand in a second, for longer than any measurement.
const MOST_FIGURES: usize = 1 << 20;

/// How long a command that was told to end may take: more than the program of tranche that ends it waits.
const END: Duration = Duration::from_secs(8);

/// How a command is run, and what is read from it.
#[derive(Debug, Clone)]
pub(crate) struct Reading<'a> {
    /// How errors call it: `the first command`.
    pub(crate) name: &'a str,
    /// The word of its figure: `latency_ms`.
    pub(crate) figure: &'a str,
    /// How the figure is found in a line.
    pub(crate) rule: &'a FigureRule,
    /// How long it may take until its first figure.
    pub(crate) patience: Duration,
}

/// A command that runs. It ends when this is dropped.
pub(crate) struct Command<'a> {
    reading: Reading<'a>,
    child: Child,
    input: Option<ChildStdin>,
    printed: Arc<Mutex<Printed>>,
}

/// What a command has printed.
#[derive(Debug, Default)]
struct Printed {
    /// Each figure, and when it was read.
    figures: Vec<(u64, f64)>,
    /// Its last line.
    last: String,
}

impl<'a> Command<'a> {
    /// Starts the program `words` in `seat`.
    ///
    /// # Errors
    /// Returns an error if it cannot be started.
    pub(crate) fn start(site: &Site, seat: &Seat, words: &[OsString], reading: Reading<'a>) -> Result<Self> {
        let mut program = site.in_share(seat, words)?;
        program
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = program.spawn().about(reading.name, "cannot be started")?;
        let printed = Arc::new(Mutex::new(Printed::default()));
        // Programs print their figures to either.
        let output = child.stdout.take().map(|one| Box::new(one) as Box<dyn Read + Send>);
        let errors = child.stderr.take().map(|one| Box::new(one) as Box<dyn Read + Send>);
        for stream in [output, errors].into_iter().flatten() {
            let (printed, rule) = (Arc::clone(&printed), reading.rule.clone());
            thread::spawn(move || read(stream, &rule, &printed));
        }
        Ok(Self {
            input: child.stdin.take(),
            child,
            reading,
            printed,
        })
    }

    /// Waits until it has printed a figure: it works then.
    ///
    /// # Errors
    /// Returns an error if it ends, if it prints none in time, or if somebody ends the run.
    pub(crate) fn ready(&mut self, site: &Site, stop: BorrowedFd<'_>) -> Result<()> {
        let patience = u64::try_from(self.reading.patience.as_nanos()).unwrap_or(u64::MAX);
        let until = clock::now()?.saturating_add(patience);
        while lock(&self.printed).figures.is_empty() {
            self.refuse_end()?;
            if clock::now()? > until {
                let last = lock(&self.printed).last.clone();
                let Reading { figure, patience, .. } = &self.reading;
                let what = format!("printed no {figure} for {} s{}", patience.as_secs(), after(&last));
                let option = figure.split('_').next().unwrap_or_default();
                return Err(self.failed(what).hint(format!(
                    "print {figure}=NUMBER, or say with --{option}-pattern how it is found"
                )));
            }
            site.wait(clock::now()?.saturating_add(LOOK), stop)?;
        }
        Ok(())
    }

    /// The figures that it printed in `window` after the time `begin` of the clock.
    ///
    /// # Errors
    /// Returns an error if it has ended, or has printed none.
    pub(crate) fn figures(&mut self, begin: u64, window: Window) -> Result<Vec<f64>> {
        self.refuse_end()?;
        let printed = lock(&self.printed);
        let is_inside = |at: u64| at.checked_sub(begin).is_some_and(|at| window.has(at));
        let inside = printed.figures.iter().filter(|(at, _)| is_inside(*at));
        let figures: Vec<f64> = inside.map(|(_, figure)| *figure).collect();
        drop(printed);
        if figures.is_empty() {
            let what = format!("printed no {} in {} s", self.reading.figure, window.seconds());
            return Err(self.failed(what).hint("measure for a longer time, with --seconds"));
        }
        Ok(figures)
    }

    /// Returns an error if it has ended.
    fn refuse_end(&mut self) -> Result<()> {
        let status = self.child.try_wait().about(self.reading.name, "cannot be waited for")?;
        let Some(status) = status else { return Ok(()) };
        // What it says comes by another thread.
        thread::sleep(Duration::from_millis(50));
        let last = lock(&self.printed).last.clone();
        let error = self.failed(format!("has ended ({status}){}", after(&last)));
        Err(error.hint("it has to run until it gets SIGTERM"))
    }

    fn failed(&self, what: String) -> Error {
        Error::failed(self.reading.name, what)
    }
}

impl Drop for Command<'_> {
    fn drop(&mut self) {
        drop(self.input.take());
        let mut left = END;
        while !left.is_zero() {
            match self.child.try_wait() {
                Ok(None) => thread::sleep(Duration::from_millis(20)),
                Ok(Some(_)) | Err(_) => return,
            }
            left = left.saturating_sub(Duration::from_millis(20));
        }
        // Nothing can be done about a process that cannot be killed.
        let _ = self.child.kill();
    }
}

/// The last line for the end of a sentence.
fn after(last: &str) -> String {
    match last.is_empty() {
        true => String::new(),
        false => format!("; its last line: {last}"),
    }
}

/// Reads lines to the end.
fn read(stream: impl Read, rule: &FigureRule, printed: &Mutex<Printed>) {
    let mut stream = BufReader::new(stream);
    loop {
        let mut line = Vec::new();
        match stream.by_ref().take(LONGEST_LINE).read_until(b'\n', &mut line) {
            Ok(0) | Err(_) => return,
            Ok(_) => {}
        }
        let Ok(now) = clock::now() else { return };
        let line = String::from_utf8_lossy(&line);
        let line = line.trim_end();
        let mut printed = lock(printed);
        if let Some(figure) = rule.figure(line)
            && printed.figures.len() < MOST_FIGURES
        {
            printed.figures.push((now, figure));
        }
        if !line.is_empty() {
            printed.last = shown(&cut(line, LONGEST_SAID)).into_owned();
        }
    }
}
