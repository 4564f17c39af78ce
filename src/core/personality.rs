//! Which part of `tranche-oci` or `tranche-runtime` runs: the name that it is called by decides, or else its first
//! argument.
//!
//! Engines call it by the path in a specification. Under a name of NVIDIA's programs (a link), it takes what that
//! program takes, so that a specification or a script that names it works unchanged.

use std::ffi::{OsStr, OsString};
use std::path::Path;

use crate::types::PROGRAM_VERSION;

/// The help of `tranche-oci`.
pub const HELP: &str = "\
tranche-oci: the hooks of tranche, which container engines run

  tranche-oci hook VERB [OPTION VALUE]...  run an OCI hook; the container's state is read from standard input
  tranche-oci runtime ARGUMENT...          run tranche-runtime, which takes the arguments of runc and crun
  tranche-oci --version                    print the version
  tranche-oci --help                       print this help

VERB is prepare, claim, release, in-service, precreate, or the name of a hook of nvidia-cdi-hook.

Engines call this program because the specifications that `tranche cdi generate` writes name it.

Under the name nvidia-cdi-hook, the first argument is VERB. Under the name nvidia-ctk, the first argument is `hook`,
followed by VERB, or `cdi`, `runtime` or `system`, followed by the arguments of that command of `tranche`.
";

/// The help under the name `nvidia-ctk`.
const CTK_HELP: &str = "\
nvidia-ctk: the commands of NVIDIA's program of this name, which tranche runs

  nvidia-ctk hook VERB [OPTION VALUE]...   run an OCI hook (nvidia-ctk hook --help)
  nvidia-ctk cdi generate|list|transform   the same as tranche cdi
  nvidia-ctk runtime configure             the same as tranche runtime configure
  nvidia-ctk system COMMAND                the same as tranche system: create-device-nodes, create-dev-char-symlinks
  nvidia-ctk info                          nothing, as in NVIDIA's program; see tranche list and tranche doctor
  nvidia-ctk config                        not here: edit /etc/tranche/config.yaml
  nvidia-ctk --version                     print the version of NVIDIA's program that this one stands for, and its own

--debug, --quiet and --config FILE may come before the command. nvidia-ctk cdi generate --help lists the options of a command.
";

/// The help of hooks under the names of NVIDIA's programs.
const HOOK_HELP: &str = "\
nvidia-cdi-hook: the hooks of NVIDIA's program of this name, which tranche runs

  nvidia-cdi-hook VERB [OPTION VALUE]...   run an OCI hook; the container's state is read from standard input
  nvidia-cdi-hook --version                print the version of NVIDIA's program that this one stands for, and its own

VERB is create-symlinks (--link TARGET::LINK), update-ldcache (--folder DIR), enable-cuda-compat (--host-driver-version VERSION,
--host-cuda-version VERSION, --cuda-compat-container-root DIR), disable-device-node-modification, update-application-profile,
chmod (--path PATH, --mode OCTAL) or noop. Each takes --container-spec FILE in the place of standard input.
";

/// What `nvidia-ctk info` prints.
const INFO: &str = "\
nvidia-ctk info: NVIDIA's program has no information here either. tranche list shows the devices of this host, tranche inventory
all that is known of it, and tranche doctor what is wrong.
";

/// What `nvidia-ctk completion` prints: a comment in the language of every shell.
const COMPLETION: &str = "\
# nvidia-ctk is tranche here. The package of tranche installs completions for bash, zsh and fish under the name tranche.
";

/// The version of NVIDIA's container toolkit whose commands, options and hooks are taken under its names.
pub const NVIDIA_VERSION: &str = "1.20.0";

/// What `--version` prints under a name of NVIDIA's: `title` and the version in the form of NVIDIA's program, which
/// scripts parse, and in the line of its commit the program that answers.
pub fn nvidia_version(title: &str, program: &str) -> String {
    format!("{title} version {NVIDIA_VERSION}\ncommit: {program} {PROGRAM_VERSION}\n")
}

/// What `nvidia-container-runtime --version` prints before the version of the low-level runtime, with the version of
/// the runtime specification.
pub fn nvidia_runtime_version() -> String {
    nvidia_version("NVIDIA Container Runtime", "tranche-runtime") + "spec: 1.3.0\n\n"
}

/// What is asked for.
#[derive(Debug, PartialEq, Eq)]
pub enum Personality {
    /// A hook: its verb and options.
    Hook(Vec<OsString>),
    /// A command of `tranche-runtime`: its arguments.
    Runtime(Vec<OsString>),
    /// A command of `tranche`, which is not in this program: its arguments.
    CommandLine(Vec<OsString>),
    /// A text: a version, or help.
    Print(String),
    /// NVIDIA's hook program without a hook: NVIDIA's prints a warning, and its exit code is 0.
    NoHook,
    /// A command that only NVIDIA's program has: the command, and what takes its place.
    Replaced(&'static str, &'static str),
    /// No command that exists.
    Unknown(Option<OsString>),
}

