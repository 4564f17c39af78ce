//! The start of the control program: the command line, and the files of a daemon.

use crate::client::{self, pipe};
use crate::config::{Config, Fault, hang};
use crate::daemon::Daemon;
use crate::log::Log;
use crate::protocol;
use crate::usage::{self, Mode};
use nix::fcntl::{FcntlArg, fcntl};
use nix::sys::signal::{SigHandler, Signal, signal};
use nix::sys::stat::{Mode as Bits, umask};
use rustix::fs::{CWD, FileType, mknodat};
use rustix::net::{SocketAddrUnix, bind, listen};
use serde_json::json;
use std::fs::{self, File, Permissions};
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use tranche_core::mps::version::{CONTROL, CONTROL_LOCK, CONTROL_PRIVILEGED, LOG, LONGEST_SOCKET, PID_FILE};

/// The variable of the process that `-d` starts: it writes a zero to its standard output as soon as it listens.
const BACKGROUND: &str = "FAKE_MPS_IN_BACKGROUND";

pub(crate) fn run(config: &Config, arguments: &[String]) -> ExitCode {
    let version = config.version();
    match usage::mode(version, arguments) {
        Mode::FrontEnd => client::commands(config),
        Mode::Usage(code) => {
            print!("{}", usage::text(version));
            ExitCode::from(code)
        }
        Mode::Daemon {
            in_background: true, ..
        } if std::env::var_os(BACKGROUND).is_none() => in_background(arguments),
        Mode::Daemon { multi_user: true, .. } if !rustix::process::geteuid().is_root() => {
            println!("{}Only root user may enable -multiuser-server!", usage::text(version));
            ExitCode::FAILURE
        }
        Mode::Daemon { multi_user, .. } => serve(config, arguments, multi_user).unwrap_or_else(|why| {
            print!("{why}");
            ExitCode::FAILURE
        }),
    }
}

/// `-d`: returns as soon as the daemon listens.
fn in_background(arguments: &[String]) -> ExitCode {
    let Ok(own) = std::env::current_exe() else {
        return ExitCode::FAILURE;
    };
    let mut command = Command::new("/usr/bin/setsid");
    command.arg(own).args(arguments).env(BACKGROUND, "1");
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    let Ok(child) = command.spawn() else {
        return ExitCode::FAILURE;
    };
    let mut said = Vec::new();
    let _ = child.stdout.map(|mut stdout| stdout.read_to_end(&mut said));
    if said == b"\0" {
        return ExitCode::SUCCESS;
    }
    let _ = io::stdout().write_all(&said);
    // The real one has it in a buffer when it forks, so that both print it.
    print!("{}", warning(&log_directory()));
    ExitCode::FAILURE
}

/// The directory of the logs, which is made if it is missing.
fn log_directory() -> PathBuf {
    let logs = std::env::var_os("CUDA_MPS_LOG_DIRECTORY");
    let logs = logs.map_or_else(|| PathBuf::from("/var/log/nvidia-mps"), PathBuf::from);
    let _ = fs::create_dir(&logs).and_then(|()| fs::set_permissions(&logs, Permissions::from_mode(0o700)));
    logs
}

/// What is printed about a directory for logs that cannot be used.
fn warning(logs: &Path) -> String {
    let access = rustix::fs::access(logs, rustix::fs::Access::READ_OK | rustix::fs::Access::WRITE_OK);
    match access {
        Ok(()) => String::new(),
        Err(_) => format!(
            "Warning: Failed writing log files to directory [{}]. No logs will be available.\n",
            logs.display()
        ),
    }
}

