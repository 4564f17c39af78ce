//! Lets an installed engine read a configuration before it is put in its place.

use super::document::{ConfigFile, Syntax};
use super::edit::{Edit, keys};
use serde_json::Value;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tranche_core::error::{Context, Error, Result};
use tranche_core::execute::Program;
use tranche_host::program::{self, ProgramError};
use tranche_plan::engines::Engine;

/// How long an engine may take. It only reads files, which takes some hundredths of a second.
const PATIENCE: Duration = Duration::from_secs(30);

/// The most that an engine prints. containerd prints its whole configuration.
const MOST_BYTES: usize = 4 << 20;

/// A file as it is going to be.
#[derive(Debug)]
pub struct Candidate<'a> {
    /// Its path.
    pub path: &'a Path,
    /// Its text.
    pub text: &'a str,
}

/// What an engine says about a configuration.
#[derive(Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It reads it.
    Accepted,
    /// The engine is not installed, or cannot check a file.
    NotChecked(String),
    /// It refuses the file as it is now for the same reason, which the change did not bring.
    RefusesPresent(String),
}

/// Lets the engine's program read the main file and, if there is one, the drop-in.
///
/// # Errors
/// Returns an error if the engine refuses them, or reads them without finding the runtime `name`.
pub fn check(
    engine: Engine,
    program: Option<&Path>,
    main: &Candidate<'_>,
    drop_in: Option<&Candidate<'_>>,
    name: &str,
) -> Result<Verdict> {
    let found = program.map(Path::to_owned).or_else(|| find(engine.facts().program));
    let Some(program) = found else {
        return Ok(Verdict::NotChecked(format!(
            "{} is not installed here",
            engine.facts().program
        )));
    };
    let place = tempfile::tempdir().about("temporary directory", "cannot be created")?;
    let copy = |name: &str, text: &str| -> Result<PathBuf> {
        let path = place.path().join(name);
        fs::write(&path, text).about(path.display(), "cannot be written")?;
        Ok(path)
    };
    let mut command = engine_program(&program);
    match engine {
        Engine::Docker => {
            command = validate(&program, &copy("daemon.json", main.text)?);
        }
        Engine::Containerd => {
            let drop_in = drop_in.map(|file| copy("drop-in.toml", file.text)).transpose()?;
            let text = with_absolute_imports(main, drop_in.as_deref())?;
            command
                .arg("--config")
                .arg(copy("config.toml", &text)?)
                .args(["config", "dump"]);
        }
        Engine::Crio => {
            let directory = place.path().join("crio.conf.d");
            fs::create_dir(&directory).about(directory.display(), "cannot be created")?;
            for file in drop_in
                .and_then(|file| file.path.parent())
                .map(files_in)
                .unwrap_or_default()
            {
                let name = file.file_name().unwrap_or_default();
                fs::copy(&file, directory.join(name)).about(file.display(), "cannot be read")?;
            }
            if let Some(file) = drop_in {
                let name = file.path.file_name().unwrap_or_default();
                fs::write(directory.join(name), file.text).about(file.path.display(), "cannot be copied")?;
            }
            command.arg("--config").arg(copy("crio.conf", main.text)?);
            command.arg("--config-dir").arg(&directory).arg("config");
        }
        Engine::Podman => {
            let file = drop_in.unwrap_or(main);
            command = version(&program, &copy("containers.conf", file.text)?);
        }
    }
    let answer = run(command).about(program.display(), "cannot be run")?;
    let changed = drop_in.unwrap_or(main);
    if engine == Engine::Podman && !answer.is_success {
        let now = match changed.path.exists() {
            true => changed.path.to_owned(),
            false => copy("now.conf", "")?,
        };
        let present = run(version(&program, &now)).about(program.display(), "cannot be run")?;
        if !present.is_success {
            let as_now = match changed.path.exists() {
                true => "refuses the file as it is now, too",
                false => "refuses an empty file, too",
            };
            let what = format!("{} {as_now}: {}", program.display(), present.reason());
            return Err(Error::failed(changed.path.display(), what).hint("nothing was changed; correct that first"));
        }
    }
    if engine == Engine::Docker && !answer.is_success && !cannot_validate(&answer) {
        let now = match main.path.exists() {
            true => main.path.to_owned(),
            false => copy("now.json", "{}")?,
        };
        let present = run(validate(&program, &now)).about(program.display(), "cannot be run")?;
        // The reason may have the name of the file.
        let reason = |answer: &Answer, file: &Path| answer.reason().replace(&*file.to_string_lossy(), "");
        if reason(&present, &now) == reason(&answer, &place.path().join("daemon.json")) {
            let what = format!(
                "{} refuses the file as it is now, too: {}",
                program.display(),
                present.reason()
            );
            return Ok(Verdict::RefusesPresent(what));
        }
    }
    verdict(engine, &program, changed, &answer, name)
}