impl Personality {
    /// Reads the arguments of the process, the name that it was called by first.
    ///
    /// - As `nvidia-cdi-hook`, the verb of the hook comes first.
    /// - As `nvidia-ctk`, a command comes first: `hook`, `cdi`, `runtime` or `system`. Options of the program as a
    ///   whole may precede it. Every other command of NVIDIA's program has an answer that names what takes its place.
    /// - Under any other name, `hook` or `runtime`.
    pub fn of(arguments: impl IntoIterator<Item = OsString>) -> Self {
        let mut arguments = arguments.into_iter();
        let called = arguments.next().unwrap_or_default();
        let mut rest: Vec<OsString> = arguments.collect();
        match file_name(&called) {
            Some("nvidia-cdi-hook") => return Self::of_nvidia_hook(rest),
            Some("nvidia-ctk") => return Self::of_nvidia_ctk(rest),
            _ => {}
        }
        match rest.first().and_then(|command| command.to_str()) {
            // This hook reads a configuration and not a state, and needs what the runtime needs.
            Some("hook") if rest.get(1).is_some_and(|verb| verb == PRECREATE) => Self::Runtime(rest),
            Some("hook") => {
                rest.remove(0);
                Self::Hook(rest)
            }
            Some("runtime") => {
                rest.remove(0);
                Self::Runtime(rest)
            }
            Some("--version" | "-V") => Self::Print(format!("tranche-oci {PROGRAM_VERSION}\n")),
            Some("--help" | "-h") => Self::Print(HELP.to_owned()),
            _ => Self::Unknown(rest.first().cloned()),
        }
    }

    /// The arguments of `nvidia-cdi-hook`, or those of `nvidia-ctk hook`.
    fn of_nvidia_hook(rest: Vec<OsString>) -> Self {
        let verb = first_command(&rest, false);
        let is_verb_help = rest.get(verb + 1).is_some_and(is_help);
        match rest.get(verb).and_then(|verb| verb.to_str()) {
            None if rest.iter().any(is_version) => Self::Print(nvidia_version("NVIDIA CDI Hook", "tranche-oci")),
            None if rest.iter().any(is_help) => Self::Print(HOOK_HELP.to_owned()),
            None if rest.len() == verb => Self::NoHook,
            Some("help") => Self::Print(HOOK_HELP.to_owned()),
            Some(_) if is_verb_help => Self::Print(HOOK_HELP.to_owned()),
            _ => Self::Hook(rest),
        }
    }

    fn of_nvidia_ctk(mut rest: Vec<OsString>) -> Self {
        let at = first_command(&rest, true);
        // The options before the command are about nvidia-ctk's log; hooks have their own way to report.
        let options = rest.get(..at).unwrap_or(&rest);
        let command = rest.get(at).and_then(|command| command.to_str());
        let is_last = rest.len() == at + 1;
        match command {
            None if options.iter().any(is_version) => {
                Self::Print(nvidia_version("NVIDIA Container Toolkit CLI", "tranche-oci"))
            }
            None if rest.len() == at => Self::Print(CTK_HELP.to_owned()),
            Some("help") if is_last => Self::Print(CTK_HELP.to_owned()),
            Some("help") => {
                // `help cdi` is `cdi --help`.
                rest.remove(at);
                rest.push("--help".into());
                Self::of_nvidia_ctk(rest)
            }
            Some("hook") => Self::of_nvidia_hook(rest.split_off(at + 1)),
            Some("cdi" | "runtime" | "system") => {
                // Without a subcommand, NVIDIA's program prints the help of the command.
                let is_transform = rest.get(at + 1).is_some_and(|word| word == "transform") && rest.len() == at + 2;
                if is_last || is_transform {
                    rest.push("--help".into());
                }
                Self::CommandLine(rest)
            }
            Some("info") => Self::Print(INFO.to_owned()),
            Some("completion") => Self::Print(COMPLETION.to_owned()),
            Some("config") => Self::Replaced(
                "nvidia-ctk config",
                "edit /etc/nvidia-container-runtime/config.toml, which tranche cdi refresh reads, or set the same under runtime: \
                 in /etc/tranche/config.yaml",
            ),
            _ => Self::Unknown(rest.get(at).cloned()),
        }
    }
}

fn is_version(word: &OsString) -> bool {
    word == "--version" || word == "-v"
}

fn is_help(word: &OsString) -> bool {
    word == "--help" || word == "-h"
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
    /// The version under a name of NVIDIA's runtime: the arguments, with which the low-level runtime prints its own.
    NvidiaVersion(Vec<OsString>),
    /// podman's precreate hook: the arguments after the verb.
    Precreate(Vec<OsString>),
    /// NVIDIA's prestart hook: its arguments.
    NvidiaHook(Vec<OsString>),
}

