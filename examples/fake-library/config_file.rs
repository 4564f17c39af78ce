//! Where a fake library finds the file with its answers.

use std::ffi::{CStr, OsStr, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// The file that `variable` names, else `beside` in the directory of the library, else `above` in that directory or the
/// nearest one above it. `None` if no such file exists.
pub(crate) fn find(variable: &str, beside: &str, above: &str) -> Option<PathBuf> {
    if let Some(path) = std::env::var_os(variable) {
        return Some(path.into());
    }
    let library = own_path()?;
    let directory = library.parent()?;
    let beside = directory.join(beside);
    if beside.is_file() {
        return Some(beside);
    }
    directory
        .ancestors()
        .map(|directory| directory.join(above))
        .find(|file| file.is_file())
}

/// The file that this library was loaded from.
fn own_path() -> Option<PathBuf> {
    let mut info = std::mem::MaybeUninit::<libc::Dl_info>::zeroed();
    let here: fn() -> Option<PathBuf> = own_path;
    // SAFETY: dladdr takes any address and fills the structure, which is read only if dladdr succeeded.
    let info = unsafe {
        if libc::dladdr(here as *const c_void, info.as_mut_ptr()) == 0 {
            return None;
        }
        info.assume_init()
    };
    if info.dli_fname.is_null() {
        return None;
    }
    // SAFETY: dladdr succeeded, so the name is a C string that lives as long as the library is loaded.
    let name = unsafe { CStr::from_ptr(info.dli_fname) };
    std::path::absolute(Path::new(OsStr::from_bytes(name.to_bytes()))).ok()
}
