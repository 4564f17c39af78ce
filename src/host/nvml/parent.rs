//! Starts the child, and reads its answer until it is complete or the child is silent for too long.

use super::driver_program;
use super::process::NvmlProcess;
use super::report::{Lines, NvmlReport};
use super::waiting::{FIRST, Waiting};
use crate::DiscoveryOptions;
use crate::findings::Findings;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::Signal;
use std::ffi::OsStr;
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::process::ExitStatusExt;
use std::process::{ChildStdout, ExitStatus};
use std::time::{Duration, Instant};
use tranche_driver_protocol::{NvmlStep, Question};
use tranche_plan::inventory::{Degraded, WarningKind};

/// The largest answer, in bytes: more than for 256 GPUs with all their MIG devices. The child of a library that makes
/// it write more is killed.
const MAX_ANSWER: usize = 4 << 20;

/// How long a child may take to end after its answer is complete. Some drivers put the GPU to sleep in the shutdown,
/// which takes time and does not change the answer.
const PATIENCE: Duration = Duration::from_millis(500);

/// How often the state of a silent child is read: a child that died may have left a process that keeps the pipe open.
const GLANCE: Duration = Duration::from_millis(100);

/// A child at work.
pub(crate) struct NvmlChild {
    process: NvmlProcess,
    pipe: ChildStdout,
    /// What messages call the library.
    library: String,
    started: Instant,
    /// When it last wrote something.
    heard: Instant,
    /// How long it may be silent.
    silence: Duration,
    /// How long it may take in all; `None` if that does not matter.
    limit: Option<Duration>,
    waiting: fn(Option<Waiting>),
    /// When the next message about waiting is due.
    next_message: Duration,
    done: bool,
}

/// Starts a child that asks the library at `library` a question: `library` is a path to open, or a plain name for the
/// loader. Messages call it `shown`.
///
/// # Errors
/// Returns an error if the program cannot be started.
pub(crate) fn start(
    question: &Question,
    options: &DiscoveryOptions,
    library: &OsStr,
    shown: &str,
) -> io::Result<NvmlChild> {
    let started = Instant::now();
    let program = driver_program(options.program.as_deref())?;
    let (process, mut questions, pipe) = NvmlProcess::start(&program, &[library], question.has_processes())?;
    // One that cannot be written has no reader: what is read next says how the program ended. No other one follows.
    let _ = writeln!(questions, "{}", serde_json::to_string(question)?);
    drop(questions);
    Ok(NvmlChild {
        process,
        pipe,
        library: shown.to_owned(),
        started,
        heard: started,
        silence: options.deadline,
        limit: question.limit(options.deadline),
        waiting: options.waiting,
        next_message: FIRST,
        done: false,
    })
}

/// Why the reading ended before the answer was complete.
enum End {
    Closed,
    Silent,
    TooLong,
    TooMuch,
    Failed(io::Error),
}

impl NvmlChild {
    /// Reads until the answer is complete, the child ends, or it is silent for too long. A child that is stuck is
    /// killed here. After a complete answer, the child may shut NVML down until this value is dropped.
    pub(crate) fn finish(&mut self, findings: &Findings) -> NvmlReport {
        let mut lines = Lines::default();
        let end = self.read(&mut lines, findings);
        if self.next_message > FIRST {
            (self.waiting)(None);
        }
        self.done = lines.done;
        if !self.done {
            let status = self.process.end(Duration::ZERO);
            let at = lines.step.map(|s| format!(" {s}")).unwrap_or_default();
            let why = match end {
                End::Silent => format!("gave no answer{at} for {} s and was ended", self.silence.as_secs_f32()),
                End::TooLong => format!(
                    "gave no complete answer{at} within {} s and was ended",
                    self.silence.as_secs_f32()
                ),
                End::TooMuch => format!("gave an endless answer{at} and was ended"),
                End::Failed(e) => format!("gave an answer that cannot be read: {e}"),
                End::Closed => how_it_ended(status, &at),
            };
            findings.warn_of(WarningKind::Incomplete, &self.library, format!("NVML {why}"));
            findings.degrade(Degraded::Nvml { why });
            if let Some(NvmlStep::Gpu(index)) = lines.step {
                lines.report.stuck_at = Some(index);
            }
        }
        if lines.invalid > 0 {
            let text = format!(
                "{} lines of NVML's process are not valid and were left out",
                lines.invalid
            );
            findings.warn(&self.library, text);
        }
        lines.report
    }

    fn read(&mut self, lines: &mut Lines, findings: &Findings) -> End {
        let mut total = 0;
        let mut chunk = vec![0; 16 << 10];
        while !lines.done {
            self.message_if_due(lines.step);
            let left = self.silence.saturating_sub(self.heard.elapsed());
            let left = match self.limit {
                Some(limit) => left.min(limit.saturating_sub(self.started.elapsed())),
                None => left,
            };
            if self.limit.is_some_and(|limit| limit <= self.started.elapsed()) {
                return End::TooLong;
            }
            // Rounded up, because after a poll that ends a little early this loop would spin.
            let timeout = left.min(GLANCE) + Duration::from_millis(1);
            let timeout = PollTimeout::try_from(timeout).unwrap_or(PollTimeout::MAX);
            // Asked before the poll, so that everything that a dead child wrote is in the pipe.
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
                    lines.push(&chunk[..n], findings);
                }
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return End::Failed(e),
            }
        }
        End::Closed
    }

    fn message_if_due(&mut self, step: Option<NvmlStep>) {
        let elapsed = self.started.elapsed();
        if elapsed >= self.next_message {
            (self.waiting)(Some(Waiting {
                step,
                elapsed,
                limit: self.silence,
                is_first: self.next_message == FIRST,
            }));
            self.next_message = elapsed + Duration::from_secs(1);
        }
    }
}

