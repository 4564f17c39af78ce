//! The programs of one branch, real or fake, and directories for their daemons.

use crate::support::nvidia_packages::Unpacked;
use crate::support::{fake_mps, programs, rights};
use std::fs::{self, File};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};
use tranche_core::mps::version::{CONTROL, PID_FILE, SERVER, Version};

/// How long a program may take before that is the answer: one that hangs takes as long.
const PATIENCE: Duration = Duration::from_millis(1000);

pub(crate) struct Bed {
    top: tempfile::TempDir,
    control: PathBuf,
    /// The PATH of daemons.
    pub(crate) path: String,
    pub(crate) version: &'static Version,
}

/// A daemon that runs in the foreground until it is dropped.
pub(crate) struct Daemon {
    pub(crate) process: Child,
    output: PathBuf,
}

/// What a program printed and how it ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Ran {
    pub(crate) how: String,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Ran {
    /// One line for a transcript.
    pub(crate) fn line(&self) -> String {
        let Self { how, out, err } = self;
        match (out.as_str(), err.as_str()) {
            ("", "") => how.clone(),
            (out, "") => format!("{how}: {out:?}"),
            (out, err) => format!("{how}: {out:?}, and on stderr {err:?}"),
        }
    }
}

impl Bed {
    /// NVIDIA's programs.
    pub(crate) fn real(version: &'static Version, package: &Unpacked) -> Self {
        let [control, server] = ["usr/bin/nvidia-cuda-mps-control", "usr/sbin/nvidia-cuda-mps-server"];
        Self::of(version, &package.root.join(control), &package.root.join(server))
    }

    /// The fake ones. Their server finds no device, as the real one without a GPU.
    pub(crate) fn fake(version: &'static Version) -> Self {
        let built = fake_mps::program();
        let bed = Self::of(version, &built, &built);
        let config = serde_json::json!({"version": version.major, "faults": {"server": "refuse"}});
        fs::write(bed.at("programs/fake-mps.json"), config.to_string()).unwrap();
        bed
    }

    /// Copies, because the directory of the build may be closed to other users.
    fn of(version: &'static Version, control: &Path, server: &Path) -> Self {
        let top = directory();
        let programs = top.path().join("programs");
        programs::install(control, programs.join("nvidia-cuda-mps-control"));
        programs::install(server, programs.join(SERVER));
        fs::set_permissions(&programs, fs::Permissions::from_mode(0o755)).unwrap();
        Self {
            control: programs.join("nvidia-cuda-mps-control"),
            path: format!("{}:/usr/bin:/bin", programs.display()),
            top,
            version,
        }
    }

    /// The pipe directory.
    pub(crate) fn pipe(&self) -> PathBuf {
        self.top.path().join("pipe")
    }

    pub(crate) fn at(&self, name: &str) -> PathBuf {
        self.top.path().join(name)
    }

    /// New directories for the next situation.
    pub(crate) fn clear(&self) {
        for name in ["pipe", "log", "other"] {
            let _ = fs::remove_dir_all(self.at(name));
            let _ = fs::remove_file(self.at(name));
        }
        for name in ["pipe", "log"] {
            fs::create_dir(self.at(name)).unwrap();
        }
    }

    /// The control program with these arguments, in the directories of this situation, with the signals of a login.
    pub(crate) fn program(&self, arguments: &[&str]) -> Command {
        self.command(arguments, rights::is_root_of_machine())
    }

    fn command(&self, arguments: &[&str], is_confined: bool) -> Command {
        // A test harness may have blocked or ignored some.
        let mut command = Command::new("/usr/bin/env");
        command.arg("--default-signal");
        if is_confined {
            // A server that finds no node of the driver makes one, on this machine.
            command.args(["/usr/bin/setpriv", "--bounding-set=-mknod", "--inh-caps=-mknod"]);
        }
        command.arg(&self.control).args(arguments);
        command.env_clear().env("PATH", &self.path).env("TZ", "UTC0");
        command.env("CUDA_MPS_PIPE_DIRECTORY", self.pipe());
        command.env("CUDA_MPS_LOG_DIRECTORY", self.at("log"));
        command.current_dir(self.top.path());
        command
    }