/// dockerd reads `file` and the machine, such as certificates that the file names, and starts nothing.
fn validate(program: &Path, file: &Path) -> Program {
    let mut command = engine_program(program);
    command.arg("--validate").arg("--config-file").arg(file);
    command
}

/// podman reads its configuration before it says anything.
fn version(program: &Path, file: &Path) -> Program {
    let mut command = engine_program(program);
    command.env("CONTAINERS_CONF", file).arg("version");
    command
}

/// dockerd has the option since 23.0.
fn cannot_validate(answer: &Answer) -> bool {
    answer.err.contains("unknown flag: --validate")
}

fn verdict(engine: Engine, program: &Path, file: &Candidate<'_>, answer: &Answer, name: &str) -> Result<Verdict> {
    if !answer.is_success {
        if engine == Engine::Docker && cannot_validate(answer) {
            return Ok(Verdict::NotChecked(
                "this version of dockerd cannot check a file".to_owned(),
            ));
        }
        return Err(Error::failed(
            file.path.display(),
            format!("{} refuses the changed file: {}", program.display(), answer.reason()),
        )
        .hint(format!("nothing was changed{}", other_program(engine, file.path))));
    }
    let lists_runtimes = matches!(engine, Engine::Containerd | Engine::Crio);
    if lists_runtimes && let Some(missing) = missing_runtime(&answer.out, name)? {
        let what = format!(
            "{} does not find the runtime {missing} in the changed file",
            program.display()
        );
        return Err(Error::failed(file.path.display(), what).hint(format!(
            "nothing was changed{}; or another file of its configuration replaces that section: name that file with \
             --config",
            other_program(engine, file.path)
        )));
    }
    Ok(Verdict::Accepted)
}

/// Distributions of Kubernetes that bring a containerd of their own: a part of the paths of its files, and its program.
const OWN_CONTAINERD: [(&str, &str); 4] = [
    ("/rancher/k3s/", "/var/lib/rancher/k3s/data/current/bin/containerd"),
    ("/rancher/rke2/", "/var/lib/rancher/rke2/bin/containerd"),
    ("/k0s/", "/var/lib/k0s/bin/containerd"),
    ("/snap/microk8s/", "/snap/microk8s/current/bin/containerd"),
];

/// What to do if the configuration at `path` is that of another program of `engine` than the installed one.
fn other_program(engine: Engine, path: &Path) -> String {
    let path = path.to_string_lossy();
    let own = OWN_CONTAINERD.iter().find(|(part, _)| path.contains(part));
    match own.filter(|_| engine == Engine::Containerd) {
        Some((_, program)) => {
            format!("; this file is for a containerd of its own: add --executable-path {program}")
        }
        None => {
            "; if the file is for another version of the engine, name its program with --executable-path".to_owned()
        }
    }
}

/// The runtime that the configuration lacks which containerd or CRI-O printed: the runtime `name`, or the one that it
/// calls the default, without which containerd's CRI plugin does not start. containerd prints its newest version.
fn missing_runtime(printed: &str, name: &str) -> Result<Option<String>> {
    let document = ConfigFile::read("configuration that the engine printed", Syntax::Toml, printed)?;
    let places = [
        (
            &["plugins", "io.containerd.grpc.v1.cri", "containerd"][..],
            "default_runtime_name",
        ),
        (
            &["plugins", "io.containerd.cri.v1.runtime", "containerd"],
            "default_runtime_name",
        ),
        (&["crio", "runtime"], "default_runtime"),
    ];
    let has = |at: &[&str], name: &str| document.get(&[at, &["runtimes", name]].concat()).is_some();
    let Some((at, default)) = places.into_iter().find(|(at, _)| has(at, name)) else {
        return Ok(Some(name.to_owned()));
    };
    let default = document.text_at(&[at, &[default]].concat())?;
    Ok(default
        .filter(|default| !default.is_empty() && !has(at, default))
        .map(str::to_owned))
}