impl RuntimePersonality {
    /// Reads the arguments of the process, the name that it was called by first.
    ///
    /// - As `nvidia-container-runtime-hook` or `nvidia-container-toolkit`, it is the hook that docker before 29.2 adds
    ///   for `--gpus`.
    /// - Under any other name, `hook precreate` is the hook. No low-level runtime has a command `hook`. Everything else
    ///   is the command line of a low-level runtime.
    pub fn of(arguments: impl IntoIterator<Item = OsString>) -> Self {
        let mut arguments = arguments.into_iter();
        let called = arguments.next().unwrap_or_default();
        let mut rest: Vec<OsString> = arguments.collect();
        match file_name(&called) {
            Some("nvidia-container-runtime-hook" | "nvidia-container-toolkit") => Self::NvidiaHook(rest),
            Some("nvidia-container-runtime" | "nvidia-container-runtime.cdi" | "nvidia-container-runtime.legacy")
                if options_of(&rest).any(|word| word == "--version" || word == "-version") =>
            {
                Self::NvidiaVersion(rest)
            }
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

/// The options before the command.
fn options_of(words: &[OsString]) -> impl Iterator<Item = &OsString> {
    words
        .iter()
        .take_while(|word| word.as_encoded_bytes().starts_with(b"-"))
}

fn file_name(called: &OsStr) -> Option<&str> {
    Path::new(called).file_name()?.to_str()
}

/// Where the command is among the arguments: after options of the program as a whole. With `has_config`, one of those
/// has a value.
fn first_command(arguments: &[OsString], has_config: bool) -> usize {
    let mut at = 0;
    while let Some(argument) = arguments.get(at) {
        if !argument.as_encoded_bytes().starts_with(b"-") {
            break;
        }
        let has_value = has_config && (argument == "--config" || argument == "-c");
        at += if has_value { 2 } else { 1 };
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
        assert!(
            matches!(of(&["tranche-oci", "--version"]), Personality::Print(text) if text.starts_with("tranche-oci "))
        );
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
        assert_eq!(
            runtime(&["nvidia-container-runtime", "--version"]),
            RuntimePersonality::NvidiaVersion(owned(&["--version"]))
        );
        assert_eq!(
            runtime(&["tranche-runtime", "--version"]),
            RuntimePersonality::Runtime(owned(&["--version"]))
        );
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
        assert_eq!(of(&["nvidia-ctk", "--config"]), Personality::Unknown(None));
        assert_eq!(
            of(&["nvidia-ctk", "runtime", "configure"]),
            Personality::CommandLine(owned(&["runtime", "configure"]))
        );
        assert_eq!(
            of(&["nvidia-ctk", "system", "create-dev-char-symlinks"]),
            Personality::CommandLine(owned(&["system", "create-dev-char-symlinks"]))
        );
    }

    #[test]
    fn every_command_of_nvidia_s_programs_has_an_answer() {
        let printed = |words: &[&str]| match of(words) {
            Personality::Print(text) => text,
            other => panic!("{words:?}: {other:?}"),
        };
        for words in [
            &["nvidia-ctk"][..],
            &["nvidia-ctk", "--help"],
            &["nvidia-ctk", "-d", "help"],
        ] {
            assert_eq!(printed(words), CTK_HELP);
        }
        for words in [
            &["nvidia-cdi-hook", "--help"][..],
            &["nvidia-cdi-hook", "help"],
            &["nvidia-cdi-hook", "create-symlinks", "--help"],
            &["nvidia-ctk", "hook", "--help"],
            &["nvidia-ctk", "hook", "help"],
            &["nvidia-ctk", "help", "hook"],
            &["nvidia-ctk", "hook", "chmod", "-h"],
        ] {
            assert_eq!(printed(words), HOOK_HELP, "{words:?}");
        }
        let version = |title: &str| format!("{title} version 1.20.0\ncommit: tranche-oci {PROGRAM_VERSION}\n");
        for option in ["--version", "-v"] {
            assert_eq!(
                printed(&["nvidia-ctk", option]),
                version("NVIDIA Container Toolkit CLI")
            );
            assert_eq!(printed(&["nvidia-cdi-hook", option]), version("NVIDIA CDI Hook"));
        }
        assert!(printed(&["nvidia-ctk", "info"]).contains("tranche list"));
        assert!(printed(&["nvidia-ctk", "completion", "bash"]).starts_with('#'));
        for words in [
            &["nvidia-cdi-hook"][..],
            &["nvidia-cdi-hook", "--quiet"],
            &["nvidia-ctk", "hook"],
        ] {
            assert_eq!(of(words), Personality::NoHook, "{words:?}");
        }
        assert!(matches!(
            of(&["nvidia-ctk", "config", "default"]),
            Personality::Replaced("nvidia-ctk config", _)
        ));
        for group in [&["cdi"][..], &["runtime"], &["system"], &["cdi", "transform"]] {
            let help = [group, &["--help"]].concat();
            assert_eq!(
                of(&[&["nvidia-ctk"], group].concat()),
                Personality::CommandLine(owned(&help))
            );
        }
        assert_eq!(
            of(&["nvidia-ctk", "help", "cdi"]),
            Personality::CommandLine(owned(&["cdi", "--help"]))
        );
        assert_eq!(of(&["nvidia-ctk", "other"]), Personality::Unknown(Some("other".into())));
        // Engines pass what they like behind a verb.
        let words = ["create-symlinks", "--link", "a::/b", "--help"];
        assert_eq!(
            of(&[&["nvidia-cdi-hook"], &words[..]].concat()),
            Personality::Hook(owned(&words))
        );
    }
}
