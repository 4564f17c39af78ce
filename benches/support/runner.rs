//! Programs that are run in turns, so that a busy moment of the machine affects all of them: medians, and what they and
//! the least times are over the first program's.
#![allow(dead_code, reason = "each benchmark uses a part")]

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// One program with its arguments and input, and how long each of its rounds took.
pub(crate) struct Runner {
    name: String,
    program: PathBuf,
    arguments: Vec<String>,
    input: String,
    code: i32,
    times: Vec<Duration>,
}

impl Runner {
    pub(crate) fn new(name: &str, program: &Path, arguments: Vec<String>, input: &str) -> Runner {
        Runner {
            name: name.into(),
            program: program.into(),
            arguments,
            input: input.into(),
            code: 0,
            times: Vec::new(),
        }
    }

    /// Expects this exit code, where success is not what the program reports.
    pub(crate) fn exits(self, code: i32) -> Runner {
        Runner { code, ..self }
    }

    /// Runs the program once. It must end with the expected exit code.
    pub(crate) fn round(&mut self) {
        let start = Instant::now();
        let mut command = Command::new(&self.program);
        command
            .args(&self.arguments)
            .env_clear()
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        // The empty program does not read it.
        let _ = child.stdin.take().unwrap().write_all(self.input.as_bytes());
        let output = child.wait_with_output().unwrap();
        self.times.push(start.elapsed());
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(self.code), "{}: {said}", self.name);
    }

    /// The median, and the least: what a round takes that nothing else on the machine got in the way of.
    fn times(&mut self) -> (Duration, Duration) {
        self.times.sort();
        (self.times[self.times.len() / 2], self.times[0])
    }
}

/// How many rounds: `ROUNDS` in the environment, or `usual`.
pub(crate) fn rounds(usual: usize) -> usize {
    std::env::var("ROUNDS")
        .ok()
        .and_then(|n| n.parse().ok())
        .unwrap_or(usual)
}

/// A directory, in memory where that is possible: what is measured is the program, not a disk.
pub(crate) fn scene() -> tempfile::TempDir {
    let memory = Path::new("/dev/shm");
    let place = if memory.is_dir() {
        memory.to_path_buf()
    } else {
        std::env::temp_dir()
    };
    tempfile::tempdir_in(place).unwrap()
}

/// Compiles a static program that does nothing, into `directory`.
pub(crate) fn empty(directory: &Path) -> PathBuf {
    let empty = directory.join("empty");
    let source = directory.join("empty.c");
    fs::write(&source, "int main(void) { return 0; }\n").unwrap();
    let mut compiler = Command::new("cc");
    compiler.args(["-O2", "-static", "-o"]).arg(&empty).arg(&source);
    assert!(compiler.status().unwrap().success(), "cannot compile the empty program");
    empty
}

/// Prints the table. The first runner is what the others are held against.
pub(crate) fn table(runners: &mut [Runner]) {
    let rounds = runners.first().map_or(0, |r| r.times.len());
    let (base, least_of_base) = runners.first_mut().map_or_else(Default::default, Runner::times);
    let over = |time: Duration, base: Duration| (time.as_secs_f64() - base.as_secs_f64()) * 1e3;
    println!(
        "{:42} {:>9} {:>7} {:>10} {:>12}",
        format!("{rounds} rounds, medians"),
        "us",
        "ratio",
        "over empty",
        "least over"
    );
    for runner in runners {
        let (median, least) = runner.times();
        println!(
            "{:42} {:>9.0} {:>7.2} {:>7.3} ms {:>9.3} ms",
            runner.name,
            median.as_secs_f64() * 1e6,
            median.as_secs_f64() / base.as_secs_f64(),
            over(median, base),
            over(least, least_of_base)
        );
    }
}
