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
tranche-oci: the part of tranche that container engines run

  tranche-oci hook VERB [OPTION VALUE]...  an OCI hook, with the container's state on standard input
  tranche-oci --version
  tranche-oci --help

Called as nvidia-cdi-hook, it takes the verb first. Called as nvidia-ctk, it takes `hook` and the verb, or `cdi` and what
`tranche cdi` takes. Specifications that `tranche cdi generate` writes call this program; people need not.
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

/// Becomes `tranche`, which lies beside this program. Only a person or a script asks for that, never an engine.
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

/// Says why nothing was done. If standard error is closed, the exit code still says it.
fn fail(what: &str, kind: Kind) -> ExitCode {
    let _ = std::io::stderr().write_all(format!("tranche-oci: {what}\n").as_bytes());
    ExitCode::from(kind.exit_code())
}

/// Processor time that a hook may take, in seconds: hundreds of times what it needs. An image can make paths that are
/// long to follow where the kernel does not follow them for us (before Linux 5.6); it then ends its own start.
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
        // Whoever closed our output has read what he wanted.
        Ok(()) => ExitCode::SUCCESS,
        Err(e) if e.kind() == std::io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(_) => ExitCode::from(Kind::Failed.exit_code()),
    }
}
