//! A program that uses a GPU, for tests that suspend it: `fake-cuda-client LIBRARY BYTES`.
//!
//! It fills so many bytes of GPU memory with a pattern and prints `ready PID`. Then it does what it reads, one word on
//! a line, and prints a line for each:
//!
//! | word | it | and prints |
//! |---|---|---|
//! | `call` | launches a kernel and waits for it | `called` |
//! | `check` | compares each byte of the memory | `good`, or `wrong at N` |
//! | `thread` | lets a new thread launch a kernel | `threaded`, when the kernel is done |
//! | `later N` | lets a new thread launch a kernel after N ms | `later` |
//! | `fork` | forks a child that only waits | `forked PID` |
//! | `alloc N` | takes N more bytes | `allocated`, or `error CODE` |
//! | `take N` | makes a context, takes N bytes and fills them | `taken`, or `error CODE` |
//! | `open PATH` | opens a file | `opened`, or `error ERRNO` |
//! | `many N` | waits N times for a stream | the nanoseconds of one call |
//! | `busy` | begins a call that does not end | `busy` |
//! | `end` | ends | |
//!
//! With 0 bytes it only initialises CUDA, and has no context.
#![allow(unsafe_code, missing_docs)]
#![allow(
    clippy::print_stdout,
    clippy::expect_used,
    reason = "a program of tests fails by a panic"
)]

use std::ffi::{CString, c_int, c_uint, c_void};
use std::io::Write;
use std::process::ExitCode;
use std::time::Instant;

/// The loaded library.
#[derive(Clone, Copy)]
struct Cuda(usize);

impl Cuda {
    fn load(path: &str) -> Self {
        let path = CString::new(path).expect("a path");
        // SAFETY: loads the library of this test.
        let handle = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW) };
        assert!(!handle.is_null(), "{path:?} cannot be loaded");
        Self(handle as usize)
    }

    fn symbol(self, name: &str) -> *mut c_void {
        let text = CString::new(name).expect("a name");
        // SAFETY: the library is loaded.
        let symbol = unsafe { libc::dlsym(self.0 as *mut c_void, text.as_ptr()) };
        assert!(!symbol.is_null(), "{name} is missing");
        symbol
    }

    fn launch(self, kernel: usize) -> c_int {
        type Launch = unsafe extern "C" fn(
            *mut c_void,
            c_uint,
            c_uint,
            c_uint,
            c_uint,
            c_uint,
            c_uint,
            c_uint,
            *mut c_void,
            *mut *mut c_void,
            *mut *mut c_void,
        ) -> c_int;
        let null = std::ptr::null_mut();
        // SAFETY: the type is that of the function in cuda.h; without a model, the fake reads no parameter.
        unsafe {
            let launch: Launch = std::mem::transmute(self.symbol("cuLaunchKernel"));
            launch(
                std::ptr::without_provenance_mut(kernel),
                1,
                1,
                1,
                1,
                1,
                1,
                0,
                null,
                null.cast(),
                null.cast(),
            )
        }
    }

    fn wait(self) -> unsafe extern "C" fn(*mut c_void) -> c_int {
        // SAFETY: the type is that of the function in cuda.h.
        unsafe { std::mem::transmute(self.symbol("cuStreamSynchronize")) }
    }

    fn call(self) {
        assert_eq!(self.launch(0), 0);
        // SAFETY: a stream may be null.
        assert_eq!(unsafe { self.wait()(std::ptr::null_mut()) }, 0);
    }

    fn begin(self) {
        let mut context = std::ptr::null_mut::<c_void>();
        // SAFETY: the types are those of the functions in cuda.h.
        unsafe {
            let retain: unsafe extern "C" fn(*mut *mut c_void, c_int) -> c_int =
                std::mem::transmute(self.symbol("cuDevicePrimaryCtxRetain"));
            let current: unsafe extern "C" fn(*mut c_void) -> c_int =
                std::mem::transmute(self.symbol("cuCtxSetCurrent"));
            assert_eq!(retain(&raw mut context, 0), 0);
            assert_eq!(current(context), 0);
        }
    }

    fn allocate(self, bytes: usize) -> Result<u64, c_int> {
        let mut address = 0;
        // SAFETY: the type is that of the function in cuda.h.
        let result = unsafe {
            let allocate: unsafe extern "C" fn(*mut u64, usize) -> c_int =
                std::mem::transmute(self.symbol("cuMemAlloc_v2"));
            allocate(&raw mut address, bytes)
        };
        if result == 0 { Ok(address) } else { Err(result) }
    }

    /// Makes a context, and fills so many bytes.
    fn take(self, bytes: usize) -> Result<u64, c_int> {
        self.begin();
        let address = self.allocate(bytes)?;
        self.write(address, &(0..bytes).map(pattern).collect::<Vec<u8>>());
        Ok(address)
    }

    fn write(self, address: u64, bytes: &[u8]) {
        // SAFETY: the type is that of the function in cuda.h.
        let result = unsafe {
            let copy: unsafe extern "C" fn(u64, *const c_void, usize) -> c_int =
                std::mem::transmute(self.symbol("cuMemcpyHtoD_v2"));
            copy(address, bytes.as_ptr().cast(), bytes.len())
        };
        assert_eq!(result, 0);
    }

    fn read(self, address: u64, bytes: usize) -> Vec<u8> {
        let mut read = vec![0_u8; bytes];
        // SAFETY: the type is that of the function in cuda.h.
        let result = unsafe {
            let copy: unsafe extern "C" fn(*mut c_void, u64, usize) -> c_int =
                std::mem::transmute(self.symbol("cuMemcpyDtoH_v2"));
            copy(read.as_mut_ptr().cast(), address, bytes)
        };
        assert_eq!(result, 0);
        read
    }
}

