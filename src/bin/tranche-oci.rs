//! `tranche-oci`, the program that engines execute.

use std::ffi::{CString, OsString};
use std::io::Write;
use std::os::unix::ffi::OsStringExt;
use std::path::Path;
use std::process::ExitCode;

use nix::errno::Errno;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::unistd::execv;
use tranche::error::Kind;
use tranche::hook;
use tranche::personality::Personality;

const HELP: &str = "\
tranche-oci: the hooks of tranche, which container engines run

  tranche-oci hook VERB [OPTION VALUE]...  run an OCI hook; the container's state is read from standard input
  tranche-oci --version                    print the version
  tranche-oci --help                       print this help

VERB is prepare, claim, release, or the name of a hook of nvidia-cdi-hook.

Engines call this program because the specifications that `tranche cdi generate` writes name it.

Under the name nvidia-cdi-hook, the first argument is VERB. Under the name nvidia-ctk, the first argument is `hook`,
followed by VERB, or `cdi`, followed by the arguments of `tranche cdi`.
";

fn main() -> ExitCode {
    match Personality::of(std::env::args_os()) {
        Personality::Hook(arguments) => hooks(arguments),
        Personality::CommandLine(arguments) => command_line(arguments),
        Personality::Version => print(&format!("tranche-oci {}\n", tranche::types::PROGRAM_VERSION)),
        Personality::Help => print(HELP),
        Personality::Unknown(None) => fail("no command; see tranche-oci --help", Kind::Usage),
        Personality::Unknown(Some(other)) => {
            let other = tranche::text::shown(&other.to_string_lossy()).into_owned();
            fail(&format!("{other}: not a command; see tranche-oci --help"), Kind::Usage)
        }
    }
}

/// Executes `tranche` in the directory of this program. Only a person or a script requests that, never an engine.
fn command_line(arguments: Vec<OsString>) -> ExitCode {
    let tranche = std::env::current_exe().map(|path| path.with_file_name("tranche"));
    let word = |word: OsString| CString::new(word.into_vec()).map_err(|_| Errno::EINVAL);
    let become_it = |path: &Path| {
        let words = std::iter::once(path.as_os_str().to_owned()).chain(arguments);
        let words = words.map(word).collect::<Result<Vec<_>, _>>()?;
        execv(&words[0], &words)
    };
    let error = match &tranche {
        Ok(path) => become_it(path).err().unwrap_or(Errno::UnknownErrno),
        Err(_) => Errno::ENOENT,
    };
    let shown = tranche.as_deref().unwrap_or(Path::new("tranche")).display();
    fail(
        &format!("cannot run {shown}: {error}; install it beside tranche-oci"),
        Kind::Failed,
    )
}

/// Prints why nothing was done, and returns the exit code. If standard error is closed, the exit code still reports it.
fn fail(what: &str, kind: Kind) -> ExitCode {
    let _ = std::io::stderr().write_all(format!("tranche-oci: {what}\n").as_bytes());
    ExitCode::from(kind.exit_code())
}

/// Processor time that a hook may take, in seconds: hundreds of times what it needs. Before Linux 5.6 the hook follows paths
/// itself, and an image can contain paths that take long to follow. The limit then ends the start of that container.
const MOST_SECONDS: u64 = 1;

fn hooks(arguments: Vec<OsString>) -> ExitCode {
    if let Ok((_, hard)) = getrlimit(Resource::RLIMIT_CPU)
        && let Err(e) = setrlimit(Resource::RLIMIT_CPU, MOST_SECONDS.min(hard), hard)
    {
        return fail(&format!("hook: cannot limit its processor time: {e}"), Kind::Failed);
    }
    ExitCode::from(hook::run(
        arguments,
        &mut std::io::stdin().lock(),
        &mut std::io::stderr().lock(),
    ))
}

fn print(text: &str) -> ExitCode {
    match std::io::stdout().write_all(text.as_bytes()) {
        Ok(()) => ExitCode::SUCCESS,
        // A reader that closed the pipe does not want the rest.
        Err(e) if e.kind() == std::io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(_) => ExitCode::from(Kind::Failed.exit_code()),
    }
}
