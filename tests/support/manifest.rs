//! The language of `host.txt`: one thing of a host on each line.
//! `tests/hosts/README.md` has its words.

use crate::stub_elf::Machine;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// A shared library of a host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Library {
    /// The file.
    pub path: PathBuf,
    /// What it calls itself.
    pub soname: String,
    /// What it is for.
    pub machine: Machine,
}

/// Which libraries an ld.so.cache lists.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cache {
    /// The `/` of the cache: its own place is `etc/ld.so.cache` below, and its paths begin here.
    pub root: PathBuf,
    /// Directories, as paths below that root.
    pub directories: Vec<PathBuf>,
}

/// One line of a manifest.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs, reason = "tests/hosts/README.md says what each is")]
pub enum Entry {
    Dir(PathBuf),
    File {
        path: PathBuf,
        mode: u32,
    },
    Text {
        path: PathBuf,
        text: String,
    },
    Bin(PathBuf),
    Lib(Library),
    Nvml(PathBuf),
    Link {
        path: PathBuf,
        target: PathBuf,
    },
    Char {
        path: PathBuf,
        major: u64,
        minor: u64,
        mode: u32,
        gid: Option<u32>,
    },
    Sock(PathBuf),
    LdCache(Cache),
}

/// Reads a manifest. An error names the line.
pub fn parse(text: &str) -> Result<Vec<Entry>, String> {
    let mut names: BTreeMap<String, String> = BTreeMap::new();
    let mut machine = Machine::default();
    let mut entries = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let mut line = line.trim().to_owned();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        // From the end, so that of `$L` and `$LIB` the longer is tried first.
        for (name, value) in names.iter().rev() {
            line = line.replace(name, value);
        }
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[..] {
            ["let", name, value] => {
                names.insert(format!("${name}"), value.to_owned());
            }
            ["arch", "x86_64"] => machine = Machine::X86_64,
            ["arch", "aarch64"] => machine = Machine::Aarch64,
            _ => entries.push(entry(&words, machine).ok_or(format!("line {}: cannot read `{line}`", number + 1))?),
        }
    }
    Ok(entries)
}

fn entry(words: &[&str], machine: Machine) -> Option<Entry> {
    let (verb, path, rest) = (*words.first()?, PathBuf::from(words.get(1)?), words.get(2..)?);
    Some(match (verb, rest) {
        ("dir", []) => Entry::Dir(path),
        ("file", []) => Entry::File { path, mode: 0o644 },
        ("file", [mode]) => Entry::File {
            path,
            mode: octal(mode.strip_prefix("mode=")?)?,
        },
        ("text", text) => Entry::Text {
            path,
            text: text.join(" ").replace("\\n", "\n"),
        },
        ("bin", []) => Entry::Bin(path),
        ("lib", [soname]) => library(path, soname, machine)?,
        ("lib", [soname, "class=32"]) => library(path, soname, Machine::I386)?,
        ("nvml", []) => Entry::Nvml(path),
        ("link", [target]) => Entry::Link {
            path,
            target: PathBuf::from(target),
        },
        ("char", [number, mode]) => device(path, number, mode, None)?,
        ("char", [number, mode, gid]) => device(path, number, mode, Some(gid.strip_prefix("gid=")?.parse().ok()?))?,
        ("sock", []) => Entry::Sock(path),
        ("ldcache", _) => {
            let root = words[1].strip_prefix("root=").map(PathBuf::from);
            let directories = words
                .iter()
                .skip(if root.is_some() { 2 } else { 1 })
                .map(PathBuf::from)
                .collect();
            Entry::LdCache(Cache {
                root: root.unwrap_or("/".into()),
                directories,
            })
        }
        _ => return None,
    })
}

fn library(path: PathBuf, soname: &str, machine: Machine) -> Option<Entry> {
    Some(Entry::Lib(Library {
        path,
        soname: soname.strip_prefix("soname=")?.to_owned(),
        machine,
    }))
}

fn device(path: PathBuf, number: &str, mode: &str, gid: Option<u32>) -> Option<Entry> {
    let (major, minor) = number.split_once(':')?;
    Some(Entry::Char {
        path,
        major: major.parse().ok()?,
        minor: minor.parse().ok()?,
        mode: octal(mode)?,
        gid,
    })
}

fn octal(mode: &str) -> Option<u32> {
    u32::from_str_radix(mode, 8).ok()
}
