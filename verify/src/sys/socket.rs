//! The socket of the MPS daemon.

use super::c;
use core::ffi::{c_int, c_uint};

const UNIX: c_int = 1;
const STREAM: c_int = 1;
const SEQPACKET: c_int = 5;
const CLOEXEC: c_int = 0o2_000_000;
const SOL_SOCKET: c_int = 1;
const SO_SNDTIMEO: c_int = 21;
/// The kernel's error for a socket of another kind.
const PROTOTYPE: c_int = 91;

/// `struct sockaddr_un`.
#[repr(C)]
struct Address {
    family: u16,
    path: [u8; 108],
}

/// `struct timeval` of a machine with 64 bits.
#[repr(C)]
struct Time {
    seconds: i64,
    microseconds: i64,
}

/// Connects to the socket at `path` as a client of MPS does, and disconnects.
///
/// # Errors
/// Returns the number of the error; 36 (ENAMETOOLONG) for a path that no socket can have.
pub fn connect(path: &[&[u8]]) -> Result<(), c_int> {
    let mut address = Address {
        family: UNIX as u16,
        path: [0; 108],
    };
    let bytes = path.iter().flat_map(|part| part.iter());
    if bytes.clone().count() >= address.path.len() {
        return Err(36);
    }
    address.path.iter_mut().zip(bytes).for_each(|(to, from)| *to = *from);
    for kind in [SEQPACKET, STREAM] {
        match connect_as(kind, &address) {
            Err(PROTOTYPE) => {}
            answer => return answer,
        }
    }
    Err(PROTOTYPE)
}

fn connect_as(kind: c_int, address: &Address) -> Result<(), c_int> {
    // How long a connection waits if the daemon's queue is full.
    let patience = Time {
        seconds: 3,
        microseconds: 0,
    };
    // SAFETY: the pointers are to structures of the lengths that are given, and the descriptor is closed once.
    unsafe {
        let descriptor = c::socket(UNIX, kind | CLOEXEC, 0);
        if descriptor < 0 {
            return Err(*c::__errno_location());
        }
        let length = size_of::<Time>() as c_uint;
        c::setsockopt(
            descriptor,
            SOL_SOCKET,
            SO_SNDTIMEO,
            (&raw const patience).cast(),
            length,
        );
        let length = size_of::<Address>() as c_uint;
        let answer = match c::connect(descriptor, (&raw const *address).cast(), length) {
            0 => Ok(()),
            _ => Err(*c::__errno_location()),
        };
        c::close(descriptor);
        answer
    }
}
