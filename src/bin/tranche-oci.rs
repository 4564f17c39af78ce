//! `tranche-oci`, what an engine executes: which of its parts runs is chosen by the name it is called by, or else by
//! its first argument.

use std::ffi::OsString;
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use tranche::error::Kind;
use tranche::hook;

const HELP: &str = "\
tranche-oci: the part of tranche that container engines run

  tranche-oci hook VERB [OPTION VALUE]...  an OCI hook, with the container's state on standard input
  tranche-oci --version
  tranche-oci --help

Called as nvidia-cdi-hook it takes the verb first, called as nvidia-ctk `hook` and the verb. Specs made by `tranche cdi generate` call it; people need not.
";

fn main() -> ExitCode {
    let mut arguments = std::env::args_os();
    let called = arguments.next().unwrap_or_default();
    // The name decides, so that a link with a name that others know (nvidia-cdi-hook) is all that a spec of theirs needs.
    let name = Path::new(&called).file_name();
    if name.is_some_and(|name| name == "nvidia-cdi-hook") {
        return hooks(arguments);
    }
    let mut first = arguments.next();
    // nvidia-ctk takes options for its logs before its command.
    while name.is_some_and(|name| name == "nvidia-ctk")
        && first
            .as_ref()
            .is_some_and(|first| first.as_encoded_bytes().starts_with(b"-"))
    {
        first = arguments.next();
    }
    match first.as_ref().and_then(|first| first.to_str()) {
        Some("hook") => hooks(arguments),
        Some("--version" | "-V") => print(&format!("tranche-oci {}\n", env!("CARGO_PKG_VERSION"))),
        Some("--help" | "-h") => print(HELP),
        _ => {
            let what = match &first {
                Some(other) => format!("{}: not a command", other.display()),
                None => "no command".to_owned(),
            };
            // Nobody to tell if standard error is closed; the exit code says the same.
            let _ = std::io::stderr().write_all(format!("tranche-oci: {what}; see tranche-oci --help\n").as_bytes());
            ExitCode::from(Kind::Usage.exit_code())
        }
    }
}

/// Processor time that a hook may take, in seconds: hundreds of times what it needs. An image can make paths that are
/// long to follow where the kernel does not follow them for us (before Linux 5.6); it then ends its own start.
const MOST_SECONDS: u64 = 1;

fn hooks(arguments: impl Iterator<Item = OsString>) -> ExitCode {
    if let Ok((_, hard)) = getrlimit(Resource::RLIMIT_CPU)
        && let Err(e) = setrlimit(Resource::RLIMIT_CPU, MOST_SECONDS.min(hard), hard)
    {
        let line = format!("tranche-oci: hook: cannot limit its processor time: {e}\n");
        let _ = std::io::stderr().write_all(line.as_bytes());
        return ExitCode::from(Kind::Failed.exit_code());
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
