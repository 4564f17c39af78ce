//! Runs a command of an engine, with a deadline and bounded output.

use std::ffi::OsStr;
use std::path::Path;
use std::time::Duration;
use tranche_core::error::Error;
use tranche_core::execute::Program;
use tranche_host::program::{self, ProgramError, Ran};

/// More output than this is an error: what an engine says about a container is a few tens of KiB.
const MOST_BYTES: usize = 4 << 20;

/// Runs `program` with these arguments.
///
/// # Errors
/// Returns an error if it cannot be started, does not end in time, or prints too much.
pub(super) fn run(program: &Path, arguments: &[&OsStr], deadline: Duration) -> Result<Ran, Error> {
    let about = |what: &str| Error::failed(program.display(), what);
    let mut command = Program::new(program);
    // An engine finds its daemon and the containers of its user by the environment.
    command.args(arguments).environment_of_caller();
    program::run(command, "", deadline, MOST_BYTES).map_err(|error| match error {
        ProgramError::Io(error) => about("cannot be run").from_source(error),
        ProgramError::Silent(_) => about(&format!("did not end within {} s", deadline.as_secs())),
        error => about("its output cannot be read").from_source(error),
    })
}

/// The last line that a command printed. It says why a command failed. docker prints that of `exec` to standard output.
pub(super) fn last_line(ran: &Ran) -> String {
    let texts = [&ran.stderr, &ran.stdout].map(|bytes| String::from_utf8_lossy(bytes));
    let last = |text: &str| text.lines().rfind(|line| !line.trim().is_empty()).map(str::to_owned);
    let line = texts.iter().find_map(|text| last(text)).unwrap_or_default();
    // podman begins each of several errors with a star.
    line.trim_matches(['*', ' ', '\t']).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str, deadline: Duration) -> Result<Ran, Error> {
        run(Path::new("/bin/sh"), &["-c".as_ref(), script.as_ref()], deadline)
    }

    #[test]
    fn the_reason_of_a_failure_is_the_last_line_that_was_printed() {
        let minute = Duration::from_secs(60);
        let ran = shell("echo out; echo first >&2; echo '\t* second\n' >&2; exit 3", minute).unwrap();
        assert_eq!((ran.status.code(), last_line(&ran).as_str()), (Some(3), "second"));
        assert_eq!(ran.stdout, b"out\n");
        assert_eq!(
            last_line(&shell("echo out; exit 126", minute).unwrap()),
            "out",
            "as docker exec prints it"
        );
        assert_eq!(last_line(&shell("exit 1", minute).unwrap()), "");
    }

    #[test]
    fn a_command_that_hangs_or_prints_too_much_is_an_error() {
        let error = shell("exec sleep 1000", Duration::from_millis(50)).unwrap_err();
        assert_eq!(error.to_string(), "/bin/sh: did not end within 0 s");
        let error = shell("exec head -c 5000000 /dev/zero", Duration::from_secs(60)).unwrap_err();
        assert_eq!(error.to_string(), "/bin/sh: its output cannot be read");
        let missing = run(Path::new("/no/such/engine"), &[], Duration::from_secs(1)).unwrap_err();
        assert_eq!(missing.to_string(), "/no/such/engine: cannot be run");
    }
}
