//! Room for many records, which is there before the first of them: to get memory takes time.

use super::c;
use core::ffi::c_int;

/// `PROT_READ` and `PROT_WRITE`.
const READ_AND_WRITE: c_int = 3;
/// `MAP_PRIVATE`, `MAP_ANONYMOUS` and `MAP_POPULATE`: all pages are there at once.
const FLAGS: c_int = 0x2 | 0x20 | 0x8000;

/// Types of which zeros are a value, and which need no drop.
///
/// # Safety
/// All bytes may be 0.
pub unsafe trait Record: Copy + 'static {}
// SAFETY: a number.
unsafe impl Record for u64 {}
// SAFETY: numbers.
unsafe impl<const N: usize> Record for [u64; N] {}

/// Records, in the order in which they were pushed.
pub struct Records<T: Record> {
    room: &'static mut [T],
    used: usize,
}

impl<T: Record> Records<T> {
    /// Room for `count` records. `None` if the kernel has no memory for them.
    pub fn new(count: usize) -> Option<Self> {
        let size = count.checked_mul(size_of::<T>())?;
        // SAFETY: a mapping of its own that the kernel places, and that is never unmapped. It is aligned to a page and
        // full of zeros, which are values of the type.
        let room = unsafe {
            let start = c::mmap(core::ptr::null_mut(), size, READ_AND_WRITE, FLAGS, -1, 0);
            match start.addr() {
                usize::MAX => return None,
                _ => core::slice::from_raw_parts_mut(start.cast::<T>(), count),
            }
        };
        Some(Self { room, used: 0 })
    }

    /// Adds a record. Returns false if there is no room for it.
    #[must_use]
    pub fn push(&mut self, record: T) -> bool {
        let Some(place) = self.room.get_mut(self.used) else {
            return false;
        };
        *place = record;
        self.used += 1;
        true
    }

    /// The records so far.
    pub fn all(&self) -> &[T] {
        self.room.get(..self.used).unwrap_or_default()
    }
}
