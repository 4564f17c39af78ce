//! The packets between a daemon and those that connect to it, as NVIDIA's programs exchange them: a greeting of the
//! daemon, the credentials of the other side, and a number that says what it is. Until it has said that, the daemon
//! waits for it alone, and serves nobody else.

use rustix::io::Result;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType, connect, recv, send, socket_with,
};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

/// What the daemon says first.
pub(crate) const HELLO: &[u8] = b"OUTBHELL\0";

/// What the other side answers. The kernel adds its credentials.
pub(crate) const CREDENTIALS: &[u8] = b"OUTBCRED\0";

/// A CUDA process. What follows is of the fake alone: the limits as text, and `terminated`.
pub(crate) const CLIENT: u32 = 2;

/// The front end. Each command is a packet with its length (eight bytes) and a packet with its text and a zero; the
/// length 0 ends the connection.
pub(crate) const UI: u32 = 4;

/// The first number of a packet with a piece of an answer.
pub(crate) const TEXT: u32 = 0;

/// The first number of the daemon's last packet. The second one is the front end's exit code.
pub(crate) const END: u32 = 1;

pub(crate) fn socket() -> Result<OwnedFd> {
    socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
}

/// Connects as what `kind` says.
pub(crate) fn connected(path: &Path, kind: u32) -> Result<OwnedFd> {
    let socket = socket()?;
    connect(&socket, &SocketAddrUnix::new(path)?)?;
    let _hello = receive(&socket);
    put(&socket, CREDENTIALS)?;
    put(&socket, &kind.to_ne_bytes())?;
    Ok(socket)
}

/// Sends one packet.
pub(crate) fn put(socket: impl AsFd, packet: &[u8]) -> Result<()> {
    send(socket, packet, SendFlags::NOSIGNAL).map(drop)
}

/// Sends a number and what follows it.
pub(crate) fn put_numbered(socket: impl AsFd, number: u32, rest: &[u8]) -> Result<()> {
    put(socket, &[&number.to_ne_bytes(), rest].concat())
}

/// Receives one packet; `None` if the other side has ended the connection.
pub(crate) fn receive(socket: impl AsFd) -> Option<Vec<u8>> {
    let mut buffer = vec![0; 1 << 16];
    match recv(socket, &mut buffer[..], RecvFlags::empty()) {
        Ok((_, 0)) | Err(_) => None,
        Ok((_, read)) => {
            buffer.truncate(read);
            Some(buffer)
        }
    }
}

/// The number that a packet begins with, and what follows.
pub(crate) fn numbered(packet: &[u8]) -> Option<(u32, &[u8])> {
    let (number, rest) = packet.split_first_chunk::<4>()?;
    Some((u32::from_ne_bytes(*number), rest))
}