/// Makes the files, and serves until the end. `Err` is what is printed.
fn serve(config: &Config, arguments: &[String], multi_user: bool) -> Result<ExitCode, String> {
    let version = config.version();
    let pipe = pipe();
    let no_access = || format!("Cannot access CUDA_MPS_PIPE_DIRECTORY={}\n", pipe.display());
    let logs = log_directory();
    print!("{}", warning(&logs));
    let left = Log::left(&pipe.join(LOG));
    let mask = umask(Bits::empty());
    let made = fs::create_dir(&pipe);
    if let Err(e) = made
        && e.kind() != io::ErrorKind::AlreadyExists
    {
        return Err(no_access());
    }
    // A program that only asks which options there are names no directory that could be made.
    // The number is zero where the session's leader is outside this namespace of processes, which rustix takes for
    // impossible.
    let session = nix::unistd::getsid(None).map_or(0, nix::unistd::Pid::as_raw);
    config.record("start", json!({"arguments": arguments, "session": session}));
    match config.start_fault() {
        None | Some(Fault::Garbage | Fault::Endless) => {}
        Some(Fault::Hung) => hang(),
        Some(Fault::Dies) => std::process::abort(),
        Some(Fault::Refuse) => return Err("Failed to start the MPS control daemon\n".to_owned()),
    }
    let file = |name| {
        let mut options = File::options();
        options.write(true).create(true).mode(0o666).open(pipe.join(name))
    };
    let lock = file(CONTROL_LOCK).map_err(|_| no_access())?;
    umask(mask);
    let whole = libc::flock {
        l_type: libc::F_WRLCK as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: 0,
        l_len: 0,
        l_pid: 0,
    };
    if fcntl(&lock, FcntlArg::F_SETLK(&whole)).is_err() {
        return Err("An instance of this daemon is already running\n".to_owned());
    }
    if config.faults.stubborn {
        // SAFETY: to ignore a signal calls nothing.
        #[allow(unsafe_code)]
        unsafe { signal(Signal::SIGTERM, SigHandler::SigIgn) }.map_err(|_| String::new())?;
    }
    let fifo = pipe.join(LOG);
    // It may be left of a daemon before.
    let _ = fs::remove_file(&fifo);
    let _ = mknodat(CWD, &fifo, FileType::Fifo, rustix::fs::Mode::from_raw_mode(0o777), 0);
    let _ = fs::set_permissions(&fifo, Permissions::from_mode(0o777));
    let in_background = std::env::var_os(BACKGROUND).is_some();
    let target: Box<dyn Write + Send> = match in_background {
        true => {
            let _ = File::create(logs.join("server.log"));
            File::options()
                .append(true)
                .create(true)
                .open(logs.join("control.log"))
                .map_or_else(|_| Box::new(io::sink()) as Box<dyn Write + Send>, |file| Box::new(file))
        }
        false => Box::new(io::stdout()),
    };
    let mut log = Log::open(&fifo, left, target).map_err(|_| no_access())?;
    log.line(&format!(
        "Starting control daemon using socket {}",
        pipe.join(CONTROL).display()
    ));
    log.line(&format!(
        "To connect CUDA applications to this daemon, set env CUDA_MPS_PIPE_DIRECTORY={}",
        pipe.display()
    ));
    if version.major >= 580 {
        log.line("CUDA MPS Control binary version: 13000");
    }
    let privileged = listening(&pipe.join(CONTROL_PRIVILEGED))?;
    let control = listening(&pipe.join(CONTROL))?;
    let _ = fs::set_permissions(pipe.join(CONTROL), Permissions::from_mode(0o666));
    if version.has_pid_file {
        umask(Bits::empty());
        let written = file(PID_FILE).and_then(|mut file| file.write_all(std::process::id().to_string().as_bytes()));
        umask(mask);
        written.map_err(|_| String::new())?;
    }
    if in_background {
        let _ = io::stdout().write_all(b"\0");
        let _ = io::stdout().flush();
        let null = File::options()
            .write(true)
            .open("/dev/null")
            .map_err(|_| String::new())?;
        let _ = nix::unistd::dup2_stdout(&null);
    }
    let daemon = Daemon::new(version, multi_user, log);
    let code = daemon.serve(&control, &privileged);
    drop(lock);
    Ok(code)
}

/// A socket that the real daemon fails to bind is the end of it, without a word.
fn listening(path: &Path) -> Result<OwnedFd, String> {
    if path.as_os_str().len() > LONGEST_SOCKET {
        return Err(String::new());
    }
    let _ = fs::remove_file(path);
    let socket = protocol::socket().map_err(|_| String::new())?;
    let address = SocketAddrUnix::new(path).map_err(|_| String::new())?;
    bind(&socket, &address).map_err(|_| String::new())?;
    listen(&socket, 128).map_err(|_| String::new())?;
    Ok(socket)
}
