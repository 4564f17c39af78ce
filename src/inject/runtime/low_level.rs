//! The program that does the work: runc, crun or another OCI runtime.

use std::ffi::{CString, OsString};
use std::fs::{self, File};
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::unistd::{AccessFlags, access, execv, execve};

use tranche_core::error::{Context, Error, Result};
use tranche_core::sys::inherited;
use tranche_core::text::some;
use tranche_core::types::PROGRAM_DIRS;

/// How often this program was executed before it in the same chain of runtimes. It is set only for a runtime that may
/// lead back here: see [`LowLevel::may_return`].
const DEPTH: &str = "TRANCHE_RUNTIME_DEPTH";

/// The deepest chain. Two wrappers in front of one runtime are odd, and more is a circle.
const DEEPEST: u32 = 4;

/// The low-level runtime.
#[derive(Debug)]
pub(super) struct LowLevel {
    /// The path of the program.
    pub path: PathBuf,
}

/// The directory in which `program` is installed may be a link, so files are compared and not their names.
#[derive(Debug, PartialEq, Eq)]
struct Identity(u64, u64);

impl LowLevel {
    /// The first of `names` that is installed and is not tranche itself. A name with a slash is an absolute path.
    ///
    /// # Errors
    /// Returns an error with everything that was searched.
    pub(super) fn find(names: &[String]) -> Result<Self> {
        Self::find_beside(names, Path::new("/proc/self/exe"))
    }

    /// As [`LowLevel::find`], for the program of tranche in `own`.
    ///
    /// # Errors
    /// As [`LowLevel::find`].
    pub(super) fn find_beside(names: &[String], own: &Path) -> Result<Self> {
        Self::find_in(names, &PROGRAM_DIRS, own)
    }

    fn find_in(names: &[String], directories: &[&str], own: &Path) -> Result<Self> {
        let mut own_names = Vec::new();
        for name in names {
            for path in places(name, directories) {
                if is_same_program(&path, own) {
                    own_names.push(path.display().to_string());
                } else {
                    return Ok(LowLevel { path });
                }
            }
        }
        let mut what = format!("not found: {}", some(names));
        if names.iter().any(|name| !name.contains('/')) {
            what.push_str(&format!(" in {}", directories.join(":")));
        }
        if !own_names.is_empty() {
            what.push_str(&format!("; {} is tranche itself", some(&own_names)));
        }
        Err(Error::failed("low-level runtime", what)
            .hint("install runc or crun, or name one under \"runtime: runtimes:\" in /etc/tranche/config.yaml"))
    }

    /// Replaces this process with the runtime. `words` are its arguments. Returns only if that fails.
    pub(super) fn execute(&self, words: &[OsString]) -> Error {
        let environment = match self.may_return() {
            true => self.deeper().map(Some),
            false => Ok(None),
        };
        match environment {
            // The engine's own, also where it is odd: two entries of one name, or one without a value.
            Ok(None) => execute(&self.path, words, None),
            Ok(Some(environment)) => execute(&self.path, words, Some(environment)),
            Err(error) => error,
        }
    }

    /// Whether the program could execute tranche again: a script, or a runtime that is neither runc nor crun. The real
    /// runtimes get exactly the environment of the engine.
    fn may_return(&self) -> bool {
        let name = self.path.file_name().unwrap_or_default();
        let mut magic = [0; 4];
        let is_elf = File::open(&self.path)
            .and_then(|mut file| file.read_exact(&mut magic))
            .is_ok();
        !(is_elf && magic == *b"\x7fELF" && (name == "runc" || name == "crun"))
    }

    /// The environment with the depth of the chain.
    fn deeper(&self) -> Result<Vec<OsString>> {
        let depth = std::env::var(DEPTH)
            .ok()
            .and_then(|text| text.parse().ok())
            .unwrap_or(0);
        if depth >= DEEPEST {
            return Err(Error::failed(
                self.path.display(),
                "executes tranche again, so no container would ever start",
            )
            .hint("name the real runtime under \"runtime: runtimes:\" in /etc/tranche/config.yaml"));
        }
        Ok(environment(&[format!("{DEPTH}={}", depth + 1)]))
    }
}

/// The program of this name, which is searched in [`PROGRAM_DIRS`], or this absolute path; `None` if it is not
/// installed.
pub(super) fn installed(name: &str) -> Option<PathBuf> {
    places(name, &PROGRAM_DIRS).next()
}

/// Replaces this process with `program`, and adds `more` to its environment. Returns only if that fails.
pub(super) fn become_program(program: &Path, words: &[OsString], more: &[String]) -> Error {
    execute(program, words, Some(environment(more)))
}

/// This process's environment, with the entries of `more` in place of those of the same names.
fn environment(more: &[String]) -> Vec<OsString> {
    let name = |entry: &str| entry.split('=').next().unwrap_or_default().to_owned();
    let others = std::env::vars_os().filter(|(other, _)| !more.iter().any(|entry| name(entry).as_str() == other));
    let entries = others.map(|(mut name, value)| {
        name.push("=");
        name.push(value);
        name
    });
    entries.chain(more.iter().map(OsString::from)).collect()
}

