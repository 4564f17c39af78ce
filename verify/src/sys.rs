//! The only `unsafe` code of the programs: their beginning, the C library, and CUDA's library.

pub mod clock;
pub mod cuda;
pub mod deadline;
pub mod input;
pub mod records;
pub mod socket;

use core::ffi::{CStr, c_char, c_int, c_long, c_uint, c_void};

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
        pub(super) fn mmap(
            address: *mut c_void,
            size: usize,
            protection: c_int,
            flags: c_int,
            descriptor: c_int,
            offset: i64,
        ) -> *mut c_void;
        pub(super) fn poll(descriptors: *mut c_void, count: usize, milliseconds: c_int) -> c_int;
        pub(super) fn read(descriptor: c_int, bytes: *mut u8, count: usize) -> isize;
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
        pub(super) fn syscall(number: c_long, ...) -> c_long;
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
    run(arguments, environment)
}

unsafe extern "Rust" {
    /// What [`program!`](crate::program) defines.
    #[link_name = "tranche_run"]
    safe fn run(arguments: Strings, environment: Strings) -> c_int;
}

/// Makes a function the program: it takes the arguments and the environment, and returns the exit code.
#[macro_export]
macro_rules! program {
    ($run:path) => {
        const _: () = {
            #[unsafe(export_name = "tranche_run")]
            fn program(arguments: $crate::sys::Strings, environment: $crate::sys::Strings) -> i32 {
                $run(arguments, environment)
            }
        };
    };
}

#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    // SAFETY: abort has no preconditions.
    unsafe { c::abort() }
}

/// Strings of the program's start: its arguments, or its environment.
#[derive(Clone, Copy)]
pub struct Strings(*const *const c_char);

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
pub enum Stream {
    /// Standard output.
    Output = 1,
    /// Standard error.
    Error = 2,
}

/// Writes all of `bytes`. Returns false if that failed.
pub fn write_all(stream: Stream, mut bytes: &[u8]) -> bool {
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
pub fn uid() -> u32 {
    // SAFETY: getuid has no preconditions.
    unsafe { c::getuid() }
}

/// Removes the program's own file. Returns false if that failed.
pub fn remove_own_file() -> bool {
    let mut path = [0_u8; 4096];
    // SAFETY: the buffer is one byte longer than what may be written, and the path is a C string.
    let length = unsafe { c::readlink(c"/proc/self/exe".as_ptr(), path.as_mut_ptr(), path.len() - 1) };
    // SAFETY: readlink wrote a path into the buffer, and the byte after it is still 0.
    length > 0 && unsafe { c::unlink(path.as_ptr().cast()) } == 0
}
