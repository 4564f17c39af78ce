//! Starts the child, reads its answer within the deadline.

use super::CHILD_ARGUMENT;
use super::answer::{Facts, Line, Step};
use crate::inventory::Warning;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::Signal;
use std::ffi::OsStr;
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

/// More than 256 GPUs with all their MIG devices take; a library that makes the child say more is cut off.
const MAX_ANSWER: usize = 4 << 20;

/// How long a child that has told everything may take to end, before it is ended. Some drivers put the GPU to sleep
/// in the shutdown, which takes its time and changes nothing for us.
const PATIENCE: Duration = Duration::from_millis(500);

/// A child at work.
pub(crate) struct Asked {
    child: Child,
    pipe: ChildStdout,
    library: String,
    started: Instant,
    deadline: Duration,
    done: bool,
}

/// What came of asking.
#[derive(Debug, Default)]
pub(crate) struct Report {
    /// What the child told.
    pub facts: Facts,
    /// What went wrong.
    pub warnings: Vec<Warning>,
    /// Functions that the library lacks: normal for an old driver.
    pub missing: Vec<String>,
    /// Whether every GPU was asked.
    pub complete: bool,
    /// The GPU at which the child hung or crashed.
    pub stuck_at: Option<u32>,
}

/// Starts a child of `program` that asks the library at `library` (a path to open, or a plain name for the loader).
///
/// # Errors
/// The program cannot be started.
pub(crate) fn start(program: &Path, library: &OsStr, shown: &str, deadline: Duration) -> io::Result<Asked> {
    let started = Instant::now();
    let mut child = Command::new(program)
        .arg(CHILD_ARGUMENT)
        .arg(library)
        // Nothing of the caller's environment is the library's business: a preloaded library, a trace to a file.
        .env_clear()
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()?;
    let pipe = child.stdout.take().ok_or_else(|| io::Error::other("no pipe"))?;
    Ok(Asked {
        child,
        pipe,
        library: shown.to_owned(),
        started,
        deadline,
        done: false,
    })
}

/// How the reading ended.
enum End {
    Closed,
    Deadline,
    TooMuch,
    Failed(io::Error),
}

impl Asked {
    /// Reads until the child has told all, ends, or is out of time. A child that is stuck is ended here; one that told
    /// all may use the time until it is dropped for its shutdown.
    pub(crate) fn finish(&mut self) -> Report {
        let mut lines = Lines::default();
        let end = self.read(&mut lines);
        let mut report = lines.report;
        let step = lines.step;
        let done = lines.done;
        let object = self.library.clone();
        let mut warn = |text: String| {
            report.warnings.push(Warning {
                object: object.clone(),
                text,
            });
        };
        self.done = done;
        if !done {
            let status = self.end();
            let at = step.map(|s| format!(" {s}")).unwrap_or_default();
            match end {
                End::Deadline => warn(format!(
                    "NVML gave no answer{at} for {} s and was ended",
                    self.deadline.as_secs_f32()
                )),
                End::TooMuch => warn(format!("NVML gave an answer without end{at} and was ended")),
                End::Failed(e) => warn(format!("the answer of NVML cannot be read: {e}")),
                End::Closed => warn(match status {
                    Ok(status) => match status.signal() {
                        Some(signal) => format!("NVML crashed{at} ({})", signal_name(signal)),
                        None => format!("NVML ended its process{at} (exit code {})", status.code().unwrap_or(-1)),
                    },
                    Err(e) => format!("NVML's process cannot be waited for: {e}"),
                }),
            }
            if let Some(Step::Gpu(index)) = step {
                report.stuck_at = Some(index);
            }
        }
        if lines.garbage > 0 {
            let text = format!(
                "{} lines of NVML's process make no sense and were left out",
                lines.garbage
            );
            report.warnings.push(Warning { object, text });
        }
        report
    }

    fn read(&mut self, lines: &mut Lines) -> End {
        let mut total = 0;
        let mut chunk = vec![0; 16 << 10];
        while !lines.done {
            let left = self.deadline.saturating_sub(self.started.elapsed());
            // Rounded up: a poll that ends a little early would spin.
            let timeout = PollTimeout::try_from(left + Duration::from_millis(1)).unwrap_or(PollTimeout::MAX);
            let mut fds = [PollFd::new(self.pipe.as_fd(), PollFlags::POLLIN)];
            match poll(&mut fds, timeout) {
                Ok(0) if left.is_zero() => return End::Deadline,
                Ok(0) | Err(nix::errno::Errno::EINTR) => continue,
                Ok(_) => {}
                Err(e) => return End::Failed(e.into()),
            }
            match self.pipe.read(&mut chunk) {
                Ok(0) => return End::Closed,
                Ok(n) => {
                    total += n;
                    if total > MAX_ANSWER {
                        return End::TooMuch;
                    }
                    lines.push(&chunk[..n]);
                }
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return End::Failed(e),
            }
            if left.is_zero() && !lines.done {
                return End::Deadline;
            }
        }
        End::Closed
    }

    /// Ends the child: after a moment where it is done, at once where it is stuck. A child that died by itself keeps
    /// its own status, since a signal to a dead process changes nothing.
    fn end(&mut self) -> io::Result<std::process::ExitStatus> {
        let until = Instant::now() + PATIENCE;
        while self.done && Instant::now() < until {
            if let Some(status) = self.child.try_wait()? {
                return Ok(status);
            }
            std::thread::sleep(Duration::from_micros(100));
        }
        self.child.kill()?;
        self.child.wait()
    }
}

impl Drop for Asked {
    fn drop(&mut self) {
        // A second time after `finish` has ended it, this gives what is known already. What it gives is of no interest.
        let _ = self.end();
    }
}

