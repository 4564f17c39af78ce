//! Numbers that programs in the kernel write for this process (the kernel's "BPF ring buffer").

#![allow(unsafe_code)]

use super::bpf::make_ring;
use nix::libc;
use nix::sys::mman::{MapFlags, ProtFlags, mmap, munmap};
use std::ffi::c_void;
use std::io;
use std::num::NonZeroUsize;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Bits of the length of a record: it is still being written; it is to be passed over.
const BUSY: u32 = 1 << 31;
const DISCARDED: u32 = 1 << 30;

/// What is before a record: its length, and a number for the kernel.
const HEADER: u64 = 8;

/// A buffer of one page, in which each record is a number of 64 bits. A record for which there is no room is lost. Its
/// descriptor can be read from when there is one.
#[derive(Debug)]
pub(crate) struct Ring {
    descriptor: OwnedFd,
    /// How far this process has read.
    read: Mapping,
    /// How far programs have written, and from the next page on the buffer, twice.
    written: Mapping,
    page: usize,
}

impl Ring {
    /// Makes it.
    ///
    /// # Errors
    /// Returns the kernel's error.
    pub(crate) fn new() -> io::Result<Self> {
        // SAFETY: takes a number.
        let page = usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096);
        let descriptor = make_ring(page as u32)?;
        let read = Mapping::new(&descriptor, 0, page, ProtFlags::PROT_READ | ProtFlags::PROT_WRITE)?;
        let written = Mapping::new(&descriptor, page, 3 * page, ProtFlags::PROT_READ)?;
        Ok(Self {
            descriptor,
            read,
            written,
            page,
        })
    }

    /// Takes what was written.
    pub(crate) fn take(&mut self) -> Vec<u64> {
        // SAFETY: both pages begin with a number that is read and written as a whole, and are mapped as long as this.
        let (read, written) = unsafe { (self.read.at::<AtomicU64>(0), self.written.at::<AtomicU64>(0)) };
        let mut position = read.load(Ordering::Relaxed);
        let mut numbers = Vec::new();
        while position < written.load(Ordering::Acquire) {
            let place = self.page + (position as usize & (self.page - 1));
            // SAFETY: the place is in the first copy of the buffer, and a record may continue in the second one, which
            // is mapped behind it. A length and a number of this size begin at a multiple of eight.
            let (length, number) = unsafe {
                let length = self.written.at::<AtomicU32>(place).load(Ordering::Acquire);
                (length, self.written.at::<AtomicU64>(place + HEADER as usize))
            };
            if length & BUSY != 0 {
                break;
            }
            if length & DISCARDED == 0 {
                numbers.push(number.load(Ordering::Relaxed));
            }
            let bytes = u64::from(length & !(BUSY | DISCARDED));
            position += (bytes + HEADER).next_multiple_of(8);
            read.store(position, Ordering::Release);
        }
        numbers
    }
}

impl AsFd for Ring {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

/// Memory that is shared with the kernel.
#[derive(Debug)]
struct Mapping {
    start: NonNull<c_void>,
    length: usize,
}

// SAFETY: the memory belongs to this value, and is read and written by atomic instructions alone.
unsafe impl Send for Mapping {}

impl Mapping {
    fn new(descriptor: &OwnedFd, offset: usize, length: usize, access: ProtFlags) -> io::Result<Self> {
        let whole = NonZeroUsize::new(length).ok_or(io::ErrorKind::InvalidInput)?;
        let offset = libc::off_t::try_from(offset).map_err(|_| io::ErrorKind::InvalidInput)?;
        // SAFETY: a new mapping at an address that the kernel chooses.
        let start = unsafe { mmap(None, whole, access, MapFlags::MAP_SHARED, descriptor, offset)? };
        Ok(Self { start, length })
    }

    /// # Safety
    /// A `T` must lie at `offset`, all of it in the mapping.
    unsafe fn at<T>(&self, offset: usize) -> &T {
        // SAFETY: by this function's contract.
        unsafe { self.start.byte_add(offset).cast::<T>().as_ref() }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping is this value's own, and nothing refers to it.
        let _ = unsafe { munmap(self.start, self.length) };
    }
}
