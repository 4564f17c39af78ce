//! Connections that do not speak as a program of NVIDIA does, or that say nothing.

use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType, connect, recv, send, socket_with,
};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::Duration;

/// What the other side of a daemon says first.
pub(crate) const CREDENTIALS: &[u8] = b"OUTBCRED\0";

/// What a front end says then.
pub(crate) const FRONT_END: [u8; 4] = 4_u32.to_ne_bytes();

/// What a CUDA process says.
pub(crate) const CLIENT: [u8; 4] = 2_u32.to_ne_bytes();

/// Connects to a socket, and sends these packets.
pub(crate) fn connected(socket: &Path, packets: &[&[u8]]) -> OwnedFd {
    let own = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap();
    let patience = Some(Duration::from_secs(1));
    rustix::net::sockopt::set_socket_timeout(&own, rustix::net::sockopt::Timeout::Recv, patience).unwrap();
    connect(&own, &SocketAddrUnix::new(socket).unwrap()).unwrap();
    for packet in packets {
        // It may have been closed because of the packet before.
        let _ = send(&own, packet, SendFlags::NOSIGNAL);
    }
    own
}

/// The next packet: its text, `closed`, or `nothing` after a second.
pub(crate) fn heard(socket: &OwnedFd) -> String {
    let mut buffer = [0; 256];
    match recv(socket, &mut buffer[..], RecvFlags::empty()) {
        Ok((_, 0)) | Err(rustix::io::Errno::CONNRESET) => "closed".to_owned(),
        Ok((_, read)) => format!("{:?}", String::from_utf8_lossy(&buffer[..read])),
        Err(_) => "nothing".to_owned(),
    }
}
