//! The only `unsafe` code of the program: its beginning, the C library, and CUDA's library.

pub(crate) mod cuda;

use core::ffi::{CStr, c_char, c_int, c_uint, c_void};
use core::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

mod c {
    use super::*;

    // Declared as in glibc's headers. build.rs lists the same names.
    unsafe extern "C" {
        pub(super) fn __errno_location() -> *mut c_int;
        pub(super) fn _exit(code: c_int) -> !;
        pub(super) fn abort() -> !;
        pub(super) fn alarm(seconds: c_uint) -> c_uint;
        pub(super) fn close(descriptor: c_int) -> c_int;
        pub(super) fn connect(descriptor: c_int, address: *const c_void, length: c_uint) -> c_int;
        pub(super) fn dlerror() -> *const c_char;
        pub(super) fn dlopen(name: *const c_char, mode: c_int) -> *mut c_void;
        pub(super) fn dlsym(library: *mut c_void, name: *const c_char) -> *mut c_void;
        pub(super) fn getuid() -> c_uint;
        pub(super) fn readlink(path: *const c_char, target: *mut u8, size: usize) -> isize;
        pub(super) fn setsockopt(
            descriptor: c_int,
            level: c_int,
            option: c_int,
            value: *const c_void,
            length: c_uint,
        ) -> c_int;
        pub(super) fn signal(number: c_int, handler: extern "C" fn(c_int)) -> usize;
        pub(super) fn socket(family: c_int, kind: c_int, protocol: c_int) -> c_int;
        pub(super) fn unlink(path: *const c_char) -> c_int;
        pub(super) fn write(descriptor: c_int, bytes: *const u8, count: usize) -> isize;
    }
}

// What the kernel starts: it calls `__libc_start_main(main, argc, argv, init, fini, rtld_fini, stack_end)`. The program
// has no constructors, so `init` and `fini` are null.
#[cfg(target_arch = "x86_64")]
core::arch::global_asm!(
    ".globl _start",
    "_start:",
    "xor ebp, ebp",
    "mov r9, rdx",
    "pop rsi",
    "mov rdx, rsp",
    "and rsp, -16",
    "push rax",
    "push rsp",
    "xor r8d, r8d",
    "xor ecx, ecx",
    "lea rdi, [rip + {main}]",
    "call [rip + __libc_start_main@GOTPCREL]",
    "hlt",
    main = sym main,
);

#[cfg(target_arch = "aarch64")]
core::arch::global_asm!(
    ".globl _start",
    "_start:",
    "mov x29, #0",
    "mov x30, #0",
    "mov x5, x0",
    "ldr x1, [sp]",
    "add x2, sp, #8",
    "mov x6, sp",
    "mov x3, #0",
    "mov x4, #0",
    "adrp x0, {main}",
    "add x0, x0, :lo12:{main}",
    "bl __libc_start_main",
    "brk #1",
    main = sym main,
);

extern "C" fn main(_: c_int, arguments: *const *const c_char, environment: *const *const c_char) -> c_int {
    // SAFETY: both are the arrays that the C library passes to `main`.
    let (arguments, environment) = unsafe { (Strings::new(arguments), Strings::new(environment)) };
    crate::run(arguments, environment)
}

#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    // SAFETY: abort has no preconditions.
    unsafe { c::abort() }
}

/// Strings of the program's start: its arguments, or its environment.
#[derive(Clone, Copy)]
pub(crate) struct Strings(*const *const c_char);

impl Strings {
    /// The strings of an array.
    ///
    /// # Safety
    /// The array ends with a null pointer, and it and its strings stay as they are while the program runs.
    unsafe fn new(array: *const *const c_char) -> Self {
        Self(array)
    }
}

impl Iterator for Strings {
    type Item = &'static [u8];

    fn next(&mut self) -> Option<&'static [u8]> {
        // SAFETY: by `Strings::new`, the pointer is to an entry of the array, which ends with a null pointer, and no
        // step is made beyond that.
        let entry = unsafe { *self.0 };
        if entry.is_null() {
            return None;
        }
        // SAFETY: the entry is not the last one, so another follows it, and it is a C string that is never freed.
        unsafe {
            self.0 = self.0.add(1);
            Some(CStr::from_ptr(entry).to_bytes())
        }
    }
}

/// A standard stream.
#[derive(Clone, Copy)]
pub(crate) enum Stream {
    Output = 1,
    Error = 2,
}

/// Writes all of `bytes`. Returns false if that failed.
pub(crate) fn write_all(stream: Stream, mut bytes: &[u8]) -> bool {
    while !bytes.is_empty() {
        // SAFETY: the pointer and the length are those of a slice.
        let written = unsafe { c::write(stream as c_int, bytes.as_ptr(), bytes.len()) };
        match usize::try_from(written) {
            Ok(written) if written > 0 => bytes = bytes.get(written..).unwrap_or_default(),
            _ => return false,
        }
    }
    true
}

/// The id of the user that the program runs as.
pub(crate) fn uid() -> u32 {
    // SAFETY: getuid has no preconditions.
    unsafe { c::getuid() }
}

/// Removes the program's own file. Returns false if that failed.
pub(crate) fn remove_own_file() -> bool {
    let mut path = [0_u8; 4096];
    // SAFETY: the buffer is one byte longer than what may be written, and the path is a C string.
    let length = unsafe { c::readlink(c"/proc/self/exe".as_ptr(), path.as_mut_ptr(), path.len() - 1) };
    // SAFETY: readlink wrote a path into the buffer, and the byte after it is still 0.
    length > 0 && unsafe { c::unlink(path.as_ptr().cast()) } == 0
}

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
pub(crate) fn connect(path: &[&[u8]]) -> Result<(), c_int> {
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

const SIGALRM: c_int = 14;
/// What is being asked, as a C string; null before the first question.
static STEP: AtomicPtr<c_char> = AtomicPtr::new(core::ptr::null_mut());
static IS_JSON: AtomicBool = AtomicBool::new(false);

/// Ends the program with exit code 1 and a line that names the current step, if it still runs after `seconds`, because
/// a call of CUDA that does not return cannot be interrupted. 0 takes that back.
pub(crate) fn end_after(seconds: u32, is_json: bool) {
    IS_JSON.store(is_json, Ordering::Relaxed);
    // SAFETY: the handler calls only functions that may be called in one (signal-safety(7)).
    unsafe {
        c::signal(SIGALRM, late);
        c::alarm(seconds);
    }
}

/// Says what is being asked from now on.
pub(crate) fn step(name: &'static CStr) {
    STEP.store(name.as_ptr().cast_mut(), Ordering::Relaxed);
}

/// Handles SIGALRM.
extern "C" fn late(_: c_int) {
    let step = STEP.load(Ordering::Relaxed);
    let step = match step.is_null() {
        true => c"the program",
        // SAFETY: only `step` stores here, and what it stores lives as long as the program.
        false => unsafe { CStr::from_ptr(step) },
    };
    let (before, after): (&[u8], &[u8]) = match IS_JSON.load(Ordering::Relaxed) {
        true => (b"{\"version\":1,\"error\":\"", b" has not answered in time\"}\n"),
        false => (b"", b" has not answered in time.\n"),
    };
    // The report is printed after the last question, so nothing was printed before this.
    let _ = [before, step.to_bytes(), after]
        .into_iter()
        .all(|part| write_all(Stream::Output, part));
    // SAFETY: _exit has no preconditions.
    unsafe { c::_exit(1) }
}