/// The main file with imports as its copy must name them: as absolute paths, and the drop-in by its copy.
fn with_absolute_imports(main: &Candidate<'_>, drop_in: Option<&Path>) -> Result<String> {
    let document = ConfigFile::read(main.path.display().to_string(), Syntax::Toml, main.text)?;
    let directory = main.path.parent().unwrap_or(Path::new("/"));
    let mut imports: Vec<Value> = Vec::new();
    for import in document.list_at(&["imports"])?.unwrap_or_default() {
        imports.push(directory.join(import).display().to_string().into());
    }
    imports.extend(drop_in.map(|path| path.display().to_string().into()));
    if imports.is_empty() {
        return Ok(main.text.to_owned());
    }
    let edit = Edit::Set {
        keys: keys(&["imports"]),
        value: Value::Array(imports),
    };
    Ok(document.with(&[edit])?.text)
}

/// The configuration that `containerd config dump` or `crio config` prints.
///
/// # Errors
/// Returns an error if the program is not installed or fails.
pub fn present(engine: Engine, program: Option<&Path>, file: &Path) -> Result<String> {
    let name = engine.facts().program;
    let program = program.map(Path::to_owned).or_else(|| find(name));
    let program = program.ok_or_else(|| Error::failed(name, "not found").hint("use --config-source file"))?;
    let mut command = engine_program(&program);
    match engine {
        Engine::Crio => command.args(["status", "config"]),
        _ => command.arg("--config").arg(file).args(["config", "dump"]),
    };
    let answer = run(command).about(program.display(), "cannot be run")?;
    match answer.is_success {
        true => Ok(answer.out),
        false => Err(Error::failed(
            program.display(),
            format!("does not print its configuration: {}", answer.reason()),
        )
        .hint("use --config-source file")),
    }
}

/// Whether an installed containerd is of version 2 or later; `None` if it is not installed.
pub fn containerd_is_2(program: Option<&Path>) -> Option<bool> {
    let program = program
        .map(Path::to_owned)
        .or_else(|| find(Engine::Containerd.facts().program))?;
    let mut command = engine_program(&program);
    command.arg("--version");
    let answer = run(command).ok()?;
    // containerd github.com/containerd/containerd/v2 v2.1.0 COMMIT
    let version = answer.out.split_whitespace().nth(2)?.trim_start_matches('v');
    Some(version.split('.').next()?.parse::<u32>().ok()? >= 2)
}

/// The program `name` in `PATH`, or where distributions install daemons.
pub fn find(name: &str) -> Option<PathBuf> {
    let mut places = places_of_programs().into_iter();
    places.find_map(|dir| Some(dir.join(name)).filter(|path| is_program(path)))
}

/// The directories of `PATH`, and those where distributions install daemons.
fn places_of_programs() -> Vec<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let usual = ["/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin"].map(PathBuf::from);
    let places = std::env::split_paths(&path).chain(usual);
    places.filter(|dir| dir.is_absolute()).collect()
}

/// Whether `path` is a file that can be executed.
pub fn is_program(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|data| data.is_file() && data.permissions().mode() & 0o111 != 0)
}

/// The files in a directory, in the order of their names.
pub fn files_in(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let mut files: Vec<PathBuf> = entries
        .map(|entry| entry.path())
        .filter(|path| path.is_file())
        .collect();
    files.sort();
    files
}

struct Answer {
    is_success: bool,
    out: String,
    err: String,
}

impl Answer {
    /// The last line that says anything. Engines print warnings before it.
    fn reason(&self) -> String {
        let lines = self.err.lines().chain(self.out.lines());
        let said: Vec<&str> = lines.filter(|line| !line.trim().is_empty()).collect();
        let error = said
            .iter()
            .rev()
            .find(|line| line.contains("rror") || line.contains("fatal"));
        let line = error.or(said.last()).map_or("it gave no reason", |line| line.trim());
        line.chars().take(400).collect()
    }
}

/// The program of an engine with the environment of the person who changes its configuration: podman finds files of its
/// user by it. dockerd looks for other programs of docker in `PATH`.
fn engine_program(path: &Path) -> Program {
    let mut program = Program::new(path);
    program.environment_of_caller();
    if let Ok(path) = std::env::join_paths(places_of_programs()) {
        program.env("PATH", path);
    }
    program
}

/// Runs `command`, which gets no input.
fn run(command: Program) -> Result<Answer, ProgramError> {
    let ran = program::run(command, "", PATIENCE, MOST_BYTES)?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Ok(Answer {
        is_success: ran.status.success(),
        out: text(&ran.stdout),
        err: text(&ran.stderr),
    })
}
