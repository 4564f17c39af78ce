//! Which part of `tranche-oci` or `tranche-runtime` runs: the name that it is called by decides, or else its first
//! argument.
//!
//! Engines call it by the path in a specification. Under a name of NVIDIA's programs (a link), it takes what that program
//! takes, so that a specification or a script that names it works unchanged.

use std::ffi::{OsStr, OsString};
use std::path::Path;

/// The help of `tranche-oci`.
pub const HELP: &str = "\
tranche-oci: the hooks of tranche, which container engines run

  tranche-oci hook VERB [OPTION VALUE]...  run an OCI hook; the container's state is read from standard input
  tranche-oci runtime ARGUMENT...          run tranche-runtime, which takes the arguments of runc and crun
  tranche-oci --version                    print the version
  tranche-oci --help                       print this help

VERB is prepare, claim, release, precreate, or the name of a hook of nvidia-cdi-hook.

Engines call this program because the specifications that `tranche cdi generate` writes name it.

Under the name nvidia-cdi-hook, the first argument is VERB. Under the name nvidia-ctk, the first argument is `hook`,
followed by VERB, or `cdi`, `runtime` or `system`, followed by the arguments of that command of `tranche`.
";

/// What is asked for.
#[derive(Debug, PartialEq, Eq)]
pub enum Personality {
    /// A hook: its verb and options.
    Hook(Vec<OsString>),
    /// A command of `tranche-runtime`: its arguments.
    Runtime(Vec<OsString>),
    /// A command of `tranche`, which is not in this program: its arguments.
    CommandLine(Vec<OsString>),
    /// The version.
    Version,
    /// What this program is.
    Help,
    /// No command that exists.
    Unknown(Option<OsString>),
}

impl Personality {
    /// Reads the arguments of the process, the name that it was called by first.
    ///
    /// - As `nvidia-cdi-hook`, the verb of the hook comes first.
    /// - As `nvidia-ctk`, a command comes first: `hook`, `cdi`, `runtime` or `system`. Options of the program as a whole may
    ///   precede it.
    /// - Under any other name, `hook` or `runtime`.
    pub fn of(arguments: impl IntoIterator<Item = OsString>) -> Self {
        let mut arguments = arguments.into_iter();
        let called = arguments.next().unwrap_or_default();
        let mut rest: Vec<OsString> = arguments.collect();
        let name = file_name(&called);
        if name == Some("nvidia-cdi-hook") {
            return Personality::Hook(rest);
        }
        let is_ctk = name == Some("nvidia-ctk");
        let command = if is_ctk { first_command(&rest) } else { 0 };
        // The options before the command are about nvidia-ctk's log; hooks have their own way to report.
        let options = rest.get(..command).unwrap_or_default();
        match rest.get(command).and_then(|command| command.to_str()) {
            // This hook reads a configuration and not a state, and needs what the runtime needs.
            Some("hook") if !is_ctk && rest.get(1).is_some_and(|verb| verb == PRECREATE) => Personality::Runtime(rest),
            Some("hook") => {
                rest.drain(..=command);
                Personality::Hook(rest)
            }
            Some("cdi" | "runtime" | "system") if is_ctk => Personality::CommandLine(rest),
            Some("runtime") => {
                rest.remove(0);
                Personality::Runtime(rest)
            }
            Some("--version" | "-V") => Personality::Version,
            Some("--help" | "-h") => Personality::Help,
            None if is_ctk && options.iter().any(|option| option == "--version" || option == "-v") => {
                Personality::Version
            }
            None if is_ctk && options.iter().any(|option| option == "--help" || option == "-h") => Personality::Help,
            _ => Personality::Unknown(rest.get(command).cloned()),
        }
    }
}

/// The verb of podman's precreate hook.
const PRECREATE: &str = "precreate";

/// What `tranche-runtime` is asked for.
#[derive(Debug, PartialEq, Eq)]
pub enum RuntimePersonality {
    /// The runtime: the arguments of runc and crun.
    Runtime(Vec<OsString>),
    /// As [`RuntimePersonality::Runtime`], for requests of CDI devices.
    Cdi(Vec<OsString>),
    /// As [`RuntimePersonality::Runtime`], in the mode that needs NVIDIA's `nvidia-container-cli`.
    Legacy(Vec<OsString>),
    /// podman's precreate hook: the arguments after the verb.
    Precreate(Vec<OsString>),
    /// NVIDIA's prestart hook: its arguments.
    NvidiaHook(Vec<OsString>),
}

impl RuntimePersonality {
    /// Reads the arguments of the process, the name that it was called by first.
    ///
    /// - As `nvidia-container-runtime-hook` or `nvidia-container-toolkit`, it is the hook that docker before 29.2 adds for
    ///   `--gpus`.
    /// - Under any other name, `hook precreate` is the hook. No low-level runtime has a command `hook`. Everything else is
    ///   the command line of a low-level runtime.
    pub fn of(arguments: impl IntoIterator<Item = OsString>) -> Self {
        let mut arguments = arguments.into_iter();
        let called = arguments.next().unwrap_or_default();
        let mut rest: Vec<OsString> = arguments.collect();
        match file_name(&called) {
            Some("nvidia-container-runtime-hook" | "nvidia-container-toolkit") => Self::NvidiaHook(rest),
            Some("nvidia-container-runtime.cdi") => Self::Cdi(rest),
            Some("nvidia-container-runtime.legacy") => Self::Legacy(rest),
            _ if rest.iter().take(2).eq(["hook", PRECREATE]) => {
                rest.drain(..2);
                Self::Precreate(rest)
            }
            _ => Self::Runtime(rest),
        }
    }
}

