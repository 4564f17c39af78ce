//! Runs another program to its end: with a deadline, and keeping no more than it may print.

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::ffi::OsStr;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, ExitStatus, Stdio};
use std::time::{Duration, Instant};
use tranche_core::execute::Program;
use tranche_core::text::one_line;

/// The most that a program of the driver may print.
const MOST_BYTES: usize = 64 << 10;

/// How often a program whose outputs are closed is looked after, because it is about to end.
const POLL: Duration = Duration::from_millis(1);

/// How often any other program is looked after: its end does not close an output that a process it left behind has.
const LOOK: Duration = Duration::from_millis(20);

/// Why the output of a program is not known.
#[derive(Debug, thiserror::Error)]
pub enum ProgramError {
    /// It could not be started, or its output not be read.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// It did not end in time, and was killed.
    #[error("no answer in {} s", .0.as_secs_f32())]
    Silent(Duration),
    /// It printed more than it may, and was killed.
    #[error("an endless answer")]
    Endless,
    /// It printed something that is not text.
    #[error("an answer that is not text")]
    NotText,
    /// It failed: how, and what it printed, in one line.
    #[error("{}", failure(.0, .1))]
    Failed(ExitStatus, String),
}

/// The most characters of what a program printed before it failed that are kept.
const MOST_CHARACTERS: usize = 500;

fn failure(status: &ExitStatus, line: &str) -> String {
    let status = match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit code {code}"),
        (None, Some(signal)) => format!("ended by signal {signal}"),
        (None, None) => "ended".to_owned(),
    };
    match line {
        "" => status,
        line => format!("{line} ({status})"),
    }
}

/// How a program ended, and what it printed.
#[derive(Debug)]
pub struct Ran {
    /// How it ended.
    pub status: ExitStatus,
    /// What it printed.
    pub stdout: Vec<u8>,
    /// What it printed as errors.
    pub stderr: Vec<u8>,
}

impl Ran {
    /// What a program printed to standard output, if it succeeded.
    ///
    /// # Errors
    /// Returns [`ProgramError::Failed`] or [`ProgramError::NotText`].
    fn into_text(self) -> Result<String, ProgramError> {
        if self.status.success() {
            return String::from_utf8(self.stdout).map_err(|_| ProgramError::NotText);
        }
        let texts = [&self.stdout, &self.stderr].map(|bytes| String::from_utf8_lossy(bytes));
        let text = one_line(&texts.join("\n"));
        Err(ProgramError::Failed(
            self.status,
            text.chars().take(MOST_CHARACTERS).collect(),
        ))
    }
}

/// Runs a program without the environment of the caller, with `input` on its standard input, and returns what it prints
/// to standard output.
///
/// # Errors
/// Returns [`ProgramError`].
pub fn text_of(
    program: &Path,
    arguments: &[&str],
    environment: &[(&str, &Path)],
    input: &str,
    patience: Duration,
) -> Result<String, ProgramError> {
    let mut program = Program::new(program);
    program
        .args(arguments.iter().map(OsStr::new))
        .envs(environment.iter().copied())
        .stdin(Stdio::piped());
    run(program, input, patience, MOST_BYTES)?.into_text()
}

/// Runs `program` to its end, at most for `patience`, and keeps up to `most_bytes` of each of its outputs. `input`,
/// which is less than a pipe holds, is written if the program's standard input is a pipe. The program gets SIGTERM if
/// this thread ends meanwhile.
///
/// A process that the program leaves behind may keep an output open: what was written before the program ended is
/// returned, and the rest is not waited for.
///
/// # Errors
/// Returns [`ProgramError::Io`], [`ProgramError::Silent`] or [`ProgramError::Endless`]; the program has then been
/// killed.
pub fn run(mut program: Program, input: &str, patience: Duration, most_bytes: usize) -> Result<Ran, ProgramError> {
    let until = Instant::now() + patience;
    program.ends_with_caller().stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = program.spawn()?;
    let ran = talk(&mut child, input, until, most_bytes);
    if !matches!(ran, Ok(Some(_))) {
        // It may have ended by itself.
        let _ = child.kill();
        child.wait()?;
    }
    ran?.ok_or(ProgramError::Silent(patience))
}

/// Writes the input, and reads until the program has ended; `None` if it has not by `until`.
fn talk(child: &mut Child, input: &str, until: Instant, most_bytes: usize) -> Result<Option<Ran>, ProgramError> {
    if let Some(mut stdin) = child.stdin.take() {
        match stdin.write_all(input.as_bytes()) {
            // It ended without reading; its exit code says why.
            Err(e) if e.kind() == io::ErrorKind::BrokenPipe => {}
            written => written?,
        }
    }
    let mut stdout = Output::of(child.stdout.take(), most_bytes)?;
    let mut stderr = Output::of(child.stderr.take(), most_bytes)?;
    loop {
        // This comes before its outputs are read: a program that has ended has written everything by then.
        let ended = child.try_wait()?;
        stdout.read()?;
        stderr.read()?;
        if let Some(status) = ended {
            let (stdout, stderr) = (stdout.bytes, stderr.bytes);
            return Ok(Some(Ran { status, stdout, stderr }));
        }
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(None);
        }
        let open = [stdout.open(), stderr.open()].into_iter().flatten();
        let mut open: Vec<_> = open.map(|fd| PollFd::new(fd, PollFlags::POLLIN)).collect();
        let most = if open.is_empty() { POLL } else { LOOK };
        match poll(
            &mut open,
            PollTimeout::try_from(most.min(left)).unwrap_or(PollTimeout::ZERO),
        ) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(e) => return Err(io::Error::from(e).into()),
        }
    }
}

