//! A server process. The daemon starts one at the first client; it only exists.

use crate::config::hang;
use nix::sys::signal::Signal;
use std::process::{Child, Command, ExitCode, Stdio};

/// What `nvidia-cuda-mps-server` does: it waits until it is ended. A server outlives a control daemon that was killed.
pub(crate) fn wait() -> ExitCode {
    hang()
}

/// Starts the server program, which must be in the directory of this one.
pub(crate) fn start() -> Child {
    let own = std::env::current_exe().unwrap();
    let server = own.with_file_name("nvidia-cuda-mps-server");
    let mut command = match server.exists() {
        true => Command::new(server),
        false => panic!("{}: not found", server.display()),
    };
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.spawn().expect("nvidia-cuda-mps-server")
}

/// Ends a server.
pub(crate) fn end(mut server: Child) {
    let pid = nix::unistd::Pid::from_raw(server.id().cast_signed());
    let _ = nix::sys::signal::kill(pid, Signal::SIGKILL);
    let _ = server.wait();
}