    /// The control program as another user.
    pub(crate) fn program_as(&self, uid: u32, arguments: &[&str]) -> Command {
        let mut command = self.command(arguments, false);
        command.uid(uid).gid(uid);
        command
    }

    /// Runs a program with this input.
    pub(crate) fn run(&self, mut command: Command, input: &str) -> Ran {
        let place = tempfile::NamedTempFile::new().unwrap();
        fs::write(place.path(), input).unwrap();
        let [out, err] = ["out", "err"].map(|name| place.path().with_extension(name));
        command.stdin(File::open(place.path()).unwrap());
        command
            .stdout(File::create(&out).unwrap())
            .stderr(File::create(&err).unwrap());
        let mut child = command.process_group(0).spawn().unwrap();
        let how = match wait(&mut child, PATIENCE) {
            Some(status) => how_it_ended(status),
            None => {
                let _ = child.kill();
                let _ = child.wait();
                "hangs".to_owned()
            }
        };
        let text = |path: &Path| {
            let bytes = fs::read(path).unwrap_or_default();
            let _ = fs::remove_file(path);
            self.normal(&String::from_utf8_lossy(&bytes))
        };
        Ran {
            how,
            out: text(&out),
            err: text(&err),
        }
    }

    /// What a front end prints for these commands.
    pub(crate) fn say(&self, commands: &str) -> Ran {
        self.run(self.program(&[]), &format!("{commands}\n"))
    }

    /// The same for another user.
    pub(crate) fn say_as(&self, uid: u32, commands: &str) -> Ran {
        self.run(self.program_as(uid, &[]), &format!("{commands}\n"))
    }

    /// A daemon with these arguments, as soon as it listens; `Err` says how it ended.
    pub(crate) fn start(&self, arguments: &[&str]) -> Result<Daemon, Ran> {
        self.start_command(self.program(arguments))
    }

