//! `tranche-oci`, the program that engines execute.

use std::ffi::{CString, OsString};
use std::io::{ErrorKind, Write};
use std::os::unix::ffi::OsStringExt;
use std::process::ExitCode;

use nix::errno::Errno;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::unistd::execv;
use tranche_core::error::{Context, Error, Kind, line};

use tranche_core::personality::Personality;
use tranche_core::sys::inherited;

fn main() -> ExitCode {
    run().unwrap_or_else(|error| {
        // If standard error is closed, the exit code still reports that nothing was done.
        let _ = writeln!(std::io::stderr().lock(), "tranche-oci: {}", line(error.as_ref()));
        let kind = error.downcast_ref().map_or(Kind::Failed, Error::kind);
        ExitCode::from(kind.exit_code())
    })
}

fn run() -> anyhow::Result<ExitCode> {
    let unknown = match Personality::of(std::env::args_os()) {
        Personality::Hook(arguments) => return hooks(arguments),
        // Only a person or a script requests a command of `tranche`, never an engine. Under this name it has NVIDIA's
        // defaults.
        Personality::CommandLine(arguments) => return Err(execute("tranche", "nvidia-ctk", arguments).into()),
        Personality::Runtime(words) => return Err(execute("tranche-runtime", "tranche-runtime", words).into()),
        Personality::Print(text) => return print(&text),
        Personality::NoHook => {
            // If standard error is closed, nobody is there to read it.
            let _ = writeln!(
                std::io::stderr(),
                "tranche-oci: nvidia-cdi-hook: no hook named; see nvidia-cdi-hook --help"
            );
            return Ok(ExitCode::SUCCESS);
        }
        Personality::Replaced(command, by) => {
            return Err(Error::usage(command, "tranche does not have this command")
                .hint(by)
                .into());
        }
        Personality::Unknown(None) => Error::usage("command line", "a command is missing"),
        Personality::Unknown(Some(other)) => Error::usage(other.display(), "not a command"),
    };
    Err(unknown.hint("see tranche-oci --help").into())
}

/// Executes `program` in the directory of this program, under the name `called`, and returns why that failed.
fn execute(program: &str, called: &str, arguments: Vec<OsString>) -> Error {
    let path = match std::env::current_exe() {
        Ok(path) => path.with_file_name(program),
        Err(error) => return Error::failed(program, "cannot be found").from_source(error),
    };
    let word = |word: OsString| CString::new(word.into_vec()).map_err(|_| Errno::EINVAL);
    let words = std::iter::once(called.into()).chain(arguments);
    let words: Result<Vec<_>, _> = words.map(word).collect();
    inherited::restore();
    let error = words.and_then(|words| execv(&word(path.clone().into_os_string())?, &words));
    Error::failed(path.display(), "cannot be run")
        .from_source(error.err().unwrap_or(Errno::UnknownErrno))
        .hint("install it beside tranche-oci")
}

/// Processor time that a hook may take, in seconds: hundreds of times what it needs. Before Linux 5.6 the hook follows
/// paths itself, and an image can contain paths that take long to follow. The limit then ends the start of that
/// container.
const MOST_SECONDS: u64 = 1;

fn hooks(arguments: Vec<OsString>) -> anyhow::Result<ExitCode> {
    if let Ok((_, hard)) = getrlimit(Resource::RLIMIT_CPU) {
        setrlimit(Resource::RLIMIT_CPU, MOST_SECONDS.min(hard), hard)
            .about("hook", "cannot limit its processor time")?;
    }
    Ok(ExitCode::from(tranche_hook::run(
        arguments,
        &mut std::io::stdin().lock(),
        &mut std::io::stderr().lock(),
    )))
}

fn print(text: &str) -> anyhow::Result<ExitCode> {
    match std::io::stdout().write_all(text.as_bytes()) {
        // A reader that closed the pipe does not want the rest.
        Err(e) if e.kind() != ErrorKind::BrokenPipe => Err(e).about("stdout", "cannot write")?,
        _ => Ok(ExitCode::SUCCESS),
    }
}
