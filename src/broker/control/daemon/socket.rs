//! Who listens in a pipe directory.

use crate::peer::Peer;
use rustix::io::Errno;
use std::path::Path;
use tranche_core::mps;

/// Who listens on a socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Listening {
    /// This process, which began to listen.
    Peer(Peer),
    /// Somebody, whose queue is full.
    Full,
    /// Nobody, or it cannot be reached: the kernel's error.
    Nobody(Errno),
}

/// Connects as a client does, and sends nothing.
pub(super) fn listening(pipe: &Path) -> Listening {
    let peer = mps::connect_to(pipe, None)
        .and_then(|socket| Peer::of(&socket).map_err(|e| Errno::from_io_error(&e).unwrap_or(Errno::IO)));
    match peer {
        Ok(peer) => Listening::Peer(peer),
        Err(Errno::AGAIN) => Listening::Full,
        Err(error) => Listening::Nobody(error),
    }
}