/// Puts lines together from what the pipe gives.
#[derive(Default)]
struct Lines {
    rest: Vec<u8>,
    step: Option<Step>,
    done: bool,
    garbage: usize,
    report: Report,
}

impl Lines {
    fn push(&mut self, bytes: &[u8]) {
        self.rest.extend_from_slice(bytes);
        let mut begin = 0;
        while let Some(length) = self.rest[begin..].iter().position(|b| *b == b'\n') {
            let line = serde_json::from_slice(&self.rest[begin..begin + length]);
            begin += length + 1;
            match line {
                Ok(line) => self.take(line),
                Err(_) => self.garbage += 1,
            }
        }
        self.rest.drain(..begin);
    }

    fn take(&mut self, line: Line) {
        let report = &mut self.report;
        let mut warn = |object: &str, text: String| {
            report.warnings.push(Warning {
                object: object.to_owned(),
                text,
            });
        };
        match line {
            Line::At(step) => self.step = Some(step),
            Line::Useless(why) => {
                warn("NVML", why);
                self.done = true;
            }
            Line::Driver(driver) => report.facts.driver = Some(driver),
            Line::Gpu(gpu) => report.facts.gpus.push(*gpu),
            Line::Lost { index, why } => {
                warn(
                    &format!("gpu {index}"),
                    format!("does not answer and is left out: {why}"),
                );
                report.facts.lost.push(index);
            }
            Line::Missing(name) => report.missing.push(name),
            Line::Problem { object, text } => warn(&object, text),
            Line::End => {
                report.complete = true;
                self.done = true;
            }
        }
    }
}

/// Takes what a child might say, in pieces.
#[cfg(fuzzing)]
pub(crate) fn read_pieces(pieces: &[Vec<u8>]) {
    let mut lines = Lines::default();
    pieces.iter().for_each(|piece| lines.push(piece));
    assert!(!lines.rest.contains(&b'\n'), "a whole line was left");
}

fn signal_name(signal: i32) -> String {
    Signal::try_from(signal).map_or_else(|_| format!("signal {signal}"), |s| s.as_str().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::io::Write;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn lines_come_in_pieces() {
        let text = b"{\"at\":\"init\"}\nno json\n{\"driver\":{\"version\":\"550.1\",\"cuda\":12040,\"count\":1}}\n\
                     {\"at\":{\"gpu\":0}}\n{\"lost\":{\"index\":0,\"why\":\"gone\"}}\n\"end\"\n";
        for size in [1, 7, text.len()] {
            let mut lines = Lines::default();
            text.chunks(size).for_each(|c| lines.push(c));
            assert!(lines.done && lines.report.complete);
            assert_eq!(lines.garbage, 1);
            assert_eq!(lines.step, Some(Step::Gpu(0)));
            assert_eq!(lines.report.facts.lost, [0]);
            assert_eq!(lines.report.facts.driver.as_ref().unwrap().count, 1);
        }
    }

    #[test]
    fn a_program_that_is_not_there() {
        let e = start(Path::new("/nonexistent"), OsStr::new("x"), "x", Duration::from_secs(1));
        assert!(e.is_err());
    }

    /// A program that does what the shell says.
    fn script(text: &str) -> tempfile::TempPath {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        writeln!(file, "#!/bin/sh\n{text}").unwrap();
        file.as_file()
            .set_permissions(std::fs::Permissions::from_mode(0o755))
            .unwrap();
        file.into_temp_path()
    }

    fn report(text: &str, deadline: Duration) -> Report {
        let program = script(text);
        start(&program, OsStr::new("x"), "libx", deadline).unwrap().finish()
    }

    fn only_warning(report: &Report) -> &str {
        assert_eq!(report.warnings.len(), 1, "{report:?}");
        assert!(!report.complete);
        &report.warnings[0].text
    }

    #[test]
    fn each_way_to_fail_is_told() {
        let long = Duration::from_secs(60);
        let hung = report("echo '{\"at\":{\"gpu\":5}}'; exec sleep 60", Duration::from_millis(300));
        assert!(
            only_warning(&hung).contains("no answer when asked about gpu 5"),
            "{hung:?}"
        );
        assert_eq!(hung.stuck_at, Some(5));
        let crashed = report("echo '{\"at\":\"init\"}'; kill -SEGV $$", long);
        assert!(
            only_warning(&crashed).contains("crashed in nvmlInit (SIGSEGV)"),
            "{crashed:?}"
        );
        let ended = report("exit 7", long);
        assert!(only_warning(&ended).contains("exit code 7"), "{ended:?}");
        let endless = report("exec /usr/bin/yes", long);
        assert!(
            endless.warnings.iter().any(|w| w.text.contains("without end")),
            "{:?}",
            endless.warnings
        );
    }

    #[test]
    fn what_was_told_before_stays() {
        let text = "echo '{\"gpu\":{\"index\":0,\"uuid\":\"GPU-1\"}}'; echo '{\"at\":{\"gpu\":1}}'; kill -ABRT $$";
        let report = report(text, Duration::from_secs(60));
        assert_eq!(report.facts.gpus.len(), 1);
        assert_eq!(report.facts.gpus[0].uuid.as_deref(), Some("GPU-1"));
        assert_eq!(report.stuck_at, Some(1));
    }

    #[test]
    fn the_environment_does_not_pass() {
        let report = report("[ -z \"$HOME\" ] && echo '\"end\"'", Duration::from_secs(60));
        assert!(report.complete && report.warnings.is_empty(), "{report:?}");
    }

    proptest! {
        #[test]
        fn no_answer_breaks_the_reader(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let mut lines = Lines::default();
            lines.push(&bytes);
            prop_assert!(lines.report.facts.gpus.is_empty());
        }
    }
}
