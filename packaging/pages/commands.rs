//! Man pages and completions of `tranche`, from the definition of its command line.

use crate::completions;
use anyhow::{Context, Result};
use clap::{Command, CommandFactory};
use clap_complete::Shell;
use clap_mangen::Man;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use tranche_cli::Arguments;
use tranche_core::types::PROGRAM_VERSION;

/// Where each shell looks for the completions of a program, below `share`. fish reads `vendor_completions.d` for
/// packages (<https://fishshell.com/docs/current/completions.html>), and zsh `site-functions`, but Debian's `vendor-completions`
/// (packaging/tree.sh).
const COMPLETIONS: [(Shell, &str, &str); 3] = [
    (Shell::Bash, "bash-completion/completions", "tranche"),
    (Shell::Zsh, "zsh/site-functions", "_tranche"),
    (Shell::Fish, "fish/vendor_completions.d", "tranche.fish"),
];

/// A program and a command whose pages have the same name. `man` shows that of the command, in section 1, so it names
/// the other one.
const SAME_NAME: &str = "tranche-runtime";

/// Writes the files below `share`, which is a directory like `/usr/share`: a page for `tranche` and for each of its
/// commands, and a file for each shell.
///
/// # Errors
/// Returns an error if a file cannot be written.
pub(super) fn write(share: &Path) -> Result<()> {
    let mut tranche = Arguments::command().disable_help_subcommand(true);
    // The names of commands with those before them, such as tranche-cdi-generate.
    tranche.build();
    pages(&tranche, &made(share, "man/man1")?)?;
    for (shell, directory, name) in COMPLETIONS {
        let file = made(share, directory)?.join(name);
        fs::write(&file, completions::of(&Arguments::command(), shell)).with_context(|| file.display().to_string())?;
    }
    Ok(())
}

/// Writes the pages of `command` and of those below it. They have no date, so that a package has the same bytes on
/// every day.
fn pages(command: &Command, directory: &Path) -> Result<()> {
    let page = Man::new(command.clone())
        .source(format!("tranche {PROGRAM_VERSION}"))
        .manual("tranche");
    let file = directory.join(page.get_filename());
    let mut text = Vec::new();
    page.render(&mut text)?;
    if file.file_stem().is_some_and(|name| name == SAME_NAME) {
        let program = SAME_NAME.replace('-', "\\-");
        writeln!(
            text,
            ".SH \"SEE ALSO\"\n.BR {program} (8),\nthe program that engines execute"
        )?;
    }
    fs::write(&file, text).with_context(|| file.display().to_string())?;
    let mut shown = command.get_subcommands().filter(|verb| !verb.is_hide_set());
    shown.try_for_each(|verb| pages(verb, directory))
}

fn made(share: &Path, directory: &str) -> Result<PathBuf> {
    let path = share.join(directory);
    fs::create_dir_all(&path).with_context(|| path.display().to_string())?;
    Ok(path)
}
