//! The command line of the control program, which versions read in different ways.

use tranche_core::mps::version::{Options, Version};

/// What the program is to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    /// Take commands on standard input.
    FrontEnd,
    /// Be the daemon.
    Daemon { in_background: bool, multi_user: bool },
    /// Print the usage, and end with this code.
    Usage(u8),
}

/// Reads the command line.
pub(crate) fn mode(version: &Version, arguments: &[String]) -> Mode {
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match version.options {
        Options::OnlyOne => match words[..] {
            ["-d"] => daemon(true, false),
            ["-f"] => daemon(false, false),
            ["-h" | "--help"] => Mode::Usage(0),
            _ => Mode::FrontEnd,
        },
        Options::MultiUserServer => each(&words, &["-multiuser-server"], 1),
        Options::Getopt => each(&words, &["-multiuser-server", "-M", "--multiuser-server"], 0),
    }
}

fn daemon(in_background: bool, multi_user: bool) -> Mode {
    Mode::Daemon {
        in_background,
        multi_user,
    }
}

/// Each argument counts; the last one of `-d` and `-f` does. With an argument that is not known, the exit code is
/// `unknown`.
fn each(words: &[&str], multi_user_names: &[&str], unknown: u8) -> Mode {
    if let ["-h" | "--help"] = words {
        return Mode::Usage(0);
    }
    let mut background = None;
    let mut multi_user = false;
    for word in words {
        match *word {
            "-d" => background = Some(true),
            "-f" => background = Some(false),
            name if multi_user_names.contains(&name) => multi_user = true,
            _ => return Mode::Usage(unknown),
        }
    }
    match background {
        Some(in_background) => daemon(in_background, multi_user),
        None => Mode::FrontEnd,
    }
}

/// The text, with the year of the version.
pub(crate) fn text(version: &Version) -> String {
    let year = match version.major {
        0..535 => 2017,
        535..555 => 2023,
        555..580 => 2024,
        _ => 2025,
    };
    format!(
        "CUDA MPS Control for Linux/Unix.\nCopyright (C) 2003 - {year} NVIDIA Corporation.\n\n  This program allows \
         multiple CUDA processes to share a single GPU context. For information on how to use the CUDA MPS, see the \
         nvidia-cuda-mps-control manual page.\n\n"
    )
}
