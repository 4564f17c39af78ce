//! Who is at the other end of a local socket.

use nix::sys::socket::{getsockopt, sockopt};
use std::io;
use std::os::fd::AsFd;

/// A process at the other end of a local socket, as it was when it connected or began to listen (unix(7), SO_PEERCRED).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Peer {
    /// Its number in the pid namespace of this process; `None` if it has none there.
    pub pid: Option<u32>,
    /// Its user.
    pub uid: u32,
}

impl Peer {
    /// The process at the other end of `socket`.
    ///
    /// # Errors
    /// Returns the kernel's error if it is not a connected local socket.
    pub fn of(socket: &impl AsFd) -> io::Result<Self> {
        let known = getsockopt(socket, sockopt::PeerCredentials)?;
        Ok(Self {
            // Zero means a process of a pid namespace that is not visible from here.
            pid: u32::try_from(known.pid()).ok().filter(|pid| *pid != 0),
            uid: known.uid(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixStream;

    #[test]
    fn both_ends_of_a_pair_are_this_process() {
        let (one, other) = UnixStream::pair().unwrap();
        let me = Peer {
            pid: Some(std::process::id()),
            uid: nix::unistd::getuid().as_raw(),
        };
        assert_eq!((Peer::of(&one).unwrap(), Peer::of(&other).unwrap()), (me, me));
        assert!(Peer::of(&std::fs::File::open("/dev/null").unwrap()).is_err());
    }
}