impl Drop for NvmlChild {
    fn drop(&mut self) {
        // The answer is complete or the child is dead already, so its end cannot change the result.
        let _ = self.process.end(if self.done { PATIENCE } else { Duration::ZERO });
    }
}

fn how_it_ended(status: io::Result<ExitStatus>, at: &str) -> String {
    match status.map(|status| (status.signal(), status.code())) {
        Ok((Some(signal), _)) => {
            let name = Signal::try_from(signal).map_or_else(|_| format!("signal {signal}"), |s| s.as_str().to_owned());
            format!("crashed{at} ({name})")
        }
        Ok((None, code)) => format!("ended its process{at} (exit code {})", code.unwrap_or(-1)),
        Err(e) => format!("has a process that cannot be waited for: {e}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::programs;
    use tranche_core::types::PROGRAM_VERSION;
    use tranche_driver_protocol::Line;

    #[test]
    fn a_program_that_is_not_there() {
        let program = tempfile::tempdir().unwrap().path().join("missing");
        let options = DiscoveryOptions {
            program: Some(program),
            ..DiscoveryOptions::default()
        };
        assert!(start(&Question::Inventory, &options, OsStr::new("x"), "x").is_err());
    }

    /// What comes of a program that does what the shell says: the report, and the warnings.
    fn report(text: &str, silence: Duration) -> (NvmlReport, Vec<String>) {
        answer_to(&Question::Inventory, text, silence)
    }

    fn answer_to(question: &Question, text: &str, silence: Duration) -> (NvmlReport, Vec<String>) {
        let top = tempfile::tempdir().unwrap();
        let program = top.path().join("program");
        let hello = serde_json::to_string(&Line::Hello(PROGRAM_VERSION.to_owned())).unwrap();
        programs::script(&program, &format!("echo '{hello}'\n{text}"));
        let options = DiscoveryOptions {
            program: Some(program),
            deadline: silence,
            ..DiscoveryOptions::default()
        };
        let findings = Findings::default();
        let child = start(question, &options, OsStr::new("x"), "libx");
        let report = child.unwrap().finish(&findings);
        (report, findings.texts())
    }

    #[test]
    fn each_way_to_fail_is_told() {
        let long = Duration::from_secs(60);
        for (text, silence, expected, stuck_at) in [
            (
                "echo '{\"at\":{\"gpu\":5}}'; exec sleep 60",
                Duration::from_millis(300),
                "NVML gave no answer when asked about gpu 5 for 0.3 s and was ended",
                Some(5),
            ),
            (
                "echo '{\"at\":\"init\"}'; kill -SEGV $$",
                long,
                "NVML crashed in nvmlInit (SIGSEGV)",
                None,
            ),
            ("exit 7", long, "NVML ended its process (exit code 7)", None),
        ] {
            let (report, warnings) = report(text, silence);
            assert_eq!(warnings, [expected]);
            assert!(!report.complete);
            assert_eq!(report.stuck_at, stuck_at, "{expected}");
        }
        let (_, warnings) = report("exec /usr/bin/yes", long);
        assert!(
            warnings.contains(&"NVML gave an endless answer and was ended".to_owned()),
            "{warnings:?}"
        );
    }

    #[test]
    fn a_library_that_answers_for_ever_is_ended_if_the_answer_is_for_a_person() {
        let text = "echo '{\"usage\":{\"index\":0}}'; while sleep 0.02; do echo '\"alive\"'; done";
        let (report, warnings) = answer_to(&Question::Usage, text, Duration::from_millis(300));
        assert_eq!(warnings, ["NVML gave no complete answer within 0.3 s and was ended"]);
        assert_eq!(report.usage.len(), 1, "what was answered stays");
        assert!(!report.complete);
    }

    #[test]
    fn the_question_is_read_from_standard_input_which_ends_then() {
        for question in [&Question::Inventory, &Question::Usage] {
            let text = format!(
                "[ \"$*\" = x ] && [ \"$(cat)\" = '{}' ] && echo '\"end\"'",
                serde_json::to_string(question).unwrap()
            );
            let (report, warnings) = answer_to(question, &text, Duration::from_secs(60));
            assert!(report.complete && warnings.is_empty(), "{warnings:?}");
        }
    }

    #[test]
    fn a_program_of_another_version_is_named_and_not_believed() {
        let text = "echo '{\"hello\":\"9.9\"}'; echo '{\"gpu\":{\"index\":0}}'; echo '\"end\"'";
        let (report, warnings) = answer_to(&Question::Inventory, text, Duration::from_secs(60));
        assert!(report.gpus.is_empty() && !report.complete);
        assert!(warnings[0].contains("is of version 9.9, and this is"), "{warnings:?}");
    }

    #[test]
    fn what_was_told_before_stays() {
        let text = "echo '{\"gpu\":{\"index\":0,\"uuid\":\"GPU-1\"}}'; echo '{\"at\":{\"gpu\":1}}'; kill -ABRT $$";
        let (report, _) = report(text, Duration::from_secs(60));
        assert_eq!(report.gpus.len(), 1);
        assert_eq!(report.gpus[0].uuid.as_deref(), Some("GPU-1"));
        assert_eq!(report.stuck_at, Some(1));
    }

    #[test]
    fn the_environment_does_not_pass() {
        let (report, warnings) = report("[ -z \"$HOME\" ] && echo '\"end\"'", Duration::from_secs(60));
        assert!(report.complete && warnings.is_empty(), "{warnings:?}");
    }
}