fn file_name(called: &OsStr) -> Option<&str> {
    Path::new(called).file_name()?.to_str()
}

/// Where the command of `nvidia-ctk` is among its arguments: after options of the program as a whole, one of which has a
/// value.
fn first_command(arguments: &[OsString]) -> usize {
    let mut at = 0;
    while let Some(argument) = arguments.get(at) {
        if !argument.as_encoded_bytes().starts_with(b"-") {
            break;
        }
        at += if argument == "--config" || argument == "-c" {
            2
        } else {
            1
        };
    }
    at
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(words: &[&str]) -> Personality {
        Personality::of(words.iter().map(OsString::from))
    }

    fn owned(words: &[&str]) -> Vec<OsString> {
        words.iter().map(OsString::from).collect()
    }

    #[test]
    fn the_name_decides_and_then_the_first_argument() {
        let verb = || Personality::Hook(owned(&["prepare", "--link", "a::/b"]));
        assert_eq!(of(&["tranche-oci", "hook", "prepare", "--link", "a::/b"]), verb());
        assert_eq!(of(&["/usr/bin/nvidia-cdi-hook", "prepare", "--link", "a::/b"]), verb());
        assert_eq!(of(&["nvidia-ctk", "hook", "prepare", "--link", "a::/b"]), verb());
        assert_eq!(of(&["tranche-oci", "--version"]), Personality::Version);
        assert_eq!(of(&["tranche-oci"]), Personality::Unknown(None));
        // Only nvidia-ctk has options before its command, and commands of `tranche`.
        for words in [&["tranche-oci", "--quiet", "hook"][..], &["tranche-oci", "cdi"]] {
            assert_eq!(of(words), Personality::Unknown(Some(words[1].into())));
        }
        assert_eq!(of(&[]), Personality::Unknown(None));
    }

    #[test]
    fn what_belongs_to_the_runtime_is_passed_to_it() {
        let words = ["--root", "/r", "hook", "--version"];
        assert_eq!(
            of(&[&["/usr/bin/tranche-oci", "runtime"][..], &words].concat()),
            Personality::Runtime(owned(&words))
        );
        let precreate = ["hook", "precreate", "--state-dir", "/s"];
        assert_eq!(
            of(&[&["tranche-oci"][..], &precreate].concat()),
            Personality::Runtime(owned(&precreate))
        );
        // NVIDIA's program configures engines by this word.
        assert_eq!(
            of(&["nvidia-ctk", "runtime", "configure"]),
            Personality::CommandLine(owned(&["runtime", "configure"]))
        );
    }

    #[test]
    fn the_runtime_gets_all_its_arguments_unread() {
        let runtime = |words: &[&str]| RuntimePersonality::of(words.iter().map(OsString::from));
        let words = ["--root", "/r", "hook", "--version"];
        let called = |name: &str| runtime(&[&[name][..], &words].concat());
        for name in ["tranche-runtime", "/usr/bin/nvidia-container-runtime", "x", ""] {
            assert_eq!(called(name), RuntimePersonality::Runtime(owned(&words)), "{name}");
        }
        assert_eq!(
            called("nvidia-container-runtime.cdi"),
            RuntimePersonality::Cdi(owned(&words))
        );
        assert_eq!(
            called("/a/nvidia-container-runtime.legacy"),
            RuntimePersonality::Legacy(owned(&words))
        );
        for name in ["nvidia-container-runtime-hook", "/usr/bin/nvidia-container-toolkit"] {
            assert_eq!(called(name), RuntimePersonality::NvidiaHook(owned(&words)));
        }
        assert_eq!(runtime(&[]), RuntimePersonality::Runtime(vec![]));
        assert_eq!(
            runtime(&["tranche-runtime", "hook", "precreate", "--state-dir", "/s"]),
            RuntimePersonality::Precreate(owned(&["--state-dir", "/s"]))
        );
    }

    #[test]
    fn options_of_nvidia_ctk_come_before_its_command() {
        for options in [
            &["--quiet"][..],
            &["-d"],
            &["--debug", "--quiet"],
            &["--config", "hook"],
            &["-c", "/etc/config.toml", "-q"],
            &["--config=/etc/config.toml"],
        ] {
            let words = [&["/usr/bin/nvidia-ctk"], options, &["hook", "chmod"]].concat();
            assert_eq!(of(&words), Personality::Hook(owned(&["chmod"])), "{options:?}");
            let words = [&["/usr/bin/nvidia-ctk"], options, &["cdi", "generate"]].concat();
            assert_eq!(of(&words), Personality::CommandLine(owned(&words[1..])), "{options:?}");
        }
        for version in ["--version", "-v"] {
            assert_eq!(of(&["nvidia-ctk", version]), Personality::Version);
        }
        assert_eq!(of(&["nvidia-ctk", "--help"]), Personality::Help);
        assert_eq!(of(&["nvidia-ctk", "--config"]), Personality::Unknown(None));
        assert_eq!(
            of(&["nvidia-ctk", "runtime", "configure"]),
            Personality::CommandLine(owned(&["runtime", "configure"]))
        );
        assert_eq!(
            of(&["nvidia-ctk", "system", "create-dev-char-symlinks"]),
            Personality::CommandLine(owned(&["system", "create-dev-char-symlinks"]))
        );
        assert_eq!(
            of(&["nvidia-ctk", "config"]),
            Personality::Unknown(Some("config".into()))
        );
    }
}
