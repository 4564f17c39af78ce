//! Each block of commands in the documents (a fence with the word `console`) is run on a built-in inventory, and prints
//! what the document shows, or has a comment before it that says why it is not run.
//!
//! - `<!-- not run: REASON -->`: the block is not run.
//! - `<!-- run on: HOST -->`: the inventory, if it is not [`HOST`]. With `, with FILE` the policy is that file of the
//!   repository.
//!
//! A document's blocks are run in their order, in one directory that takes the place of `/`. `cat FILE` makes the file
//! that the document shows. In what a document shows, `…` stands for any text, and on a line of its own for any lines.

use crate::program;
use clap::{ArgAction, Command, CommandFactory};
use std::fs::{self, File};
use std::path::Path;
use std::process::Stdio;
use tranche_cli::Arguments;
use walkdir::WalkDir;

/// The inventory for a block that names none.
const HOST: &str = "t4x2";

/// The verbs that change no more than the files that they are given.
const HARMLESS: [&str; 9] = [
    "advise",
    "list",
    "plan",
    "policy",
    "cdi",
    "claim",
    "status",
    "export",
    "inventory",
];

/// A command, and the lines that the document shows below it.
#[derive(Debug, PartialEq)]
struct Typed {
    command: String,
    shown: Vec<String>,
}

/// What is done with a block.
#[derive(Debug, PartialEq)]
enum Mark {
    NotRun { reason: String },
    Run { host: String, policy: Option<String> },
}

#[derive(Debug)]
struct Block {
    /// The number of its first line.
    line: usize,
    mark: Mark,
    typed: Vec<Typed>,
}

fn mark_of(comment: Option<&str>) -> Mark {
    let text = comment.and_then(|line| line.strip_prefix("<!-- ")?.strip_suffix(" -->"));
    if let Some(reason) = text.and_then(|text| text.strip_prefix("not run: ")) {
        return Mark::NotRun {
            reason: reason.to_owned(),
        };
    }
    let on = text.and_then(|text| text.strip_prefix("run on: ")).unwrap_or(HOST);
    let (host, policy) = match on.split_once(", with ") {
        Some((host, policy)) => (host, Some(policy.to_owned())),
        None => (on, None),
    };
    Mark::Run {
        host: host.to_owned(),
        policy,
    }
}

fn command_of(line: &str) -> Option<&str> {
    line.strip_prefix("# ").or_else(|| line.strip_prefix("$ "))
}

/// The blocks of a document that have a prompt, or the word `console`.
fn blocks(text: &str) -> Vec<Block> {
    let lines: Vec<&str> = text.lines().collect();
    let is_fence = |line: &str| line.trim_start().starts_with("```");
    let fences: Vec<usize> = (0..lines.len()).filter(|at| is_fence(lines[*at])).collect();
    let mut blocks = Vec::new();
    for fence in fences.chunks(2) {
        let [begin, end] = *fence else {
            panic!("a fence is not closed");
        };
        // A block in a list is indented as a whole.
        let (indent, language) = lines[begin].split_once("```").unwrap();
        let inside: Vec<&str> = lines[begin + 1..end]
            .iter()
            .map(|line| line.strip_prefix(indent).unwrap_or(line))
            .collect();
        let has_prompt = inside
            .iter()
            .any(|line| command_of(line).is_some_and(|c| c.starts_with("tranche ")));
        assert!(
            !has_prompt || language == "console",
            "line {}: not marked as console",
            begin + 1
        );
        if language != "console" {
            continue;
        }
        let mut typed: Vec<Typed> = Vec::new();
        for line in inside {
            match (command_of(line), typed.last_mut()) {
                (Some(command), _) => typed.push(Typed {
                    command: command.split("  #").next().unwrap().trim().to_owned(),
                    shown: Vec::new(),
                }),
                (None, Some(last)) => last.shown.push(line.to_owned()),
                (None, None) => {}
            }
        }
        let comment = lines[..begin]
            .iter()
            .map(|line| line.trim())
            .rfind(|line| !line.is_empty());
        blocks.push(Block {
            line: begin + 1,
            mark: mark_of(comment),
            typed,
        });
    }
    blocks
}

