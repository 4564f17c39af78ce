//! Messages to a service manager (sd_notify(3)): one datagram, to the socket that NOTIFY_SOCKET names. The crate
//! sd-notify supports no abstract names (`@NAME`).

use std::ffi::OsStr;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// Sends `state` to the service manager that started this process, if one did.
///
/// # Errors
/// Returns an error if NOTIFY_SOCKET is set and nothing can be sent there.
pub fn notify(state: &str) -> io::Result<()> {
    match std::env::var_os("NOTIFY_SOCKET") {
        Some(name) if !name.is_empty() => notify_at(&name, state),
        _ => Ok(()),
    }
}

fn notify_at(name: &OsStr, state: &str) -> io::Result<()> {
    let address = match name.as_bytes().strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name)?,
        None => SocketAddr::from_pathname(name)?,
    };
    UnixDatagram::unbound()?.send_to_addr(state.as_bytes(), &address)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_manager_gets_the_state_at_a_path_and_at_an_abstract_name() {
        let top = tempfile::tempdir().unwrap();
        let path = top.path().join("notify");
        let abstract_name = format!("tranche-test-{}", std::process::id());
        let by_path = UnixDatagram::bind(&path).unwrap();
        let address = SocketAddr::from_abstract_name(&abstract_name).unwrap();
        let by_name = UnixDatagram::bind_addr(&address).unwrap();
        for (socket, name) in [
            (by_path, path.into_os_string()),
            (by_name, format!("@{abstract_name}").into()),
        ] {
            notify_at(&name, "READY=1").unwrap();
            let mut bytes = [0; 64];
            let read = socket.recv(&mut bytes).unwrap();
            assert_eq!(&bytes[..read], b"READY=1");
        }
        assert!(notify_at(OsStr::new("/nowhere/notify"), "READY=1").is_err());
    }
}
