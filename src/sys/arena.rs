//! Memory for a program that ends after a millisecond.
//!
//! A hook takes a few hundred KiB in small pieces, fills them once, and ends. With a general allocator most of its time goes
//! into page faults, one for every 4 KiB. So the first [`SIZE`] bytes come from one piece of memory, which the kernel makes
//! available many pages at a time, and which is taken from its beginning to its end. What is given back is used again only
//! if it was the last to be taken. Whatever does not fit comes from the system's allocator and is given back to it, so an
//! image that makes the hook allocate again and again cannot make it grow by more than it could before.

#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::UnsafeCell;
use std::ptr;
use std::sync::atomic::{AtomicUsize, Ordering};

use nix::libc;

/// What an image with 3,000 libraries needs.
const SIZE: usize = 1 << 20;
/// How much is made available at once: a page that is not used costs a tenth of a page fault.
const STEP: usize = 32 << 10;
/// `MADV_POPULATE_WRITE` (Linux 5.14, madvise(2)): makes pages available without a page fault for each. The libc crate
/// has it for some targets only.
const POPULATE_WRITE: libc::c_int = 23;

/// The memory itself. Aligned to pages, because pages are made available.
#[repr(C, align(4096))]
struct Memory(UnsafeCell<[u8; SIZE]>);

/// An allocator for `#[global_allocator]`.
pub struct Arena {
    memory: Memory,
    /// How much of the memory is taken.
    taken: AtomicUsize,
    /// How much of it was made available. Only ever too small, which costs a system call.
    available: AtomicUsize,
}

// SAFETY: the memory is reached only through pointers that `alloc` gave out, and no two of them overlap: `taken` changes
// by atomic exchanges alone.
unsafe impl Sync for Arena {}

impl Arena {
    /// An arena of which nothing is taken.
    #[must_use]
    #[allow(clippy::new_without_default, reason = "a constant for a static")]
    pub const fn new() -> Arena {
        Arena {
            memory: Memory(UnsafeCell::new([0; SIZE])),
            taken: AtomicUsize::new(0),
            available: AtomicUsize::new(0),
        }
    }

    fn start(&self) -> *mut u8 {
        self.memory.0.get().cast()
    }

    /// Where in the memory a pointer is, if it is in it.
    fn offset(&self, pointer: *mut u8) -> Option<usize> {
        let offset = pointer.addr().checked_sub(self.start().addr())?;
        (offset < SIZE).then_some(offset)
    }

    /// Takes the bytes from `from` to `to`, if nothing beyond `from` is taken.
    fn exchange(&self, from: usize, to: usize) -> bool {
        let exchanged = self
            .taken
            .compare_exchange(from, to, Ordering::AcqRel, Ordering::Relaxed)
            .is_ok();
        if exchanged && to > self.available.load(Ordering::Relaxed) {
            self.make_available(to);
        }
        exchanged
    }

    fn make_available(&self, to: usize) {
        let from = self.available.load(Ordering::Relaxed);
        let to = to.next_multiple_of(STEP).min(SIZE);
        // SAFETY: these pages are within the memory, and what is in them stays as it is. Where the kernel does not know
        // this advice they come one by one, when they are used.
        unsafe { libc::madvise(self.start().add(from).cast(), to.saturating_sub(from), POPULATE_WRITE) };
        self.available.fetch_max(to, Ordering::Relaxed);
    }

    /// Takes memory for `layout`, unless too little is left.
    fn take(&self, layout: Layout) -> Option<*mut u8> {
        loop {
            let taken = self.taken.load(Ordering::Relaxed);
            let padding = self.start().wrapping_add(taken).align_offset(layout.align());
            let begin = taken.checked_add(padding)?;
            let end = begin.checked_add(layout.size()).filter(|end| *end <= SIZE)?;
            if self.exchange(taken, end) {
                // SAFETY: `begin` is at most `end`, which is within the memory or at its end.
                return Some(unsafe { self.start().add(begin) });
            }
        }
    }
}