/// Whether `actual` is what `shown` stands for.
fn is_shown(shown: &[impl AsRef<str>], actual: &[&str]) -> bool {
    match (shown.split_first(), actual.split_first()) {
        (None, rest) => rest.is_none(),
        (Some((first, others)), _) if first.as_ref() == "…" => {
            (0..=actual.len()).any(|from| is_shown(others, &actual[from..]))
        }
        (Some((first, others)), Some((line, rest))) => is_line(first.as_ref(), line) && is_shown(others, rest),
        (Some(_), None) => false,
    }
}

fn is_line(shown: &str, line: &str) -> bool {
    match shown.split_once('…') {
        None => shown == line,
        Some((before, after)) => line.strip_prefix(before).is_some_and(|rest| {
            let mut from = (0..=rest.len()).filter(|at| rest.is_char_boundary(*at));
            from.any(|at| is_line(after, &rest[at..]))
        }),
    }
}

/// The directory that takes the place of `/`, and what the commands of one document leave there.
struct Machine(tempfile::TempDir);

impl Machine {
    fn new() -> Self {
        let machine = Self(tempfile::tempdir().unwrap());
        for directory in ["etc/cdi", "etc/tranche", "var/run/cdi", "run"] {
            fs::create_dir_all(machine.0.path().join(directory)).unwrap();
        }
        machine
    }

    /// `word` with this directory in front of an absolute path in it.
    fn here(&self, word: &str) -> String {
        let root = self.0.path().display();
        match word.split_once("=/") {
            Some((option, path)) => format!("{option}={root}/{path}"),
            None if word.starts_with('/') => format!("{root}{word}"),
            None => word.to_owned(),
        }
    }

    /// The arguments of `tranche` for what was typed: its paths in this directory, and the options that say where the
    /// rest is.
    fn arguments(&self, words: &[&str], host: &str, policy: Option<&str>) -> Result<Vec<String>, String> {
        let tranche = Arguments::command();
        let verbs = words.iter().take_while(|word| !word.starts_with('-'));
        let verb = verbs.fold(&tranche, |at: &Command, word| at.find_subcommand(word).unwrap_or(at));
        let is_harmless = words.first().is_some_and(|word| HARMLESS.contains(word));
        // It does not end.
        if !is_harmless || words.contains(&"watch") {
            return Err("could change the machine".to_owned());
        }
        let policy = match policy {
            Some(file) => Path::new(env!("CARGO_MANIFEST_DIR")).join(file),
            None => self.0.path().join("etc/tranche/config.yaml"),
        };
        let mut arguments: Vec<String> = words.iter().map(|word| self.here(word)).collect();
        // Of several values, a verb that takes one gets the last, which has precedence in one that takes all.
        let mut add = |name: &str, values: &[String]| {
            let option = format!("--{name}");
            let is_given = words.iter().any(|word| word.split('=').next() == Some(option.as_str()));
            let known = verb.get_arguments().find(|argument| argument.get_long() == Some(name));
            let takes_all = known.is_some_and(|argument| matches!(argument.get_action(), ArgAction::Append));
            let from = if takes_all { 0 } else { values.len().saturating_sub(1) };
            if known.is_some() && !is_given {
                arguments.extend(values[from..].iter().map(|value| format!("{option}={value}")));
            }
        };
        add("inventory", &[format!("sim:{host}")]);
        if policy.exists() {
            add("config", &[policy.display().to_string()]);
        }
        add("state-dir", &[self.here("/run/tranche")]);
        add("output-dir", &[self.here("/var/run/cdi")]);
        add(
            "spec-dir",
            &["/etc/cdi", "/var/run/cdi"].map(|directory| self.here(directory)),
        );
        Ok(arguments)
    }

    /// Runs what was typed. Returns what is wrong, if something is.
    fn run(&self, typed: &Typed, host: &str, policy: Option<&str>) -> Result<(), String> {
        let words: Vec<&str> = typed.command.split_whitespace().collect();
        if typed.command.contains(['…', '\'', '"', '$', '|', '>', ';', '&']) {
            return Err("needs a shell, or is not complete".to_owned());
        }
        match words[..] {
            ["mkdir", "-p", path] => fs::create_dir_all(self.here(path)).map_err(|error| error.to_string()),
            ["cat", path] if !typed.shown.is_empty() => {
                fs::write(self.here(path), typed.shown.join("\n") + "\n").map_err(|error| error.to_string())
            }
            ["tranche", ref words @ ..] => self.tranche(&self.arguments(words, host, policy)?, &typed.shown),
            _ => Err("is not a command of tranche".to_owned()),
        }
    }

