//! Standard input.

use super::c;
use core::ffi::c_int;

/// `EINTR`.
const INTERRUPTED: c_int = 4;
/// `POLLIN`.
const READABLE: i16 = 1;

/// `struct pollfd`.
#[repr(C)]
struct Descriptor {
    descriptor: c_int,
    events: i16,
    happened: i16,
}

/// Reads what is there, and waits for something. Returns how much that was: 0 at the end, and where nothing can be
/// read.
pub fn read(bytes: &mut [u8]) -> usize {
    loop {
        // SAFETY: the pointer and the length are those of a slice.
        let read = unsafe { c::read(0, bytes.as_mut_ptr(), bytes.len()) };
        match usize::try_from(read) {
            Ok(read) => return read,
            // SAFETY: the pointer is that of the thread's own number.
            Err(_) if unsafe { *c::__errno_location() } == INTERRUPTED => {}
            Err(_) => return 0,
        }
    }
}

/// Whether [`read`] would return at once, now or within these milliseconds: there is something, or it is the end.
pub fn is_readable(milliseconds: i32) -> bool {
    let mut descriptor = Descriptor {
        descriptor: 0,
        events: READABLE,
        happened: 0,
    };
    // SAFETY: `poll(struct pollfd *, nfds_t, int)`, with one structure.
    let count = unsafe { c::poll((&raw mut descriptor).cast(), 1, milliseconds) };
    count > 0 && descriptor.happened != 0
}