/// One output of a program.
struct Output<P> {
    /// `None` when it is closed.
    pipe: Option<P>,
    bytes: Vec<u8>,
    most_bytes: usize,
}

impl<P: Read + AsFd> Output<P> {
    /// The end of the pipe that is read does not wait any more.
    fn of(pipe: Option<P>, most_bytes: usize) -> io::Result<Self> {
        if let Some(pipe) = &pipe {
            fcntl(pipe, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
        }
        let bytes = Vec::new();
        Ok(Self {
            pipe,
            bytes,
            most_bytes,
        })
    }

    fn open(&self) -> Option<BorrowedFd<'_>> {
        self.pipe.as_ref().map(AsFd::as_fd)
    }

    /// Reads what has been written until now.
    fn read(&mut self) -> Result<(), ProgramError> {
        let mut piece = [0; 4096];
        while let Some(pipe) = &mut self.pipe {
            match pipe.read(&mut piece) {
                Ok(0) => self.pipe = None,
                Ok(read) => self.bytes.extend_from_slice(piece.get(..read).unwrap_or_default()),
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e.into()),
            }
            if self.bytes.len() > self.most_bytes {
                return Err(ProgramError::Endless);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    fn shell(script: &str, input: &str, patience: Duration) -> Result<Ran, ProgramError> {
        let mut program = Program::new("/bin/sh");
        program
            .args(["-c", script])
            .env("PATH", "/usr/bin:/bin")
            .stdin(Stdio::piped());
        run(program, input, patience, 5000)
    }

    #[test]
    fn both_outputs_and_the_exit_code_are_returned() {
        let ran = shell("read line; echo out $line; echo err >&2; exit 3", "a line\n", MINUTE).unwrap();
        assert_eq!(
            (ran.status.code(), ran.stdout, ran.stderr),
            (Some(3), b"out a line\n".into(), b"err\n".into())
        );
        let closed = shell("exec >&- 2>&-; sleep 0.1; exit 4", "nobody reads this", MINUTE).unwrap();
        assert_eq!(closed.status.code(), Some(4));
    }

    #[test]
    fn what_hangs_or_prints_without_an_end_is_killed() {
        let silent = shell("echo out; exec sleep 1000", "", Duration::from_millis(50));
        assert!(matches!(silent, Err(ProgramError::Silent(_))), "{silent:?}");
        let endless = shell("exec cat /dev/zero >&2", "", MINUTE);
        assert!(matches!(endless, Err(ProgramError::Endless)), "{endless:?}");
        assert!(shell("head -c 5000 /dev/zero", "", MINUTE).is_ok());
        assert!(matches!(
            shell("head -c 5001 /dev/zero", "", MINUTE),
            Err(ProgramError::Endless)
        ));
    }

    #[test]
    fn a_process_that_is_left_behind_is_not_waited_for() {
        let ran = shell("sleep 1000 & echo $!", "", MINUTE).unwrap();
        let pid: i32 = String::from_utf8(ran.stdout).unwrap().trim().parse().unwrap();
        nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), nix::sys::signal::Signal::SIGKILL).unwrap();
    }

    #[test]
    fn the_text_of_a_failure_is_all_that_was_printed() {
        let text = |script| text_of(Path::new("/bin/sh"), &["-c", script], &[], "", MINUTE).map_err(|e| e.to_string());
        assert_eq!(text("echo a; echo b >&2").unwrap(), "a\n");
        assert_eq!(text("echo; echo a; echo b; exit 3").unwrap_err(), "a; b (exit code 3)");
        let headed = "echo 'could not be reset:'; echo '  GPU-1: In use.'; echo end >&2; exit 255";
        assert_eq!(
            text(headed).unwrap_err(),
            "could not be reset: GPU-1: In use. end (exit code 255)"
        );
        let long = text("head -c 5000 /dev/zero | tr '\\0' x; exit 1").unwrap_err();
        assert_eq!(long.len(), MOST_CHARACTERS + " (exit code 1)".len());
        assert_eq!(text("echo why >&2; exit 3").unwrap_err(), "why (exit code 3)");
        assert_eq!(text("kill -9 $$").unwrap_err(), "ended by signal 9");
        assert_eq!(text("printf '\\377'").unwrap_err(), "an answer that is not text");
        assert_eq!(text("echo ${HOME:-no home}; pwd").unwrap(), "no home\n/\n");
    }

    #[test]
    fn a_program_that_does_not_end_in_time_is_killed() {
        let top = tempfile::tempdir().unwrap();
        let file = top.path().join("pid");
        let mut program = Program::new("/bin/sh");
        program
            .args(["-c", "echo $$ > \"$0\"; exec /bin/sleep 1000"])
            .arg(&file);
        let ran = run(program, "", Duration::from_millis(500), MOST_BYTES);
        assert!(matches!(ran, Err(ProgramError::Silent(_))), "{ran:?}");
        let pid = std::fs::read_to_string(file).unwrap();
        assert!(!Path::new("/proc").join(pid.trim()).exists(), "it still runs");
    }
}
