//! How an answer reaches the caller: through the caller's pointers.

use crate::config::Strings;
use crate::state::{Answer, Call, INVALID};
use nvml_wrapper_sys::bindings::*;
use std::ffi::{c_char, c_uint};

/// Declares functions of the library, each with the checks of [`crate::state::call`] before its body.
macro_rules! nvml {
    ($(fn $name:ident($($arg:ident: $ty:ty),* $(,)?) |$call:ident| $body:block)*) => {$(
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($arg: $ty),*) -> nvml_wrapper_sys::bindings::nvmlReturn_t {
            crate::state::call(stringify!($name), |$call| $body)
        }
    )*};
}
pub(crate) use nvml;

/// Writes one value for the caller.
pub(crate) fn put<T>(to: *mut T, value: T) -> Answer {
    if to.is_null() {
        return Err(INVALID);
    }
    // SAFETY: NVML's contract: a pointer that is not null points to room for the answer.
    unsafe { to.write(value) };
    Ok(())
}

/// Writes a string into the caller's buffer, or the fault that the configuration has for strings.
pub(crate) fn put_string(call: Call, to: *mut c_char, room: c_uint, text: &str) -> Answer {
    if to.is_null() {
        return Err(INVALID);
    }
    let room = room as usize;
    let bytes: Vec<u8> = match call.world.config.faults.strings {
        Strings::Good | Strings::UnterminatedAddress if text.len() >= room => {
            return Err(nvmlReturn_enum_NVML_ERROR_INSUFFICIENT_SIZE);
        }
        Strings::Good | Strings::UnterminatedAddress => text.bytes().chain([0]).collect(),
        Strings::Unterminated => text.bytes().chain(std::iter::repeat(b'x')).take(room).collect(),
        Strings::Garbage => (0..room)
            .map(|i| if i + 1 == room { 0 } else { 0xff - (i % 64) as u8 })
            .collect(),
    };
    // SAFETY: NVML's contract: the buffer has `room` bytes, and `bytes` has no more.
    unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), to.cast::<u8>(), bytes.len()) };
    Ok(())
}

/// A string as the array of a structure. A string that does not fit is cut.
pub(crate) fn fixed<const N: usize>(text: &str) -> [c_char; N] {
    let mut array = [0; N];
    for (to, from) in array.iter_mut().take(N - 1).zip(text.bytes()) {
        *to = from as c_char;
    }
    array
}

/// Checks that the caller has set the version of a structure, as NVML requires.
///
/// # Safety
/// `to` is null or points to a structure of type `T`, the first field of which is its version.
pub(crate) unsafe fn version<T>(to: *const T, number: u32) -> Answer {
    if to.is_null() {
        return Err(INVALID);
    }
    let expected = size_of::<T>() as u32 | number << 24;
    // SAFETY: by this function's contract the first field is a u32.
    if unsafe { to.cast::<u32>().read() } == expected {
        Ok(())
    } else {
        Err(nvmlReturn_enum_NVML_ERROR_ARGUMENT_VERSION_MISMATCH)
    }
}