/// What byte `at` is.
fn pattern(at: usize) -> u8 {
    (at.wrapping_mul(2_654_435_761) >> 13) as u8 ^ at as u8
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [library, bytes] = arguments.as_slice() else {
        return ExitCode::from(2);
    };
    let cuda = Cuda::load(library);
    // SAFETY: the type is that of the function in cuda.h.
    let init: unsafe extern "C" fn(c_uint) -> c_int = unsafe { std::mem::transmute(cuda.symbol("cuInit")) };
    // SAFETY: a call on a number.
    assert_eq!(unsafe { init(0) }, 0);
    let mut bytes: usize = bytes.parse().expect("a number");
    let mut address = 0;
    if bytes > 0 {
        address = match cuda.take(bytes) {
            Ok(address) => address,
            Err(code) => {
                say(&format!("error {code}"));
                return ExitCode::FAILURE;
            }
        };
    }
    say(&format!("ready {}", std::process::id()));
    for line in std::io::stdin().lines().map_while(Result::ok) {
        let (word, rest) = line.split_once(' ').unwrap_or((&line, ""));
        match word {
            "call" => {
                cuda.call();
                say("called");
            }
            "check" => {
                let read = cuda.read(address, bytes);
                let wrong = read.iter().enumerate().find(|(at, byte)| **byte != pattern(*at));
                say(&wrong.map_or("good".to_owned(), |(at, _)| format!("wrong at {at}")));
            }
            "thread" => {
                std::thread::spawn(move || cuda.call()).join().expect("the thread");
                say("threaded");
            }
            "later" => {
                let after = std::time::Duration::from_millis(rest.parse().expect("a number"));
                std::thread::spawn(move || {
                    std::thread::sleep(after);
                    cuda.call();
                });
                say("later");
            }
            "fork" => say(&format!("forked {}", fork())),
            "take" => {
                bytes = rest.parse().expect("a number");
                let taken = cuda.take(bytes);
                address = taken.unwrap_or_default();
                say(&taken.map_or_else(|code| format!("error {code}"), |_| "taken".to_owned()));
            }
            "alloc" => say(&match cuda.allocate(rest.parse().expect("a number")) {
                Ok(_) => "allocated".to_owned(),
                Err(code) => format!("error {code}"),
            }),
            "open" => say(&match std::fs::File::open(rest) {
                Ok(_) => "opened".to_owned(),
                Err(e) => format!("error {}", e.raw_os_error().unwrap_or(0)),
            }),
            "busy" => {
                std::thread::spawn(move || cuda.launch(usize::MAX));
                // Until the call has begun.
                std::thread::sleep(std::time::Duration::from_millis(100));
                say("busy");
            }
            "many" => {
                let (count, wait) = (rest.parse::<u32>().expect("a number"), cuda.wait());
                let began = Instant::now();
                for _ in 0..count {
                    // SAFETY: a stream may be null.
                    unsafe { wait(std::ptr::null_mut()) };
                }
                say(&format!("{}", began.elapsed().as_nanos() / u128::from(count)));
            }
            _ => break,
        }
    }
    ExitCode::SUCCESS
}

fn say(line: &str) {
    let mut out = std::io::stdout().lock();
    let _ = writeln!(out, "{line}").and_then(|()| out.flush());
}

fn fork() -> i32 {
    // SAFETY: the child calls only what is safe in a signal handler.
    match unsafe { libc::fork() } {
        0 => loop {
            // SAFETY: takes nothing.
            unsafe { libc::pause() };
        },
        child => child,
    }
}