    /// Runs `tranche`, and compares what a terminal would show of it.
    fn tranche(&self, arguments: &[String], shown: &[String]) -> Result<(), String> {
        let terminal = self.0.path().join("terminal");
        let file = File::create(&terminal).unwrap();
        let mut command = program(&arguments.iter().map(String::as_str).collect::<Vec<_>>());
        command
            .stdin(Stdio::null())
            .stderr(file.try_clone().unwrap())
            .stdout(file);
        let status = command.status().unwrap();
        let text = fs::read_to_string(&terminal).unwrap();
        let text = text.replace(&self.0.path().display().to_string(), "");
        let lines: Vec<&str> = text.lines().collect();
        let is_refusal = shown.last().is_some_and(|line| line.starts_with("tranche: "));
        if status.success() == is_refusal {
            return Err(format!("ended with {status}:\n{text}"));
        }
        match shown.is_empty() || is_shown(shown, &lines) {
            true => Ok(()),
            false => Err(format!("prints\n{text}")),
        }
    }
}

/// The documents for users and contributors.
fn documents() -> Vec<(String, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let below = ["docs", "hooks"].map(|directory| WalkDir::new(root.join(directory)));
    let below = below.into_iter().flatten().map(|entry| entry.unwrap().into_path());
    let top = ["README.md", "SECURITY.md", "CONTRIBUTING.md"].map(|name| root.join(name));
    let files = below
        .chain(top)
        .filter(|path| path.extension().is_some_and(|e| e == "md"));
    files
        .map(|path| {
            let name = path.strip_prefix(root).unwrap().display().to_string();
            (name, fs::read_to_string(path).unwrap())
        })
        .collect()
}

#[test]
fn each_block_of_commands_is_run_or_says_why_not() {
    let (mut run, mut wrong) = (0, String::new());
    for (name, text) in documents() {
        let machine = Machine::new();
        for Block { line, mark, typed } in blocks(&text) {
            match mark {
                Mark::NotRun { reason } => {
                    assert!(reason.contains(' '), "{name}:{line}: {reason}: not a reason");
                    let tests = reason.split([' ', ',', ';']).filter(|word| word.starts_with("tests/"));
                    tests.for_each(|test| {
                        let is_there = Path::new(env!("CARGO_MANIFEST_DIR")).join(test).exists();
                        assert!(is_there, "{name}:{line}: {test}: not found");
                    });
                }
                Mark::Run { host, policy } => {
                    for one in &typed {
                        match machine.run(one, &host, policy.as_deref()) {
                            Ok(()) => run += 1,
                            Err(why) => wrong += &format!("{name}:{line}: {}: {why}\n", one.command),
                        }
                    }
                }
            }
        }
    }
    assert!(
        wrong.is_empty(),
        "correct the document, or write before the block <!-- not run: REASON -->\n{wrong}"
    );
    assert!(run >= 10, "{run}");
}

#[test]
fn a_block_that_is_not_true_is_noticed() {
    let fails = |text: &str| {
        let blocks = blocks(text);
        let Mark::Run { host, policy } = &blocks[0].mark else {
            return false;
        };
        let machine = Machine::new();
        let mut typed = blocks[0].typed.iter();
        typed.any(|one| machine.run(one, host, policy.as_deref()).is_err())
    };
    let block = |lines: &str| format!("```console\n{lines}\n```\n");
    assert!(!fails(&block("# tranche cdi list\n…\nFound 0 CDI devices")));
    assert!(!fails(&block("# tranche list  # a remark\nGPU  NAME      …\n…")));
    assert!(!fails(&format!(
        "<!-- not run: it needs podman -->\n\n{}",
        block("# podman ps")
    )));
    for wrong in [
        "# podman ps",
        "# tranche list\nGPU  NAME",
        "# tranche list | head",
        "# tranche list --nosuch",
        "# tranche broker",
        "# tranche cdi generate --output …",
        "# tranche cdi inspect nvidia.com/gpu=0",
    ] {
        assert!(fails(&block(wrong)), "{wrong}");
    }
    let on = |host: &str| {
        format!(
            "<!-- run on: {host} -->\n{}",
            block("# tranche list\n…\n7    NVIDIA H200 …\n…")
        )
    };
    assert!(!fails(&on("hgx-h200")) && fails(&on("t4x2")));
}