/// `environment` is `None` for that of this process, unchanged.
fn execute(path: &Path, words: &[OsString], environment: Option<Vec<OsString>>) -> Error {
    let list = |words: &[OsString]| {
        let word = |word: &OsString| CString::new(word.as_bytes()).about("arguments", "contain a zero byte");
        words.iter().map(word).collect::<Result<Vec<_>>>()
    };
    // Its own path and not the name that this program was called by: crun chooses a handler by it (krun).
    let argv = std::iter::once(path.as_os_str().to_owned()).chain(words.iter().cloned());
    let lists =
        list(&argv.collect::<Vec<_>>()).and_then(|argv| Ok((argv, environment.as_deref().map(list).transpose()?)));
    let (argv, environment) = match lists {
        Ok(lists) => lists,
        Err(error) => return error,
    };
    let Some(program) = argv.first() else {
        return Error::failed(path.display(), "cannot be executed");
    };
    inherited::restore();
    let done = match environment {
        None => execv(program, &argv),
        Some(environment) => execve(program, &argv, &environment),
    };
    Error::failed(path.display(), "cannot be executed").from_source(done.err().unwrap_or(Errno::UnknownErrno))
}

/// Where a program of this name is installed: below the directories, or at this absolute path.
fn places(name: &str, directories: &[&str]) -> impl Iterator<Item = PathBuf> {
    let places: Vec<PathBuf> = match name.contains('/') {
        true => vec![PathBuf::from(name)],
        false => directories.iter().map(|place| Path::new(place).join(name)).collect(),
    };
    places.into_iter().filter(|path| is_program(path))
}

/// Whether `path` is an absolute path to a file that this user may execute.
fn is_program(path: &Path) -> bool {
    path.is_absolute() && fs::metadata(path).is_ok_and(|file| file.is_file()) && access(path, AccessFlags::X_OK).is_ok()
}

/// Whether both are the same file, or copies of one. A copy would find the other one, and neither would ever find a
/// runtime.
fn is_same_program(path: &Path, own: &Path) -> bool {
    let (Ok(file), Ok(own_file)) = (fs::metadata(path), fs::metadata(own)) else {
        return false;
    };
    let identity = |file: &fs::Metadata| Identity(file.dev(), file.ino());
    identity(&file) == identity(&own_file)
        || (file.len() == own_file.len() && fs::read(path).ok() == fs::read(own).ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};

    fn program(path: &Path, text: &str) {
        fs::write(path, text).unwrap();
        fs::set_permissions(path, PermissionsExt::from_mode(0o755)).unwrap();
    }

    #[test]
    fn the_first_installed_one_that_is_not_tranche_is_chosen() {
        let top = tempfile::tempdir().unwrap();
        let [a, b] = ["a", "b"].map(|name| top.path().join(name));
        for directory in [&a, &b] {
            fs::create_dir(directory).unwrap();
        }
        let own = a.join("tranche-oci");
        program(&own, "own");
        symlink("tranche-oci", a.join("runc")).unwrap();
        fs::write(b.join("runc"), "without the right to execute").unwrap();
        fs::create_dir(b.join("crun")).unwrap();
        let directories = [a.to_str().unwrap(), b.to_str().unwrap()];
        let find = |names: &[&str]| {
            let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
            LowLevel::find_in(&names, &directories, &own).map(|found| found.path)
        };
        let error = find(&["runc", "crun", "/no/such"]).unwrap_err().to_string();
        assert!(
            error.starts_with("low-level runtime: not found: runc, crun, /no/such in "),
            "{error}"
        );
        assert!(
            error.contains(&format!("{}/runc is tranche itself", a.display())),
            "{error}"
        );

        // A copy is tranche too, and a link to a link.
        program(&b.join("copy"), "own");
        symlink("../a/runc", b.join("link")).unwrap();
        assert!(find(&["copy", "link"]).is_err());

        program(&b.join("real"), "owl");
        assert_eq!(find(&["copy", "runc", "real"]).unwrap(), b.join("real"));
        let absolute = b.join("real").display().to_string();
        assert_eq!(find(&[&absolute]).unwrap(), b.join("real"));
        // A relative path would depend on the directory of the engine.
        assert!(find(&["./real", "b/real"]).is_err());
    }

    #[test]
    fn only_a_script_or_an_unknown_program_may_lead_back() {
        let top = tempfile::tempdir().unwrap();
        let may_return = |name: &str, text: &str| {
            let path = top.path().join(name);
            program(&path, text);
            LowLevel { path }.may_return()
        };
        assert!(!may_return("runc", "\x7fELF and so on"));
        assert!(may_return("crun", "#!/bin/sh\n"));
        assert!(may_return("youki", "\x7fELF and so on"));
    }
}
