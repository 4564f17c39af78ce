//! A server process. The daemon starts one at the first client; it only exists.

use crate::config::{Config, hang};
use std::io::{Read, Write};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, ExitCode, Stdio};
use tranche_core::mps::version::SERVER;

/// The name of this program where the server was not found: it ends at once, as the real daemon's child does.
pub(crate) const MISSING: &str = "server-not-found";

/// What `nvidia-cuda-mps-server` does: it waits until it is ended. A server outlives a control daemon that was killed.
/// With the fault `server: refuse`, it ends as one does that finds no device.
pub(crate) fn wait(config: &Config) -> ExitCode {
    if config.server_fails() {
        return ExitCode::FAILURE;
    }
    let _ = std::io::stdout().write_all(READY);
    let _ = std::io::stdout().flush();
    hang()
}

/// What a server that runs writes to its standard output.
const READY: &[u8] = b"r";

/// Starts the server program that the daemon's PATH finds, and says whether it runs. Without a PATH that is /bin and
/// /usr/bin (execvp(3)).
pub(crate) fn start() -> std::io::Result<(Child, bool)> {
    let path = std::env::var("PATH").unwrap_or_else(|_| "/bin:/usr/bin".to_owned());
    let mut places = path.split(':').map(|place| PathBuf::from(place).join(SERVER));
    let own = std::env::current_exe()?;
    let found = places.find(|place| place.is_file());
    let mut command = match &found {
        Some(server) => Command::new(server),
        None => Command::new(&own),
    };
    if found.is_none() {
        command.arg0(MISSING);
    }
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    let mut child = command.spawn()?;
    let mut said = [0; 1];
    let is_ready = child
        .stdout
        .take()
        .is_some_and(|mut stdout| stdout.read_exact(&mut said).is_ok());
    Ok((child, is_ready))
}

/// Ends a server.
pub(crate) fn end(mut server: Child) {
    let _ = server.kill();
    let _ = server.wait();
}
