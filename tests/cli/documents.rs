//! The documents: every command in them is one that `tranche` accepts. `tests/style.rs` follows their links.

use clap::{Command, CommandFactory};
use std::fs;
use std::path::{Path, PathBuf};
use tranche_cli::Arguments;
use walkdir::WalkDir;

/// Every Markdown file of the repository with its text.
fn documents() -> Vec<(PathBuf, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    // `make dist` adds vendor, which has the crates.
    let is_ours = |path: &Path| {
        !["target", ".git", "vendor"]
            .iter()
            .any(|other| path.starts_with(root.join(other)))
    };
    let files = WalkDir::new(root)
        .into_iter()
        .filter_entry(|entry| is_ours(entry.path()))
        .map(|entry| entry.unwrap().into_path())
        .filter(|path| path.extension().is_some_and(|e| e == "md"));
    files
        .map(|path| (path.clone(), fs::read_to_string(&path).unwrap()))
        .collect()
}

/// The documents about this version. The changelog also names options that do not exist any more.
fn guides() -> Vec<(PathBuf, String)> {
    let mut documents = documents();
    documents.retain(|(path, _)| !path.ends_with("CHANGELOG.md"));
    documents
}

/// The commands after a prompt: `# tranche list   # a comment`.
fn typed(text: &str) -> Vec<&str> {
    let lines = text.lines().map(str::trim_start);
    let commands = lines.filter_map(|line| line.strip_prefix("# ").or_else(|| line.strip_prefix("$ ")));
    let commands = commands.filter(|command| command.starts_with("tranche "));
    commands
        .map(|command| command.split("  #").next().unwrap().trim())
        .collect()
}

#[test]
fn commands_after_a_prompt_are_accepted() {
    let mut commands = 0;
    for (path, text) in guides() {
        for command in typed(&text) {
            let words = command.split_whitespace().map(Into::into);
            assert!(tranche_cli::parse(words).is_ok(), "{}: {command}", path.display());
            commands += 1;
        }
    }
    assert!(commands > 15, "{commands}");
    assert!(tranche_cli::parse(["tranche", "list", "--nosuch"].map(Into::into)).is_err());
}

/// What is unknown in a command that a sentence names, which may lack what is required: a verb or an option.
fn unknown(command: &str, tranche: &Command) -> Option<String> {
    let mut at = tranche;
    // Behind two hyphens is the command line of another program.
    let words = command.split_whitespace().skip(1).take_while(|word| *word != "--");
    for word in words {
        if let Some(option) = word.strip_prefix("--") {
            let option = option.split_once('=').map_or(option, |(name, _)| name);
            let names = |arg: &clap::Arg| {
                let mut names = arg.get_long_and_visible_aliases().unwrap_or_default();
                names.extend(arg.get_all_aliases().unwrap_or_default());
                names.contains(&option)
            };
            let is_known = at.get_arguments().chain(tranche.get_arguments()).any(names);
            if !is_known && !["help", "version"].contains(&option) {
                return Some(word.to_owned());
            }
        } else if at.has_subcommands() && word.bytes().all(|b| b.is_ascii_lowercase()) {
            match at.find_subcommand(word) {
                Some(verb) => at = verb,
                None => return Some(word.to_owned()),
            }
        }
    }
    None
}

#[test]
fn verbs_and_options_in_sentences_exist() {
    let tranche = Arguments::command();
    let mut commands = 0;
    for (path, text) in guides() {
        let text = text.replace('\n', " ");
        for command in text.split('`').filter(|code| code.starts_with("tranche ")) {
            assert_eq!(unknown(command, &tranche), None, "{}: {command}", path.display());
            commands += 1;
        }
    }
    assert!(commands > 30, "{commands}");
    assert_eq!(unknown("tranche clam list", &tranche), Some("clam".into()));
    assert_eq!(
        unknown("tranche claim list --nosuch", &tranche),
        Some("--nosuch".into())
    );
}
