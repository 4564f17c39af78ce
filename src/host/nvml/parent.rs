//! Starts the child, and reads what it says until it is silent for too long.

use super::answer::{Line, NvmlFacts, NvmlStep};
use super::process::NvmlProcess;
use super::waiting::{FIRST, Waiting};
use crate::inventory::Warning;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::Signal;
use std::ffi::OsStr;
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::ChildStdout;
use std::time::{Duration, Instant};

/// More than 256 GPUs with all their MIG devices take; a library that makes the child say more is cut off.
const MAX_ANSWER: usize = 4 << 20;

/// How long a child that has told everything may take to end, before it is ended. Some drivers put the GPU to sleep
/// in the shutdown, which takes its time and changes nothing for us.
const PATIENCE: Duration = Duration::from_millis(500);

/// How often a silent child is looked at: one that died may have left a process behind that keeps the pipe open.
const GLANCE: Duration = Duration::from_millis(100);

/// A child at work.
pub(crate) struct NvmlChild {
    process: NvmlProcess,
    pipe: ChildStdout,
    library: String,
    started: Instant,
    /// When it last said something.
    heard: Instant,
    /// How long it may be silent.
    silence: Duration,
    tell: fn(Option<Waiting>),
    /// When the next message about waiting is due.
    tell_at: Duration,
    done: bool,
}

/// What came of asking.
#[derive(Debug, Default)]
pub(crate) struct NvmlReport {
    /// What the child told.
    pub facts: NvmlFacts,
    /// What went wrong.
    pub warnings: Vec<Warning>,
    /// Functions that the library lacks: normal for an old driver.
    pub missing: Vec<String>,
    /// Whether every GPU was asked.
    pub complete: bool,
    /// The GPU at which the child hung or crashed.
    pub stuck_at: Option<u32>,
    /// Why not everything was told; `None` where it was.
    pub failure: Option<String>,
}

/// Starts a child of `program` that asks the library at `library` (a path to open, or a plain name for the loader), which
/// people know as `shown`. It may be silent for `silence`; `tell` gets what we wait for, and `None` when that is over.
///
/// # Errors
/// The program cannot be started.
pub(crate) fn start(
    program: &Path,
    library: &OsStr,
    shown: &str,
    silence: Duration,
    tell: fn(Option<Waiting>),
) -> io::Result<NvmlChild> {
    let started = Instant::now();
    let (process, pipe) = NvmlProcess::start(program, library)?;
    Ok(NvmlChild {
        process,
        pipe,
        library: shown.to_owned(),
        started,
        heard: started,
        silence,
        tell,
        tell_at: FIRST,
        done: false,
    })
}

/// How the reading ended.
enum End {
    Closed,
    Silent,
    TooMuch,
    Failed(io::Error),
}

impl NvmlChild {
    /// Reads until the child has told all, ends, or is silent for too long. A child that is stuck is ended here; one that
    /// told all may use the time until it is dropped for its shutdown.
    pub(crate) fn finish(&mut self) -> NvmlReport {
        let mut lines = Lines::default();
        let end = self.read(&mut lines);
        if self.tell_at > FIRST {
            (self.tell)(None);
        }
        let mut report = lines.report;
        let step = lines.step;
        let done = lines.done;
        let object = self.library.clone();
        self.done = done;
        if !done {
            let status = self.process.end(Duration::ZERO);
            let at = step.map(|s| format!(" {s}")).unwrap_or_default();
            let text = match end {
                End::Silent => format!("gave no answer{at} for {} s and was ended", self.silence.as_secs_f32()),
                End::TooMuch => format!("gave an answer without end{at} and was ended"),
                End::Failed(e) => format!("gave an answer that cannot be read: {e}"),
                End::Closed => match status {
                    Ok(status) => match status.signal() {
                        Some(signal) => format!("crashed{at} ({})", signal_name(signal)),
                        None => format!("ended its process{at} (exit code {})", status.code().unwrap_or(-1)),
                    },
                    Err(e) => format!("has a process that cannot be waited for: {e}"),
                },
            };
            report.warnings.push(Warning {
                object: object.clone(),
                text: format!("NVML {text}"),
            });
            report.failure = Some(text);
            if let Some(NvmlStep::Gpu(index)) = step {
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
            self.tell_if_long(lines.step);
            let left = self.silence.saturating_sub(self.heard.elapsed());
            // Rounded up: a poll that ends a little early would spin.
            let timeout = left.min(GLANCE) + Duration::from_millis(1);
            let timeout = PollTimeout::try_from(timeout).unwrap_or(PollTimeout::MAX);
            // Before the poll: what it said before it ended is in the pipe then.
            let has_ended = self.process.has_ended();
            let mut fds = [PollFd::new(self.pipe.as_fd(), PollFlags::POLLIN)];
            match poll(&mut fds, timeout) {
                Ok(0) if has_ended => return End::Closed,
                Ok(0) if left.is_zero() => return End::Silent,
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
                    self.heard = Instant::now();
                    lines.push(&chunk[..n]);
                }
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return End::Failed(e),
            }
        }
        End::Closed
    }

    fn tell_if_long(&mut self, step: Option<NvmlStep>) {
        let elapsed = self.started.elapsed();
        if elapsed >= self.tell_at {
            (self.tell)(Some(Waiting {
                step,
                elapsed,
                limit: self.silence,
                is_first: self.tell_at == FIRST,
            }));
            self.tell_at = elapsed + Duration::from_secs(1);
        }
    }
}

impl Drop for NvmlChild {
    fn drop(&mut self) {
        // One that is done may end by itself. How it ends is of no interest any more.
        let _ = self.process.end(if self.done { PATIENCE } else { Duration::ZERO });
    }
}

/// Puts lines together from what the pipe gives.
#[derive(Default)]
struct Lines {
    rest: Vec<u8>,
    step: Option<NvmlStep>,
    done: bool,
    garbage: usize,
    report: NvmlReport,
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
            Line::Alive => {}
            Line::Useless(why) => {
                warn("NVML", why.clone());
                report.failure = Some(why);
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
    use super::super::in_silence;
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
            assert_eq!(lines.step, Some(NvmlStep::Gpu(0)));
            assert_eq!(lines.report.facts.lost, [0]);
            assert_eq!(lines.report.facts.driver.as_ref().unwrap().count, 1);
        }
    }

    #[test]
    fn a_program_that_is_not_there() {
        let second = Duration::from_secs(1);
        let e = start(Path::new("/nonexistent"), OsStr::new("x"), "x", second, in_silence);
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

    fn report(text: &str, silence: Duration) -> NvmlReport {
        let program = script(text);
        start(&program, OsStr::new("x"), "libx", silence, in_silence)
            .unwrap()
            .finish()
    }

    fn only_warning(report: &NvmlReport) -> &str {
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