// SAFETY: what `take` gives is aligned, within the memory, and nobody else's until `dealloc`, which makes only the last
// piece free again. Everything else is the system allocator's, by the same pointers and layouts.
unsafe impl GlobalAlloc for Arena {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promises about `layout` are those that the system's allocator wants.
        self.take(layout).unwrap_or_else(|| unsafe { System.alloc(layout) })
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        match self.offset(pointer) {
            Some(begin) => {
                self.exchange(begin + layout.size(), begin);
            }
            // SAFETY: it is not the arena's, so the system's allocator gave it.
            None => unsafe { System.dealloc(pointer, layout) },
        }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        let Some(begin) = self.offset(pointer) else {
            // SAFETY: it is not the arena's, so the system's allocator gave it.
            return unsafe { System.realloc(pointer, layout, size) };
        };
        let (end, new_end) = (begin + layout.size(), begin.saturating_add(size));
        if new_end <= SIZE && self.exchange(end, new_end) || size <= layout.size() {
            return pointer;
        }
        // SAFETY: the caller promises that `size` is not zero and that it does not overflow with this alignment.
        let new = unsafe { self.alloc(Layout::from_size_align_unchecked(size, layout.align())) };
        if !new.is_null() {
            // SAFETY: both are valid for the smaller of the two sizes, which is the old one, and they do not overlap.
            unsafe { ptr::copy_nonoverlapping(pointer, new, layout.size()) };
        }
        new
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout(size: usize, align: usize) -> Layout {
        Layout::from_size_align(size, align).unwrap()
    }

    /// Takes and fills pieces of every size and alignment until the system's allocator serves too, then checks that nobody
    /// wrote into another's.
    #[test]
    fn no_two_pieces_overlap() {
        static ARENA: Arena = Arena::new();
        let arena = &ARENA;
        let mut pieces = Vec::new();
        for number in 0..4000_usize {
            let layout = layout(number * 37 % 700 + 1, 1 << (number % 9));
            // SAFETY: the size is not zero.
            let pointer = unsafe { arena.alloc(layout) };
            assert_eq!(pointer.addr() % layout.align(), 0);
            // SAFETY: the piece has this size.
            unsafe { pointer.write_bytes(number as u8, layout.size()) };
            pieces.push((pointer, layout, number as u8));
        }
        let own = pieces.iter().filter(|piece| arena.offset(piece.0).is_some()).count();
        assert!(own > 1000 && own < pieces.len(), "{own}");
        for (pointer, layout, byte) in pieces {
            // SAFETY: the piece has this size, and was filled.
            let bytes = unsafe { std::slice::from_raw_parts(pointer, layout.size()) };
            assert!(bytes.iter().all(|other| *other == byte));
            // SAFETY: it came from this allocator with this layout.
            unsafe { arena.dealloc(pointer, layout) };
        }
    }

    #[test]
    fn a_piece_grows_in_its_place_only_while_it_is_the_last() {
        static ARENA: Arena = Arena::new();
        let arena = &ARENA;
        // SAFETY: sizes that are not zero; each pointer with the layout that it has by then.
        unsafe {
            let first = arena.alloc(layout(8, 8));
            first.write_bytes(7, 8);
            assert_eq!(arena.realloc(first, layout(8, 8), 64), first);
            let second = arena.alloc(layout(8, 8));
            assert_eq!(second, first.add(64));
            let moved = arena.realloc(first, layout(64, 8), 128);
            assert_eq!((moved, *moved, *moved.add(7)), (second.add(8), 7, 7));
            // Beyond the arena, and back: what was there comes along.
            let large = arena.realloc(moved, layout(128, 8), 2 * SIZE);
            assert!(arena.offset(large).is_none());
            assert_eq!(*large, 7);
            arena.dealloc(large, layout(2 * SIZE, 8));
        }
    }

    #[test]
    fn the_last_piece_is_used_again() {
        static ARENA: Arena = Arena::new();
        let arena = &ARENA;
        // SAFETY: sizes that are not zero; each pointer with the layout that it has.
        unsafe {
            let first = arena.alloc(layout(100, 4));
            arena.dealloc(first, layout(100, 4));
            assert_eq!(arena.alloc(layout(50, 1)), first);
            // What is given back zeroed was used before.
            first.write_bytes(1, 50);
            arena.dealloc(first, layout(50, 1));
            let zeroed = arena.alloc_zeroed(layout(50, 1));
            assert!((zeroed, *zeroed) == (first, 0));
        }
    }
}