    pub(crate) fn start_command(&self, mut command: Command) -> Result<Daemon, Ran> {
        let output = self.at("output");
        let file = File::create(&output).unwrap();
        command
            .stdin(Stdio::null())
            .stdout(file.try_clone().unwrap())
            .stderr(file);
        let process = command.process_group(0).spawn().unwrap();
        let mut daemon = Daemon { process, output };
        let until = Instant::now() + PATIENCE;
        while !self.listens() {
            if let Some(status) = daemon.process.try_wait().unwrap() {
                let out = fs::read_to_string(&daemon.output).unwrap_or_default();
                let how = how_it_ended(status);
                return Err(Ran {
                    how,
                    out: self.normal(&out),
                    err: String::new(),
                });
            }
            if Instant::now() > until {
                let how = "hangs at its start".to_owned();
                return Err(Ran {
                    how,
                    out: String::new(),
                    err: String::new(),
                });
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        Ok(daemon)
    }

    /// Whether a daemon listens, and has made all of its files.
    pub(crate) fn listens(&self) -> bool {
        let control = self.pipe().join(CONTROL);
        let sockets = fs::read_to_string("/proc/net/unix").unwrap();
        // The flag of a socket that listens. The name stays while its file is replaced.
        let end = format!(" {}", control.display());
        let is_bound = sockets
            .lines()
            .any(|line| line.ends_with(&end) && line.contains(" 00010000 "));
        let has_mode = fs::metadata(&control).is_ok_and(|control| control.mode() & 0o777 == 0o666);
        let number = fs::read_to_string(self.pipe().join(PID_FILE)).unwrap_or_default();
        // A number that a test left is longer than that of a process.
        let lives = || number.len() > 7 || fs::exists(format!("/proc/{number}")).unwrap();
        is_bound && has_mode && (!self.version.has_pid_file || (!number.is_empty() && lives()))
    }

    /// The lines of a log of the daemon, without their times, and without those whose order is left to chance.
    pub(crate) fn log(&self, daemon: &Daemon) -> Vec<String> {
        self.log_lines(&daemon.output)
    }

    pub(crate) fn log_lines(&self, file: &Path) -> Vec<String> {
        // A thread writes them.
        std::thread::sleep(Duration::from_millis(60));
        let text = fs::read(file).unwrap_or_default();
        let text = self.normal(&String::from_utf8_lossy(&text));
        let by_chance = |line: &&str| {
            [
                "UI closed",
                "Accepting connection...",
                "Removed Shm file at",
                "Server encountered",
            ]
            .iter()
            .any(|start| line.starts_with(start))
        };
        let words = text
            .lines()
            .map(|line| line.split_once("] ").map_or(line, |(_, words)| words));
        words.filter(|line| !by_chance(line)).map(masked_server).collect()
    }

    /// What is in a directory: names, kinds and modes.
    pub(crate) fn files(&self, name: &str) -> String {
        let Ok(entries) = fs::read_dir(self.at(name)) else {
            return "no directory".to_owned();
        };
        let mut lines: Vec<String> = entries
            .flatten()
            .map(|entry| {
                let meta = entry.path().symlink_metadata().unwrap();
                let kind = match meta.file_type() {
                    kind if kind.is_socket() => "socket",
                    kind if kind.is_fifo() => "fifo",
                    kind if kind.is_dir() => "directory",
                    kind if kind.is_symlink() => "link",
                    _ => "file",
                };
                format!(
                    "{} {kind} {:o}",
                    entry.file_name().display(),
                    meta.permissions().mode() & 0o7777
                )
            })
            .collect();
        lines.sort();
        lines.join(", ")
    }

    /// Text without what differs between two runs.
    fn normal(&self, text: &str) -> String {
        text.replace(self.top.path().to_str().unwrap(), "TOP")
    }
}

/// The number of a process in a line about a server.
fn masked_server(line: &str) -> String {
    let words = line.split(' ').scan("", |before, word| {
        let is_number = word.len() > 2 && word.bytes().all(|byte| byte.is_ascii_digit());
        let masked = if is_number && before.eq_ignore_ascii_case("server") {
            "N"
        } else {
            word
        };
        *before = word;
        Some(masked)
    });
    words.collect::<Vec<_>>().join(" ")
}

impl Daemon {
    /// Sends a signal, and waits for the end: how, or `runs`.
    pub(crate) fn signal(&mut self, signal: nix::sys::signal::Signal) -> String {
        let pid = nix::unistd::Pid::from_raw(self.process.id().cast_signed());
        nix::sys::signal::kill(pid, signal).unwrap();
        self.end()
    }

    /// How it ends within a moment, or `runs`.
    pub(crate) fn end(&mut self) -> String {
        wait(&mut self.process, Duration::from_millis(500)).map_or_else(|| "runs".to_owned(), how_it_ended)
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// A directory whose path is short and has the same length each time, and that every user may enter.
fn directory() -> tempfile::TempDir {
    let made = tempfile::Builder::new()
        .prefix("mps")
        .rand_bytes(8)
        .tempdir_in("/tmp")
        .unwrap();
    fs::set_permissions(made.path(), fs::Permissions::from_mode(0o755)).unwrap();
    made
}

fn wait(child: &mut Child, patience: Duration) -> Option<ExitStatus> {
    let until = Instant::now() + patience;
    loop {
        match child.try_wait().unwrap() {
            Some(status) => return Some(status),
            None if Instant::now() > until => return None,
            None => std::thread::sleep(Duration::from_millis(2)),
        }
    }
}

fn how_it_ended(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit {code}"),
        (_, Some(signal)) => format!("signal {signal}"),
        _ => status.to_string(),
    }
}
